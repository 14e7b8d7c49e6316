"""
The process that a signal to a container has to reach.

What comes in: texts of `/proc/<pid>/status` and of a pidfd's `fdinfo`. What goes out: a container's init among its
processes, and whether it handles SIGTERM; `ValueError` when a text is not what a kernel writes.

The rule: **a container ends with its init, and the oldest of its processes is its init.** A signal to a worker alone
would leave the workload half dead. A container that shares its PID namespace with the pod or the host has no init of
its own. What came later into the container's cgroup decides nothing. What was moved there from another pod is known by
its mounts, and is neither signalled nor a protection.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from enforcer.actions.kill.kubelet_mounts import Origin

_SIGTERM = 1 << (15 - 1)
_CAP_KILL = 1 << 5  # include/uapi/linux/capability.h
_OWN_NAMESPACE = 2  # levels of a process in a PID namespace directly below that of the reader


class Obstacle(StrEnum):
    """Why a container has no process to signal; the values are messages."""

    HOST = "its pod is in the host's PID namespace (hostPID), so it has no init of its own"
    SHARED = "it shares a PID namespace (shareProcessNamespace), so it has no init of its own"
    OURS = "it is this daemon's own container"
    NOT_FOUND = "no process of it was found"
    NOT_SURE = "none of its processes is certainly its init"
    UNREADABLE = "its processes could not be read"

    @property
    def lasting(self) -> bool:
        """
        Tell whether it holds for the container's life. Otherwise the init is looked for again.

        How a container was made does not change either. But it is read from its processes, and one look may be wrong.
        """
        return self is Obstacle.OURS

    @property
    def its_own(self) -> bool:
        """Tell whether it follows from how the container was made, or from what runs in it."""
        return self not in (Obstacle.NOT_FOUND, Obstacle.UNREADABLE)


@dataclass(frozen=True, slots=True)
class Member:
    """
    A process in a container's cgroup.

    Attributes:
        pid: in the reader's PID namespace.
        levels: the same number, and those in the namespaces below that.
        start: clock ticks since boot.
        origin: of which pod its mounts are.

    """

    pid: int
    levels: tuple[int, ...]
    start: int
    origin: Origin = Origin.UNKNOWN

    @property
    def first(self) -> bool:
        """Tell whether it is the init of a PID namespace directly below the reader's; deeper ones do not count."""
        return len(self.levels) == _OWN_NAMESPACE and self.levels[0] == self.pid and self.levels[1] == 1

    @property
    def outside(self) -> bool:
        """Tell whether it is in the reader's own PID namespace."""
        return len(self.levels) < _OWN_NAMESPACE

    @property
    def age(self) -> tuple[int, int]:
        """Order processes, the oldest first."""
        return self.start, self.pid


def init_of(members: Iterable[Member]) -> Member | Obstacle:
    """
    Choose the init among all processes in one container's cgroup.

    Only a process outside of the container's PID namespace can make a second init, or can be older than the first one.
    `runc exec` begins outside for a millisecond, after the init. A container in the host's namespace can make inits,
    after its first process. An older process was moved here. Its mounts are not this container's, unless it hides them.
    """
    members = sorted(members, key=lambda member: member.age)
    possible = [member for member in members if member.origin is not Origin.ANOTHER]
    if not possible:
        return Obstacle.NOT_SURE if members else Obstacle.NOT_FOUND
    inits = [member for member in possible if member.first]
    init = next((member for member in inits if member.origin is Origin.OWN), None) or next(iter(inits), None)
    if init is None:
        return Obstacle.HOST if any(member.outside for member in possible) else Obstacle.SHARED
    older = [member for member in possible if member.outside and member.age < init.age]
    if any(member.origin is Origin.OWN or init.origin is Origin.UNKNOWN for member in older):
        return Obstacle.HOST
    return init


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
