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

from collections.abc import Iterable, Iterator, Sequence

from exporter.limits.decoding import MOST, Amount, Asked, DeclarationError, Where, number, shown
from exporter.limits.rows import What
from exporter.model import DeclaredContainer, DeclaredPod

_FIELDS = 4


def allocated(text: str, asked: Asked) -> Iterable[Amount]:
    """Read HAMi's form: a segment for every container."""
    segments = text.split(";")
    if text.endswith(";"):
        segments.pop()
    containers = asked.pod.containers
    regular = tuple(container for container in containers if not container.init)
    for candidates in (containers, regular):
        if len(segments) == len(candidates):
            return tuple(_amounts(segments, candidates, asked))
    raise DeclarationError(
        f"{len(segments)} segments do not match {len(regular)} containers (or {len(containers)} with init containers)"
    )


def requesting(text: str, asked: Asked) -> Iterable[Amount]:
    """Read Volcano's form: a segment for each container that asks for a vGPU, in their order."""
    segments = text.split(";")
    if text.endswith(";"):
        segments.pop()
    asking = _asking(asked.pod)
    if len(segments) != len(asking):
        raise DeclarationError(f"{len(segments)} segments do not match {len(asking)} containers that ask for vGPUs")
    return tuple(_amounts(segments, asking, asked))


def _asking(pod: DeclaredPod) -> tuple[DeclaredContainer, ...]:
    return tuple(
        container
        for container in pod.containers
        if any(key.startswith("volcano.sh/vgpu-") for key in container.resources())
    )


def _amounts(segments: Sequence[str], containers: Sequence[DeclaredContainer], asked: Asked) -> Iterator[Amount]:
    if sum(segment.count(":") + 1 for segment in segments) > MOST + len(segments):
        raise DeclarationError(f"more than {MOST} devices")
    field = 3 if asked.row.what is What.COMPUTE else 2
    for segment, container in zip(segments, containers, strict=True):
        for device in filter(None, segment.split(":")):
            fields = device.split(",")
            if len(fields) < _FIELDS:
                raise DeclarationError(f"{shown(device)!r} is not UUID,type,memory,cores")
            # HAMi's dynamic MIG writes the instance as GPU-...[template-position]: the hardware keeps it.
            uuid = fields[0].partition("[")[0]
            yield Amount(number(fields[field]), container=container.name, where=Where(uuid=uuid))
