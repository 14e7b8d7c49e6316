"""
The sums of a window, by device and container.

What comes in: amounts of single parts of the window, in any order. What goes out: a `Ledger` with their sums.

The rule: amounts are added, and nothing is derived here. Memory is in byte-seconds, all else in seconds.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

PARTS = ("containers", "free", "reserved", "ghost", "host", "unattributed", "unknown")
"""The parts of `gpusteward_device_memory_byte_seconds_total`."""


class Node(NamedTuple):
    """A node of a cluster; `cluster` is empty where series have no such label."""

    cluster: str
    name: str


class Place(NamedTuple):
    """A device: a GPU, or a MIG instance of it (`instance` is empty for a whole GPU)."""

    node: Node
    uuid: str
    instance: str

    @property
    def whole(self) -> "Place":
        """The GPU that it is, or is a part of."""
        return Place(self.node, self.uuid, "")


class Pod(NamedTuple):
    """A pod by name; two pods that follow one another under one name are one here."""

    node: Node
    namespace: str
    name: str


class Holder(NamedTuple):
    """A container on a device."""

    place: Place
    namespace: str
    pod: str
    container: str

    @property
    def its_pod(self) -> Pod:
        """The pod of the container."""
        return Pod(self.place.node, self.namespace, self.pod)


class Workload(NamedTuple):
    """The top controller of a pod."""

    kind: str
    name: str


@dataclass
class Span:
    """The time between the first and the last sample of a node, in Unix seconds."""

    first: float
    last: float


@dataclass
class Ledger:
    """
    Sums over a window.

    Attributes:
        capacity: bytes of each device, and of each physical GPU (`gpu_bytes`).
        parts: byte-seconds of each device by part.
        observed, unanswered: seconds in which the driver answered for a device, and in which it did not.
        spans: the time of each node's samples.
        allocated, sm, memory: of each container. A container without a figure of its SMs is missing in `sm`.
        declared: byte-seconds of the limit of a container, or (container "") of a pod.
        models, workloads: names, as far as known.
    """

    capacity: dict[Place, float] = field(default_factory=dict)
    gpu_bytes: dict[Place, float] = field(default_factory=dict)
    parts: dict[Place, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    observed: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    unanswered: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    spans: dict[Node, Span] = field(default_factory=dict)
    allocated: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    sm: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    memory: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    declared: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    models: dict[Place, str] = field(default_factory=dict)
    workloads: dict[Pod, Workload] = field(default_factory=dict)

    def seen(self, node: Node, first: float | None, last: float | None) -> None:
        """Widen the span of a node."""
        span = self.spans.setdefault(node, Span(float("inf"), float("-inf")))
        span.first = span.first if first is None else min(span.first, first)
        span.last = span.last if last is None else max(span.last, last)

    def weight(self, place: Place) -> float:
        """Return the share of its GPU's memory that a device is: 1 for a whole GPU."""
        whole = self.gpu_bytes.get(place.whole)
        return min(1.0, self.capacity.get(place, 0.0) / whole) if place.instance and whole else 1.0

    def missing(self, place: Place) -> float:
        """Return the seconds without samples of a device, between the first and the last sample of its node."""
        span = self.spans.get(place.node)
        lasted = span.last - span.first if span is not None else 0.0
        return max(0.0, lasted - self.observed.get(place, 0.0) - self.unanswered.get(place, 0.0))
