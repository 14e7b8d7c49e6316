"""The joined facts of one round: who holds what, and what nobody explains."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exporter.model.declared import Claim
from exporter.model.devices import Gpu, Memory, Sharing, Utilization, XidCounts
from exporter.model.identity import ContainerId, DeviceKey, Fault, GpuUuid, PodUid
from exporter.model.limits import Limit
from exporter.model.names import Allocation, Container, Pod
from exporter.model.processes import ProcessKey


class Attribution(StrEnum):
    """Where an entry of the driver's lists was counted, and why."""

    CONTAINER = "container"
    INHERITED = "inherited"  # a dead pid, whose container still lives: counts there
    HOST = "host"
    GHOST = "ghost"
    UNKNOWN_CONTAINER = "unknown_container"  # a container, but none that Kubernetes knows here
    CONTRADICTORY = "contradictory"
    UNREADABLE = "unreadable"
    AMBIGUOUS = "ambiguous"  # the number changed hands while lists or /proc could not be read
    UNPROVEN = "unproven"  # without proof of the PID domain nothing is attributed


@dataclass(frozen=True, slots=True)
class Subject:
    """A container as attributed: pod and container name, or the pod alone (`container` is "" for sandboxed pods)."""

    pod_uid: PodUid
    container: str
    container_id: ContainerId | None


@dataclass(frozen=True, slots=True)
class Usage:
    """
    What one container holds of one device.

    Attributes:
        memory_used: bytes; None when one of its processes is unknown, or may be missing in the lists.
        memory_sure: where buffers may be shared with others, or some process is unknown, the bytes that are surely its
            own, and the only ones that may be held against it; None where `memory_used` is exact, or nothing is sure.
        processes: those that live, as far as they are known; `listed` is False where there may be others.
        kernel_limit: bytes above which the kernel itself does not let it grow (dmem); None where it does not say.
        process_memory: bytes of each process, sorted; empty where one of them is unknown, or may be missing.
        evicted: seconds, since it was seen first, in which the driver had taken its queues off the device, summed up
            over its processes; None where no driver tells.
        mps: the driver lists one of its processes as a client of an MPS server.

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


@dataclass(frozen=True, slots=True)
class ClaimUsage:
    """
    What the containers that hold a claim hold together of one of its devices.

    Attributes:
        memory_used: None when something of it is unknown, or cannot be told from what they hold by another claim.
        subjects: who was counted, each once, however many pods share the claim.
        doubtful: those of them whose memory may be held by another claim of the same device.

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
    The account of one device: attributed + ghost + host + unattributed = used.

    Each part is None when something in it was not measured; `unattributed`, being the rest, when anything was not.

    Attributes:
        closes: False when the driver's lists and its memory disagree by more than the tolerance.
        clamped: bytes by which the lists exceeded `used` and were taken as 0 (the reads are not atomic).
        partial: who is listed may hold more than that (`GpuSample.partial`).

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
    A device in the snapshot: identity, sharing, and what was measured on it.

    Attributes:
        sharing: how the device is really shared, and not only how the kubelet handed it out; see `accounts.sharing`.
        pods: different pods that hold the device, use it, or declare a limit on it; without pods that only reserve it.

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
        taken_at: Unix time; `monotonic` is the same moment on the clock that nobody sets.
        duration: seconds that the round took.
        gpus_present: every GPU that the driver counts (uuid to index); `gpus` are those which answered.
        gpus_read: the GPUs that were read in this round; an early round reads those whose memory moved, and keeps what
            was read of the others (`Device.sampled_at` tells when).
        containers: every generation of every container that Kubernetes knows, the present one last.
        namespaces: labels by namespace; see `Inventory`.
        claims: the DRA claims of the pods here; `claim_usages` what is held of their devices.
        limits: what was declared, by limit holder and device.
        memory_declared: the sum of what is declared on a device, each declaration once; nothing where nobody
            declares.
        processes: how many entries of the driver's lists went where.
        utilization_dropped: of the GPUs read in this round, samples dropped because the driver claimed more than 100 %
            for one process.
        utilization_capped: of the GPUs read in this round, containers whose processes' samples added up to more than
            100 %, and were cut there.
        xid_errors: what was heard of each GPU since the daemon started, of those too that do not answer any more.
        by_time: the round was due by the clock; False for one that movement, or a caller, asked for: its moment depends
            on what is read, so that it says nothing of how long something was so.
        faults: what could not be asked; the round is complete when none of them says otherwise.

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
    faults: tuple[Fault, ...] = ()

    @property
    def complete(self) -> bool:
        """Say whether each source answered all that it was asked, and the accounts close."""
        return not any(fault.incomplete for fault in self.faults)
