"""
Reads an image in a folder of OCI's image layout.

What comes in: the folder. What goes out: digests by platform, and files of an image.

The rule: read only; the topmost layer's file counts.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Layout:
    """A folder with one image for several platforms."""

    folder: Path

    @property
    def digest(self) -> str:
        """Of the image, whatever the platform."""
        (one,) = json.loads((self.folder / "index.json").read_text())["manifests"]
        return str(one["digest"])

    @property
    def platforms(self) -> dict[str, str]:
        """Platform, as OCI names it -> digest of its image."""
        return {one["platform"]["architecture"]: str(one["digest"]) for one in self.json(self.digest)["manifests"]}

    def json(self, digest: str) -> Any:
        """Read a document of the image."""
        return json.loads(self.blob(digest).read_text())

    def blob(self, digest: str) -> Path:
        """Return the file of this digest."""
        return self.folder / "blobs" / digest.replace(":", "/")

    def files(self, digest: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """Read the regular files of one platform's image: path -> content; paths as `opt/gpusteward/…`."""
        found = {}
        for layer in self.json(digest)["layers"]:
            with tarfile.open(self.blob(layer["digest"])) as archive:
                for member in archive:
                    path = member.name.removeprefix("./")
                    if member.isfile() and wanted(path) and (file := archive.extractfile(member)):
                        found[path] = file.read()
        return found
