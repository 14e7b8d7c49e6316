"""
One look at a daemon from outside: what it holds of the machine, after so many rounds.

What comes in: a pid, the folder of its saved files, and how far the day is. What goes out: a `Reading`, and a file of
readings that is complete up to its last line. The rule: the kernel counts, the daemon is not asked.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from bench.usage import memory

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the day is: rounds of the daemon, seconds, pods that began, and evictions that had their effect."""

    round: int = 0
    seconds: float = 0.0
    pods: int = 0
    evictions: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """
    A daemon at one moment; sizes in bytes.

    Attributes:
        rss: resident memory; `anonymous`: the part of it that no file backs.
        descriptors: open ones. Pipes, sockets and files count alike.
        journal: the journal and its predecessors.
        saved: all other files that the daemon wrote beside it.

    """

    round: int
    seconds: float
    pods: int
    evictions: int
    rss: int
    anonymous: int
    descriptors: int
    threads: int
    journal: int
    saved: int


def read(pid: int, folder: Path, progress: Progress) -> Reading:
    """Look at a process, and at the files in its folder. Raises OSError if the process has ended."""
    used = memory(pid)
    sizes = {file.name: size for file in folder.iterdir() if (size := _size(file)) is not None}
    journal = sum(size for name, size in sizes.items() if name.startswith("journal") and "lock" not in name)
    return Reading(
        **asdict(progress),
        rss=round(used.rss * MIB),
        anonymous=round(used.anonymous * MIB),
        descriptors=sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        threads=sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()),
        journal=journal,
        saved=sum(sizes.values()) - journal,
    )


def _size(file: Path) -> int | None:
    """Return the size of a file; None for one that was replaced meanwhile."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


class Written:
    """A file of readings, written line by line: what was read before a crash is there."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", newline="")
        self._rows = csv.DictWriter(self._file, [field.name for field in fields(Reading)])
        self._rows.writeheader()

    def add(self, reading: Reading) -> None:
        """Write one reading."""
        self._rows.writerow(asdict(reading))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def readings(path: Path) -> Iterator[Reading]:
    """Read a file of readings again."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            counts = {name: int(text) for name, text in row.items() if name != "seconds"}
            yield Reading(seconds=float(row["seconds"]), **counts)
