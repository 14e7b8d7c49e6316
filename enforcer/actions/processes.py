"""
The processes of this node with their cgroups, as /proc lists them.

What comes in: a mounted /proc. What goes out: numbers of processes, each with its text of `/proc/<pid>/cgroup`.

The rule: these are hints, because the kernel may reuse a number between two files. It takes some 25 microseconds per
process.
"""

import os
from collections.abc import Iterator
from pathlib import Path

VANISHED = (FileNotFoundError, ProcessLookupError)
"""The errors of reading a process that has ended."""
_CHUNK = 16384


def cgroups(root: Path) -> Iterator[tuple[int, str | None]]:
    """Yield each process with the text of its cgroups, None where that cannot be read. Raises OSError without /proc."""
    for name in os.listdir(root):  # noqa: PTH208  (a third of the time)
        if name.isdecimal():
            try:
                yield int(name), read(f"{root}/{name}/cgroup")
            except VANISHED:
                continue
            except OSError:
                yield int(name), None


def read(path: str) -> str:
    """Read a file of /proc, whose size the kernel does not report. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while chunk := os.read(file, _CHUNK):
            text += chunk
    finally:
        os.close(file)
    return text.decode("utf-8", "surrogateescape")
