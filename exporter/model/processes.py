"""What the kernel says: processes, and owners by their cgroups."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.identity import ContainerId, Fault, PodUid


@dataclass(frozen=True, slots=True, order=True)
class ProcessKey:
    """One process for its whole life: numbers are reused, (number, start time) is not. Ticks count from boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Owner:
    """
    What a cgroup path says: (pod uid, container id) pairs, outermost first.

    No pairs: a process of the host. A pair without pod is a sibling seen from a private cgroup namespace, or a
    container that no kubelet made; a pair without container is a sandboxed pod (gVisor, Kata).
    `contradictory` marks cgroup v1 lines that name different pods: then nobody is believed.
    """

    pairs: tuple[tuple[PodUid | None, ContainerId | None], ...] = ()
    contradictory: bool = False


@dataclass(frozen=True, slots=True)
class HostProcess:
    """
    What `/proc/<raw pid>` says, after the way through Tgid.

    `alive` is False for zombies without living threads. `owner` is None when the cgroup could not be read.
    """

    key: ProcessKey
    alive: bool
    owner: Owner | None


@dataclass(frozen=True, slots=True)
class HostSample:
    """
    The host's answer about the pids that the driver named.

    Attributes:
        processes: raw pid to process; a pid that does not exist is missing, one that could not be read is in
            `unreadable`.
        living: owners of all living processes, read only when a dead pid needs an explanation; None = not asked.
        pid_domain_proven: the numbers of the driver and of `/proc` are those of the initial PID namespace.

    """

    processes: Mapping[int, HostProcess] = field(default_factory=dict)
    unreadable: frozenset[int] = frozenset()
    living: frozenset[Owner] | None = None
    pid_domain_proven: bool = False
    faults: tuple[Fault, ...] = ()
