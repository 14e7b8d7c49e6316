"""
Processes that were read before: an unchanged one costs one file, not three.

What comes in: PIDs, and what `/proc` said of their processes. What goes out: the same answer again, once `stat` has
confirmed that the process is still the same one.

The rule: a process is the same if its PID and start time are. Its cgroup is then taken from memory, for a minute at
most. In the first seconds of a process it is read each time, because runtimes move it right after its start. `stat`
costs 8 microseconds, a whole look 45 (v6.18, 1,000 processes). A zombie, a process that exits, and the PID of a thread
are not remembered.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from exporter.host.stat import parse_stat
from exporter.model import HostProcess

YOUNG = 10.0
"""Seconds after its start in which a process is read anew each time."""
KEPT = 60.0
"""Seconds for which a cgroup is believed at most; half of them vary with the PID, so that few are due at once."""
SPARE = 1024
"""Processes that are remembered beyond those that were asked for last."""

_ENOUGH = 4096
"""Bytes: the name has 64 at most, and the 50 numbers after it 20 digits each."""
_TICKS = os.sysconf("SC_CLK_TCK")


def boot_time() -> float:
    """Return the seconds since boot, the clock of a process's start time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _Known:
    path: str
    process: HostProcess
    until: float


class Remembered:
    """Remembers processes by PID; one task at a time. `clock` returns the seconds since boot."""

    def __init__(self, root: Path, clock: Callable[[], float] = boot_time) -> None:
        self._root = root
        self._clock = clock
        self._known: dict[int, _Known] = {}

    def again(self, pid: int) -> HostProcess | None:
        """Return a process that is confirmed to be unchanged; None if it has to be read."""
        known = self._known.get(pid)
        if known is None or self._clock() >= known.until:
            return None
        try:
            file = os.open(known.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                text = os.read(file, _ENOUGH)
            finally:
                os.close(file)
            stat = parse_stat(text.decode("latin-1"))
        except (OSError, ValueError):
            return None  # the whole look says what it is
        same = stat.start_ticks == known.process.key.start_ticks and stat.alive and not stat.exiting
        return known.process if same else None

    def learn(self, pid: int, process: HostProcess) -> HostProcess:
        """Remember a process that was read; return the object that stands for it, the former one if it is equal."""
        known = self._known.get(pid)
        if known is not None and known.process == process:
            process = known.process
        now = self._clock()
        aged = now - process.key.start_ticks / _TICKS >= YOUNG
        if aged and process.alive and process.key.pid == pid:
            until = now + KEPT / 2 * (1 + pid % 32 / 32)
            self._known[pid] = _Known(f"{self._root}/{pid}/stat", process, until)
        else:
            self._known.pop(pid, None)
        return process

    def forget(self, asked: int) -> None:
        """Drop what is out of date, once there is far more than the `asked` processes."""
        if len(self._known) > asked + SPARE:
            now = self._clock()
            self._known = {pid: known for pid, known in self._known.items() if now < known.until}
