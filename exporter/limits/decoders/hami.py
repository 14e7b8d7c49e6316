"""
HAMi's list of allocated devices, and Volcano vGPU's, which grew from it.

What comes in: `hami.io/vgpu-devices-allocated` and its sisters: `UUID,TYPE,MiB,cores:` per device, `;` per container.
What goes out: one amount per container and device: MiB, or percent of the cores.

HAMi ends each container with `;`, Volcano joins them. HAMi writes all containers; since April 2026 init containers
come first, before that they were left out. Volcano writes only containers that ask for vGPUs. A text with any other
number of segments cannot be mapped, and is refused.

Other vendors' plugins have their own device names: AMD's plugin writes the UUID of AMD SMI, but the kernel has a PCI
address. Hygon's plugin writes the serial number, but the library has another id. Such a text gives the amount, but not
the device.

Source: Project-HAMi/HAMi pkg/device/devices.go (Encode/DecodePodDevices), Project-HAMi/amd-device-plugin
internal/pkg/plugin/plugin.go, Project-HAMi/dcu-vgpu-device-plugin internal/pkg/dcu/register.go, volcano-sh/volcano
pkg/scheduler/api/devices/nvidia/vgpu/utils.go.
"""

from collections.abc import Iterable, Iterator

from exporter.limits.decoders.containers import all_or_regular, asking, one_each
from exporter.limits.decoding import Amount, Asked, DeclarationError, Where, bounded, number, shown
from exporter.model.vendors import NVIDIA

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
            # HAMi's dynamic MIG writes an instance as GPU-...[template-position]; the hardware enforces its size.
            uuid = fields[0].partition("[")[0]
            yield Amount(number(fields[3 if asked.compute else 2]), container=container, where=_where(uuid, asked))


def _where(uuid: str, asked: Asked) -> Where | None:
    """Name the device; None if only the vendor's plugin knows it: then the limit counts where the container is."""
    known = {name for device in asked.scene.devices if device.key for name in (device.key.uuid, *device.mig_uuids)}
    return Where(uuid=uuid) if not known or uuid in known or asked.scene.system.vendor == NVIDIA.name else None
