"""
Holds the init of a container by a pidfd, so that a signal reaches this process or none.

What comes in: where /proc is mounted; containers, by pod and id. What goes out: holds (a pidfd, and the identity of its
process), the result of a second look, the kernel's answer to a signal.

The rule: the kernel reuses process numbers, even within one clock tick, but a pidfd names one process for ever. What
/proc says of a number is believed only if the pidfd's process is alive after the reading. Then the number was its own
all the time. This needs CAP_KILL and nothing else.
"""

import os
import select
import signal
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kill.kubelet_mounts import Origin, learned
from enforcer.actions.kill.targets import (
    Member,
    Obstacle,
    hears_sigterm,
    init_of,
    levels_of,
    may_kill,
    pid_of,
)
from enforcer.actions.processes import VANISHED, cgroups, read
from enforcer.actions.victim import Victim, container_of
from exporter.base.cgroup_owner import PodCgroups
from exporter.base.problem import Problem
from exporter.host.pid_domain import unproven
from exporter.host.procfs import ProcFs
from exporter.host.stat import parse_stat
from exporter.model import PodUid, ProcessKey

GONE = Answer(Heard.GONE, "its init has exited")


@dataclass(slots=True)
class Hold:
    """
    An init that is held.

    Attributes:
        asked: the decision under which the last signal was sent; empty: none was.
        killed: SIGKILL was sent, too.

    """

    fd: int
    victim: Victim
    key: ProcessKey
    asked: str = ""
    killed: bool = False

    def exited(self) -> bool:
        """Tell whether the init has exited with all its threads, which is after all others of its container."""
        return _exited(self.fd)

    def send(self, number: int) -> Answer:
        """Send a signal, once; 0 only checks whether we may."""
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            return GONE
        except PermissionError:
            why = "CAP_KILL, or a rule of AppArmor or SELinux, or a user namespace"
            return Answer(Heard.REFUSED, f"the kernel does not let us signal it ({why})")
        return Answer(Heard.ACCEPTED)

    def release(self) -> None:
        """Let go of it."""
        os.close(self.fd)


