"""
The limits of each pod on its devices, kept from round to round.

What comes in: the resolution of a pod, the devices on which its containers are, its usages. What goes out: its limits,
each on one device, and their facts.

The rule: a limit is placed again only if the resolution or the places have changed; other devices of the node change
the resolution. A fact is made again only if its ceiling or `bypassed` has changed. A round without a change makes no
new object.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from exporter.limits import Resolution, ResolvedLimit
from exporter.limits.placing import placed
from exporter.model import DeviceKey, Limit, PodUid, Tolerance, Usage
from exporter.rounds.limit_facts import fact_of, with_usage


@dataclass(slots=True)
class Placed:
    """The limits of a pod with their facts in the same order, and what they were placed by."""

    resolution: Resolution
    seen: frozenset[tuple[str, DeviceKey]]
    expected: bool
    limits: tuple[ResolvedLimit, ...]
    facts: tuple[Limit, ...]

    def use(self, usages: Iterable[Usage], tolerance: Tolerance | None) -> None:
        """Bring the facts up to date; `usages` are those of the pod."""
        self.facts = tuple(
            with_usage(fact, limit, usages, tolerance) for fact, limit in zip(self.facts, self.limits, strict=True)
        )


class Placements:
    """Keeps what was placed in the round before. First `begin` a round, then ask for each pod; others are forgotten."""

    def __init__(self, foreign: Callable[[ResolvedLimit, DeviceKey], bool]) -> None:
        self._foreign = foreign
        self._before: dict[PodUid, Placed] = {}
        self._now: dict[PodUid, Placed] = {}

    def begin(self) -> None:
        """Begin a round."""
        self._before, self._now = self._now, {}

    def of(
        self, uid: PodUid, resolution: Resolution, seen: frozenset[tuple[str, DeviceKey]], *, expected: bool
    ) -> Placed:
        """Place the limits of a pod as `exporter.limits.placing` does, or return them as they were placed before."""
        known = self._before.get(uid)
        if known is None or known.resolution is not resolution or known.seen != seen or known.expected != expected:
            limits = placed(resolution, seen, self._foreign, expected=expected)
            known = Placed(resolution, seen, expected, limits, tuple(fact_of(uid, limit) for limit in limits))
        self._now[uid] = known
        return known
