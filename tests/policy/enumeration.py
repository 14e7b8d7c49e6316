"""
All traces up to a length, over an alphabet of abstract events: none is left out.

What comes in: a length. What goes out: how many traces there are, in how many of them somebody was acted on, and each
step in which the policy and a second telling of its law disagree, or an invariant is broken.

The law: **nothing is sampled.** Two traces that led to the same history at the same moment have the same future, since
`decide` is a function: they are gone on with as one, and counted as two. Rules are scaled to the smallest that are
legal (interval, warn_after and grace 30 s), so that the fourth reading in a row may act and short traces say much.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment, Result
from enforcer.policy.outcomes import conclude
from enforcer.policy.vocabulary import Trigger
from exporter.model import Snapshot
from policy.invariants import Step, violations
from policy.scenes import BEGIN, CARD, GIB, UNHURRIED, Actor, snapshot

RULES = replace(UNHURRIED, interval=30.0, warn_after=30.0, grace=30.0, spacing=30.0, trigger=Trigger.CONTENDED)
EVENTS = {
    "over": "above limit and tolerance; a neighbour is short",
    "within": "at or below the limit",
    "between": "above the limit, within the tolerance",
    "unknown": "one of its processes is not known",
    "paused": "over, after so long a time without a round that evidence is void",
    "sated": "over, and nobody is short",
    "shielded": "over, and protected in this round",
    "restarted": "over, in a new container",
    "ended": "over; the action in flight, if there is one, failed before",
}
PAUSE = 100.0


@dataclass(frozen=True, slots=True)
class Law:
    """
    The law of a scaled trace, told a second time: an automaton that counts rounds and knows no seconds.

    `rounds` and `pairs` are readings over, and pairs of them one after the other, since the excess began; `missed`
    rounds without a reading; `quiet` rounds since the last reading that was over or below.
    """

    phase: str = "ok"
    rounds: int = 0
    pairs: int = 0
    over: bool = False
    missed: int = 0
    below: int = 0
    quiet: int = 0
    flying: bool = False

    def after(self, event: str) -> tuple["Law", bool]:
        """Tell what is so after an event, and whether somebody is acted on."""
        fresh = Law(flying=self.flying)
        if event == "unknown":
            return replace(self, missed=self.missed + 1, quiet=self.quiet + 1), False
        if event == "shielded":
            return fresh, False
        if event == "ended" and self.flying:
            return Law()._over(), False
        if event in {"paused", "restarted"} or self.missed > 1:
            self = fresh  # noqa: PLW0642  (what was before is void)
        if event == "within":
            now = self._within()
        elif event == "between":
            now = self._between()
        else:
            now = self._over()
            if now.phase == "due" and event != "sated" and not now.flying:
                return replace(now, flying=True), True
        return now, False

    def _over(self) -> "Law":
        pair = self.over and self.missed == 0
        now = replace(self, over=True, missed=0, below=0, quiet=0)
        if self.phase == "ok" or (self.phase == "over" and self.rounds == 0):
            return replace(now, phase="over", rounds=1, pairs=0)
        if self.phase == "over":
            now = replace(now, rounds=self.rounds + 1, pairs=self.pairs + pair)
            return replace(now, phase="grace") if now.rounds >= 3 and now.pairs >= 1 else now
        return replace(now, phase="due") if pair else now

    def _between(self) -> "Law":
        now = replace(self, over=False, missed=0, quiet=self.quiet + 1)
        if self.phase == "over":
            return replace(now, rounds=0, pairs=0, quiet=0)
        anew = self.phase == "due" and now.quiet >= 3
        return replace(now, phase="grace", below=0, quiet=0) if anew else now

    def _within(self) -> "Law":
        ended = self.phase in {"ok", "over"} or self.below == 2
        return Law(flying=self.flying) if ended else replace(self, over=False, missed=0, quiet=0, below=self.below + 1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where traces have led: one of them (`trace`), how many, and in how many of those somebody was acted on."""

    history: History
    law: Law
    at: float
    generation: int
    trace: tuple[Step, ...]
    events: tuple[str, ...]
    traces: int
    acted: int


@dataclass(slots=True)
class Found:
    """What was found: `traces` of the whole length, `acted` of them with an action, `decided` calls of the policy."""

    traces: int = 0
    acted: int = 0
    decided: int = 0
    wrong: list[str] = field(default_factory=list)


