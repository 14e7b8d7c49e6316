"""
Fences: on which cgroup, how high, whether a present limit is ours, and when a fence is removed.

What comes in: texts of /proc, the driver's limits of a cgroup, the state of its container. What goes out: fences.

The rule: **a fence stops growth and takes nothing.** It is never below the usage. It is set on the container's own
cgroup of the unified hierarchy, which the driver reads. It is set only if no other program has set a limit there, and
removed when its reason ends.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from enforcer.actions.fence.driver import CgroupLimits
from enforcer.actions.victim import Victim, container_of
from enforcer.policy.history import Standing
from enforcer.policy.holder import CaseKey
from enforcer.policy.limit_holders import ALLOCATIONS
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from exporter.base.cgroup_owner import PodCgroups
from exporter.model import Snapshot

PAGE = 2 << 20
"""Bytes of a page: the driver hands out memory in pages of 2 MiB."""
STEP = 256 << 20
"""The least bytes by which a fence is lowered, unless that reaches the limit: each change is a line of the journal."""
FOR_GOOD = frozenset(
    {Reason.EXEMPT, Reason.LABEL, Reason.NAMESPACE, Reason.OWN_POD, Reason.PRIORITY, Reason.STATIC_POD}
)
"""Protections that an operator or a manifest gave; the others are those of an ending pod, or come from doubt."""

_CRUN = ("crio-", "libpod-")


class NoCgroup(StrEnum):
    """Why a container has no cgroup that could be fenced; the values are messages."""

    NOT_FOUND = "no process of it was found"
    NOT_UNIFIED = "its processes have no cgroup of version 2 of their own"
    PRIVATE = "its cgroup is seen from a private cgroup namespace, so its path is not known"
    UNREADABLE = "its processes could not be read"


class Fence(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A hard limit of ours that is set in the driver, or is about to be.

    Attributes:
        key: of the limit holder (the container, or a pod of which only this container uses the device) and the device.
        cgroup: its path in the unified hierarchy, as /proc shows it.
        hard: bytes.
        before: our earlier fence, in force until `hard` is, in bytes; None: there was none.
        limit: the declared limit, bytes.
        container: the name of the fenced container, where the key is a pod's.

    """

    key: CaseKey
    cgroup: str
    hard: int
    before: int | None
    limit: int
    container: str = ""

    @property
    def fenced(self) -> str:
        """The name of the fenced container."""
        return self.container or self.key.container


def leaf(texts: Iterable[str], victim: Victim, pods: PodCgroups) -> str | NoCgroup:
    """
    Find the cgroup that the runtime made for a container, by its processes' texts of `/proc/<pid>/cgroup`.

    A cgroup that the container made below it does not count, because its processes could leave that one. A runtime that
    uses version 1 alone (runc before 1.1 on a hybrid node) leaves all containers in its service's cgroup. Then the
    container has no cgroup of its own.
    """
    paths = {_unified(text) for text in texts}
    if not paths:
        return NoCgroup.NOT_FOUND
    if any(path.startswith("/..") for path in paths):
        return NoCgroup.PRIVATE
    common = _common(paths)
    segments = common.split("/")
    for length in range(2, len(segments) + 1):
        path = "/".join(segments[:length])
        if container_of(pods.owner(f"0::{path}")) == victim:
            # crun puts the processes one folder deeper for CRI-O and podman, and the driver needs that folder.
            deeper = segments[length : length + 1] == ["container"] and segments[length - 1].startswith(_CRUN)
            return f"{path}/container" if deeper else path
    return NoCgroup.NOT_UNIFIED


def mounted(mountinfo: str) -> str | None:
    """Find where the whole unified hierarchy is mounted, by the text of `/proc/self/mountinfo`; None: nowhere."""
    mount_points = []
    for line in mountinfo.split("\n"):
        mount, _, kind = line.partition(" - ")
        fields = mount.split(" ")
        if kind.startswith("cgroup2 ") and len(fields) > 4 and fields[3] == "/":  # noqa: PLR2004
            mount_points.append(fields[4])
    if "/sys/fs/cgroup" in mount_points:
        return "/sys/fs/cgroup"
    return mount_points[0] if mount_points else None


def height(limit: int, used: int) -> int:
    """Return the bytes at which to fence, in whole pages: the limit, or the usage where that is more."""
    return -(-max(limit, used) // PAGE) * PAGE


def lowered(fence: Fence, charged: int | None, seen: int | None) -> int | None:
    """
    Return the bytes to which a fence can be lowered at the present usage; None: it stays.

    The usage is the larger of `charged` (the driver's count of the cgroup) and `seen` (by the process lists). If one of
    them is unknown, the fence stays.
    """
    wanted = fence.hard if charged is None or seen is None else height(fence.limit, max(charged, seen))
    lowest = height(fence.limit, 0)
    return wanted if wanted < fence.hard and (wanted == lowest or fence.hard - wanted >= STEP) else None


def ours(fence: Fence | None, limits: CgroupLimits) -> bool:
    """Tell whether the driver's limit is our fence; a changed value belongs to the program that set it."""
    if fence is None or limits.soft != 0 or limits.hard is None:
        return False
    return limits.hard in (fence.hard, fence.before)


def fallen(fence: Fence, standings: Mapping[CaseKey, Standing], snapshot: Snapshot, rules: Rules) -> str | None:
    """Return why a fence is to be removed, as a message; None: it stays, also in doubt."""
    ceiling = rules.ceiling
    if rules.mode is not Mode.ENFORCE or ceiling.mode.rank < Mode.DRY_RUN.rank:
        return f"the mode is {ceiling.mode}"
    if Rung.FENCE not in rules.ladder:
        return "the ladder has no fence"
    known = standings.get(fence.key)
    if known is None:
        blind = not snapshot.names_live or any(fault.source == ALLOCATIONS for fault in snapshot.faults)
        blind = blind or fence.key.uuid not in snapshot.gpus_read  # a limit that names no device is where its user is
        here = fence.key.pod_uid in snapshot.pods
        return "it declares no limit" if here and not blind and not _declared(fence.key, snapshot) else None
    if known.state is State.EXEMPT and known.reason in FOR_GOOD:
        return known.reason.words
    if known.limit.memory is not None and known.limit.memory > fence.limit:
        return "it declares a higher limit"
    if known.mode.rank < ceiling.mode.rank and known.prevented is not Reason.NAMESPACE_UNKNOWN:
        return f"the mode of its namespace is {known.mode}"
    return None


def _declared(key: CaseKey, snapshot: Snapshot) -> bool:
    return any(
        (limit.pod_uid, limit.container, limit.device.uuid) == (key.pod_uid, key.container, key.uuid)
        for limit in snapshot.limits
    )


def _unified(text: str) -> str:
    return next((line[3:] for line in text.split("\n") if line.startswith("0::")), "")


def _common(paths: Iterable[str]) -> str:
    """Return the longest path that all of these begin with, in whole segments."""
    first, *others = (path.split("/") for path in paths)
    length = len(first)
    for other in others:
        length = next((i for i in range(min(length, len(other))) if first[i] != other[i]), min(length, len(other)))
    return "/".join(first[:length])
