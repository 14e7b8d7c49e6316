"""
vgpu-manager's list of allocated devices.

What comes in: `nvidia.com/real-allocated`, written as `container[index_uuid_cores_MiB,...];container[...]`. What goes
out: one amount per container and device: MiB, or percent of the cores.

Source: coldzerofear/vgpu-manager pkg/device/types.go (PodDeviceClaim.UnmarshalText).
"""

from collections.abc import Iterator

from exporter.limits.decoders.containers import known
from exporter.limits.decoding import Amount, Asked, DeclarationError, Where, bounded, number, shown

_FIELDS = 4


def allocated(text: str, asked: Asked) -> Iterator[Amount]:
    """Read the annotation. Raises DeclarationError for another form, or for a container that the pod does not have."""
    bounded(text.count("_") // (_FIELDS - 1))
    for part in filter(None, text.replace(" ", "").split(";")):
        name, bracket, rest = part.partition("[")
        if not bracket or not rest.endswith("]"):
            raise DeclarationError(f"{shown(part)!r} is not container[devices]")
        known(asked.scene.pod, name)
        for device in filter(None, rest[:-1].split(",")):
            fields = device.split("_")
            if len(fields) != _FIELDS:
                raise DeclarationError(f"{shown(device)!r} is not index_uuid_cores_memory")
            _, uuid, cores, memory = fields
            yield Amount(number(cores if asked.compute else memory), container=name, where=Where(uuid=uuid))
