"""
The pod and container that a process belongs to, by its cgroup.

What comes in: the text of `/proc/<pid>/cgroup`, of any cgroup version, as any reader sees it. What goes out: an
`Owner`.

The law: **outside in.** A process that may write cgroups (docker or kind in a pod, or a liar) makes folders of any
name, but only below its own: the kubelet and the runtime made the outer ones. So pairs come in that order, a pattern
matches a whole segment or nothing, and what stands below a container is that container's until a further pod begins.
Never raises, whatever the text; takes time linear in its length.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from exporter.model import ContainerId, Owner, PodUid

_Pair = tuple[PodUid | None, ContainerId | None]

_POD = re.compile(
    # Before "pod" stand the names of slices: `kubepods-burstable-`, in kind `kubelet-kubepods-burstable-`.
    r"(?:[\w.\-]*-)?pod"
    # A UID of the API (systemd's escaping makes "_" of "-"), or the kubelet's hash of a static pod's manifest.
    r"(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?:\.slice)?",
    re.ASCII,
)
_CONTAINER = re.compile(
    # Monitors (`crio-conmon-`), mount units and Kata's sandboxes bear ids of this form, too: they match nothing.
    r"(?:(?:cri-containerd|crio|docker|nerdctl|libpod|libpod-payload)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?",
)


def parse_owner(text: str) -> Owner:
    """
    Parse the text of `/proc/<pid>/cgroup`.

    Of several lines (v1, hybrid) those with a pod win over those without, and one may go deeper than another (a nested
    node, in some hierarchies only). From where they disagree nothing is believed: a liar may spoil what stands below
    its own container, not the container. Lines that disagree from the outset are `contradictory`.
    """
    # Not splitlines(): the kernel keeps "\n" out of names, and only that; "\r" or "\u2028" may well stand in one.
    paths = dict.fromkeys(line.partition(":")[2].partition(":")[2] for line in text.split("\n"))
    parsed = [pairs for path in paths if (pairs := list(_pairs(path)))]
    lines = [pairs for pairs in parsed if pairs[-1][0] is not None] or parsed
    outer = _agreed([pair for pair in pairs if pair[0] is None] for pairs in lines)
    pods = _agreed([pair for pair in pairs if pair[0] is not None] for pairs in lines)
    if outer is None or pods is None:
        return Owner(contradictory=True)
    return Owner((*outer, *pods))


def _pairs(path: str) -> Iterator[_Pair]:
    """Name the pairs of one path, outermost first. The container of a pod is the first one below it."""
    pod: PodUid | None = None
    taken = False
    for uid, container in _segments(path):
        if uid is not None:
            if pod is not None and not taken:
                yield pod, None
            pod, taken = PodUid(uid.replace("_", "-")), False
        if container is not None and not taken:
            yield pod, ContainerId(container)
            taken = pod is not None
    if pod is not None and not taken:
        yield pod, None


def _segments(path: str) -> Iterator[tuple[str | None, str | None]]:
    """Name the pod and the container that each segment stands for: nearly always one of them, or neither."""
    for segment in path.removesuffix(" (deleted)").split("/"):
        slice_ = unit = segment
        if segment.count(":") == 2:  # noqa: PLR2004
            # A runtime that keeps no systemd but was given a path for it makes one folder `<slice>:<prefix>:<id>`.
            slice_, prefix, name = segment.split(":")
            unit = f"{prefix}-{name}"
        pod, container = _POD.fullmatch(slice_), _CONTAINER.fullmatch(unit)
        yield (pod["uid"] if pod else None), (container["id"] if container else None)


def _agreed(lines: Iterable[list[_Pair]]) -> list[_Pair] | None:
    """Join what lines say as far as they agree; None when they disagree from the outset. "No container" agrees."""
    agreed: list[_Pair] = []
    for column in zip_longest(*lines):
        pods = {pair[0] for pair in column if pair}
        containers = {pair[1] for pair in column if pair and pair[1]}
        if len(pods) > 1 or len(containers) > 1:
            return agreed or None
        agreed.append((pods.pop(), next(iter(containers), None)))
    return agreed
