"""
A metric family as promised: name, type, labels, help.

What comes in: rows of (labels, value). What goes out: prometheus_client's `Metric`, built anew for each page, so that
a container that has ended is not on the next page. A `Lasting` one is built anew when anything that it is made of has
changed.

The rule: **a row whose value is None has no sample.** Zero is written only if zero was measured. A collector that works
on each container or pod of the node pauses in between.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from operator import attrgetter
from typing import Generic, TypeVar

from prometheus_client.core import Metric, Sample

from exporter.metrics.labels import CONTAINER, GPU, LEAF

NAMESPACE = "gpusteward_"

Row = tuple[dict[str, str], float | None]

Families = Iterator[Metric | None]
"""The output of a collector: families, and None after each share of work, where other tasks may run."""

AT_ONCE = 100
"""Containers or pods that a collector describes between two turns of the event loop: about 1 ms."""

T = TypeVar("T")


class Kind(StrEnum):
    """The OpenMetrics types in use; in the older text format `info` is written as a gauge of 1."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"
    HISTOGRAM = "histogram"


class Lasting(Metric):
    """A family that stays the same for many pages, and its text by the form of a page."""

    def __init__(self, name: str, documentation: str, typ: str) -> None:
        super().__init__(name, documentation, typ)
        self.texts: dict[tuple[bool, bool], bytes] = {}


class Kept(Generic[T]):
    """What a collector made last, for as long as it would be made of the same."""

    def __init__(self) -> None:
        self._basis: object = None
        self._made: T | None = None

    def of(self, basis: object) -> T | None:
        """Return what was made of an equal basis; None if it has to be made. Equal objects are mostly the same ones."""
        return self._made if self._basis == basis else None

    def keep(self, basis: object, made: T) -> T:
        """Keep what was made; its families are `Lasting` ones."""
        self._basis, self._made = basis, made
        return made


@dataclass(frozen=True, slots=True)
class Family:
    """
    The promise about one metric.

    Attributes:
        name: as in samples, with prefix and with `_total` or `_info` (a histogram's has no suffix).
        labels: those beyond `node`, and the labels of `WORKLOAD` that are not empty.

    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    def of(self, rows: Iterable[Row], made: type[Metric] = Metric) -> Metric:
        """Build the family from rows; rows with an unknown value are left out."""
        metric = made(self.name.removesuffix("_total").removesuffix("_info"), self.help, self.kind)
        name = self.name
        metric.samples = [
            # Sample's own constructor takes twice as long, and the page of 8 GPUs has a thousand of them.
            tuple.__new__(Sample, (name, labels, value, None, None, None))
            for labels, value in rows
            if value is not None
        ]
        return metric

    def counted(self, bounds: Sequence[float], rows: Iterable[tuple[dict[str, str], Sequence[int], float]]) -> Metric:
        """
        Build a histogram.

        Args:
            bounds: upper bounds of the buckets, without that of the last one (+Inf).
            rows: labels, counts (one per bucket and one above; not cumulated), and the sum of the observed values.

        """
        metric = self.of([])
        for labels, counts, total in rows:
            cumulated = list(accumulate(counts))
            for bound, count in zip((*map(str, bounds), "+Inf"), cumulated, strict=True):
                metric.samples.append(Sample(f"{self.name}_bucket", labels | {"le": bound}, count))
            metric.samples.append(Sample(f"{self.name}_count", labels, cumulated[-1]))
            metric.samples.append(Sample(f"{self.name}_sum", labels, total))
        return metric


def gauge(name: str, labels: tuple[str, ...], text: str) -> Family:
    """Promise a gauge; `text` is its help."""
    return Family(NAMESPACE + name, Kind.GAUGE, labels, text)


def counter(name: str, labels: tuple[str, ...], text: str) -> Family:
    """Promise a counter; its name ends in `_total`."""
    return Family(NAMESPACE + name, Kind.COUNTER, labels, text)


def histogram(name: str, labels: tuple[str, ...], text: str) -> Family:
    """Promise a histogram; its samples end in `_bucket`, `_count` and `_sum`."""
    return Family(NAMESPACE + name, Kind.HISTOGRAM, labels, text)


def info(name: str, labels: tuple[str, ...], text: str) -> Family:
    """Promise a family whose labels carry the information; its name ends in `_info`, its value is 1."""
    return Family(NAMESPACE + name, Kind.INFO, labels, text)


def with_rests(items: Iterable[T], into: list[T]) -> Iterator[None]:
    """Append lazily made items to `into`; yield None after each `AT_ONCE` of them."""
    for number, item in enumerate(items, start=1):
        into.append(item)
        if number % AT_ONCE == 0:
            yield None


LABELS = {"gpu": GPU, "device": LEAF, "container": CONTAINER}
"""Labels of a figure, by the first word of its name."""

Figure = tuple[Family, Callable[[object], float | None]]
"""A family, and the function that reads its value from the JSON document's GPU, device or container."""


def figure(name: str, text: str) -> Figure:
    """
    Promise a figure of the JSON document: `device_memory_used_bytes` is `memory_used_bytes` of a device.

    It is a gauge, or a counter if the name ends in `_total`.
    """
    kind, _, field = name.removesuffix("_total").partition("_")
    return (counter if name.endswith("_total") else gauge)(name, LABELS[kind], text), attrgetter(field)
