"""
The joined facts of one round: the usage of each container, and the accounts of each device.

What comes in: nothing. What goes out: `Snapshot` and its parts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exporter.model.declared import Claim
from exporter.model.devices import Gpu, Memory, Sharing, Utilization, XidCounts
from exporter.model.identity import ContainerId, DeviceKey, Fault, GpuUuid, PodUid
from exporter.model.integrals import DeviceIntegral
from exporter.model.limits import Limit
from exporter.model.names import Allocation, Container, Pod
from exporter.model.processes import ProcessKey


class Attribution(StrEnum):
    """Where an entry of the driver's process lists was counted, and why."""

    CONTAINER = "container"
    INHERITED = "inherited"  # a dead pid whose container still runs: counts for the container
    HOST = "host"
    GHOST = "ghost"
    UNKNOWN_CONTAINER = "unknown_container"  # a container that Kubernetes does not know on this node
    CONTRADICTORY = "contradictory"
    UNREADABLE = "unreadable"
    AMBIGUOUS = "ambiguous"  # the pid was reused while lists or /proc could not be read
    UNPROVEN = "unproven"  # without a proven PID domain nothing is attributed


@dataclass(frozen=True, slots=True)
class Subject:
    """The container that a usage belongs to; for a sandboxed pod the whole pod, and `container` is ""."""

    pod_uid: PodUid
    container: str
    container_id: ContainerId | None


@dataclass(frozen=True, slots=True)
class Usage:
    """
    The usage of one container on one device.

    Attributes:
        memory_used: bytes; None if the memory of a process is unknown, or a process may be missing in the lists.
        memory_sure: bytes that certainly belong to the container, if buffers may be shared, or a process is unknown.
            Only these may count as over its limit. None if `memory_used` is exact, or no bytes are certain.
        processes: its living processes, as far as known; `listed` is False if there may be others.
        kernel_limit: bytes above which the kernel does not let the container grow (dmem); None if unknown.
        process_memory: bytes of each process, sorted; empty if one is unknown, or may be missing.
        evicted: seconds in which the driver had taken its queues off the device. They count since a container of its
            name was first seen, as a sum over its processes; None if the driver does not report them.
        mps: the driver lists one of its processes as a client of an MPS server.
        with_pod: a process of its pod, whose container is unknown, is on the device. What this container holds is
            unknown, and part of the pod's usage without a container.

    """

    subject: Subject
    device: DeviceKey
    memory_used: int | None
    memory_peak: int | None = None
    sm: float | None = None
    encoder: float | None = None
    decoder: float | None = None
    processes: frozenset[ProcessKey] = frozenset()
    memory_sure: int | None = None
    kernel_limit: int | None = None
    listed: bool = True
    evicted: float | None = None
    mps: bool = False
    process_memory: tuple[int, ...] = ()
    with_pod: bool = False


def summands(usages: Iterable[Usage]) -> list[Usage]:
    """Return the usages that add up to what pods or devices hold; the others are part of one of these."""
    return [usage for usage in usages if not usage.with_pod]


@dataclass(frozen=True, slots=True)
class ClaimUsage:
    """
    The usage of all containers of a claim on one of its devices.

    Attributes:
        memory_used: bytes; None if a part is unknown, or may belong to another claim on the same device.
        subjects: the containers that were counted, each once, however many pods share the claim.
        doubtful: those containers whose memory may belong to another claim on the same device.

    """

    namespace: str
    claim: str
    device: DeviceKey
    memory_used: int | None
    subjects: frozenset[Subject] = frozenset()
    doubtful: frozenset[Subject] = frozenset()


@dataclass(frozen=True, slots=True)
class DeviceAccount:
    """
    The accounts of one device, in bytes: attributed + ghost + host + unattributed = used.

    A part is None if something in it was not measured. `unattributed` is the rest, so it is None if any part is.

    Attributes:
        closes: False if the driver's lists and its memory differ by more than the tolerance.
        clamped: bytes by which the lists exceeded `used`; `unattributed` is 0 then (the reads are not atomic).
        partial: a listed process may hold more than its listed bytes (`GpuSample.partial`).

    """

    device: DeviceKey
    memory: Memory | None
    attributed: int | None = None
    ghost: int | None = None
    host: int | None = None
    unattributed: int | None = None
    clamped: int = 0
    closes: bool = True
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """
    A device in the snapshot: identity, sharing, and measured figures.

    Attributes:
        sharing: how pods really share the device, not only how the kubelet handed it out; see `accounts.sharing`.
        pods: number of pods that have the device allocated, use it, or declare a limit on it; without pods that only
            reserve it.

    """

    key: DeviceKey
    gpu: Gpu
    account: DeviceAccount
    utilization: Utilization
    sampled_at: float
    sharing: Sharing = Sharing.NONE
    replicas: int = 1
    profile: str = ""
    mig_uuids: tuple[str, ...] = ()
    containers: int | None = None
    pods: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    The joined facts of one round; published as *the latest*, never changed.

    Attributes:
        taken_at: Unix time; `monotonic` is the same moment on the monotonic clock.
        duration: seconds that the round took.
        gpus_present: every GPU that the driver counts (uuid to index); `gpus` are those that answered.
        gpus_read: the GPUs that were read in this round. An early round reads only GPUs whose memory changed, and keeps
            the last reading of the others (`Device.sampled_at` has its time).
        containers: every generation of every container that Kubernetes knows, the present one last.
        namespaces: labels by namespace; see `Inventory`.
        claims: the DRA claims of this node's pods; `claim_usages` is the usage of their devices.
        limits: declared limits, by limit holder and device.
        memory_declared: sum of the declared bytes on a device, each declaration once; a device without declarations is
            missing.
        processes: number of entries in the driver's process lists by attribution.
        utilization_dropped: number of samples dropped because the driver claimed more than 100 % for one process, on
            the GPUs read in this round.
        utilization_capped: number of containers whose processes' samples added up to more than 100 % and were cut, on
            the GPUs read in this round.
        xid_errors: XID errors of each GPU since the daemon started, also of GPUs that do not answer any more.
        by_time: the round was due by the clock. False if a change of memory, or a caller, started it: such a round
            proves no duration, because its time depends on the values read.
        integrals: sums over time since the daemon started, also of devices that do not answer now.
        faults: what could not be read; the round is complete if none of them is `incomplete`.

    """

    round: int
    taken_at: float
    monotonic: float
    node: str
    duration: float = 0.0
    gpus_present: Mapping[GpuUuid, int] = field(default_factory=dict)
    gpus_read: frozenset[GpuUuid] = frozenset()
    gpus: tuple[Gpu, ...] = ()
    devices: tuple[Device, ...] = ()
    usages: tuple[Usage, ...] = ()
    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    claim_usages: tuple[ClaimUsage, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    limits: tuple[Limit, ...] = ()
    memory_declared: Mapping[DeviceKey, int] = field(default_factory=dict)
    processes: Mapping[Attribution, int] = field(default_factory=dict)
    utilization_dropped: int = 0
    utilization_capped: int = 0
    sources_up: Mapping[str, bool] = field(default_factory=dict)
    pid_domain_proven: bool = False
    names_live: bool = False
    xid_errors: XidCounts = field(default_factory=dict)
    by_time: bool = True
    integrals: Mapping[DeviceKey, DeviceIntegral] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether each source gave a complete answer, and the accounts close."""
        return not any(fault.incomplete for fault in self.faults)
