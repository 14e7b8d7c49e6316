"""
What is held until when, and why: one table for the node, its namespaces and pods.

The history, a place and a reason come in. The history with the hold, or without it, goes out; or the hold that is in
force.

The rule: a hold ends by itself, or is lifted by what set it. A stop that waits for a person is a breaker.
"""

from collections.abc import Mapping
from dataclasses import replace

from enforcer.policy.history import History, Hold, HoldKey, Moment
from enforcer.policy.vocabulary import Place, Reason

FIRST_WAIT = 10.0
LONGEST_WAIT = 300.0
"""Seconds of the growing waits between two requests for one pod: 10 s, doubled each time, at most five minutes."""
REMEMBERED = 600.0
"""Seconds after its end for which a hold is remembered, so that the next one of the same reason is longer."""


def held(
    history: History, place: Place, name: str, reason: Reason, now: Moment, *, seconds: float | None, detail: str = ""
) -> History:
    """Hold a place for so many seconds; None: until it is lifted."""
    until = None if seconds is None else now.monotonic + seconds
    key = (place, name, reason)
    times = history.holds[key].times + 1 if key in history.holds else 1
    return replace(history, holds={**history.holds, key: Hold(until, detail, times)})


def backed_off(history: History, pod: str, reason: Reason, now: Moment, detail: str = "") -> History:
    """Hold a pod for a wait that grows with each hold of this reason."""
    known = history.holds.get((Place.POD, pod, reason))
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(known.times if known else 0, 10))
    return held(history, Place.POD, pod, reason, now, seconds=wait, detail=detail)


def lifted(history: History, place: Place, name: str, reason: Reason) -> History:
    """Lift a hold; without one nothing changes."""
    key = (place, name, reason)
    return replace(history, holds={other: hold for other, hold in history.holds.items() if other != key})


def pruned(holds: Mapping[HoldKey, Hold], now: Moment) -> Mapping[HoldKey, Hold]:
    """Forget holds that ended some time ago."""
    return {key: hold for key, hold in holds.items() if hold.until is None or now.monotonic - hold.until < REMEMBERED}


class InForce:
    """The holds that are in force at a moment, by place and name."""

    def __init__(self, holds: Mapping[HoldKey, Hold], now: Moment) -> None:
        self._by_place: dict[tuple[Place, str], list[tuple[Reason, str]]] = {}
        for (place, name, reason), hold in sorted(holds.items()):
            if hold.until is None or now.monotonic < hold.until:
                self._by_place.setdefault((place, name), []).append((reason, hold.detail))

    def on(self, place: Place, name: str, *, dry: bool = False) -> tuple[Reason, str] | None:
        """Return the first reason for which a place is held, and its particulars. A dry run delays no real action."""
        for hold in self._by_place.get((place, name), ()):
            if dry or hold[0] is not Reason.DRY_RUN:
                return hold
        return None
