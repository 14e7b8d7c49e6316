"""
Device memory by cgroup, where the kernel counts it: the files `dmem.*` below the cgroup root.

What comes in: a mounted cgroup hierarchy. What goes out: what the devices have and hold, and each container's part.

The rule: a cgroup without the files says nothing, whatever the root says: the controller has to be enabled on the whole
way down (`+dmem` in each `cgroup.subtree_control`), which neither the kubelet nor systemd does by itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from exporter.base.cgroup_owner import parse_owner
from exporter.devices.kernel.dmem import own
from exporter.devices.kernel.tree import Tree
from exporter.model import Owner

ROOTS = ("", "unified/", "dmem/")
"""Where the hierarchy that has the controller is: cgroup v2, a hybrid's v2, v1."""
_DEEPEST = 24
_CRUN = ("crio-", "libpod-")
"""Whose runtime may be crun."""


@dataclass(frozen=True, slots=True)
class Group:
    """One container's cgroup: bytes by PCI address. What is missing from `limit` has none."""

    owner: Owner
    used: Mapping[str, int]
    limit: Mapping[str, int]
    peak: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Dmem:
    """The root of the hierarchy: bytes by PCI address that there are, and that all hold. `root` is where it stands."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    root: str = ""


def read_dmem(cgroups: Tree) -> Dmem | None:
    """Read the root of the hierarchy that has the controller; None where none has it, or its root is not to be seen."""
    for root in ROOTS:
        capacity = cgroups.text(f"{root}dmem.capacity")
        if capacity is not None:
            return Dmem(own(capacity), own(cgroups.text(f"{root}dmem.current")), root)
    return None


def read_groups(cgroups: Tree, dmem: Dmem) -> tuple[Group, ...]:
    """Read the containers' part. Where nothing is registered with the controller nobody is walked through."""
    return tuple(_groups(cgroups, dmem.root, "", Owner(), _DEEPEST)) if dmem.capacity else ()


def counted_here(cgroups: Tree) -> frozenset[str]:
    """
    Name the devices that are counted in this process's own cgroup, by PCI address.

    That is all that a container sees which has a cgroup namespace of its own, and no tree of the host's: the root's
    `dmem.capacity` is not there.
    """
    return frozenset(pci for root in ROOTS for pci in own(cgroups.text(f"{root}dmem.current")))


def _groups(cgroups: Tree, root: str, path: str, above: Owner, deeper: int) -> Iterator[Group]:
    for name in cgroups.folders(f"{root}{path}"):
        folder = f"{path}{name}/"
        owner = parse_owner(f"0::/{path}{name}\n")
        pod, container = owner.pairs[-1] if owner.pairs else (None, None)
        if owner != above and container is not None:
            current = cgroups.text(f"{root}{folder}dmem.current")
            if current is not None:
                peak = own(cgroups.text(f"{root}{folder}dmem.peak"))
                yield Group(owner, own(current), _limit(cgroups, f"{root}{folder}", name), peak)
        # What a container makes below its own cgroup, and be it a million folders, is its own, and counted there. One
        # that no kubelet made may be a whole node (kind).
        if deeper and (pod is None or container is None):
            yield from _groups(cgroups, root, folder, owner, deeper - 1)


def _limit(cgroups: Tree, folder: str, name: str) -> Mapping[str, int]:
    """Read a container's limits. crun puts its processes one folder deeper, and limits are set where they are."""
    folders = (folder, f"{folder}container/") if name.startswith(_CRUN) else (folder,)
    lowest: dict[str, int] = {}
    for path in folders:
        for pci, size in own(cgroups.text(f"{path}dmem.max")).items():
            lowest[pci] = min(size, lowest.get(pci, size))
    return lowest
