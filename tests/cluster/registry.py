"""
A real registry on the loopback (distribution's), over plain HTTP.

In: a folder. Out: its address, and what it holds, as any client sees it. Law: it marks its process as one
of the bed's, so that what a killed run leaves is removed with the bed.
"""

from __future__ import annotations

import json
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from cluster import build
from cluster.bed import Bed
from cluster.processes import Processes, free_port, listens
from patience import PATIENCE

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True, slots=True)
class Loopback:
    """A running registry."""

    address: str

    def manifest(self, repository: str, reference: str) -> Any:
        """The manifest of a tag or digest."""
        return json.loads(self._get(repository, f"manifests/{reference}"))

    def tags(self, repository: str) -> set[str]:
        """All tags; none where there is no such repository."""
        try:
            return set(json.loads(self._get(repository, "tags/list"))["tags"])
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return set()

    def unpack(self, repository: str, digest: str, to: Path) -> None:
        """Write the files of one platform's image into a folder."""
        for layer in self.manifest(repository, digest)["layers"]:
            packed = to.with_suffix(".layer")
            packed.write_bytes(self._get(repository, f"blobs/{layer['digest']}"))
            with tarfile.open(packed) as archive:
                archive.extractall(to, filter="tar")
            packed.unlink()

    def _get(self, repository: str, path: str) -> bytes:
        request = urllib.request.Request(f"http://{self.address}/v2/{repository}/{path}")
        request.add_header("Accept", f"{INDEX}, {MANIFEST}")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return bytes(answer.read())


@contextmanager
def registry(bed: Bed, folder: Path) -> Iterator[Loopback]:
    """A registry of which the bed's node knows that it has no TLS."""
    port = free_port()
    config = folder / "registry.json"
    storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
    config.write_text(json.dumps({"version": "0.1", "storage": storage, "http": {"addr": f"127.0.0.1:{port}"}}))
    processes = Processes(folder, bed.token)
    try:
        command = [build.program("registry"), "serve", config]
        quiet = {"OTEL_TRACES_EXPORTER": "none"}
        processes.start("registry", command, lambda: listens(port), environment=quiet)
        found = Loopback(f"127.0.0.1:{port}")
        assert bed.node.containerd is not None
        hosts = bed.node.containerd.registries / found.address / "hosts.toml"
        hosts.parent.mkdir(parents=True)
        hosts.write_text(f'server = "http://{found.address}"\n')
        yield found
    finally:
        processes.stop()
