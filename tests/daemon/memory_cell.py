"""
A cgroup with little memory, as a pod's limit makes it.

What comes in: bytes. What goes out: a folder for a daemon to enter, and whether the kernel had to end a process in it.
Law: where this user may make no cgroup there is none, and the caller's bound on the process's own memory stays.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from containers.cgroupfs import hierarchies, remove

_serial = itertools.count()
LIMITS = ("memory.limit_in_bytes", "memory.max")
"""The file that takes the limit: cgroup v1, cgroup v2."""
EVENTS = ("memory.oom_control", "memory.events")
"""The file that counts the ends, in the same order."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cgroup with a limit; `folders` is empty where none could be made."""

    folders: tuple[Path, ...]

    def ended(self) -> int:
        """Count the processes that the kernel ended for want of memory."""
        files = [folder / name for folder in self.folders for name in EVENTS if (folder / name).exists()]
        return sum(
            int(found) for file in files for found in re.findall(r"^oom_kill (\d+)", file.read_text(), re.MULTILINE)
        )


@contextmanager
def memory_cell(limit: int) -> Iterator[Cell]:
    """Make a cgroup of so many bytes, and remove it with all that is left in it."""
    made: list[Path] = []
    for root in hierarchies().all:
        folder = root / f"gpusteward-cell-{os.getpid()}-{next(_serial)}"
        try:
            folder.mkdir()
        except OSError:
            continue
        limits = [folder / name for name in LIMITS if (folder / name).exists()]
        if not limits:
            folder.rmdir()
            continue
        limits[0].write_text(str(limit))
        made.append(folder)
        break
    try:
        yield Cell(tuple(made))
    finally:
        for folder in made:
            remove(folder)


def anonymous(pid: int) -> int:
    """Return the bytes of a process that no file backs: what the kernel cannot take back."""
    found = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
