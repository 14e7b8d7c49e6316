"""
The daemon's image for a platform, made of deploy/Dockerfile by buildah on two bases of Debian's packages; no Docker.

What comes in: a source tree, a folder for buildah's storage. What goes out: images in that storage, by name.

The rule: the same sources, packages and date give the same image, byte by byte. No program of a foreign platform is
run. Of this machine only the trust and pip's settings are used, in the base that is built on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.release.programs import run

SUITE = "trixie"
PLATFORMS = {"amd64": "x86_64", "arm64": "aarch64"}
"""What OCI and Debian call a platform -> what the kernel calls it."""
TO_BUILD = ("--variant=minbase", "--include=python3,python3-venv,ca-certificates,binutils-multiarch")
"""binutils strips symbols of all platforms, without running a program of theirs."""
TO_RUN = (
    "--variant=extract",  # packages as they are, nothing is configured: no shell, no package manager is wanted
    "--include=base-files,libc6,libgcc-s1,libstdc++6,libexpat1,libssl3t64,zlib1g,libpython3.13-stdlib,python3-minimal",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    f"--extract-hook={Path(__file__).with_name('slim.sh').read_text()}",
)
OF_THE_MACHINE = (Path("/etc/pip.conf"), Path("/etc/ssl/certs/ca-certificates.crt"))


def native() -> str:
    """Name the platform of this machine as Debian does."""
    machine = platform.machine()
    return next((name for name, kernel in PLATFORMS.items() if kernel == machine), machine)


@dataclass(frozen=True, slots=True)
class Store:
    """Buildah's storage in a folder; the bases in it are used again. `date`: of all files, in seconds since 1970."""

    folder: Path
    date: int

    def buildah(self, *words: str | Path) -> str:
        """Run buildah on this storage. Raises ReleaseError."""
        # "vfs" copies where overlays cannot be mounted, as in most containers.
        storage = (f"--root={self.folder / 'storage'}", f"--runroot={self.folder / 'run'}", "--storage-driver=vfs")
        return run("buildah", *storage, *words)

    def image(self, source: Path, target: str, name: str, **arguments: str) -> None:
        """Build the image of a source tree for the platform `target`. Raises ReleaseError."""
        bases = {"BASE": self.base(TO_BUILD, native()), "RUNTIME": self.base(TO_RUN, target)}
        given = {"BUILDPLATFORM": f"linux/{native()}", **bases, **arguments}
        flags = [f"--build-arg={key}={value}" for key, value in given.items()]
        self._bud(target, name, *flags, f"--file={source / 'deploy/Dockerfile'}", source)

    def base(self, words: tuple[str, ...], target: str) -> str:
        """Name of the image of these packages, made by mmdebstrap if it is not there. Raises ReleaseError."""
        key = hashlib.sha256(repr((SUITE, words, target, words is TO_RUN and self.date)).encode())
        lent = [path for path in OF_THE_MACHINE if path.exists()] if words is TO_BUILD else []
        for path in lent:
            key.update(path.read_bytes())
        name = f"localhost/base:{key.hexdigest()[:16]}"
        if self.buildah("images", "--quiet", "--filter", f"reference={name}"):
            return name
        with tempfile.TemporaryDirectory(dir=self.folder) as context:
            tar = Path(context, "base.tar")
            dated = {"SOURCE_DATE_EPOCH": str(self.date)}
            run("mmdebstrap", "--quiet", f"--architectures={target}", *words, SUITE, tar, env=dated)
            lines = ["FROM scratch", "ADD base.tar /"]
            for path in lent:
                shutil.copy(path, context)
                lines.append(f"COPY {path.name} {path}")
            Path(context, "Dockerfile").write_text("\n".join(lines))
            self._bud(target, name, Path(context))
        return name

    def _bud(self, target: str, name: str, *words: str | Path) -> None:
        same = (f"--timestamp={self.date}", "--identity-label=false")
        self.buildah("bud", "--isolation=chroot", f"--platform=linux/{target}", *same, f"--tag={name}", *words)


def missing() -> list[str]:
    """List what keeps an image from being built here."""
    found = [f"{name} is missing" for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    return found if os.geteuid() == 0 else [*found, "root is needed to build an image"]
