"""
All traces up to a length, over an alphabet of abstract events: none is left out.

A length comes in. The number of traces goes out, and the number in which an action was requested. So does each step in
which the policy disagrees with a second wording of its law, or breaks a clause of the two laws.

The rule: **nothing is sampled.** `decide` is a function, so two traces with the same history at the same moment have
the same future. They are continued as one, and counted as two. Interval, warn_after and grace are the smallest that are
legal, 30 s, so that the third reading in a row may lead to an action.

There are two sets of traces. In `ALONE` anything happens to one holder, and `Law` says of each step whether it is acted
on. In `TWO` the holder's usage comes and goes, beside another holder that was due earlier and whose actions end in any
way: then the victim may wait for two requests, and no round in which it could be acted on may pass without a request.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment, Result
from enforcer.policy.holder import HolderKey
from enforcer.policy.outcomes import conclude
from enforcer.policy.vocabulary import Trigger
from policy.facts import OVER, Facts, Step
from policy.invariants import Watch
from policy.scenes import BEGIN, GIB, UNHURRIED, Actor, settled, snapshot

RULES = replace(UNHURRIED, interval=30.0, warn_after=30.0, grace=30.0, spacing=30.0, trigger=Trigger.LIMIT)
ALONE = {
    "over": "above limit and tolerance",
    "within": "at or below the limit",
    "unknown": "one of its processes is not known",
    "paused": "over, after a long time without a round",
    "shielded": "over, and protected in this round",
    "restarted": "over, in a new container",
    "failed": "over; the action in flight, if there is one, failed before",
    "accepted": "over; the action in flight, if there is one, was accepted before",
}
OUTCOMES = {"": None, "blocked": Result.BLOCKED, "failed": Result.FAILED, "accepted": Result.ACCEPTED}
TWO = {
    f"{usage}{' ' if outcome else ''}{outcome}": "the victim's usage, and how the other one's action ended before"
    for usage in ("over", "within")
    for outcome in OUTCOMES
}
PAUSE = 100.0
FULL, WARNED, STAYS = 4, 2, 2
"""Levels in halves of an interval: when an action is due, when the pod is warned, and until when it stays due."""
RECENT = 6
"""Rounds after which a reading does not count towards three."""


@dataclass(frozen=True, slots=True)
class Law:
    """
    The law of a scaled trace, worded a second time: an automaton that counts rounds and knows no seconds.

    `level` and `own` count halves of an interval. `quiet` are the rounds since the last reading that was known, `last`
    what it said. `fails` are the failed actions, `rests` the rounds for which the pod is still held.
    """

    counts: bool = False
    level: int = 0
    own: int = 0
    due: bool = False
    warned: bool = False
    last: str = ""
    quiet: int = 1
    readings: int = 0
    age: int = 0
    flying: bool = False
    fails: int = 0
    rests: int = 0

    def after(self, event: str) -> tuple["Law", bool]:
        """Return what is so after an event, and whether an action is requested."""
        now = replace(self, rests=max(0, self.rests - 1), age=self.age + 1)
        if event in {"failed", "accepted"} and now.flying:
            now = now._ended(event)
        if event == "shielded":
            return now._nothing(), False
        if event == "unknown":
            return now._unread(), False
        if event == "within":
            return now._moved("within", 1)._kept(), False
        now = now._renewed(event)._moved("over", 5 if event == "paused" else 1, paid=event != "restarted")
        now = now._seen(5 if event == "paused" else 1)._kept()
        acts = now.due and now.readings >= 3 and now.own >= FULL and not now.flying and now.rests == 0
        return (replace(now, flying=True) if acts else now), acts

    def _nothing(self) -> "Law":
        return Law(flying=self.flying, fails=self.fails, rests=self.rests)

    def _ended(self, event: str) -> "Law":
        if event == "accepted":
            return replace(self._nothing(), flying=False)
        fails = self.fails + 1
        return replace(self, flying=False, fails=fails, rests={1: 0, 2: 0, 3: 1}.get(fails, 2))

    def _unread(self) -> "Law":
        if not self.counts:
            return replace(self, quiet=1)
        if self.quiet < 2:
            return replace(self, quiet=2)._kept(over=False)
        return replace(self, level=max(0, self.level - self.quiet), last="", quiet=1)._kept(over=False)

    def _renewed(self, event: str) -> "Law":
        return replace(self, own=0, readings=0) if event == "restarted" and self.counts else self

    def _moved(self, said: str, rounds: int, *, paid: bool = True) -> "Law":
        if not self.counts:
            if said == "within":
                return self
            return replace(self, counts=True, last="over", quiet=1)
        apart = self.quiet - 1 + rounds
        level, own = self.level, self.own
        if apart > 1 or not self.last or said == self.last == "within":
            level = max(0, level - (apart if rounds < 5 else FULL))
        elif said == self.last == "over":
            level, own = level + 2, own + 2 * paid
        return replace(self, level=level, own=min(own, FULL), last=said, quiet=1)

    def _seen(self, rounds: int) -> "Law":
        age = self.age + (rounds - 1)
        readings = 1 if age > RECENT or self.readings == 0 else min(self.readings + 1, 3)
        return replace(self, readings=readings, age=0)

    def _kept(self, *, over: bool | None = None) -> "Law":
        """Keep the level within its bounds; at 0 without an excess nothing is remembered."""
        over = self.last == "over" if over is None else over
        if not self.counts or (self.level <= 0 and not over):
            return self._nothing()
        if not self.warned and self.level >= WARNED:
            return replace(self, warned=True, level=WARNED)
        level = min(self.level, FULL)
        return replace(self, level=level, due=level >= FULL or (self.due and level >= STAYS))


@dataclass(frozen=True, slots=True)
class Place:
    """Where traces have led: one of them, how many, and in how many of those an action was requested."""

    history: History
    law: Law
    watch: Watch
    at: float
    generation: int
    flown: int
    passed: int
    events: tuple[str, ...]
    traces: int
    acted: int


@dataclass(slots=True)
class Found:
    """What came out: `traces` of the whole length, `acted` of them with an action, `decided` calls of the policy."""

    traces: int = 0
    acted: int = 0
    decided: int = 0
    wrong: list[str] = field(default_factory=list)


def enumerate_all(length: int, *, alphabet: Iterable[str] = ALONE, merged: bool = True, others: bool = False) -> Found:
    """
    Go through all traces of `length` events of the alphabet.

    Args:
        length: of each trace.
        alphabet: some of `ALONE`; with `others` some of `TWO`.
        merged: continue equal histories as one; without it each trace is played by itself, which takes long.
        others: beside another holder, which was due earlier.

    """
    found = Found()
    places = [_first(others=others)]
    for _ in range(length):
        nexts: dict[object, Place] = {}
        for place in places:
            for one in _after(place, alphabet, found, others=others):
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


def by_the_law(length: int, alphabet: Iterable[str] = ALONE) -> tuple[int, int]:
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


def _first(*, others: bool) -> Place:
    place = Place(settled(RULES), Law(), Watch(RULES), BEGIN, 0, 0, 0, (), 1, 0)
    if others:  # two rounds in which only the other one is over: it is due one round before the victim can be
        for _ in range(2):
            place = _play(place, *_happens(place, "within", others=True), others=True)[0]
    return place


def _after(place: Place, alphabet: Iterable[str], found: Found, *, others: bool) -> Iterator[Place]:
    played: dict[tuple[str, str], tuple[Place, Step, list[str]]] = {}
    for event in alphabet:
        happens = _happens(place, event, others=others)
        if happens not in played:  # where nothing is in flight, nothing can end: several events are one
            played[happens] = _play(place, *happens, others=others)
            found.decided += 1
        one, step, broke = played[happens]
        broken = [*broke]
        acted = step.verdict.action is not None
        events = (*place.events, event)
        if others:
            one, waits = _waits(place, one, step)
            broken += waits
        else:
            law, acts = place.law.after(event)
            one = replace(one, law=law)
            if acted is not acts:
                broken.append(f"{'an action' if acted else 'no action'} against the law")
        found.wrong += [f"{', '.join(events)}: {what}" for what in broken]
        yield replace(one, events=events, acted=place.traces if acted else place.acted)


def _happens(place: Place, event: str, *, others: bool) -> tuple[str, str]:
    """Say what an event is here: the usage that is seen, and how the action in flight ended before."""
    usage, _, outcome = event.partition(" ")
    flying = place.history.in_flight
    if not others and event in {"failed", "accepted"}:
        usage, outcome = "over", event
    if flying is None:
        return usage, ""
    theirs = others and flying.action.pod != VICTIM.pod
    if others and not theirs:
        outcome = "accepted"
    elif theirs and place.flown >= 2 and not outcome:
        outcome = "accepted"  # a request takes two rounds at most
    return usage, outcome


def _play(place: Place, usage: str, outcome: str, *, others: bool) -> tuple[Place, Step, list[str]]:
    history, ended = place.history, None
    if outcome:
        ended = OUTCOMES[outcome]
        assert ended is not None
        history = conclude(history, ended, Moment(place.at, place.at))
    generation = place.generation + (usage == "restarted")
    at = place.at + RULES.interval + (PAUSE if usage == "paused" else 0.0)
    facts = _facts(usage, at, generation, others=others)
    seen, now = facts.snapshot, facts.now
    after, verdict = decide(seen, RULES, history, now)
    step = Step(seen, RULES, now, verdict, after, ended, place.at)
    watch = place.watch.copy()
    broken = watch.step(step, facts)
    flown = place.flown + 1 if after.in_flight is not None and ended is None else 0
    one = replace(place, history=after, watch=watch, at=at, generation=generation, flown=flown)
    return one, step, broken


def _waits(before: Place, place: Place, step: Step) -> tuple[Place, list[str]]:
    """Hold the victim's wait against the second law: two requests for others at most, and no round without one."""
    tally, action = place.watch.tallies.get(HOLDER), step.verdict.action
    ready = tally is not None and tally.due_at is not None and tally.status == OVER
    ready = ready and all(count >= 3 for count, _ in tally.readings.values()) if tally is not None else False
    if action is not None and action.pod == VICTIM.pod:
        return replace(place, passed=0), []
    if not ready:
        return replace(place, passed=place.passed if tally is not None and tally.due_at is not None else 0), []
    if action is not None:
        passed = place.passed + 1
        return replace(place, passed=passed), ["liveness: it waits for a third request"] if passed > 2 else []
    flying = before.watch.flying is not None and step.ended is None
    kept = [at for at in (place.watch.last_kept,) if at is not None and step.now.monotonic - at < RULES.spacing]
    return place, [] if flying or kept else ["liveness: a round without a request while it could be acted on"]


