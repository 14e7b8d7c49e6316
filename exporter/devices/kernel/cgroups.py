"""
Device memory by cgroup, where the kernel counts it: the files `dmem.*` below the cgroup root.

What comes in: a mounted cgroup hierarchy. What goes out: the devices' capacity and usage, and each container's part.

The rule: a cgroup without the files has no count, even if the root has one. The controller must be enabled on the whole
way down (`+dmem` in each `cgroup.subtree_control`). Neither the kubelet nor systemd does that by itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from exporter.base.cgroup_owner import USUAL, PodCgroups
from exporter.devices.kernel.dmem import own
from exporter.devices.kernel.tree import Tree
from exporter.model import Owner

ROOTS = ("", "unified/", "dmem/")
"""The possible places of the hierarchy with the controller: cgroup v2, a hybrid's v2, v1."""
_DEEPEST = 24
_CRUN = ("crio-", "libpod-")
"""Prefixes of the cgroups whose runtime may be crun."""


@dataclass(frozen=True, slots=True)
class Group:
    """One container's cgroup: bytes by PCI address. A device that is missing from `limit` has none."""

    owner: Owner
    used: Mapping[str, int]
    limit: Mapping[str, int]
    peak: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Dmem:
    """The root of the hierarchy: capacity and usage in bytes by PCI address. `root` is its path."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    root: str = ""


def read_dmem(cgroups: Tree) -> Dmem | None:
    """Read the root of the hierarchy with the controller; None where none has it, or its root is not visible."""
    for root in ROOTS:
        capacity = cgroups.text(f"{root}dmem.capacity")
        if capacity is not None:
            return Dmem(own(capacity), own(cgroups.text(f"{root}dmem.current")), root)
    return None


def read_groups(cgroups: Tree, dmem: Dmem, pods: PodCgroups = USUAL) -> tuple[Group, ...]:
    """Read the containers' counts. If no device is registered with the controller, no cgroup is walked through."""
    return tuple(_groups(cgroups, dmem.root, "", pods)) if dmem.capacity else ()


def counted_here(cgroups: Tree) -> frozenset[str]:
    """
    Name the devices that are counted in this process's own cgroup, by PCI address.

    A container with a cgroup namespace of its own, and without the host's tree, sees no more than that: the root's
    `dmem.capacity` is missing there.
    """
    return frozenset(pci for root in ROOTS for pci in own(cgroups.text(f"{root}dmem.current")))


def _groups(cgroups: Tree, root: str, path: str, pods: PodCgroups, deeper: int = _DEEPEST) -> Iterator[Group]:
    for name in cgroups.folders(f"{root}{path}"):
        folder = f"{path}{name}/"
        owner = pods.owner(f"0::/{path}{name}\n")
        container = owner.pairs[0][1] if owner.pairs else None
        if container is not None:
            current = cgroups.text(f"{root}{folder}dmem.current")
            if current is not None:
                peak = own(cgroups.text(f"{root}{folder}dmem.peak"))
                yield Group(owner, own(current), _limit(cgroups, f"{root}{folder}", name), peak)
        # Folders below a container's own cgroup, even a million, are the container's, and are counted there. Folders
        # that cannot contain pods are not walked through.
        elif deeper and (owner.pairs or pods.leads(f"/{path}{name}")):
            yield from _groups(cgroups, root, folder, pods, deeper - 1)


def _limit(cgroups: Tree, folder: str, name: str) -> Mapping[str, int]:
    """Read a container's limits. crun puts the processes one folder deeper, and the limits are set there."""
    folders = (folder, f"{folder}container/") if name.startswith(_CRUN) else (folder,)
    lowest: dict[str, int] = {}
    for path in folders:
        for pci, size in own(cgroups.text(f"{path}dmem.max")).items():
            lowest[pci] = min(size, lowest.get(pci, size))
    return lowest
