"""
What a process uses, read from /proc. In: its pid. Out: seconds and megabytes (of 2^20 bytes). Law: nothing is sampled;
the kernel counts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Memory:
    """`rss` resident, `anonymous` the part of it that no file backs, `peak` the most that was ever resident."""

    rss: float
    anonymous: float
    peak: float


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads (fields 14 and 15 of /proc/<pid>/stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int) -> Memory:
    """VmRSS, RssAnon and VmHWM of /proc/<pid>/status."""
    lines = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    kib = {name: int(value.split()[0]) for name, _, value in lines if name in {"VmRSS", "RssAnon", "VmHWM"}}
    return Memory(kib["VmRSS"] / 1024, kib["RssAnon"] / 1024, kib["VmHWM"] / 1024)
