"""
The kernel's facts: processes, and their owners by cgroup.

What comes in: nothing. What goes out: the types in which the host source answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.identity import ContainerId, Fault, PodUid


@dataclass(frozen=True, slots=True, order=True)
class ProcessKey:
    """The identity of a process: pids are reused, (pid, start time) is not. The start time is in ticks since boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Owner:
    """
    What a cgroup path says below the kubelet's folders: (pod uid, container id) pairs, outermost first.

    No pairs: a process of the host. A pair without pod is a sibling seen from a private cgroup namespace; a pair
    without container is a sandboxed pod (gVisor, Kata). Only recordings of earlier versions have several pairs.
    `contradictory` marks cgroup v1 lines that name different pods: then no name is believed.
    """

    pairs: tuple[tuple[PodUid | None, ContainerId | None], ...] = ()
    contradictory: bool = False

    @property
    def outermost(self) -> tuple[PodUid | None, ContainerId | None]:
        """The outermost pod with its container, else the outermost container: what stands below is its own making."""
        return next((pair for pair in self.pairs if pair[0] is not None), (*self.pairs, (None, None))[0])


@dataclass(frozen=True, slots=True)
class HostProcess:
    """
    A process in `/proc`. A thread id is resolved to its process by Tgid.

    `alive` is False for a zombie without living threads. `owner` is None if the cgroup could not be read.
    """

    key: ProcessKey
    alive: bool
    owner: Owner | None


@dataclass(frozen=True, slots=True)
class HostSample:
    """
    The host's answer about the pids that the driver named.

    Attributes:
        processes: raw pid to process. A pid that does not exist is missing; one that could not be read is in
            `unreadable`.
        living: owners of all living processes, read only if a dead pid needs an explanation; None if not read.
        pid_domain_proven: the pids of the driver and of `/proc` are those of the initial PID namespace.

    """

    processes: Mapping[int, HostProcess] = field(default_factory=dict)
    unreadable: frozenset[int] = frozenset()
    living: frozenset[Owner] | None = None
    pid_domain_proven: bool = False
    faults: tuple[Fault, ...] = ()
