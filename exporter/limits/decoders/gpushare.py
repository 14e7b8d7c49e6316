"""
ACK's list of allocated devices.

What comes in: `scheduler.framework.gpushare.allocation`, `{"<container index>": {"<device index>": GiB}}`. What goes
out: one amount per container and device.

Source: koordinator-sh/koordinator's ACK plugins (pkg/scheduler/plugins/ack/gpushare), vendor documentation.
"""

from collections.abc import Iterable

from exporter.limits.decoding import (
    MOST,
    Amount,
    Asked,
    DeclarationError,
    Where,
    json_number,
    json_object,
    shown,
    whole,
)


def allocated(text: str, asked: Asked) -> Iterable[Amount]:
    """Read the annotation; containers are numbered as in the spec, init containers not counted."""
    regular = [container for container in asked.pod.containers if not container.init]
    found: list[Amount] = []
    for position, devices in json_object(text).items():
        index = whole(position, "container index")
        if index >= len(regular):
            raise DeclarationError(f"names container {index}, and the pod has {len(regular)}")
        if not isinstance(devices, dict) or len(devices) + len(found) > MOST:
            raise DeclarationError(f"devices of container {shown(position)} are not an object of index and amount")
        found += [
            Amount(
                json_number(amount, "memory"),
                container=regular[index].name,
                where=Where(index=whole(device, "device index")),
            )
            for device, amount in devices.items()
        ]
    return found
