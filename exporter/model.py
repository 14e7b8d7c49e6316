"""
The facts of one round, frozen.

What comes in: nothing; this module knows nobody. What goes out: the words in which all other modules speak.

The law: **unknown is not zero.** A field that was not measured is `None`, and stays `None` on its way to the metrics.
Units: memory in bytes, ratios from 0 to 1, time in seconds (Unix time unless the name says otherwise), clocks in hertz.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

GpuUuid = NewType("GpuUuid", str)
PodUid = NewType("PodUid", str)
ContainerId = NewType("ContainerId", str)
"""64 hex characters, without the runtime's `containerd://`."""


# --- devices: what the driver says ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class DeviceKey:
    """
    A leaf device, where memory is counted: a GPU with MIG off, or one MIG GPU instance.

    GPU-instance ids are reused when MIG is set up anew; `GpuInstance.mig_uuids` tells two generations apart.
    """

    uuid: GpuUuid
    gpu_instance: int | None = None


class Sharing(StrEnum):
    """How several pods may come to use one leaf device."""

    EXCLUSIVE = "exclusive"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"
    DRA = "dra"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory. `used` is derived, because drivers differ in whether their own figure includes `reserved`."""

    total: int
    free: int
    reserved: int = 0

    @property
    def used(self) -> int:
        """Bytes held by anybody: total - free - reserved, never below zero (the reads are not atomic)."""
        return max(0, self.total - self.free - self.reserved)


@dataclass(frozen=True, slots=True)
class Utilization:
    """Ratios of a leaf device. `busy` is NVML's `gpu`: the time in which some kernel ran."""

    busy: float | None = None
    memory_controller: float | None = None
    encoder: float | None = None
    decoder: float | None = None
    sm: float | None = None


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """One MIG GPU instance. Its compute instances share its memory, so their UUIDs are listed together."""

    id: int
    profile: str
    mig_uuids: tuple[str, ...]
    memory: Memory | None = None
    utilization: Utilization = Utilization()


@dataclass(frozen=True, slots=True)
class Health:
    """Figures of the physical GPU. A figure that the GPU does not have is None, or missing from its mapping."""

    power_watts: float | None = None
    energy_joules: float | None = None
    temperature_celsius: float | None = None
    clocks_hertz: Mapping[str, float] = field(default_factory=dict)
    throttled: Mapping[str, bool] | None = None
    ecc_errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A physical GPU: what it is, and what was measured on it. With MIG on, its instances are the leaf devices."""

    uuid: GpuUuid
    index: int
    model: str
    vendor: str = "nvidia"
    pci_bus_id: str = ""
    driver_version: str = ""
    mig: bool = False
    memory: Memory | None = None
    utilization: Utilization = Utilization()
    health: Health = Health()
    instances: tuple[GpuInstance, ...] = ()
    minor: int | None = None
    """Of /dev/nvidia<minor>: GKE and DRA name a GPU by it. Mostly, but not always, the same as the index."""

    def leaves(self) -> tuple[tuple[DeviceKey, Memory | None, Utilization], ...]:
        """Name the leaf devices of this GPU, each with its memory and utilization."""
        if not self.mig:
            return ((DeviceKey(self.uuid), self.memory, self.utilization),)
        return tuple((DeviceKey(self.uuid, gi.id), gi.memory, gi.utilization) for gi in self.instances)


class ProcessKind(StrEnum):
    """The driver's three process lists."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """
    One entry of the driver's process lists for one leaf device, already merged over the lists by raw pid.

    `pid` is the number as the driver prints it: it may be a thread id, the number of a dead process whose child holds
    the memory, or one that the kernel has given to somebody else since. `memory` is None where the driver said
    "not available".
    """

    device: DeviceKey
    pid: int
    kinds: frozenset[ProcessKind]
    memory: int | None


@dataclass(frozen=True, slots=True)
class ProcessUtilization:
    """The driver's statistics for one pid on one GPU since the last sample: a coarse figure, good for a gauge only."""

    pid: int
    sm: float
    memory_controller: float
    encoder: float
    decoder: float


@dataclass(frozen=True, slots=True)
class GpuSample:
    """
    What one GPU said at one time. Memory and process lists are read together, so that the accounts can close.

    Attributes:
        processes: None when a list could not be read; empty when nobody is there.
        utilization: None when the driver does not know (MIG, old drivers), empty when everybody is idle.
        dropped_utilization: utilization samples that were dropped because the driver claimed more than 100 %.

    """

    gpu: Gpu
    sampled_at: float
    processes: tuple[GpuProcess, ...] | None
    utilization: tuple[ProcessUtilization, ...] | None = None
    dropped_utilization: int = 0
    faults: tuple["Fault", ...] = ()


# --- processes and owners: what the kernel says -----------------------------------------------------------------------


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
    faults: tuple["Fault", ...] = ()


