"""
What the answers of a Prometheus say, by container and device.

What comes in: rows, one at a time, with the number of the day that they are of. What goes out: `Notes`.

The rule: a day may be answered in parts, because Prometheus bounds the size of a query, or because a pod name passed to
another workload. Then the largest peak counts, and the smallest low quantile: what is advised may not depend on that.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.advise.series import Day, Series
from exporter.history.owners import Workload

Labels = Mapping[str, str]


class PodName(NamedTuple):
    """The name of a pod on a node; pods of one name may follow one another."""

    cluster: str
    node: str
    namespace: str
    name: str


class Pod(NamedTuple):
    """A pod on a node, by the workload that it had then; kind and workload are empty without one."""

    cluster: str
    node: str
    namespace: str
    name: str
    kind: str = ""
    workload: str = ""


class Device(NamedTuple):
    """A GPU of a node, or a hardware partition of one."""

    cluster: str
    node: str
    uuid: str
    instance: str


class Box(NamedTuple):
    """A container on a device; the container is empty for what counts for the whole pod."""

    pod: Pod
    container: str
    device: Device


@dataclass(slots=True)
class Claim:
    """A ResourceClaim on a device: the most that its containers held together, and its last limit; None if unknown."""

    peak: float | None = None
    limit: float | None = None


@dataclass
class Notes:
    """
    What the answers say.

    Attributes:
        series: of each container on each device.
        workloads: of each pod in the part that the answers are of.
        only, but: the pods that are noted in this part, if any are named, and those that are not.
        doubtful: pods whose workload changes in this part: nothing shows which of them a reading is of.
        since: Unix time since which an action counts for this part.
        sizes: memory of devices in bytes.
        claims: by cluster, namespace and device, then by name.
        actions: pod and container of each action that ended one; the container is empty for a whole pod.
    """

    series: dict[Box, Series] = field(default_factory=lambda: defaultdict(Series))
    workloads: Mapping[PodName, Workload] = field(default_factory=dict)
    only: Collection[PodName] = frozenset()
    but: Collection[PodName] = frozenset()
    doubtful: Collection[PodName] = frozenset()
    since: float = float("-inf")
    sizes: dict[Device, float] = field(default_factory=dict)
    claims: dict[tuple[str, Device], dict[str, Claim]] = field(default_factory=lambda: defaultdict(dict))
    actions: set[tuple[Pod, str]] = field(default_factory=set)

    def enter(self, enter: "Enter", labels: Labels, value: float, number: int) -> None:
        """Note a row, unless it is of another part, or a reading of one of two pods, and not known of which."""
        pod = pod_name(labels)
        if pod in self.but or (pod.name and self.only and pod not in self.only):
            return
        if enter is acted or not self.only or pod not in self.doubtful:
            enter(self, labels, value, number)


Enter = Callable[[Notes, Labels, float, int], None]
"""Notes a row: labels, value, number of the day."""


def _device(labels: Labels) -> Device:
    return Device(*(labels.get(name, "") for name in ("cluster", "node", "uuid", "gpu_instance")))


def pod_name(labels: Labels) -> PodName:
    """Return the name of the pod that a row is of."""
    return PodName(*(labels.get(name, "") for name in ("cluster", "node", "namespace", "pod")))


def _pod(notes: Notes, labels: Labels) -> Pod:
    name = pod_name(labels)
    return Pod(*name, *notes.workloads.get(name, ("", "")))


def _series(notes: Notes, labels: Labels) -> Series:
    return notes.series[Box(_pod(notes, labels), labels.get("container", ""), _device(labels))]


def _day(notes: Notes, labels: Labels, number: int) -> Day:
    return _series(notes, labels).days.setdefault(number, Day())


def peak(notes: Notes, labels: Labels, value: float, number: int) -> None:
    """Note the most that a round saw."""
    day = _day(notes, labels, number)
    day.peak = max(day.peak, value)


def kernel_peak(notes: Notes, labels: Labels, value: float, number: int) -> None:
    """Note a peak that rounds did not see. It is remembered since the container's start, so it counts for its days."""
    if number in _series(notes, labels).days:
        day = _day(notes, labels, number)
        day.kernel = max(day.kernel, value)


def p99(notes: Notes, labels: Labels, value: float, number: int) -> None:
    """Note a high quantile: that of a day is not above the largest of its parts."""
    day = _day(notes, labels, number)
    day.p99 = max(day.p99, value)


def p95(notes: Notes, labels: Labels, value: float, number: int) -> None:
    """Note a high quantile, as above."""
    day = _day(notes, labels, number)
    day.p95 = max(day.p95, value)


def p25(notes: Notes, labels: Labels, value: float, number: int) -> None:
    """Note a low quantile: that of a day is not below the smallest of its parts."""
    day = _day(notes, labels, number)
    day.p25 = value if day.p25 is None else min(day.p25, value)


def limit(notes: Notes, labels: Labels, value: float, _: int) -> None:
    """Note a declared limit; days come in their order, so the last one stays."""
    _series(notes, labels).limit = value


def declaration(notes: Notes, labels: Labels, _: float, __: int) -> None:
    """Note where the limit was declared."""
    series = _series(notes, labels)
    series.system, series.source = labels.get("system", ""), labels.get("source", "")
    series.scope, series.enforced_by = labels.get("scope", ""), labels.get("enforced_by", "")


def _claim(notes: Notes, labels: Labels) -> Claim:
    claims = notes.claims[labels.get("namespace", ""), _device(labels)]
    return claims.setdefault(labels.get("claim", ""), Claim())


def claim_peak(notes: Notes, labels: Labels, value: float, _: int) -> None:
    """Note the most that the containers of a claim held together."""
    claim = _claim(notes, labels)
    claim.peak = max(claim.peak or 0.0, value)


def claim_limit(notes: Notes, labels: Labels, value: float, _: int) -> None:
    """Note the limit of a claim."""
    _claim(notes, labels).limit = value


def over(notes: Notes, labels: Labels, value: float, _: int) -> None:
    """Note the time over the limit."""
    _series(notes, labels).over_seconds += value


def acted(notes: Notes, labels: Labels, value: float, _: int) -> None:
    """Note an action that ended a pod or container. Its series stays, so it is not one on the next pod of the name."""
    if labels.get("action") in ("evict", "kill") and value >= notes.since:
        notes.actions.add((_pod(notes, labels), labels.get("container", "")))


def size(notes: Notes, labels: Labels, value: float, _: int) -> None:
    """Note the memory of a device."""
    notes.sizes[_device(labels)] = value
