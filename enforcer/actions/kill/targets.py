"""
The process that a signal to a container has to reach.

What comes in: texts of `/proc/<pid>/status` and of a pidfd's `fdinfo`. What goes out: a container's init among its
processes, and whether it handles SIGTERM; `ValueError` when a text is not what a kernel writes.

The rule: **a container ends with its init, and only an init of its own counts.** A signal to a worker alone would leave
the workload half dead. A container that shares its PID namespace with the pod or the host has no init of its own. If
two processes could be the init, neither is.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_SIGTERM = 1 << (15 - 1)
_CAP_KILL = 1 << 5  # include/uapi/linux/capability.h
_OWN_NAMESPACE = 2  # levels of a process in a PID namespace directly below that of the reader


class Obstacle(StrEnum):
    """Why a container has no process to signal; the values are messages."""

    HOST = "its pod is in the host's PID namespace (hostPID), so it has no init of its own"
    SHARED = "it shares a PID namespace (shareProcessNamespace), so it has no init of its own"
    OURS = "it is this daemon's own container"
    NOT_FOUND = "no process of it was found"
    NOT_SURE = "more than one of its processes could be its init"
    UNREADABLE = "its processes could not be read"

    @property
    def lasting(self) -> bool:
        """Tell whether it holds for the container's life. Otherwise the init is looked for again."""
        return self in _LASTING

    @property
    def its_own(self) -> bool:
        """Tell whether it follows from how the container was made, or from what runs in it."""
        return self.lasting or self is Obstacle.NOT_SURE


_LASTING = frozenset({Obstacle.HOST, Obstacle.SHARED, Obstacle.OURS})


@dataclass(frozen=True, slots=True)
class Member:
    """A process of a container: its number in the reader's PID namespace, and those in the namespaces below that."""

    pid: int
    levels: tuple[int, ...]

    @property
    def first(self) -> bool:
        """Tell whether it is the init of a PID namespace directly below the reader's; deeper ones do not count."""
        return len(self.levels) == _OWN_NAMESPACE and self.levels[0] == self.pid and self.levels[1] == 1


def init_of(members: Iterable[Member]) -> int | Obstacle:
    """
    Choose the init among all processes of one container.

    A member in the reader's own namespace raises a doubt: a container in the host's can make as many inits as it likes.
    `runc exec` begins there, too, for a millisecond, so a doubt does not last.
    """
    members = tuple(members)
    inits = [member.pid for member in members if member.first]
    outside = any(len(member.levels) < _OWN_NAMESPACE for member in members)
    if len(inits) == 1 and not outside:
        return inits[0]
    if inits:
        return Obstacle.NOT_SURE
    if outside:
        return Obstacle.HOST
    return Obstacle.SHARED if members else Obstacle.NOT_FOUND


def levels_of(status: str) -> tuple[int, ...]:
    """Parse the numbers of a process from `status`, that of the reader's namespace first."""
    return tuple(int(number) for number in _line(status, "NSpid").split())


def hears_sigterm(status: str) -> bool:
    """
    Tell whether an init handles SIGTERM: the kernel drops the signal if the init leaves it at its default.

    A blocked SIGTERM is kept for sigwait or signalfd, as tini and dumb-init use it.
    """
    return any(int(_line(status, mask), 16) & _SIGTERM for mask in ("SigCgt", "SigBlk"))


def may_kill(status: str) -> bool:
    """Tell by our own `status` whether we may signal the processes of other users."""
    return bool(int(_line(status, "CapEff"), 16) & _CAP_KILL)


def pid_of(fdinfo: str) -> int:
    """Parse the number of a pidfd's process; -1 after it is reaped."""
    return int(_line(fdinfo, "Pid"))


def _line(text: str, name: str) -> str:
    r"""Return a field of a record. A process chooses its own name, but the kernel escapes "\n" in it."""
    match = re.search(rf"(?:^|\n){name}:[ \t]*([^\n]+)", text)
    if match is None:
        raise ValueError(f"no {name}")
    return match[1]
