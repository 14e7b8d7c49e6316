"""
The two records of the kernel about one task that matter here.

What comes in: the text of `/proc/<pid>/stat` or `status`. What goes out: numbers, or `ValueError` when the text is not
what a kernel writes.

The law: the name of a process is its own choice ("x) Z 1", line breaks, any bytes) and decides nothing.
"""

import re
from dataclasses import dataclass

PF_EXITING = 0x4
"""Flag of a task that is on its way out: it may still hold devices, and on cgroup v1 its cgroup reads `/`."""

_TGID = re.compile(r"\nTgid:[ \t]*([0-9]+)(?:\n|$)")
_DEAD = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Stat:
    """What `stat` says of a task: one letter, the task's flags, threads of its process, clock ticks since boot."""

    state: str
    exiting: bool
    threads: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """Say whether the process lives: the leader does, or it is a zombie whose other threads go on."""
        return self.state not in _DEAD or self.threads > 1


def parse_stat(text: str) -> Stat:
    """Parse `stat`: fields 3 (state), 9 (flags), 20 (num_threads) and 22 (starttime) of proc_pid_stat(5)."""
    # The name, field 2, stands in brackets and may hold any number of them: all else comes after the last one.
    fields = text.rpartition(")")[2].split(None, 20)
    try:
        state, flags, threads, start = fields[0], int(fields[6]), int(fields[17]), int(fields[19])
    except IndexError:
        raise ValueError("stat has fewer than 22 fields") from None
    return Stat(state, bool(flags & PF_EXITING), threads, start)


def parse_tgid(text: str) -> int:
    r"""Parse the process of a task out of `status`. The kernel escapes "\n" in the line `Name`, and hardly more."""
    match = _TGID.search(text)
    if match is None:
        raise ValueError("status has no Tgid")
    return int(match[1])
