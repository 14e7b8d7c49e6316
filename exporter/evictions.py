"""
How long containers stood still because the driver had taken their queues off the GPU.

What comes in: placed entries, some of which tell for how long that was so since their process began. What goes out: the
sum by container and leaf device, since it was seen first.

The law: **a counter never falls, and never counts twice.** What a process was with when it was seen first is of another
time: a restart of the daemon must not look like an eviction. What it tells afterwards stays counted when it has ended.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from exporter.attribution import Attributed
from exporter.model import ContainerId, DeviceKey, ProcessKey, Subject


@dataclass(frozen=True, slots=True)
class Evictions:
    """
    What is known of one GPU, in seconds.

    Attributes:
        told: by the driver of each process, the last time that it was listed.
        totals: by container; those alone of whose processes the driver tells it.

    """

    told: Mapping[tuple[ProcessKey, DeviceKey], float] = field(default_factory=dict)
    totals: Mapping[tuple[Subject, DeviceKey], float] = field(default_factory=dict)

    def without(self, gone: Collection[DeviceKey]) -> "Evictions":
        """Forget leaf devices."""
        return Evictions(
            {entry: told for entry, told in self.told.items() if entry[1] not in gone},
            {entry: total for entry, total in self.totals.items() if entry[1] not in gone},
        )


def advance(before: Evictions, attributed: Attributed, known: Collection[ContainerId]) -> Evictions:
    """Add what a round tells. `known`: the containers that still exist; of the others nothing is kept."""
    if attributed.placed is None:
        return before
    told: dict[tuple[ProcessKey, DeviceKey], float] = {}
    totals = {entry: total for entry, total in before.totals.items() if entry[0].container_id in known}
    for placed in attributed.placed:
        seconds, device = placed.process.evicted, placed.process.device
        if seconds is None or placed.key is None or placed.subject is None:
            continue
        entry, whose = (placed.key, device), (placed.subject, device)
        last = before.told.get(entry, seconds)
        told[entry] = max(last, seconds)
        # The difference first: added to a large sum and taken away again, it may leave less than there was.
        totals[whose] = totals.get(whose, before.totals.get(whose, 0.0)) + (told[entry] - last)
    return Evictions(told, totals)
