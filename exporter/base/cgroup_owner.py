"""
The pod and container that a process belongs to, by its cgroup.

What comes in: the text of `/proc/<pid>/cgroup`, of any cgroup version, and where the kubelet keeps its pods, both as
this process sees them. What goes out: an `Owner`.

The rule: **only the kubelet's own folders name pods, and the outermost pod counts.** A user of the node may own
a cgroup (a login session, a service, LXC, Slurm), and makes folders of any name in it. A workload does so below its
container. So each folder above the pod must be the kubelet's, and all folders below a container are the container's.
A pattern matches a whole segment or nothing. Never raises, whatever the text; takes time linear in its
length.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from exporter.model import ContainerId, Owner, PodUid

_Pair = tuple[PodUid | None, ContainerId | None]

_DELETED = " (deleted)"
_END = r"(?=/|\Z)"
_POD = (
    # Before "pod" stand the names of slices: `kubepods-burstable-`, in kind `kubelet-kubepods-burstable-`.
    r"/(?:[\w.\-]*-)?pod"
    # A UID of the API (systemd's escaping makes "_" of "-"), or the kubelet's hash of a static pod's manifest.
    r"(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?:\.slice)?"
    # A runtime that keeps no systemd but was given a path for it makes one folder `<slice>:<prefix>:<id>`.
    rf"(?::(?P<prefix>[^/:]*):(?P<name>[^/:]*))?{_END}"
)
_QOS = r"/(?:(?:[\w.\-]*-)?(?:burstable|besteffort))(?:\.slice)?"
# Between the base and a pod stand the folders of the kubelet: its root, those of all pods, those of a QoS class.
_KUBELETS = r"/(?:kubelet|burstable|besteffort|(?:[\w.\-]*-)?kubepods(?:-burstable|-besteffort)?)(?:\.slice)?"
# Monitors (`crio-conmon-`), mount units and Kata's sandboxes bear ids of this form, too: they match nothing.
_ID = r"(?:(?:cri-containerd|crio|docker|nerdctl|libpod|libpod-payload)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?"

_UNIT = re.compile(_ID)
_CONTAINER = re.compile(rf"/{_ID}{_END}")
_ANY_POD = re.compile(_POD, re.ASCII)
_BELOW_KUBELETS = re.compile(rf"(?:{_KUBELETS}{_END})*{_POD}", re.ASCII)
_BELOW_ANY = re.compile(rf"(?:/[^/]*)*?{_POD}", re.ASCII)
_LEADS = re.compile(rf"(?:{_KUBELETS}{_END})*\Z", re.ASCII)
_TIER = re.compile(rf"{_QOS}\Z", re.ASCII)
_UPWARDS = re.compile(rf"(?:/\.\.{_END})+")


class Origin(StrEnum):
    """How it is known where the kubelet keeps its pods."""

    CONFIGURED = "configured"
    OWN_POD = "own_pod"
    NAMESPACE = "cgroup_namespace"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class PodCgroups:
    """
    Where the kubelet keeps its pods, as this process sees paths.

    Attributes:
        roots: the folders below which they are; "" is the root of the hierarchy. Only the kubelet's names lead to a
            pod, from these folders and from `/..`. Those are the cgroups around this process, which root made.
        origin: how that is known. Below a configured folder any name leads to a pod.

    """

    roots: tuple[str, ...] = ("",)
    origin: Origin = Origin.DEFAULT

    def owner(self, text: str) -> Owner:
        """
        Parse the text of `/proc/<pid>/cgroup`.

        Of several lines (v1, hybrid) those with a pod win over those without. Lines that name different pods or
        containers are `contradictory`: no name is believed.
        """
        pairs = {pair for path in _paths(text) if (pair := self._pair(path)) is not None}
        if len(pairs) > 1:
            pairs = {pair for pair in pairs if pair[0] is not None} or pairs
            pods, containers = {pod for pod, _ in pairs}, {container for _, container in pairs if container is not None}
            if len(pods) > 1 or len(containers) > 1:
                return Owner(contradictory=True)
            return Owner(((pods.pop(), next(iter(containers), None)),))
        return Owner(tuple(pairs))

    def leads(self, path: str) -> bool:
        """Tell whether the folder `path` can have pods below it. No path of a pod does, nor what is below one."""
        path = path.removesuffix(_DELETED)
        for root in self.roots:
            if f"{root}/".startswith(f"{path}/"):
                return True
            if path.startswith(f"{root}/"):
                if self.origin is Origin.CONFIGURED:
                    return _BELOW_ANY.match(path, len(root)) is None
                return _LEADS.match(path, len(root)) is not None
        return False

    def elsewhere(self, text: str) -> str | None:
        """Return the folder in which a pod is named that is not the kubelet's; None where there is no such name."""
        for path in _paths(text):
            found = _ANY_POD.search(path)
            if found is not None and self._pair(path) is None:
                return path[: found.start()] or "/"
        return None

    @property
    def described(self) -> str:
        """Say where, for people."""
        if self.origin is Origin.NAMESPACE:
            return "the kubelet's folders around this daemon's own cgroup"
        if self.origin is Origin.DEFAULT:
            return "/kubepods, /kubepods.slice and kind's folders below /kubelet and /kubelet.slice"
        return ", ".join(root or "/" for root in self.roots)

    def _pair(self, path: str) -> _Pair | None:
        """Name the outermost pod of a path and its container, which is the first one below it."""
        path = path.removesuffix(_DELETED)
        configured = self.origin is Origin.CONFIGURED
        if (above := _UPWARDS.match(path)) is not None:
            # The cgroups above this process have no names here. Only root makes folders in them.
            path = path[above.end() :]
            found = _named(path, 0, _BELOW_KUBELETS, bare=True)
            if found is not None or not configured:
                return found
        for root in self.roots:
            if path.startswith(f"{root}/"):
                pattern = _BELOW_ANY if configured else _BELOW_KUBELETS
                return _named(path, len(root), pattern, bare=configured)
        return None


