"""
Makes a release in a folder, then publishes it.

What comes in: a checked source, a registry, a signer or none. What goes out: the folder, what is in the registry, a
line per part.

The rule: nothing is published before all is built. What people look for by name, the version of chart and image, comes
last.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.release import files, notes, provenance, sbom
from tools.release.images import PLATFORMS, Store
from tools.release.layout import Layout
from tools.release.programs import ReleaseError, said
from tools.release.registry import Registry
from tools.release.signing import Signer
from tools.release.source import Source, repository

LOCKS = ("requirements.lock",)


@dataclass(frozen=True, slots=True)
class Making:
    """One release. `url`: of the repository; `builder`, `invocation`: as the provenance names them.

    `work` is a fresh folder. `store`: buildah's storage; an empty one takes Debian's packages of the day.
    """

    source: Source
    registry: Registry
    signer: Signer | None
    folder: Path
    work: Path
    store: Store
    say: Callable[[str], None]
    url: str = ""
    builder: str = ""
    invocation: str = ""

    def make(self) -> None:
        """Build all, publish it, and write what is known only then. Raises ReleaseError."""
        try:
            self._make()
        finally:
            with suppress(ReleaseError):  # none of them, or not all, are there
                self.store.buildah("rmi", "--force", self._list, *map(self._built, PLATFORMS))

    def _make(self) -> None:
        layout = self._images()
        image = f"{self.registry.image}@{layout.digest}"
        chart = self._files(layout)
        self._push_image(layout)
        published = self._push_chart(chart)
        self._write_notes(layout, image, published)
        self._tag(layout)

    def _images(self) -> Layout:
        self.store.buildah("manifest", "create", self._list)
        for target in PLATFORMS:
            name = self._built(target)
            labels = {"VERSION": self.source.version, "REVISION": self.source.revision, "SOURCE": self.url}
            self.store.image(self.source.root, target, name, **labels)
            self.store.buildah("manifest", "add", self._list, name)
        layout = Layout(self.work / "image")
        self.store.buildah("manifest", "push", "--all", self._list, f"oci:{layout.folder}")
        for target, digest in layout.platforms.items():
            self.say(f"image {target}: {digest}")
        return layout

    def _files(self, layout: Layout) -> Path:
        version, date = self.source.version, self.source.date
        self._say_file(files.wheel(self.source, self.folder))
        parts = {
            "deploy": files.deploy(self.source, self.registry.name, layout.digest),
            "rules": files.rules(self.source),
            "dashboards": files.dashboards(self.source),
        }
        for name, content in parts.items():
            self._say_file(files.pack(content, date, self.folder / f"gpusteward-{version}-{name}.tar.gz"))
        for target, digest in layout.platforms.items():
            sbom.python(layout, digest, date, self._sbom("python", target))
            sbom.debian(layout, target, date, self._sbom("debian", target))
            self._say_file(self._sbom("python", target))
            self._say_file(self._sbom("debian", target))
        statement = provenance.predicate(
            version=version,
            registry=self.registry.name,
            revision=self.source.revision,
            url=self.url,
            packages={name: files.digest(self.source.root / name) for name in LOCKS},
            builder=self.builder,
            run=self.invocation,
        )
        self._provenance.write_text(json.dumps(statement, indent=2) + "\n")
        self._say_file(self._provenance)
        packed = files.chart(self.source, self.registry.name, layout.digest, self.folder)
        self._say_file(packed)
        return packed

    def _push_image(self, layout: Layout) -> None:
        # A registry keeps only what has a name: that of the commit, until all else is there.
        self._push(f"git-{self.source.revision[:12]}", layout)
        if self.signer:
            name = f"{self.registry.image}@{layout.digest}"
            self.signer.sign(name)
            self.signer.attest(name, "slsaprovenance1", self._provenance)
            for target, digest in layout.platforms.items():
                for kind in ("python", "debian"):
                    self.signer.attest(f"{self.registry.image}@{digest}", "cyclonedx", self._sbom(kind, target))
            self.say(f"signed: image, its provenance and lists of packages ({name})")

    def _push_chart(self, packed: Path) -> str:
        plain = ["--plain-http"] if self.registry.plain else []
        printed = said("helm", "push", *plain, packed, f"oci://{self.registry.charts}")
        if (found := re.search(r"^Digest: (sha256:\w+)$", printed, re.MULTILINE)) is None:
            raise ReleaseError(f"helm push named no digest:\n{printed}")
        name = f"{self.registry.chart}@{found[1]}"
        self.say(f"pushed: chart {name}")
        if self.signer:
            self.signer.sign(name)
            self.signer.attest(name, "slsaprovenance1", self._provenance)
            self.say("signed: chart and its provenance")
        return name

    def _write_notes(self, layout: Layout, image: str, chart: str) -> None:
        text = notes.text(
            version=self.source.version,
            changes=self.source.notes,
            image=image,
            platforms=layout.platforms,
            chart=chart,
            url=self.url or repository(self.source.root),
            signed=self.signer is not None,
        )
        written = self.folder / "NOTES.md"
        written.write_text(text)
        self._say_file(written)
        if self.signer:
            self.signer.public_key(self.folder / "cosign.pub")
        sums = files.checksums(self.folder)
        self._say_file(sums)
        if self.signer:
            self._say_file(self.signer.sign_file(sums))

    def _tag(self, layout: Layout) -> None:
        self._push(self.source.version, layout)

    def _push(self, tag: str, layout: Layout) -> None:
        told = self.work / "digest"
        plain = ["--tls-verify=false"] if self.registry.plain else []
        name = f"{self.registry.image}:{tag}"
        self.store.buildah("manifest", "push", "--all", *plain, f"--digestfile={told}", self._list, f"docker://{name}")
        if told.read_text() != layout.digest:
            raise ReleaseError(f"{name} has the digest {told.read_text()} instead of {layout.digest}.")
        self.say(f"pushed: image {name}")

    @property
    def _name(self) -> str:
        return hashlib.sha256(str(self.work).encode()).hexdigest()[:16]  # a name of its own in a storage of others

    @property
    def _list(self) -> str:
        return f"localhost/{self._name}"

    def _built(self, target: str) -> str:
        return f"localhost/{self._name}-{target}"

    @property
    def _provenance(self) -> Path:
        return self.folder / f"gpusteward-{self.source.version}-provenance.json"

    def _sbom(self, kind: str, target: str) -> Path:
        return self.folder / f"gpusteward-{self.source.version}-sbom-{kind}-{target}.cdx.json"

    def _say_file(self, file: Path) -> None:
        self.say(f"file: {file.name} ({file.stat().st_size} bytes)")
