"""
The columns of the simulated node's table, and what each means.

Memory is written in GiB and load as a ratio, both as curves over seconds. The time on the curves of a long-lived pod
counts from the start of the simulation; on those of a pod with a `Life` from the creation of that generation.
"""

from dataclasses import dataclass
from functools import cache

from exporter.model import DeviceKey, GpuUuid, ProcessKind, Sharing
from exporter.simulated.curves import NOTHING, Curve, made_uuid

COMPUTE = frozenset({ProcessKind.COMPUTE})
GRAPHICS = frozenset({ProcessKind.GRAPHICS})
MPS_CLIENT = frozenset({ProcessKind.COMPUTE, ProcessKind.MPS})


@dataclass(frozen=True, slots=True)
class Model:
    """A GPU model. `gpm`: Hopper and later measure how many SMs are in use."""

    name: str
    memory_mib: int
    reserved_mib: int
    idle_watts: float
    max_watts: float
    idle_mhz: int
    boost_mhz: int
    memory_mhz: int
    gpm: bool


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A MIG GPU instance with one compute instance. `slices`: of the seven that do the computing."""

    id: int
    profile: str
    memory_mib: int
    slices: int


@dataclass(frozen=True, slots=True)
class GpuRow:
    """
    A GPU; its index is its place in the table.

    `inlet` is the temperature in degrees Celsius of the air that reaches it; `managed` is memory in GiB which no
    process list shows (cudaMallocManaged).
    """

    model: Model
    pci_bus_id: str
    sharing: Sharing
    replicas: int = 1
    inlet: float = 27
    managed: Curve = NOTHING
    ecc_corrected: int = 0
    instances: tuple[InstanceRow, ...] = ()


@dataclass(frozen=True, slots=True)
class XidRow:
    """An XID error that comes again and again: `first` seconds after the start, and then every `period`."""

    gpu: int
    code: int
    first: float
    period: float
    instance: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """
    A process on one leaf device. While its memory is 0 it has not opened the device.

    Attributes:
        memory: GiB with the context, without `breath`.
        load: share of the device's computing; the loads on one device add up to 1 at the most.
        breath: MiB by which its memory moves up and down in steps.
        decoder: share of the video decoder's time.
        thread: the number that the driver prints instead of the pid: the thread that opened the device.
        zombie_after: seconds after which it is dead and not reaped, while a child keeps its memory.

    """

    pid: int
    on: DeviceKey
    memory: Curve
    load: Curve = NOTHING
    kinds: frozenset[ProcessKind] = COMPUTE
    breath: int = 48
    decoder: float = 0
    thread: int | None = None
    zombie_after: float | None = None


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """A container: the leaf devices that the kubelet handed to it, used or not, and its processes on devices."""

    name: str
    devices: tuple[DeviceKey, ...] = ()
    processes: tuple[ProcessRow, ...] = ()
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Life:
    """
    The life of a pod that is made again and again, in seconds after its creation.

    A generation is created `first` seconds after the start, and then every `period`; one more is there from before.
    When `gone` is later than `period`, two generations meet. Each has its own UID, container ids and pids.
    """

    period: float
    first: float
    running: float
    deleted: float
    gone: float


@dataclass(frozen=True, slots=True)
class PodRow:
    """
    A pod. A `*` in the name becomes five characters that differ from generation to generation.

    Attributes:
        kind: of the top controller, whose name is `workload`; a bare pod has neither.
        age: seconds that a long-lived pod was there before the start.
        annotations: where the limits are declared on a node whose sharing declares none.
        static: made by the kubelet from a file: its cgroup carries a hash and not the UID.

    """

    namespace: str
    name: str
    containers: tuple[ContainerRow, ...]
    kind: str = ""
    workload: str = ""
    queue: str = ""
    priority_class: str = ""
    age: float = 86_400
    life: Life | None = None
    annotations: tuple[tuple[str, str], ...] = ()
    static: bool = False


@cache
def gpu(index: int) -> DeviceKey:
    """Name a GPU of the table."""
    return DeviceKey(GpuUuid(f"GPU-{made_uuid('gpu', index)}"))


def mig(index: int, instance: int) -> DeviceKey:
    """Name a MIG GPU instance of the table."""
    return DeviceKey(gpu(index).uuid, instance)