# --- containers and pods: what Kubernetes says ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of this node. The UID decides; the names only display."""

    uid: PodUid
    namespace: str
    name: str
    workload_kind: str = ""
    workload: str = ""
    queue: str = ""
    priority_class: str = ""
    created_at: float = 0.0
    terminating: bool = False
    config_hash: PodUid | None = None
    """Static pods: their cgroup carries this hash of the kubelet's, not the UID of their mirror pod."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container of one pod, in one generation: a restart makes a new id, hence a new container."""

    pod_uid: PodUid
    name: str
    id: ContainerId | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the kubelet handed to a container: replicas of a leaf device, used or not."""

    namespace: str
    pod: str
    container: str
    resource: str
    device: DeviceKey
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Inventory:
    """
    Names and allocations as last known.

    Attributes:
        sharing: leaf device to its sharing and its number of replicas, as far as Kubernetes tells.
        live: False while the source is away and these are remembered facts.

    """

    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    sharing: Mapping[DeviceKey, tuple[Sharing, int]] = field(default_factory=dict)
    known: bool = False
    """False until the source answered once: then nothing can be named."""
    live: bool = False
    faults: tuple["Fault", ...] = ()


# --- the joined facts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A source could not answer this round.

    `reason` is one word for metrics (`rounds_incomplete_total{reason}`), `message` one sentence for people;
    `subject` is what it is about (a GPU's UUID, a path), empty for the whole source. A fault with
    `incomplete=False` is told, but leaves the round complete.
    """

    source: str
    reason: str
    message: str
    subject: str = ""
    incomplete: bool = True


class Attribution(StrEnum):
    """Where an entry of the driver's lists was counted, and why."""

    CONTAINER = "container"
    INHERITED = "inherited"  # a dead pid, whose container still lives: counts there
    HOST = "host"
    GHOST = "ghost"
    UNKNOWN_CONTAINER = "unknown_container"  # a container, but none that Kubernetes knows here
    CONTRADICTORY = "contradictory"
    UNREADABLE = "unreadable"
    UNPROVEN = "unproven"  # without proof of the PID domain nothing is attributed


@dataclass(frozen=True, slots=True)
class Subject:
    """A container as attributed: pod and container name, or the pod alone (`container` is "" for sandboxed pods)."""

    pod_uid: PodUid
    container: str
    container_id: ContainerId | None


@dataclass(frozen=True, slots=True)
class Usage:
    """What one container holds of one leaf device. `memory_used` is None when one of its processes is unknown."""

    subject: Subject
    device: DeviceKey
    memory_used: int | None
    memory_peak: int | None = None
    sm: float | None = None
    encoder: float | None = None
    decoder: float | None = None
    processes: frozenset[ProcessKey] = frozenset()


@dataclass(frozen=True, slots=True)
class DeviceAccount:
    """
    The account of one leaf device: attributed + ghost + host + unattributed = used.

    Each part is None when something in it was not measured; `unattributed`, being the rest, when anything was not.

    Attributes:
        closes: False when the driver's lists and its memory disagree by more than the tolerance.
        clamped: bytes by which the lists exceeded `used` and were taken as 0 (the reads are not atomic).

    """

    device: DeviceKey
    memory: Memory | None
    attributed: int | None = None
    ghost: int | None = None
    host: int | None = None
    unattributed: int | None = None
    clamped: int = 0
    closes: bool = True


@dataclass(frozen=True, slots=True)
class Device:
    """A leaf device in the snapshot: identity, sharing, and what was measured on it."""

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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    The joined facts of one round; published as *the latest*, never changed.

    Attributes:
        taken_at: Unix time; `monotonic` is the same moment on the clock that nobody sets.
        duration: seconds that the round took.
        gpus_present: every GPU that the driver counts (uuid to index); `gpus` are those which answered.
        processes: how many entries of the driver's lists went where.
        utilization_dropped: samples dropped because the driver claimed more than 100 % for one process.
        utilization_capped: containers whose processes' samples added up to more than 100 %, and were cut there.
        faults: what could not be asked; the round is complete when none of them says otherwise.

    """

    round: int
    taken_at: float
    monotonic: float
    node: str
    duration: float = 0.0
    gpus_present: Mapping[GpuUuid, int] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    devices: tuple[Device, ...] = ()
    usages: tuple[Usage, ...] = ()
    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    allocations: tuple[Allocation, ...] = ()
    processes: Mapping[Attribution, int] = field(default_factory=dict)
    utilization_dropped: int = 0
    utilization_capped: int = 0
    sources_up: Mapping[str, bool] = field(default_factory=dict)
    pid_domain_proven: bool = False
    names_live: bool = False
    faults: tuple[Fault, ...] = ()

    @property
    def complete(self) -> bool:
        """Say whether each source answered all that it was asked, and the accounts close."""
        return not any(fault.incomplete for fault in self.faults)
