"""Images made of local files, as bytes; needs neither root nor containerd."""

from __future__ import annotations

import os
from pathlib import Path

from containers.images import build_image


def test_the_same_files_give_the_same_image(tmp_path: Path) -> None:
    """Time stamps, modes, folders and the order of arguments do not get into an image; content does."""
    one, two = tmp_path / "one", tmp_path / "elsewhere" / "two"
    two.parent.mkdir()
    for file in (one, two):
        file.write_bytes(b"#!/bin/sh\n")
    os.utime(two, (1, 1))
    two.chmod(0o700)

    def build(name: str, files: dict[str, Path]) -> bytes:
        return build_image(tmp_path / name, name="gpusteward.test/x:1", files=files, entrypoint=["/bin/a"]).read_bytes()

    first = build("1.tar", {"bin/a": one, "opt/x/b": one})
    assert build("2.tar", {"opt/x/b": two, "bin/a": two}) == first
    two.write_bytes(b"#!/bin/sh\necho\n")
    assert build("3.tar", {"opt/x/b": two, "bin/a": one}) != first
