"""
Groups containers by their workload.

What comes in: `Notes`. What goes out: one `Seen` per workload and container, or per workload where the limit is that of
the whole pod.

The rule: clusters stay apart. A limit for the pod concerns what its containers hold together: their peaks are added,
which is at least what they held at once. A sandboxed pod (gVisor, Kata) has readings of the whole pod alone.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from exporter.advise.notes import Box, Claim, Notes, Pod
from exporter.advise.observed import Observed, observed
from exporter.advise.series import Series
from exporter.model import Scope

STATIC = "Node"
"""The kind that controls static pods. Each of them is a workload of its own, for a node is none."""


class Target(NamedTuple):
    """
    A container name of a workload; of a pod without one, and of a static pod, the pod is the workload.

    `kind` of a static pod is "StaticPod"; `container` is empty where the limit is the whole pod's, and for a
    sandboxed pod.
    """

    cluster: str
    namespace: str
    kind: str
    workload: str
    container: str


class Wanted(NamedTuple):
    """What was asked about; None: all."""

    cluster: str | None = None
    namespace: str | None = None
    kind: str | None = None
    workload: str | None = None
    container: str | None = None

    def has(self, target: Target) -> bool:
        """Whether a target is wanted."""
        return all(one in (None, found) for one, found in zip(self, target, strict=True))


@dataclass(frozen=True, slots=True)
class Seen:
    """
    A target and its use.

    Attributes:
        devices: the most that one container of it, or one pod, had.
        container: the name that a patch needs; of several containers with one limit, that with the largest peak. Empty
            for a sandboxed pod.
    """

    target: Target
    use: Observed
    devices: int
    container: str


def grouped(notes: Notes, wanted: Wanted) -> list[Seen]:
    """Group everything that has readings."""
    of_pods = {_workload(box.pod) for box, one in notes.series.items() if one.scope == Scope.POD}
    # Readings without a container beside others of the pod are of its first moments: its status came later.
    named = {box.pod for box, one in notes.series.items() if one.days and box.container}
    boxes: dict[Target, dict[Box, Series]] = defaultdict(dict)
    names: dict[Target, dict[str, float]] = defaultdict(dict)
    for box, series in notes.series.items():
        if not series.days or (not box.container and box.pod in named):
            continue
        workload = _workload(box.pod)
        target = Target(*workload, "" if workload in of_pods else box.container)
        if not wanted.has(target):
            continue
        names[target][box.container] = max(names[target].get(box.container, 0.0), series.peak)
        place = box._replace(container=target.container)
        together = boxes[target].setdefault(place, _series(notes, place))
        if place != box:
            _add(together, series)
    return [_seen(notes, target, boxes[target], names[target]) for target in sorted(boxes)]


def _series(notes: Notes, box: Box) -> Series:
    return notes.series.get(box, Series())


def _workload(pod: Pod) -> tuple[str, str, str, str]:
    kind, name = pod.kind, pod.workload
    if not name:
        kind, name = "Pod", pod.name
    elif kind == STATIC:
        kind, name = "StaticPod", pod.name
    return pod.cluster, pod.namespace, kind, name


def _add(together: Series, one: Series) -> None:
    """Add a container to its pod."""
    for number, day in one.days.items():
        present = together.days.get(number)
        together.days[number] = day if present is None else present + day
    together.over_seconds += one.over_seconds


def _seen(notes: Notes, target: Target, boxes: dict[Box, Series], names: dict[str, float]) -> Seen:
    devices: dict[Pod, int] = defaultdict(int)
    for box, series in boxes.items():
        series.device_bytes = notes.sizes.get(box.device)
        series.instance = bool(box.device.instance) or series.scope == Scope.INSTANCE
        _of_claim(series, notes.claims.get((box.pod.namespace, box.device), {}))
        series.acted = any((box.pod, name) in notes.actions for name in _names(box, names))
        devices[box.pod] += 1
    container = max(names, key=lambda name: (name != "", names[name], name))
    return Seen(target, observed(boxes.values()), max(devices.values()), container)


def _of_claim(series: Series, claims: dict[str, Claim]) -> None:
    """
    Note the claim of a container without a declaration of its own.

    Of several claims on its device, as each pod may have one, metrics do not say which is its own.
    """
    if not claims or series.scope not in ("", Scope.CLAIM):
        return
    series.scope = Scope.CLAIM
    found = list(claims.values())
    if len(found) == 1:
        series.claim_peak = found[0].peak
    if series.limit is None:
        series.limit = min((one.limit for one in found if one.limit is not None), default=None)


def _names(box: Box, names: Iterable[str]) -> Iterable[str]:
    """Containers whose end is that of the box; an action on the whole pod names none."""
    return ("", box.container) if box.container else ("", *names)
