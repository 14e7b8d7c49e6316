"""
The metrics: one subject, one file; this list is made by hand.

What comes in: the latest snapshot and the tally. What goes out: metric families, and the page that scrapers get.

The rule: a page is rendered from what is already known. It reads no source, and so costs the same whatever hangs.
To add a figure: describe it in `exporter.api` and write its name and help into the file of its subject.
To add a subject: write a file with `FAMILIES` and `collect(snapshot)`, and add it below.
"""

from collections.abc import Callable, Mapping

from exporter.metrics import claims, containers, devices, gpus, limits, pods, rounds
from exporter.metrics.family import Families, Family
from exporter.model import Snapshot

SUBJECTS: tuple[tuple[str, tuple[Family, ...], Callable[[Snapshot], Families]], ...] = (
    ("GPUs", gpus.FAMILIES, gpus.collect),
    ("Leaf devices", devices.FAMILIES, devices.collect),
    ("Containers", containers.FAMILIES, containers.collect),
    ("Declared limits", limits.FAMILIES, limits.collect),
    ("Claims", claims.FAMILIES, claims.collect),
    ("Pods", pods.FAMILIES, pods.collect),
)
"""What is written of a snapshot, in the order of the page. `rounds` is apart, because it is never withdrawn."""

CATALOGUE: Mapping[str, tuple[Family, ...]] = {
    **{subject: families for subject, families, _ in SUBJECTS},
    "The daemon itself": rounds.FAMILIES,
}
"""Everything that is promised, by subject, in the order of the page."""
