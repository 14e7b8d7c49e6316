"""
vgpu-manager's list of allocated devices.

What comes in: `nvidia.com/real-allocated`, written as `container[index_uuid_cores_MiB,...];container[...]`. What goes
out: one amount per container and device: MiB, or percent of the cores.

Source: coldzerofear/vgpu-manager pkg/device/types.go (PodDeviceClaim.UnmarshalText).
"""

from collections.abc import Iterable

from exporter.limits.decoding import MOST, Amount, Asked, DeclarationError, Where, number, shown
from exporter.limits.rows import What

_FIELDS = 4


def allocated(text: str, asked: Asked) -> Iterable[Amount]:
    """Read the annotation; it names its containers."""
    if text.count("_") > MOST * (_FIELDS - 1):
        raise DeclarationError(f"more than {MOST} devices")
    found = []
    for part in filter(None, text.replace(" ", "").split(";")):
        name, bracket, rest = part.partition("[")
        if not bracket or not rest.endswith("]"):
            raise DeclarationError(f"{shown(part)!r} is not container[devices]")
        if asked.pod.container(name) is None:
            raise DeclarationError(f"names the container {shown(name)!r}, which the pod does not have")
        for device in filter(None, rest[:-1].split(",")):
            fields = device.split("_")
            if len(fields) != _FIELDS:
                raise DeclarationError(f"{shown(device)!r} is not index_uuid_cores_memory")
            _, uuid, cores, memory = fields
            amount = cores if asked.row.what is What.COMPUTE else memory
            found.append(Amount(number(amount), container=name, where=Where(uuid=uuid)))
    return found
