"""
The metrics: one subject, one file; this list is made by hand.

What comes in: the latest snapshot and the tally. What goes out: metric families, and the page that scrapers get.

The law: a page is rendered from what is already known. Rendering asks nobody, and so costs the same whatever hangs.
To add a subject: write its file with `FAMILIES` and `collect(snapshot)`, and add both below.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import Metric

from exporter.metrics import claims, containers, devices, gpus, limits, pods, rounds
from exporter.metrics.family import Family
from exporter.model import Snapshot

COLLECTORS: tuple[Callable[[Snapshot], Iterator[Metric]], ...] = (
    gpus.collect,
    devices.collect,
    containers.collect,
    limits.collect,
    claims.collect,
    pods.collect,
)
"""What is told of a snapshot. The daemon itself (`rounds`) is told apart, because it is never withdrawn."""

CATALOGUE: Mapping[str, tuple[Family, ...]] = {
    "GPUs": gpus.FAMILIES,
    "Leaf devices": devices.FAMILIES,
    "Containers": containers.FAMILIES,
    "Declared limits": limits.FAMILIES,
    "Claims": claims.FAMILIES,
    "Pods": pods.FAMILIES,
    "The daemon itself": rounds.FAMILIES,
}
"""Everything that is promised, by subject, in the order of the page."""
