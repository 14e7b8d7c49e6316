"""
Processes that were read before: an unchanged one costs no file.

What comes in: PIDs, and what `/proc` said of their processes. What goes out: the same answer again, once the kernel has
confirmed that the process is still the same one.

The rule: a process is the same if its PID and start time are. Its cgroup is then taken from memory, for a minute at
most. In the first seconds of a process it is read each time, because runtimes move it right after its start. A process
that lives has a pidfd here: one system call names those that have ended, of a thousand in 10 microseconds. Where there
are no pidfds (a seccomp profile, another PID namespace), `stat` confirms the start time: 8 microseconds each. A whole
look costs 45 (v6.18, 1,000 processes). A zombie, and the PID of a thread, are not remembered.
"""

import os
import resource
import select
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
SPARE = 64
"""Processes that are remembered beyond those that were asked for last."""
SHARE = 4
"""One of so many files that this process may open can be a pidfd."""

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
    pidfd: int | None


class Remembered:
    """
    Remembers processes by PID; one task at a time. `clock` returns the seconds since boot.

    `pidfds`: the PIDs of `root` are those of our own PID namespace, where pidfds are opened.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = boot_time, *, pidfds: bool = False) -> None:
        self._root = root
        self._clock = clock
        self._now = clock()
        self._known: dict[int, _Known] = {}
        self._pid: dict[int, int] = {}  # by pidfd
        self._ends = select.epoll() if pidfds else None
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE

    def look(self) -> None:
        """Forget the processes that have ended by now. To be called before some questions."""
        self._now = self._clock()
        while self._ends is not None and (ended := self._ends.poll(0)):
            for pidfd, _ in ended:
                self._drop(self._pid[pidfd])

    def again(self, pid: int) -> HostProcess | None:
        """Return a process that is confirmed to be unchanged; None if it has to be read."""
        known = self._known.get(pid)
        if known is None or self._now >= known.until:
            return None
        return known.process if known.pidfd is not None or _is_there(known.path, known.process) else None

    def learn(self, pid: int, process: HostProcess) -> HostProcess:
        """Remember a process that was read; return the object that stands for it, the former one if it is equal."""
        known = self._known.get(pid)
        if known is not None and known.process == process:
            process = known.process
        elif known is not None:
            self._drop(pid)
            known = None
        aged = self._now - process.key.start_ticks / _TICKS >= YOUNG
        if aged and process.alive and process.key.pid == pid:
            path, until = f"{self._root}/{pid}/stat", self._now + KEPT / 2 * (1 + pid % 32 / 32)
            pidfd = self._open(path, process) if known is None or known.pidfd is None else known.pidfd
            self._known[pid] = _Known(path, process, until, pidfd)
        elif known is not None:
            self._drop(pid)
        return process

    def forget(self, asked: int) -> None:
        """Drop what is out of date, once there is more than the `asked` processes."""
        if len(self._known) > asked + SPARE:
            for pid in [pid for pid, known in self._known.items() if self._now >= known.until]:
                self._drop(pid)

    def _open(self, path: str, process: HostProcess) -> int | None:
        """Open a pidfd of a process; None if that is impossible."""
        if self._ends is None or len(self._pid) >= self._most:
            return None
        try:
            pidfd = os.pidfd_open(process.key.pid)
        except OSError:
            return None
        try:
            if _is_there(path, process):  # the PID may have been given anew before the pidfd was opened, not later
                self._ends.register(pidfd, select.EPOLLIN)
                self._pid[pidfd] = process.key.pid
                return pidfd
        except OSError:
            pass
        os.close(pidfd)
        return None

    def _drop(self, pid: int) -> None:
        pidfd = self._known.pop(pid).pidfd
        if self._ends is not None and pidfd is not None:
            del self._pid[pidfd]
            self._ends.unregister(pidfd)  # to close it is not enough while a child has a copy
            os.close(pidfd)


def _is_there(path: str, process: HostProcess) -> bool:
    """Tell whether a process lives; `path` is that of its `stat`."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(file, _ENOUGH)
        finally:
            os.close(file)
        stat = parse_stat(text.decode("latin-1"))
    except (OSError, ValueError):
        return False  # the whole look says what it is
    return stat.start_ticks == process.key.start_ticks and stat.alive and not stat.exiting