USUAL = PodCgroups()
"""What is believed where nothing was learned or configured: `/kubepods`, `/kubepods.slice`, and kind's folders."""


def learned(own: str, init: str) -> PodCgroups:
    """
    Learn where the pods are from the texts of `/proc/self/cgroup` and `/proc/1/cgroup`.

    The daemon's own pod is the innermost one of its path, and the pods of its kubelet are beside it. In a cgroup
    namespace of its own a process sees no names above itself. Outside of pods what is usual is taken, and no more.
    """
    roots = []
    for path in _paths(own):
        *_, pod = (None, *_ANY_POD.finditer(path))
        if pod is not None:
            roots.append(_TIER.sub("", path[: pod.start()]))
    if roots:
        return PodCgroups(tuple(dict.fromkeys(roots)), Origin.OWN_POD)
    private = any(_UPWARDS.match(path) for path in _paths(init))
    return PodCgroups(origin=Origin.NAMESPACE if private else Origin.DEFAULT)


def configured(root: str) -> PodCgroups:
    """Use the folder that an operator configured."""
    return PodCgroups((root.rstrip("/"),), Origin.CONFIGURED)


def _named(path: str, start: int, pattern: re.Pattern[str], *, bare: bool) -> _Pair | None:
    """Name the pod to which the folders from `start` on lead, or (`bare`) the container that stands there itself."""
    found = pattern.match(path, start)
    if found is None:
        container = _CONTAINER.match(path, start) if bare else None
        return None if container is None else (None, ContainerId(container["id"]))
    uid = PodUid(found["uid"].replace("_", "-"))
    inline = _UNIT.fullmatch(f"{found['prefix']}-{found['name']}") if found["prefix"] is not None else None
    container = inline or _CONTAINER.search(path, found.end())
    return uid, (ContainerId(container["id"]) if container is not None else None)


def _paths(text: str) -> Iterator[str]:
    """Yield the different paths of a text."""
    # Not splitlines(): the kernel keeps "\n" out of names, and only that; "\r" or "\u2028" may well stand in one.
    yield from dict.fromkeys(line.partition(":")[2].partition(":")[2] for line in text.split("\n"))
