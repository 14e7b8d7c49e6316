"""
Two of the kernel's texts about one task.

What comes in: the text of `/proc/<pid>/stat` or `status`. What goes out: numbers, or `ValueError` when the text is not
the kernel's format.

The rule: a process chooses its own name ("x) Z 1", line breaks, any bytes), so the name decides nothing.
"""

import re
from dataclasses import dataclass

PF_EXITING = 0x4
"""Flag of a task that exits: it may still hold devices, and on cgroup v1 its cgroup reads `/`."""

_TGID = re.compile(r"\nTgid:[ \t]*([0-9]+)(?:\n|$)")
_DEAD = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of `stat`: state letter, exit flag, threads of the process, start in clock ticks since boot."""

    state: str
    exiting: bool
    threads: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """Whether the process lives: its leader does, or the leader is a zombie while other threads go on."""
        return self.state not in _DEAD or self.threads > 1


def parse_stat(text: str) -> Stat:
    """Parse `stat`: fields 3 (state), 9 (flags), 20 (num_threads) and 22 (starttime) of proc_pid_stat(5)."""
    # The name, field 2, is in brackets and may contain brackets: the other fields follow the last one.
    fields = text.rpartition(")")[2].split(None, 20)
    try:
        state, flags, threads, start = fields[0], int(fields[6]), int(fields[17]), int(fields[19])
    except IndexError:
        raise ValueError("stat has fewer than 22 fields") from None
    return Stat(state, bool(flags & PF_EXITING), threads, start)


def parse_tgid(text: str) -> int:
    r"""
    Parse the PID of a task's process out of `status`.

    In the line `Name` the kernel escapes "\n", and hardly more.
    """
    match = _TGID.search(text)
    if match is None:
        raise ValueError("status has no Tgid")
    return int(match[1])
