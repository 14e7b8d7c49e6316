"""
The sums of a window, by device and container.

What comes in: amounts of single parts of the window, in any order. What goes out: a `Ledger` with their sums.

The rule: amounts are added. One thing is derived: the time without samples, which nothing counts. Memory is in
byte-seconds, all else in seconds.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from exporter.history.owners import Owners, Workload
from exporter.report.names import ANY_MODEL, SLICED, Gpu, Holder, Node, Place, Pod

PARTS = ("containers", "free", "reserved", "ghost", "host", "unattributed", "unknown")
"""The parts of `gpusteward_device_memory_byte_seconds_total`."""
EVERY = 300
"""Seconds between two looks at what no counter counts: samples, declared limits, use above the allocation."""


@dataclass
class Span:
    """The time between the first and the last sample of a node or device, in Unix seconds."""

    first: float = float("inf")
    last: float = float("-inf")

    def widen(self, first: float | None = None, last: float | None = None) -> None:
        """Take a sample earlier or later than those so far."""
        self.first = self.first if first is None else min(self.first, first)
        self.last = self.last if last is None else max(self.last, last)

    def within(self, start: float, end: float) -> float:
        """Return the seconds of it between two times."""
        return max(0.0, min(self.last, end) - max(self.first, start))


@dataclass
class Part:
    """
    What is kept of one part of the window, a day or less.

    Attributes:
        start, end: Unix seconds.
        scraped: seconds with samples of each node, by the labels that tell copies of a series apart.
        alive, present: seconds with samples of each node and of each device or `SLICED`, copies counted once.
        seen: the time between the first and the last sample of each node.
        counted: seconds that the counters of each device counted.
        sizes, looks: the sum of the bytes of each device over its samples, and the number of these.
        allotted, metered: the number of samples of each container's allocation, and of its SMs.
        handed: of `Ledger.allocated`, what was handed out of each device in this part; `read` is its observed time.
        owners, workloads: samples of each pod by workload, and the workload that counts.
        sliced: seconds in which a GPU answered that it is in MIG mode.
        sources: the copies of each GPU's series, asked for where a node has several.
        named, models: samples of each GPU by model, and the model that counts.
    """

    start: float
    end: float
    scraped: dict[Node, dict[tuple[str, ...], float]] = field(default_factory=lambda: defaultdict(dict))
    alive: dict[Node, float] = field(default_factory=lambda: defaultdict(float))
    present: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    seen: dict[Node, Span] = field(default_factory=lambda: defaultdict(Span))
    counted: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    sizes: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    looks: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    allotted: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    metered: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    handed: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    read: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    sliced: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    owners: Owners[Node, Pod] = field(default_factory=Owners)
    workloads: dict[Pod, Workload] = field(default_factory=dict)
    sources: dict[Gpu, set[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(set))
    named: dict[Gpu, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    models: dict[Gpu, str] = field(default_factory=dict)

    def gap(self, node: Node) -> float:
        """Return the most seconds that may lie between two samples of a node; 0 where it was scraped all the time."""
        seen = self.seen.get(node)
        without = seen.last - seen.first - self.alive.get(node, 0.0) if seen is not None else 0.0
        # A sample is valid for `EVERY` seconds. So are both ends of a gap, and those of the node's time, uncertain.
        return without + 4 * EVERY if without > EVERY else 0.0

    def unmetered(self, holder: Holder) -> float:
        """Return the share of a container's samples in which nothing is known of its SMs."""
        allotted = self.allotted.get(holder, 0.0)
        return max(0.0, 1 - self.metered.get(holder, 0.0) / allotted) if allotted else float(holder not in self.metered)


