"""What the driver says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exporter.model.identity import DeviceKey, Fault, GpuUuid
from exporter.model.processes import Owner


class Sharing(StrEnum):
    """How several pods come to use one device. `shared`: several pods use it without replicas of a device plugin."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
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
    """Ratios of a device. `busy` is NVML's `gpu`: the time in which some kernel ran."""

    busy: float | None = None
    memory_controller: float | None = None
    encoder: float | None = None
    decoder: float | None = None
    sm: float | None = None


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """
    One MIG GPU instance, or one compute partition of an AMD GPU.

    The compute instances of a MIG instance share its memory, so their UUIDs are listed together. A partition has no
    UUID: there it is what else it is called (`renderD129`, `amdgpu_xcp_1`).
    """

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
class XidErrors:
    """
    The XID errors of one number on one GPU since the daemon started.

    Attributes:
        last_at: Unix time at which the last one was heard; None before the first.
        gpu_instance: the MIG GPU instance that the driver named with the last one, if it named one.

    """

    count: int = 0
    last_at: float | None = None
    gpu_instance: int | None = None


XidCounts = Mapping[GpuUuid, Mapping[int, XidErrors]]
"""By GPU and number of the XID. A GPU whose events cannot be heard is missing; one that had none has its zeros."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """
    A physical GPU: what it is, and what was measured on it.

    With `mig` its instances are the devices: NVIDIA's MIG, or the compute partitions into which an AMD GPU is
    divided. `unified`: it has no memory of its own, but uses the host's.
    """

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
    """
    Of /dev/nvidia<minor>: GKE and DRA name a GPU by it. Mostly, but not always, the same as the index. Of AMD and Intel
    it is that of /dev/dri/card<minor>.
    """
    unified: bool = False
    names: tuple[str, ...] = ()
    """What else it is called where it is not divided: `renderD128`. Its instances have names of their own."""

    def leaves(self) -> tuple[tuple[DeviceKey, Memory | None, Utilization], ...]:
        """Name the devices of this GPU, each with its memory and utilization."""
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
    One entry of the driver's process lists for one device, already merged over the lists by raw pid.

    `pid` is the number as the driver prints it: it may be a thread id, the number of a dead process whose child holds
    the memory, or one that the kernel has given to somebody else since. `memory` is None where the driver said
    "not available". `memory_sure` is set where buffers may be shared with others: the bytes that are surely its own.
    `evicted`: seconds, since the process began, in which the driver had taken its queues off the device; None where it
    does not tell.
    """

    device: DeviceKey
    pid: int
    kinds: frozenset[ProcessKind]
    memory: int | None
    memory_sure: int | None = None
    evicted: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessUtilization:
    """
    The driver's statistics for one pid on one GPU since the last sample: coarse figures, good for a gauge only.

    None is what the driver cannot say of this process. A process that is not listed is idle.
    """

    pid: int
    sm: float | None
    memory_controller: float | None
    encoder: float | None
    decoder: float | None


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """
    What the kernel itself counts for one cgroup on one device: each buffer once, by the cgroup that placed it.

    Attributes:
        limit: above which the kernel does not let it grow; None: there is none, or it is not told.
        peak: the most that it ever held; None where not told.

    """

    owner: Owner
    device: DeviceKey
    used: int
    limit: int | None = None
    peak: int | None = None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """
    What one GPU said at one time. Memory and process lists are read together, so that the accounts can close.

    Attributes:
        processes: None when a list could not be read; empty when nobody is there.
        utilization: None when the driver does not know (MIG, old drivers), empty when everybody is idle.
        dropped_utilization: utilization samples that were dropped because the driver claimed more than 100 %.
        cgroups: where the kernel counts by cgroup; believed before the process lists.
        pids_proven: the numbers are those of the host's processes, or of the reader's, which are the same where
            `HostSample.pid_domain_proven` says so. Some drivers may as well print those of the process's own namespace.
        partial: the lists have only those who use the GPU in one way (ROCm). Who is not listed may hold memory all the
            same, and who is listed holds at least what stands there.
        unseen: owners of processes that could not be looked at, and may hold memory that is in no list; one that is
            `contradictory` may be anybody's.

    """

    gpu: Gpu
    sampled_at: float
    processes: tuple[GpuProcess, ...] | None
    utilization: tuple[ProcessUtilization, ...] | None = None
    dropped_utilization: int = 0
    faults: tuple[Fault, ...] = ()
    cgroups: tuple[CgroupMemory, ...] = ()
    pids_proven: bool = True
    partial: bool = False
    unseen: tuple[Owner, ...] = ()
