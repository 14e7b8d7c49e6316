"""
Seconds for which containers stood still because the driver had taken their queues off the GPU.

What comes in: placed entries, some of them with the seconds of this since their process began. What goes out: the sum
by container and device since each process was first seen. Containers have the names of their labels, because their
counters have: one that restarts, or whose pod is made anew, continues its sum. A round in which no pod has the name
ends it.

The rule: **a counter never falls, and never counts twice.** The seconds of a process at its first sight are not
counted: a restart of the daemon must not look like an eviction. Later seconds stay counted after the process has ended.
A process that is missing from a round, or has no name there, has not ended. Its seconds are added when it is back.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from exporter.accounts.attribution import Attributed, Names
from exporter.model import DeviceKey, Holder, PodUid, ProcessKey, Usage

KEPT = 60.0
"""Seconds for which a process that is not listed, or has no name, counts as the same one when it is back."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The driver's last figure for a process: seconds, and when it was reported (monotonic)."""

    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class Evictions:
    """
    The evictions of one GPU's queues, in seconds.

    Attributes:
        readings: by process, also of one that was listed a moment ago.
        totals: by name; only those for whose processes the driver reports a figure.
    """

    readings: Mapping[tuple[ProcessKey, DeviceKey], Reading] = field(default_factory=dict)
    totals: Mapping[tuple[Holder, DeviceKey], float] = field(default_factory=dict)

    def without(self, gone: Collection[DeviceKey]) -> "Evictions":
        """Forget devices."""
        return Evictions(
            {entry: reading for entry, reading in self.readings.items() if entry[1] not in gone},
            {entry: total for entry, total in self.totals.items() if entry[1] not in gone},
        )

    def of(self, usages: Iterable[Usage], names: Names) -> tuple[Usage, ...]:
        """Return the usages with their seconds."""
        return tuple(replace(usage, evicted=self._seconds(usage, names)) for usage in usages)

    def _seconds(self, usage: Usage, names: Names) -> float | None:
        holder = _holder(names, usage.subject.pod_uid, usage.subject.container)
        return None if holder is None else self.totals.get((holder, usage.device))


def advance(before: Evictions, attributed: Attributed, names: Names, now: float, *, live: bool = True) -> Evictions:
    """
    Add one round.

    Args:
        before: the state after the last round.
        attributed: the round's entries.
        names: of pods and containers.
        now: monotonic seconds.
        live: pods without a name do not exist any more, and are forgotten.
    """
    if attributed.placed is None:
        return before
    readings = {entry: last for entry, last in before.readings.items() if now - last.at <= KEPT}
    totals = dict(before.totals)
    if totals and live:
        there = {(pod.namespace, pod.name) for pod in names.pods.values()}
        totals = {entry: total for entry, total in totals.items() if entry[0][:2] in there}
    for placed in attributed.placed:
        seconds, device = placed.process.evicted, placed.process.device
        if seconds is None or placed.key is None or placed.subject is None:
            continue
        holder = _holder(names, placed.subject.pod_uid, placed.subject.container)
        if holder is None:
            continue
        entry, whose = (placed.key, device), (holder, device)
        last = before.readings[entry].seconds if entry in before.readings else seconds
        readings[entry] = Reading(max(last, seconds), now)
        # The difference first: a float added to a large sum and subtracted again may leave less than before.
        totals[whose] = totals.get(whose, before.totals.get(whose, 0.0)) + (readings[entry].seconds - last)
    return Evictions(readings, totals)


def _holder(names: Names, pod_uid: PodUid, container: str) -> Holder | None:
    pod = names.pods.get(pod_uid)
    return None if pod is None else (pod.namespace, pod.name, container)
