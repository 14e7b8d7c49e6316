"""
The devices that declarations are about, and how they are called.

What comes in: the driver's GPUs and the kubelet's count of their replicas. What goes out: the node's devices as the
resolver takes them, and their names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.model import DeviceKey, Gpu, Sharing


@dataclass(frozen=True, slots=True)
class LeafDevice:
    """
    A device that declarations can be about: a GPU without MIG, or a MIG instance.

    `key` is None offline, where a node's labels say how many devices there are and how large, but not which.
    `replicas` is above 1 where the kubelet hands it out several times; `mig_uuids` is all that it is called besides.
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
        """Whether this is a MIG GPU instance."""
        return self.key is not None and self.key.gpu_instance is not None


@dataclass(frozen=True, slots=True)
class Place:
    """A device as a declaration names it; `key` where that is a device which is known to be there."""

    name: str
    key: DeviceKey | None = None


def device_name(key: DeviceKey) -> str:
    """Name a device in one word: the UUID, for a GPU instance followed by /gi and its id (as GKE does)."""
    return key.uuid if key.gpu_instance is None else f"{key.uuid}/gi{key.gpu_instance}"


def leaf_devices(
    gpus: Iterable[Gpu], sharing: Mapping[DeviceKey, tuple[Sharing, int]] | None = None
) -> tuple[LeafDevice, ...]:
    """Make the resolver's devices of the driver's GPUs and the kubelet's count of their replicas."""
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