class Inits:
    """The inits of this node's containers."""

    def __init__(self, root: Path, pods: PodCgroups, *, trusted: bool = False) -> None:
        """Read `root`, a mounted /proc; `pods` and `trusted` as in `exporter.host.procfs.ProcFs`."""
        self._root = root
        self._pods = pods
        self._proc = ProcFs(root, pods=pods, trusted=trusted)
        self._kubelet = learned(self._text("self/mountinfo"))

    def members(self, victims: Collection[Victim]) -> dict[Victim, list[Member] | None]:
        """
        Find all processes of these containers; None for a container of which a process could not be read.

        These are hints: the kernel may reuse a number between two files. It takes some 25 microseconds per process of
        the node, and as much again for each that is in one of these containers.
        """
        members_of: dict[Victim, list[Member] | None] = {victim: [] for victim in victims}
        whose = cache(self._whose)  # the processes of a container share one text
        try:
            processes = [(pid, text) for pid, text in cgroups(self._root) if text is not None]
        except OSError:
            return dict.fromkeys(victims)
        for pid, text in processes:
            victim = whose(text)
            if victim is None or (members := members_of.get(victim)) is None:
                continue
            try:
                members.append(self._member(pid, victim[0]))
            except VANISHED:
                continue
            except (OSError, ValueError):
                members_of[victim] = None
        return members_of

    def hold(self, victim: Victim, members: Collection[Member] | None) -> Hold | Obstacle:
        """Hold the init among `members`, if it is still the init of this container."""
        try:
            if victim == self._whose(read(f"{self._root}/self/cgroup")):
                return Obstacle.OURS
            init = Obstacle.UNREADABLE if members is None else init_of(members)
            if isinstance(init, Obstacle):
                return init
            fd = os.pidfd_open(init.pid)
        except ProcessLookupError:
            return Obstacle.NOT_FOUND
        except OSError:
            return Obstacle.UNREADABLE
        held = self._verified(fd, init, victim)
        if isinstance(held, Obstacle):
            os.close(fd)
        return held

    def look(self, hold: Hold) -> Answer | None:
        """Say why not to signal; None: the same process lives in the same container, and we may signal it."""
        process = self._proc.sample([hold.key.pid]).processes.get(hold.key.pid)
        if hold.exited():  # what was read may be of another process
            return GONE
        if process is None:
            return Answer(Heard.FAILED, "its init could not be read")
        if process.owner is None:
            return Answer(Heard.GONE, "its init is exiting")
        if process.key != hold.key or container_of(process.owner) != hold.victim:
            return Answer(Heard.CHANGED, "its init is no longer in its container")
        allowed = hold.send(0)
        return None if allowed.heard is Heard.ACCEPTED else allowed

    def hears(self, hold: Hold) -> bool:
        """Tell whether the init handles SIGTERM; True where that cannot be read."""
        with suppress(OSError, ValueError):
            return hears_sigterm(read(f"{self._root}/{hold.key.pid}/status"))
        return True

    def empty(self, victim: Victim) -> bool | None:
        """Tell whether no process of a container is left; None where /proc does not show it."""
        if not self._proc.sample(()).pid_domain_proven:
            return None
        members = self.members({victim})[victim]
        return None if members is None else not members

    def _whose(self, cgroup: str) -> Victim | None:
        return container_of(self._pods.owner(cgroup))

    def _member(self, pid: int, pod: PodUid) -> Member:
        """Read what decides whether a process is its container's init. Raises OSError and ValueError."""
        levels, start = levels_of(read(f"{self._root}/{pid}/status")), parse_stat(read(f"{self._root}/{pid}/stat"))
        member = Member(pid, levels, start.start_ticks)
        if self._kubelet is None or not (member.first or member.outside):
            return member
        return replace(member, origin=self._kubelet.origin(self._text(f"{pid}/mountinfo"), pod))

    def _text(self, name: str) -> str:
        """Read a file of which nothing is learned where it cannot be read."""
        with suppress(OSError):
            return read(f"{self._root}/{name}")
        return ""

    def _verified(self, fd: int, init: Member, victim: Victim) -> Hold | Obstacle:
        """Read the process of a pidfd: it has to be the one that was chosen, and not another with its number."""
        try:
            # The pidfd itself says which number it has in this /proc, in whichever namespace that was mounted.
            own_pid = pid_of(read(f"{self._root}/self/fdinfo/{fd}"))
            process = self._proc.sample([init.pid]).processes.get(init.pid)
            now = self._member(init.pid, victim[0])
        except VANISHED:
            return Obstacle.NOT_FOUND
        except (OSError, ValueError):
            return Obstacle.UNREADABLE
        if process is None or _exited(fd):
            return Obstacle.NOT_FOUND
        same = own_pid == init.pid and process.key.start_ticks == init.start and now.first
        if not same or now.origin is Origin.ANOTHER or container_of(process.owner) != victim:
            return Obstacle.NOT_SURE
        return Hold(fd, victim, process.key)


def unavailable(root: Path, *, trusted: bool = False, rights: bool = True, own: Path = Path("/proc")) -> Problem | None:
    """
    Say why no container of this node can be held; None if it can.

    `own` is our own /proc, `root` the one to read. `rights`: a right that this daemon lacks counts.
    """
    if (doubt := unproven(root, own, trusted=trusted)) is not None:
        return doubt
    if not hasattr(os, "pidfd_open"):
        return _lacking("this build of Python knows no pidfd: it was compiled with headers older than Linux 5.3")
    try:
        fd = os.pidfd_open(os.getpid())
        try:
            signal.pidfd_send_signal(fd, 0)
        finally:
            os.close(fd)
    except OSError as error:
        needs = "Linux 5.3 or later, and a seccomp profile that allows it, as RuntimeDefault does"
        return _lacking(f"no signal can be sent through a pidfd ({error.strerror}): that needs {needs}")
    if rights and not may_kill(read(f"{own}/self/status")):
        return _lacking("CAP_KILL is missing: the containers of other users cannot be signalled")
    return None


def _lacking(what: str) -> Problem:
    return Problem(what, fix="")  # what to do about it depends on the ladder, which the callers know


def _exited(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
