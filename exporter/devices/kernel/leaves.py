"""
The leaf devices of AMD's and Intel's GPUs, and who holds what of them by DRM.

What comes in: cards, ROCm's nodes, descriptors. What goes out: leaf devices, and holdings by leaf device and process.

The law: a partition is known by the minor number of its render node. All partitions of a GPU print one PCI address,
so an address alone names a leaf device only where the GPU is whole. Whose node could not be asked for may hold any of
the partitions, so of none of them it is known what it holds.
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
class Leaf:
    """A leaf device and how the kernel's files call it."""

    key: DeviceKey
    minors: frozenset[int]
    node: Node | None = None


def leaves_of(card: Card, kfd: Kfd | None) -> tuple[Leaf, ...]:
    """Name the leaf devices of a GPU: itself, or its partitions."""
    uuid = GpuUuid(card.pci)
    nodes = sorted((n for n in (kfd.nodes.values() if kfd else ()) if n.pci == card.pci), key=lambda n: n.partition)
    if card.mode in WHOLE and len(nodes) <= 1 and not any(node.partition for node in nodes):
        return (Leaf(DeviceKey(uuid), card.minors, nodes[0] if nodes else None),)
    return tuple(
        Leaf(
            DeviceKey(uuid, node.partition),
            frozenset() if node.render_minor is None else frozenset({node.render_minor}),
            node,
        )
        for node in nodes
    )


def held_by_leaf(scan: Scan | None, leaves: Mapping[str, Sequence[Leaf]]) -> Mapping[DeviceKey, Mapping[int, Held]]:
    """Say what each process holds of each leaf device by its descriptors; `leaves` by PCI address."""
    by_minor = {minor: leaf.key for several in leaves.values() for leaf in several for minor in leaf.minors}
    whole = {pci: several[0].key for pci, several in leaves.items() if len(several) == 1}

    def device_of(descriptor: Descriptor) -> DeviceKey | None:
        if descriptor.node is not None:
            return by_minor.get(descriptor.node[1]) if descriptor.node[0] == RENDER else None
        return whole.get(descriptor.client.pdev) if descriptor.client else None

    def told(descriptor: Descriptor) -> Iterator[Descriptor]:
        parts = leaves.get(descriptor.client.pdev, ()) if descriptor.client and descriptor.node is None else ()
        if len(parts) < 2:  # noqa: PLR2004
            yield descriptor
        for part in parts if len(parts) > 1 else ():
            yield from (Descriptor(descriptor.holder, (RENDER, minor), None) for minor in part.minors)

    everybody = (each for descriptor in (scan.descriptors if scan else ()) for each in told(descriptor))
    return holdings(everybody, device_of)
