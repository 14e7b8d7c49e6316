"""
The devices that limits apply to, and their names.

What comes in: the driver's GPUs and the kubelet's count of their replicas. What goes out: the node's devices as input
of the resolver, and their names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.model import DeviceKey, Gpu, Sharing


@dataclass(frozen=True, slots=True)
class LeafDevice:
    """
    A device that can have limits: a GPU without MIG, or a MIG instance.

    Attributes:
        key: None offline, because a node's labels give the number and size of its devices, but not their ids.
        memory: bytes; None if unknown.
        mig_uuids: its other names, such as the UUIDs of a MIG instance.
        replicas: above 1 if the kubelet hands the device out several times.

    """

    key: DeviceKey | None
    index: int
    minor: int | None = None
    memory: int | None = None
    vendor: str = "nvidia"
    mig_uuids: tuple[str, ...] = ()
    sharing: Sharing = Sharing.NONE
    replicas: int = 1

    @property
    def mig(self) -> bool:
        """Whether this is a MIG instance."""
        return self.key is not None and self.key.gpu_instance is not None


@dataclass(frozen=True, slots=True)
class Place:
    """A device as a declaration names it. `key` is None if the device is not known on this node."""

    name: str
    key: DeviceKey | None = None


def device_name(key: DeviceKey) -> str:
    """Name a device in one word: the UUID, and for a MIG instance then `/gi` and its id (as GKE does)."""
    return key.uuid if key.gpu_instance is None else f"{key.uuid}/gi{key.gpu_instance}"


def leaf_devices(
    gpus: Iterable[Gpu], sharing: Mapping[DeviceKey, tuple[Sharing, int]] | None = None
) -> tuple[LeafDevice, ...]:
    """Make the resolver's devices from the driver's GPUs and the kubelet's count of their replicas."""
    devices = []
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        uuids = {gi.id: gi.mig_uuids for gi in gpu.instances}
        for key, memory, _ in gpu.leaves():
            kind, replicas = (sharing or {}).get(key, (Sharing.NONE, 1))
            devices.append(
                LeafDevice(
                    key,
                    gpu.index,
                    gpu.minor,
                    memory.total if memory else None,
                    gpu.vendor,
                    gpu.names if key.gpu_instance is None else uuids[key.gpu_instance],
                    kind,
                    replicas,
                )
            )
    return tuple(devices)
