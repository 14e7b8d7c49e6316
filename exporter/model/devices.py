"""
The driver's facts: GPUs, MIG instances, process lists, utilization and errors.

What comes in: nothing. What goes out: the types in which all device sources answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exporter.model.identity import DeviceKey, Fault, GpuUuid
from exporter.model.processes import Owner


class Sharing(StrEnum):
    """How pods share a device. `shared`: several pods use it without replicas of a device plugin."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"
    DRA = "dra"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory in bytes. `used` is computed, because only some drivers include `reserved` in their own figure."""

    total: int
    free: int
    reserved: int = 0

    @property
    def used(self) -> int:
        """Used bytes: total - free - reserved, never below zero (the reads are not atomic)."""
        return max(0, self.total - self.free - self.reserved)


@dataclass(frozen=True, slots=True)
class Utilization:
    """Ratios of a device. `busy` is NVML's `gpu`: the share of time in which a kernel ran."""

    busy: float | None = None
    memory_controller: float | None = None
    encoder: float | None = None
    decoder: float | None = None
    sm: float | None = None


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """
    One MIG instance, or one compute partition of an AMD GPU.

    The compute instances of a MIG instance share its memory, so `mig_uuids` lists their UUIDs together. A partition has
    no UUID: there `mig_uuids` lists its other names (`renderD129`, `amdgpu_xcp_1`).
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
    memory_temperature_celsius: float | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    """
    The condition of the physical GPU, which changes seldom: read once a minute.

    A figure that the GPU does not have is None, or missing from its mapping.

    Attributes:
        remapped_rows: rows of memory that were replaced by spare ones, for the life of the GPU, by the kind of error
            that caused it. An uncorrectable error may take the spare row of a correctable one, so a count may fall.
        row_remap_banks: banks of memory by how many of their spare rows are left.
        retired_pages: pages of memory taken out of use for the life of the GPU, by cause (before Ampere).
        recovery_action: the driver's name for what the GPU needs; `none` if it needs nothing.
        nvlink_errors: as the driver counts them, by kind; each the sum of all links.

    """

    vbios_version: str | None = None
    power_limit_watts: float | None = None
    power_default_limit_watts: float | None = None
    temperature_thresholds_celsius: Mapping[str, float] = field(default_factory=dict)
    remapped_rows: Mapping[str, int] = field(default_factory=dict)
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    row_remap_banks: Mapping[str, int] = field(default_factory=dict)
    retired_pages: Mapping[str, int] = field(default_factory=dict)
    page_retirement_pending: bool | None = None
    recovery_action: str | None = None
    nvlink_errors: Mapping[str, int] = field(default_factory=dict)
    pcie_replays: int | None = None


@dataclass(frozen=True, slots=True)
class XidErrors:
    """
    The XID errors of one number on one GPU since the daemon started.

    Attributes:
        last_at: Unix time at which the driver reported the last one; None before the first.
        gpu_instance: the MIG instance that the driver named with the last one, if it named one.

    """

    count: int = 0
    last_at: float | None = None
    gpu_instance: int | None = None


XidCounts = Mapping[GpuUuid, Mapping[int, XidErrors]]
"""By GPU and number of the XID. A GPU without readable events is missing; one without errors has zeros."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """
    A physical GPU: its description and its measured figures.

    With `mig` its instances are the devices: NVIDIA's MIG instances, or the compute partitions of an AMD GPU.
    `unified`: the GPU has no memory of its own, but uses the host's.
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
    hardware: Hardware = Hardware()
    instances: tuple[GpuInstance, ...] = ()
    minor: int | None = None
    """
    The number in /dev/nvidia<minor>, or for AMD and Intel in /dev/dri/card<minor>. GKE and DRA name a GPU by it. It is
    mostly, but not always, the same as the index.
    """
    unified: bool = False
    names: tuple[str, ...] = ()
    """Other names of an undivided GPU, such as `renderD128`. Instances have names of their own."""

    def leaves(self) -> tuple[tuple[DeviceKey, Memory | None, Utilization], ...]:
        """Return the devices of this GPU, each with its memory and utilization."""
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
    One entry of the driver's process lists for one device, merged over the lists by raw pid.

    Attributes:
        pid: as the driver prints it. It may be a thread id, or a dead process whose child holds the memory. The kernel
            may also have reused it for another process.
        memory: bytes; None if the driver reports "not available".
        memory_sure: bytes that certainly belong to this process; set if buffers may be shared with other processes.
        evicted: seconds in which the driver had taken its queues off the device, since the process started; None if
            unknown.

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
    The driver's utilization of one pid on one GPU since the last sample: coarse ratios, for gauges only.

    A figure that the driver does not have for this process is None. A process that is not listed is idle.
    """

    pid: int
    sm: float | None
    memory_controller: float | None
    encoder: float | None
    decoder: float | None


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """
    The kernel's own count for one cgroup on one device: each buffer once, for the cgroup that allocated it.

    Attributes:
        used: bytes.
        limit: bytes above which the kernel does not let the cgroup grow; None if there is no limit, or it is unknown.
        peak: the most bytes that the cgroup ever held; None if unknown.

    """

    owner: Owner
    device: DeviceKey
    used: int
    limit: int | None = None
    peak: int | None = None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """
    One GPU at one time. Memory and process lists are read together, so that the accounts can close.

    Attributes:
        processes: None if a list could not be read; empty if no process uses the GPU.
        utilization: None if the driver cannot report it (MIG, old drivers); empty if all processes are idle.
        dropped_utilization: number of utilization samples dropped because the driver claimed more than 100 %.
        cgroups: the kernel's counts by cgroup, if it has any; they take precedence over the process lists.
        pids_proven: the pids are those of the host, or of the reader's PID namespace. Both are the same if
            `HostSample.pid_domain_proven` says so. Some drivers may print pids of the process's own namespace instead.
        partial: the lists hold only processes that use the GPU in one way (ROCm). Other processes may hold memory,
            too, and a listed process holds at least its listed bytes.
        unseen: owners of processes that could not be read, and may hold memory that is in no list. The processes of a
            `contradictory` owner may belong to any container.

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

    @property
    def devices_known(self) -> bool:
        """Whether the devices of the GPU could be listed; a GPU with MIG on may have none."""
        return self.processes is not None or bool(self.gpu.leaves())
