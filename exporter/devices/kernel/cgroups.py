"""
Device memory by cgroup, where the kernel counts it: the files `dmem.*` below the cgroup root.

What comes in: a mounted cgroup hierarchy. What goes out: what the devices have and hold, and each container's part.

The law: a leaf without the files says nothing, whatever the root says: the controller has to be enabled on the whole
way down (`+dmem` in each `cgroup.subtree_control`), which neither the kubelet nor systemd does by itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from exporter.cgroups import parse_owner
from exporter.devices.kernel.dmem import own
from exporter.devices.kernel.tree import Tree
from exporter.model import Owner

ROOTS = ("", "unified/", "dmem/")
"""Where the hierarchy that has the controller is: cgroup v2, a hybrid's v2, v1."""
_DEEPEST = 24


@dataclass(frozen=True, slots=True)
class Group:
    """One container's cgroup: bytes by PCI address. What is missing from `limit` has none."""

    owner: Owner
    used: Mapping[str, int]
    limit: Mapping[str, int]
    peak: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Dmem:
    """One reading: bytes by PCI address that there are and that all hold, and the containers."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()


def read_dmem(cgroups: Tree) -> Dmem | None:
    """Read the hierarchy that has the controller; None where none has it."""
    for root in ROOTS:
        capacity = cgroups.text(f"{root}dmem.capacity")
        if capacity is not None:
            used = own(cgroups.text(f"{root}dmem.current"))
            return Dmem(own(capacity), used, tuple(_groups(cgroups, root, "", Owner(), _DEEPEST)))
    return None


def _groups(cgroups: Tree, root: str, path: str, above: Owner, deeper: int) -> Iterator[Group]:
    for name in cgroups.folders(f"{root}{path}"):
        folder = f"{path}{name}/"
        owner = parse_owner(f"0::/{path}{name}\n")
        pod, container = owner.pairs[-1] if owner.pairs else (None, None)
        if owner != above and container is not None:
            current = cgroups.text(f"{root}{folder}dmem.current")
            if current is not None:
                limit, peak = (own(cgroups.text(f"{root}{folder}dmem.{file}")) for file in ("max", "peak"))
                yield Group(owner, own(current), limit, peak)
        # What a container makes below its own cgroup, and be it a million folders, is its own, and counted there. One
        # that no kubelet made may be a whole node (kind).
        if deeper and (pod is None or container is None):
            yield from _groups(cgroups, root, folder, owner, deeper - 1)
