"""
The simulated node as data: the meaning of each key in `scene.yaml`.

What comes in: `scene.yaml`, which people may read and edit. What goes out: the same as frozen structs.

The rule: memory is in GiB and load is a ratio, both as curves over seconds. The time on the curves of a long-lived pod
counts from the start of the simulation. On those of a pod with a `Life` it counts from the creation of each generation.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from exporter.model import DeviceKey, GpuUuid, ProcessKind, Sharing
from exporter.simulated.curves import Curve, made_uuid

HOUR = 3600.0


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the file. Unknown keys are refused."""


class Model(_Row, frozen=True):
    """
    A GPU model.

    Attributes:
        gpm: Hopper and later measure how many SMs are in use.
        banks: of memory, each with spare rows.
        thresholds: temperatures in degrees Celsius, by NVML's names.

    """

    name: str
    memory_mib: int
    reserved_mib: int
    idle_watts: float
    max_watts: float
    idle_mhz: int
    boost_mhz: int
    memory_mhz: int
    gpm: bool
    vbios: str
    banks: int
    thresholds: Mapping[str, float]


class Instance(_Row, frozen=True):
    """A MIG instance with one compute instance. `slices`: its share of the seven compute slices."""

    id: int
    profile: str
    memory_mib: int
    slices: int


class GpuRow(_Row, frozen=True):
    """
    A GPU. Its index is its place in the list.

    `inlet` is the temperature of its cooling air in degrees Celsius. `managed` is memory in GiB that no process list
    shows (cudaMallocManaged).
    """

    model: Model
    pci_bus_id: str
    sharing: Sharing
    replicas: int = 1
    inlet: float = 27
    managed: float | Curve = 0.0
    ecc_corrected: int = 0
    instances: tuple[Instance, ...] = ()


class XidRow(_Row, frozen=True):
    """A repeated XID error: `first` seconds after the start, and then every `period` seconds."""

    gpu: int
    code: int
    first: float
    period: float
    instance: int | None = None


class Place(_Row, frozen=True, array_like=True):
    """A device: a GPU by its index, or one of its MIG instances."""

    gpu: int
    instance: int | None = None

    @property
    def key(self) -> DeviceKey:
        """The device's identity."""
        return device_key(self.gpu, self.instance)


class Process(_Row, frozen=True):
    """
    A process on one device. While its memory is 0 it has not opened the device.

    Attributes:
        memory: GiB with the context, without `breath`.
        load: share of the device's compute; the loads on one device add up to at most 1.
        breath: MiB by which its memory rises and falls in steps.
        decoder: share of the video decoder's time.
        thread: id of the thread that opened the device; the driver prints it instead of the pid.
        zombie_after: seconds after which it is a zombie, while a child keeps its memory.

    """

    pid: int
    device: Place
    memory: float | Curve
    load: float | Curve = 0.0
    kinds: frozenset[ProcessKind] = frozenset({ProcessKind.COMPUTE})
    breath: int = 48
    decoder: float = 0
    thread: int | None = None
    zombie_after: float | None = None


class ContainerRow(_Row, frozen=True):
    """A container: the devices that the kubelet handed to it, used or not, and its processes on devices."""

    name: str
    devices: tuple[Place, ...] = ()
    processes: tuple[Process, ...] = ()
    replicas: int = 1


class Life(_Row, frozen=True):
    """
    The life of a pod that is created again and again, in seconds after its creation.

    A generation is created `first` seconds after the start, and then every `period`; one more exists before that. If
    `gone` is later than `period`, two generations overlap. Each has its own UID, container ids and pids.
    """

    period: float
    first: float
    running: float
    deleted: float
    gone: float


class PodRow(_Row, frozen=True):
    """
    A pod. A `*` in the name becomes five characters that differ from generation to generation.

    Attributes:
        kind: of the top controller, whose name is `workload`; a bare pod has neither.
        age_hours: age of a long-lived pod at the start.
        annotations: they declare the limits on a node whose sharing declares none.
        static: created by the kubelet from a file: its cgroup has a hash instead of the UID.

    """

    namespace: str
    name: str
    containers: tuple[ContainerRow, ...]
    kind: str = ""
    workload: str = ""
    queue: str = ""
    priority_class: str = ""
    age_hours: float = 24
    life: Life | None = None
    annotations: dict[str, str] = {}
    static: bool = False


class Scene(_Row, frozen=True):
    """The whole file. `templates` only holds YAML anchors for other entries."""

    driver: str
    uptime_hours: float
    consenting: frozenset[str]
    priorities: dict[str, int]
    throttles: tuple[str, ...]
    templates: list[Any]
    gpus: tuple[GpuRow, ...]
    xids: tuple[XidRow, ...]
    pods: tuple[PodRow, ...]
    host: tuple[Process, ...]
    ghosts: tuple[Process, ...]


@cache
def scene() -> Scene:
    """Read `scene.yaml`, once per process."""
    text = Path(__file__).with_name("scene.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), Scene)


@cache
def device_key(index: int, instance: int | None = None) -> DeviceKey:
    """Return the key of a GPU of the scene, or of one of its MIG instances."""
    return DeviceKey(GpuUuid(f"GPU-{made_uuid('gpu', index)}"), instance)