def enumerate_all(length: int, *, alphabet: Iterable[str] = EVENTS, merged: bool = True) -> Found:
    """Go through all traces of `length` events of the alphabet. Not `merged`: each for itself, which takes long."""
    found = Found()
    places = [Place(History(), Law(), BEGIN, 0, (), (), 1, 0)]
    for _ in range(length):
        nexts: dict[object, Place] = {}
        for place in places:
            for one in _after(place, alphabet, found):
                key = _same(one) if merged else one.events
                known = nexts.get(key)
                nexts[key] = (
                    one
                    if known is None
                    else replace(known, traces=known.traces + one.traces, acted=known.acted + one.acted)
                )
        places = [*nexts.values()]
    found.traces, found.acted = sum(one.traces for one in places), sum(one.acted for one in places)
    return found


def by_the_law(length: int, alphabet: Iterable[str] = EVENTS) -> tuple[int, int]:
    """Count traces, and traces with an action, by the automaton alone."""
    places = {(Law(), False): 1}
    for _ in range(length):
        nexts: dict[tuple[Law, bool], int] = {}
        for (law, acted), traces in places.items():
            for event in alphabet:
                now, acts = law.after(event)
                nexts[now, acted or acts] = nexts.get((now, acted or acts), 0) + traces
        places = nexts
    return sum(places.values()), sum(traces for (_, acted), traces in places.items() if acted)


def _after(place: Place, alphabet: Iterable[str], found: Found) -> Iterator[Place]:
    for event in alphabet:
        step, generation = _play(place, event)
        found.decided += 1
        law, acts = place.law.after(event)
        events, trace = (*place.events, event), (*place.trace, step)
        acted = step.verdict.action is not None
        if acted is not acts:
            found.wrong.append(f"{' '.join(events)}: {'an action' if acted else 'no action'} against the law")
        found.wrong += [f"{' '.join(events)}: {what}" for what in violations(trace)]
        counted = place.traces if acted else place.acted
        yield Place(step.history, law, step.now.monotonic, generation, trace, events, place.traces, counted)


def _play(place: Place, event: str) -> tuple[Step, int]:
    history, ended = place.history, None
    generation = place.generation + (event == "restarted")
    if event == "ended" and history.in_flight is not None:
        ended = Result.FAILED
        history = conclude(history, ended, Moment(place.at, place.at))
    at = place.at + RULES.interval + (PAUSE if event == "paused" else 0.0)
    seen = _seen(event, at, generation)
    now = Moment(at, at)
    after, verdict = decide(seen, RULES, history, now)
    return Step(seen, RULES, now, verdict, after, ended), generation


@cache
def _seen(event: str, at: float, generation: int) -> Snapshot:
    used = {"within": 8 * GIB, "between": 8 * GIB + GIB // 8, "unknown": None}.get(event, 30 * GIB)
    facts: dict[str, object] = {"priority": 2_000_000_000 if event == "shielded" else 0}
    accused = Actor("train-0", used, generation=generation, facts=facts)
    neighbour = Actor("poor-0", 5 * GIB, limit=40 * GIB)
    free = 50 * GIB if event == "sated" else GIB
    hidden = {0: max(0, CARD - free - 5 * GIB - (used or 0))}
    return snapshot([accused, neighbour], at, hidden=hidden)


def _same(place: Place) -> object:
    """
    Make what tells two places apart: all of the history that a later decision can depend on.

    Left out are the rules, which never change here, seconds that are only counted for a metric, and of standings all
    but their state, which is said again where a round is blind.
    """
    known = place.history
    return (
        place.at,
        place.generation,
        place.law,
        known.started,
        known.shown,
        known.gpus,
        known.armed,
        _items(known.evidence),
        frozenset((key, one.state, one.reason) for key, one in known.standings.items()),
        known.spent,
        _items(known.breakers),
        _items(known.strikes),
        _items(known.blocked),
        known.fenced,
        known.in_flight,
        known.rehearsal,
        known.ended_at,
        known.refused,
    )


def _items(mapping: Mapping[Any, Any]) -> frozenset[tuple[Any, Any]]:
    return frozenset(mapping.items())