VICTIM = Actor("train-0", 30 * GIB)
HOLDER = HolderKey(VICTIM.pod_uid, VICTIM.container, "")


@cache
def _facts(event: str, at: float, generation: int, *, others: bool) -> Facts:
    used = {"within": 8 * GIB, "unknown": None}.get(event, 30 * GIB)
    facts: dict[str, object] = {"priority": 2_000_000_000 if event == "shielded" else 0}
    victim = replace(VICTIM, used=used, generation=generation, facts=facts)
    neighbours = [Actor("other-0", 12 * GIB, namespace="other")] if others else []
    return Facts(snapshot([victim, *neighbours, Actor("calm-0", 5 * GIB)], at), RULES, Moment(at, at))


def _same(place: Place) -> object:
    """
    Make what tells two places apart: all of the history that a later decision can depend on, and the automaton.

    The rules, which never change here, and seconds that are only counted for a metric are left out. Of each holder's
    verdict only state and reason are taken, because they are repeated where a round is blind.
    """
    known = place.history
    return (
        place.at,
        place.generation,
        place.law,
        place.flown,
        place.passed,
        known.shown,
        repr(sorted(known.levels.items())),
        frozenset((key, one.state, one.reason) for key, one in known.standings.items()),
        known.spent,
        _items(known.breakers),
        _items(known.holds),
        _items(known.tried),
        _items(known.turns),
        known.retry_next,
        known.done,
        known.fenced,
        repr(known.in_flight),
        known.ended_at,
    )


def _items(mapping: Mapping[Any, Any]) -> frozenset[tuple[Any, Any]]:
    return frozenset(mapping.items())
