"""
HAMi's list of allocated devices, and Volcano vGPU's, which grew from it.

What comes in: `hami.io/vgpu-devices-allocated` and its sisters: `UUID,TYPE,MiB,cores:` per device, `;` per container.
What goes out: one amount per container and device: MiB, or percent of the cores.

HAMi ends each container with `;`, Volcano joins them. HAMi writes all containers, since April 2026 init containers
first, before that none of them; Volcano writes only containers that ask for vGPUs. A text with another number of
segments than any of these explains cannot be mapped, and is refused.

Source: Project-HAMi/HAMi pkg/device/devices.go (Encode/DecodePodDevices), volcano-sh/volcano
pkg/scheduler/api/devices/nvidia/vgpu/utils.go.
"""

from collections.abc import Iterable, Iterator

from exporter.limits.decoders.containers import all_or_regular, asking, one_each
from exporter.limits.decoding import Amount, Asked, DeclarationError, Where, bounded, number, shown

_FIELDS = 4


def allocated(text: str, asked: Asked) -> Iterable[Amount]:
    """Read HAMi's form: a segment for every container."""
    pod, segments = asked.scene.pod, _segments(text)
    whose = f"containers (or {len(pod.containers)} with init containers)"
    return _amounts(one_each(segments, all_or_regular(pod, segments), "segments", whose), asked)


def requesting(text: str, asked: Asked) -> Iterable[Amount]:
    """Read Volcano's form: a segment for each container that asks for a vGPU, in their order."""
    containers = asking(asked.scene.pod, "volcano.sh/vgpu-")
    return _amounts(one_each(_segments(text), containers, "segments", "containers that ask for vGPUs"), asked)


def _segments(text: str) -> list[str]:
    return text.removesuffix(";").split(";")


def _amounts(parts: Iterable[tuple[str, str]], asked: Asked) -> Iterator[Amount]:
    parts = list(parts)
    bounded(sum(segment.count(":") for segment, _ in parts))
    for segment, container in parts:
        for device in filter(None, segment.split(":")):
            fields = device.split(",")
            if len(fields) < _FIELDS:
                raise DeclarationError(f"{shown(device)!r} is not UUID,type,memory,cores")
            # HAMi's dynamic MIG writes the instance as GPU-...[template-position]: the hardware keeps it.
            uuid = fields[0].partition("[")[0]
            yield Amount(number(fields[3 if asked.compute else 2]), container=container, where=Where(uuid=uuid))
