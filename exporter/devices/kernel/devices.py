"""
The devices of AMD's and Intel's GPUs, and each process's DRM usage of them.

What comes in: cards, ROCm's nodes, descriptors. What goes out: devices, and holdings by device and process.

The rule: a partition is identified by the minor number of its render node. All partitions of a GPU print one PCI
address, so an address alone names a device only where the GPU is not divided. A process whose node could not be read
may hold any of the partitions, so its usage of each of them is unknown.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from exporter.devices.kernel.cards import Card
from exporter.devices.kernel.clients import RENDER, Descriptor, Held, holdings
from exporter.devices.kernel.holders import Scan
from exporter.devices.kernel.kfd import Kfd
from exporter.devices.kernel.topology import Node
from exporter.model import DeviceKey, GpuUuid

WHOLE = {"", "SPX"}
"""Modes of an AMD GPU that is not divided."""


@dataclass(frozen=True, slots=True)
class KernelDevice:
    """A device, and its ids in the kernel's files."""

    key: DeviceKey
    minors: frozenset[int]
    node: Node | None = None


def devices_of(card: Card, kfd: Kfd) -> tuple[KernelDevice, ...]:
    """Name the devices of a GPU: itself, or its partitions."""
    uuid = GpuUuid(card.pci)
    nodes = sorted((n for n in kfd.nodes.values() if n.pci == card.pci), key=lambda n: n.partition)
    if card.mode in WHOLE and len(nodes) <= 1 and not any(node.partition for node in nodes):
        return (KernelDevice(DeviceKey(uuid), card.minors, nodes[0] if nodes else None),)
    return tuple(
        KernelDevice(
            DeviceKey(uuid, node.partition),
            frozenset() if node.render_minor is None else frozenset({node.render_minor}),
            node,
        )
        for node in nodes
    )


def held_by_device(
    scan: Scan | None, devices: Mapping[str, Sequence[KernelDevice]]
) -> Mapping[DeviceKey, Mapping[int, Held]]:
    """Return each process's usage of each device by its descriptors; `devices` by PCI address."""
    by_minor = {minor: device.key for several in devices.values() for device in several for minor in device.minors}
    whole = {pci: several[0].key for pci, several in devices.items() if len(several) == 1}

    def device_of(descriptor: Descriptor) -> DeviceKey | None:
        if descriptor.node is not None:
            return by_minor.get(descriptor.node[1]) if descriptor.node[0] == RENDER else None
        return whole.get(descriptor.client.pdev) if descriptor.client else None

    def by_part(descriptor: Descriptor) -> Iterator[Descriptor]:
        parts = devices.get(descriptor.client.pdev, ()) if descriptor.client and descriptor.node is None else ()
        if len(parts) < 2:  # noqa: PLR2004
            yield descriptor
        for part in parts if len(parts) > 1 else ():
            yield from (Descriptor(descriptor.holder, (RENDER, minor), None) for minor in part.minors)

    descriptors = (part for descriptor in (scan.descriptors if scan else ()) for part in by_part(descriptor))
    return holdings(descriptors, device_of)
