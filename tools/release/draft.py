"""
The folder in which a release is made, beside the one that it becomes.

What comes in: dist/VERSION. What goes out: an empty folder for the time of the work.

The rule: one release at a time; what a killed run left is removed by the next one; dist/VERSION appears as a whole,
readable for all.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.release.programs import ReleaseError

UNFINISHED = "unfinished-"


@contextmanager
def draft(folder: Path) -> Iterator[Path]:
    """Lend a folder for the work. What `files` in it has at the end becomes `folder`. Raises ReleaseError."""
    folder.parent.mkdir(exist_ok=True)
    dist = os.open(folder.parent, os.O_RDONLY)
    try:
        _lock(dist, folder.parent)
        for left in folder.parent.glob(f"{UNFINISHED}*"):
            shutil.rmtree(left)
        # On the same file system as the result, and gone if anything fails.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=UNFINISHED) as work:
            files = Path(work, "files")
            files.mkdir()
            yield Path(work)
            for file in files.iterdir():
                file.chmod(0o644)  # cosign makes signature and key readable for their owner alone
            files.rename(folder)
    finally:
        os.close(dist)


def _lock(dist: int, where: Path) -> None:
    try:
        fcntl.flock(dist, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ReleaseError(f"Another release is being made in {where}.\nfix: wait for its end.") from error
