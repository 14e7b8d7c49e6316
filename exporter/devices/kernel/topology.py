"""
The devices of ROCm's kernel driver (KFD): the text of `/sys/class/kfd/kfd/topology/nodes/<n>`.

What comes in: the texts of one node. What goes out: a `Node`, or None for a CPU.

The rule: the lowest three bits of `location_id` are the partition, not a PCI function. All partitions of an MI300 have
one PCI address. Each has a render node of its own, which identifies it. Memory is read from the banks: `local_mem_size`
is 0 on newer kernels.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.devices.kernel.sums import known_sum

_BANKS_OF_GPUS = {"1", "2"}
"""Heap types of the frame buffer, visible to the CPU or not."""


@dataclass(frozen=True, slots=True)
class Node:
    """
    One GPU, or one partition of a GPU.

    Attributes:
        gpu_id: its name in `/sys/class/kfd/kfd/proc`.
        pci: address, such as `0000:0a:00.0`.
        partition: 0 for a GPU that is not divided.
        render_minor: of its `/dev/dri/renderD<minor>`; None where it has none.
        memory: bytes; None where not reported.
        integrated: it shares a package, and its memory, with CPU cores.

    """

    gpu_id: int
    pci: str
    partition: int = 0
    render_minor: int | None = None
    memory: int | None = None
    integrated: bool = False


def parse(gpu_id: str, properties: str, banks: Iterable[str] = ()) -> Node | None:
    """Parse a node's files `gpu_id`, `properties` and `mem_banks/*/properties`; None for a CPU."""
    number = gpu_id.strip()
    if not number.isdecimal() or number == "0":
        return None
    values = _values(properties)
    location, domain = _number(values, "location_id"), _number(values, "domain") or 0
    if location is None:
        return None
    bus, device = location >> 8 & 0xFF, location >> 3 & 0x1F
    return Node(
        gpu_id=int(number),
        pci=f"{domain:04x}:{bus:02x}:{device:02x}.0",
        partition=location & 0x7,
        render_minor=_number(values, "drm_render_minor") or None,
        memory=known_sum(
            _number(bank, "size_in_bytes") for bank in map(_values, banks) if bank.get("heap_type") in _BANKS_OF_GPUS
        ),
        integrated=bool(_number(values, "cpu_cores_count")),
    )


def _values(text: str) -> Mapping[str, str]:
    return dict(line.split(None, 1) for line in text.splitlines() if len(line.split(None, 1)) == 2)  # noqa: PLR2004


def _number(values: Mapping[str, str], key: str) -> int | None:
    text = values.get(key, "").strip()
    return int(text) if text.isdecimal() else None
