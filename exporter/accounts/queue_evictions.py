"""
How long containers stood still because the driver had taken their queues off the GPU.

What comes in: placed entries, some of which tell for how long that was so since their process began. What goes out: the
sum by container and device, since it was seen first.

The law: **a counter never falls, and never counts twice.** What a process was with when it was seen first is of another
time: a restart of the daemon must not look like an eviction. What it tells afterwards stays counted when it has ended.
A round that misses a process, or its name, is no end: what it lost meanwhile is counted when it is back.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from exporter.accounts.attribution import Attributed
from exporter.model import ContainerId, DeviceKey, ProcessKey, Subject

KEPT = 60.0
"""Seconds for which a process that is not listed, or has no name, is the same one when it is back."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver reported for a process: seconds, and when it last did (monotonic)."""

    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class Evictions:
    """
    What is known of one GPU, in seconds.

    Attributes:
        readings: of each process, also of one that was listed a moment ago.
        totals: by container; those alone of whose processes the driver tells it.

    """

    readings: Mapping[tuple[ProcessKey, DeviceKey], Reading] = field(default_factory=dict)
    totals: Mapping[tuple[Subject, DeviceKey], float] = field(default_factory=dict)

    def without(self, gone: Collection[DeviceKey]) -> "Evictions":
        """Forget devices."""
        return Evictions(
            {entry: reading for entry, reading in self.readings.items() if entry[1] not in gone},
            {entry: total for entry, total in self.totals.items() if entry[1] not in gone},
        )


def advance(before: Evictions, attributed: Attributed, known: Collection[ContainerId] | None, now: float) -> Evictions:
    """
    Add what a round tells.

    Args:
        before: what was known.
        attributed: the round's entries.
        known: the containers that still exist; of the others nothing is kept. None while it is not known which do.
        now: monotonic seconds.

    """
    if attributed.placed is None:
        return before
    readings = {entry: last for entry, last in before.readings.items() if now - last.at <= KEPT}
    totals = {entry: total for entry, total in before.totals.items() if known is None or entry[0].container_id in known}
    for placed in attributed.placed:
        seconds, device = placed.process.evicted, placed.process.device
        if seconds is None or placed.key is None or placed.subject is None:
            continue
        entry, whose = (placed.key, device), (placed.subject, device)
        last = before.readings[entry].seconds if entry in before.readings else seconds
        readings[entry] = Reading(max(last, seconds), now)
        # The difference first: added to a large sum and taken away again, it may leave less than there was.
        totals[whose] = totals.get(whose, before.totals.get(whose, 0.0)) + (readings[entry].seconds - last)
    return Evictions(readings, totals)