@dataclass
class Ledger:
    """
    Sums over a window. GPU time is in seconds of a whole GPU: each part of the window has weights of its own.

    Attributes:
        capacity: the last known bytes of each device, and of each physical GPU (`gpu_bytes`).
        parts: byte-seconds of each device by part.
        observed, unanswered: GPU time in which the driver answered for a device, and in which it did not.
        silent: `unanswered` in byte-seconds of the device.
        spans, lives: the time of each node's samples, and of each device's, or `SLICED`, whatever its model is called.
        allocated, sm: GPU time of each container; its byte-seconds are in `memory`.
        unmetered: of `allocated`, the time without a figure of the SMs.
        excess: of `sm`, what exceeded the allocation at its time, by steps of `EVERY` seconds.
        declared: byte-seconds of the limit of a container, or (container "") of a pod, while its device was read.
        within: of `declared`, what the holders held.
        copies: the labels by which series were there more than once; each is counted once.
        namesakes: nodes of one name whose series are of different GPUs, with the labels by which they differ.
        podless: series had the namespace of a workload in `exported_namespace`, and no `exported_pod`.
        days: the parts of the window.
    """

    capacity: dict[Place, float] = field(default_factory=dict)
    gpu_bytes: dict[Place, float] = field(default_factory=dict)
    parts: dict[Place, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    observed: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    unanswered: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    silent: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    spans: dict[Node, Span] = field(default_factory=lambda: defaultdict(Span))
    lives: dict[Place, Span] = field(default_factory=lambda: defaultdict(Span))
    allocated: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    sm: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    unmetered: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    excess: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    memory: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    declared: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    within: dict[Holder, float] = field(default_factory=lambda: defaultdict(float))
    copies: set[str] = field(default_factory=set)
    namesakes: dict[Node, set[str]] = field(default_factory=dict)
    podless: bool = False
    days: list[Part] = field(default_factory=list)

    def size(self, part: Part, place: Place) -> float:
        """Return the bytes of a device in a part of the window: their mean, because an instance's id can be reused."""
        looks = part.looks.get(place)
        return part.sizes[place] / looks if looks else self.capacity.get(place, 0.0)

    def weight(self, part: Part, place: Place) -> float:
        """Return the share of its GPU's memory that a device is in a part of the window: 1 for a whole GPU."""
        whole = self.gpu_bytes.get(place.whole)
        return min(1.0, self.size(part, place) / whole) if place.instance and whole else 1.0

    def idle(self, holder: Holder) -> float:
        """
        Return the allocated seconds of a container in which its SMs were not in use.

        What a container used above its allocation at one time does not lessen what it left unused at another.
        """
        known = max(0.0, self.allocated.get(holder, 0.0) - self.unmetered.get(holder, 0.0))
        return min(known, max(0.0, known - self.sm.get(holder, 0.0) + self.excess.get(holder, 0.0)))

    def there(self, part: Part, place: Place) -> float:
        """
        Return the seconds of a device in a part of the window, between its first and its last sample.

        A device that was not there while its node had samples is not missing: its GPU was replaced, or cut into other
        MIG instances.
        """
        node = self.spans.get(place.node)
        if node is None:
            return 0.0
        gap = max(0.0, node.within(part.start, part.end) - part.alive.get(place.node, 0.0))
        # A GPU that changed its mode had one at a time in the node's gap. First comes the one of which less is missing.
        modes = place.whole, place.part(SLICED)
        first = min(modes, key=lambda mode: self._without(part, mode))
        if bool(first.instance) != bool(place.instance):
            gap = max(0.0, gap - self._without(part, first))
        return part.present.get(place, 0.0) + min(self._without(part, place), gap)

    def _without(self, part: Part, place: Place) -> float:
        """Return the seconds without samples of a device in a part of the window, within its life."""
        life, node = self.lives.get(place.nameless), self.spans.get(place.node)
        if life is None or node is None:
            return 0.0
        seconds = life.within(max(part.start, node.first), min(part.end, node.last))
        return seconds - part.present.get(place, 0.0)

    def missing(self, place: Place) -> tuple[float, float]:
        """
        Return the time without samples of a device, between its first and its last one: GPU time, and byte-seconds.

        What a device did not count while it was there is missing: the gap was short.
        """
        seconds = size = 0.0
        for day in self.days:
            if day.models.get(place.gpu, place.model) != place.model:
                continue
            # What follows the last sample of a day is counted on the next one, so a day may be above its time.
            lost = self.there(day, place) - day.counted.get(place, 0.0)
            seconds += lost * self.weight(day, place)
            size += lost * self.size(day, place)
        return max(0.0, seconds), max(0.0, size)

    def handed_out(self, place: Place) -> tuple[float, float]:
        """
        Return the GPU time of a device that no container was allocated, and what was allocated above its time.

        Two plugins, for example, hand out a device twice. That does not make up for time at which no container had it.
        """
        free = twice = 0.0
        for day in self.days:
            rest = day.read.get(place, 0.0) - day.handed.get(place, 0.0)
            free += max(0.0, rest)
            twice += -rest if -rest > EVERY else 0.0  # counters of containers and devices end at other moments
        return free, twice

    @property
    def models(self) -> set[str]:
        """All models that a GPU had."""
        return {model for day in self.days for model in day.models.values()}

    def uncovered(self) -> dict[Place, tuple[float, float]]:
        """
        Return the seconds of each whole GPU in MIG mode that no instance covered.

        First those in which the GPU answered, then those in which it did not, or which are without samples.
        """
        instances: dict[Gpu, list[str]] = defaultdict(list)
        for place in self.lives:
            if place.instance:
                instances[place.gpu].append(place.instance)
        found: dict[Place, tuple[float, float]] = {}
        for day in self.days:
            for gpu, names in instances.items():
                sliced = Place(*gpu, SLICED, day.models.get(gpu, ANY_MODEL))
                known, unknown = found.get(sliced.whole, (0.0, 0.0))
                bare, silent = self._rest(day, sliced, [sliced.part(name) for name in names if name != SLICED])
                found[sliced.whole] = known + bare, unknown + silent
        return found

    def _rest(self, part: Part, sliced: Place, instances: Sequence[Place]) -> tuple[float, float]:
        """Return what instances leave of their GPU in a part of the window: while it answered, and else."""
        weights = [self.weight(part, one) for one in instances]
        read = [part.read.get(one, 0.0) for one in instances]
        there = self.there(part, sliced)
        rest = there - sum(self.there(part, one) * weight for one, weight in zip(instances, weights, strict=True))
        # While Prometheus is down, the counters of instances go on, and show afterwards how long the GPU answered.
        counted = (seconds / weight for seconds, weight in zip(read, weights, strict=True) if weight)
        answered = max([part.sliced.get(sliced.whole, 0.0), *counted])
        bare = max(0.0, min(rest, answered - sum(read)))
        return bare, max(0.0, rest - bare)
