"""
A metric family as it is promised: name, type, labels, help.

What comes in: rows of (labels, value). What goes out: prometheus_client's `Metric`, built anew for each page, so that
a container that left is gone from the page.

The rule: **a row whose value is None has no sample**; zero is written only when zero was measured. A collector that
works on each container or pod of the node rests meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from operator import attrgetter
from typing import TypeVar

from prometheus_client.core import Metric, Sample

from exporter.metrics.labels import CONTAINER, GPU, LEAF, Labels

NAMESPACE = "gpusteward_"

Row = tuple[Labels, float | None]

Families = Iterator[Metric | None]
"""What a collector yields: families, and None where it has worked for so long that others are due."""

AT_ONCE = 100
"""Containers or pods that a collector describes between two turns of the event loop: some 1 ms."""

T = TypeVar("T")


class Kind(StrEnum):
    """The types of OpenMetrics which we use; in the older text format `info` is written as a gauge of 1."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """
    The promise about one metric.

    Attributes:
        name: as samples carry it, with prefix and with `_total` or `_info` (a histogram's has no suffix).
        labels: those beyond `COMMON`, plus the ones of `WORKLOAD` which it really fills.

    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    def of(self, rows: Iterable[Row]) -> Metric:
        """Build the family from rows, without those whose value is unknown."""
        metric = Metric(self.name.removesuffix("_total").removesuffix("_info"), self.help, self.kind)
        metric.samples = [Sample(self.name, labels, value) for labels, value in rows if value is not None]
        return metric

    def counted(self, bounds: Sequence[float], rows: Iterable[tuple[Labels, Sequence[int], float]]) -> Metric:
        """
        Build a histogram.

        Args:
            bounds: upper bounds of the buckets, without the last one, which has none.
            rows: labels, counts (one a bucket and one above; not cumulated), and the sum of what was observed.

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
    """Promise a gauge."""
    return Family(NAMESPACE + name, Kind.GAUGE, labels, text)


def counter(name: str, labels: tuple[str, ...], text: str) -> Family:
    """Promise a counter; its name ends in `_total`."""
    return Family(NAMESPACE + name, Kind.COUNTER, labels, text)


def histogram(name: str, labels: tuple[str, ...], text: str) -> Family:
    """Promise a histogram."""
    return Family(NAMESPACE + name, Kind.HISTOGRAM, labels, text)


def info(name: str, labels: tuple[str, ...], text: str) -> Family:
    """Promise a family whose labels are the message; its name ends in `_info`, its value is 1."""
    return Family(NAMESPACE + name, Kind.INFO, labels, text)


def with_rests(items: Iterable[T], into: list[T]) -> Iterator[None]:
    """Append the items, which are made one by one; yield after each `AT_ONCE`."""
    for number, item in enumerate(items, start=1):
        into.append(item)
        if number % AT_ONCE == 0:
            yield None


LABELS = {"gpu": GPU, "device": LEAF, "container": CONTAINER}
"""Labels of a figure, by what it is of: the first word of its name."""

Figure = tuple[Family, Callable[[object], float | None]]
"""A family, and how its value is read of the JSON document's GPU, device or container."""


def figure(name: str, text: str) -> Figure:
    """
    Promise a figure that the JSON document has, too: `device_memory_used_bytes` is `memory_used_bytes` of a device.

    It is a gauge, or a counter where the name ends in `_total`.
    """
    subject, _, field = name.removesuffix("_total").partition("_")
    return (counter if name.endswith("_total") else gauge)(name, LABELS[subject], text), attrgetter(field)
