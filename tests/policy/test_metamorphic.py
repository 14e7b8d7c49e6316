"""
What must not change, or only in one direction, when a trace of rounds is changed.

What comes in: traces of an over-user and its neighbours, made up by Hypothesis, and one change of each. What goes out:
the actions of both. No oracle is needed: a gap, a restart or an unknown may delay and must not hasten; a protection or
a stricter mode must not add; an order or a name must not matter.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enforcer.policy.decide import decide
from enforcer.policy.history import History, Result
from enforcer.policy.rules import ALLOW_EXEMPTION, CONSENT, EXEMPT, Budget, Budgets, Rules
from enforcer.policy.vocabulary import Mode, Rung, Trigger
from exporter.model import Snapshot
from policy.scenes import CONSENTING, GIB, UNHURRIED, Actor, Play, snapshot

SHORT = replace(UNHURRIED, grace=30.0, trigger=Trigger.LIMIT)
"""Told in round 4, acted on in round 10; whoever is over is over, whatever the neighbours need."""
TIGHT = replace(
    SHORT,
    spacing=20.0,
    budgets=Budgets(Budget(3, 600.0), Budget(2, 600.0), Budget(2, 600.0)),
    trigger=Trigger.CONTENDED,
)
OTHERS = (Actor("meek-1", 2 * GIB, limit=30 * GIB),)
Line = TypeVar("Line")
USES = {"o": 60 * GIB, "t": 8 * GIB + 2**20, "b": GIB, "?": None}
FEW = settings(max_examples=10, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Round:
    """One round of a trace: what GREEDY holds, and what happened before."""

    use: str = "o"
    after: float = 5.0
    asleep: float = 0.0
    restart: bool = False
    facts: Mapping[str, object] = field(default_factory=dict)


def acted(trace: Sequence[Round], rules: Rules = SHORT, *, ends: Result | None = None) -> list[float]:
    """
    Play a trace; the moments at which GREEDY was acted on, in seconds since the beginning.

    `ends`: how each action ends, one round later; None: nobody knows, and nothing follows.
    """
    play = Play(rules)
    begin, moments = play.monotonic, []
    for one in trace:
        if one.restart:
            known = play.history
            play.history = History(spent=known.spent, breakers=known.breakers, strikes=known.strikes)
        if ends is not None and not one.restart:
            play.conclude(ends)
        play.asleep += one.asleep
        greedy = Actor("greedy-1", USES[one.use], facts=one.facts)
        verdict = play.step(greedy, *OTHERS, after=one.after)
        if verdict.action is not None:
            moments.append(play.monotonic - begin)
    return moments


def not_hastened(before: list[float], after: list[float]) -> bool:
    """Tell whether the second line of moments has no more of them, and each one no earlier."""
    return len(after) <= len(before) and all(new >= old for old, new in zip(before, after, strict=False))


uses = st.sampled_from("oooooooott?b")
traces = st.lists(uses, min_size=9, max_size=26).map(lambda letters: [Round(use) for use in letters])


def unknown(trace: list[Round], where: int) -> list[Round]:
    """The reading of one round is unknown."""
    return [*trace[:where], replace(trace[where], use="?"), *trace[where + 1 :]]


def missing(trace: list[Round], where: int) -> list[Round]:
    """One round does not happen, and the next one is an interval later."""
    if where + 1 >= len(trace):
        return trace[:where]
    later = replace(trace[where + 1], after=trace[where].after + trace[where + 1].after)
    return [*trace[:where], later, *trace[where + 2 :]]


def restarted(trace: list[Round], where: int) -> list[Round]:
    """The daemon restarts: it remembers tokens, breakers and strikes."""
    return [*trace[:where], replace(trace[where], restart=True), *trace[where + 1 :]]


def slept(trace: list[Round], where: int) -> list[Round]:
    """The machine was suspended, shorter than any budget's window."""
    return [*trace[:where], replace(trace[where], asleep=30.0), *trace[where + 1 :]]


def nodded(trace: list[Round], where: int) -> list[Round]:
    """Boot time runs ahead by less than counts as sleep."""
    return [*trace[:where], replace(trace[where], asleep=4.0), *trace[where + 1 :]]


def within(trace: list[Round], where: int) -> list[Round]:
    """It is between limit and tolerance in one round."""
    return [*trace[:where], replace(trace[where], use="t"), *trace[where + 1 :]]


CHANGES: list[Callable[[list[Round], int], list[Round]]] = [unknown, missing, restarted, slept, nodded, within]


@pytest.mark.fault(52)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@FEW
@given(trace=traces, where=st.integers(0, 33))
def test_nothing_hastens_the_first_action(
    change: Callable[[list[Round], int], list[Round]], trace: list[Round], where: int
) -> None:
    """INV-7: wherever it comes, the first action is not earlier, and there is none where there was none."""
    assert not_hastened(acted(trace), acted(change(trace, where % len(trace))))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("rules", [SHORT, TIGHT], ids=["limit", "contended, with small budgets"])
def test_nothing_hastens_what_follows_either(change: Callable[[list[Round], int], list[Round]], rules: Rules) -> None:
    """Each place of a long excess, whose victim does not go: no action is earlier, none is added."""
    trace = [Round()] * 36
    before = acted(trace, rules, ends=Result.FAILED)
    assert len(before) >= 2
    for where in range(0, 36, 5):
        assert not_hastened(before, acted(change(trace, where), rules, ends=Result.FAILED)), where


def test_a_gap_that_is_inserted_delays() -> None:
    """A pause of any length between two rounds: what was to come comes at least so much later, if it had not come."""
    trace = [Round()] * 24
    (before,) = acted(trace)
    for where in range(1, 10, 2):
        for pause in (5.0, 7.0, 13.0, 4000.0):
            longer = [*trace[:where], replace(trace[where], after=5.0 + pause), *trace[where + 1 :]]
            (after,) = acted(longer)
            assert after >= before + pause, (where, pause)


PROTECTIONS: list[Mapping[str, object]] = [
    {"priority": 2_000_000_000},
    {"terminating": True},
    {"phase": "Pending"},
    {"config_hash": "0123"},
    {"annotations": {EXEMPT: "true"}},
    {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
    {"controller_kind": "DaemonSet"},
    {"controller_kind": ""},
]


@pytest.mark.parametrize("facts", PROTECTIONS, ids=str)
def test_a_protection_never_adds_an_action(facts: Mapping[str, object]) -> None:
    """Wherever a protection comes and goes, no action is earlier and none is added; while it holds there is none."""
    trace = [Round()] * 24
    before = acted(trace, ends=Result.FAILED)
    for begin, end in [(0, 24), (0, 5), (3, 10), (9, 10), (8, 20), (11, 12)]:
        changed = [replace(one, facts=facts) if begin <= n < end else one for n, one in enumerate(trace)]
        after = acted(changed, ends=Result.FAILED)
        assert not_hastened(before, after)
        granted = "annotations" not in facts or EXEMPT not in str(facts)
        assert not granted or not [moment for moment in after if begin < moment / 5 <= end]


@FEW
@given(trace=traces)
def test_a_stricter_mode_never_adds(trace: list[Round]) -> None:
    """off, observe and warn do nothing; dry-run rehearses what enforce does, as far as it goes."""
    enforced = acted(trace)
    assert acted(trace, replace(SHORT, mode=Mode.DRY_RUN))[:1] == enforced[:1]
    for mode in (Mode.OFF, Mode.OBSERVE, Mode.WARN):
        assert acted(trace, replace(SHORT, mode=mode)) == []


@pytest.mark.parametrize(
    "stricter",
    [
        replace(SHORT, warn_after=20.0),
        replace(SHORT, grace=60.0),
        replace(SHORT, trigger=Trigger.CONTENDED),
        replace(SHORT, strikes=2),
        replace(SHORT, hold_off=100.0),
        replace(SHORT, spacing=120.0),
        replace(SHORT, budgets=Budgets(Budget(1, 600.0), Budget(1, 600.0), Budget(1, 600.0))),
        replace(SHORT, ladder=(Rung.NOTIFY,)),
        replace(SHORT, consent=("example.com/other", "yes")),
    ],
    ids=lambda rules: str({name for name in rules.__slots__ if getattr(rules, name) != getattr(SHORT, name)}),
)
@settings(FEW, max_examples=8)
@given(trace=traces)
def test_stricter_rules_never_add(stricter: Rules, trace: list[Round]) -> None:
    """Each rule that is made stricter by itself: no first action is earlier, and there is none where there was none."""
    assert not_hastened(acted(trace), acted(trace, stricter))


# Order and names

CAST = (
    Actor("greedy-1", 30 * GIB),
    Actor("second-1", 20 * GIB, namespace="other"),
    Actor("third-1", 15 * GIB, gpu=1),
    replace(Actor("whole-1", 3 * GIB, limit=4 * GIB), scope="pod"),
    *OTHERS,
    replace(OTHERS[0], pod="far-1", gpu=1),
    Actor("null-1", None, limit=10 * GIB),
    Actor("claiming-1", 2 * GIB, limit=3 * GIB, scope="claim", claim="team/one"),
    Actor("claiming-2", 2 * GIB, limit=3 * GIB, scope="claim", claim="team/one"),
)


def shuffled(seen: Snapshot, chance: Random) -> Snapshot:
    """The same snapshot, all of its lines in another order."""

    def mixed(lines: Iterable[Line]) -> list[Line]:
        found = list(lines)
        return chance.sample(found, len(found))

    return replace(
        seen,
        limits=tuple(mixed(seen.limits)),
        usages=tuple(mixed(seen.usages)),
        devices=tuple(mixed(seen.devices)),
        gpus=tuple(mixed(seen.gpus)),
        claim_usages=tuple(mixed(seen.claim_usages)),
        pods=dict(mixed(seen.pods.items())),
        namespaces=dict(mixed(seen.namespaces.items())),
    )


@pytest.mark.parametrize("seed", range(4))
def test_no_order_matters(seed: int) -> None:
    """Limits, usages, devices, pods in any order, another one in each round: the same histories and verdicts."""
    one = other = History()
    chance, play = Random(seed), Play(SHORT)
    for number in range(12):
        play.monotonic += 5.0
        seen = snapshot(CAST, play.monotonic, round_=number, gpus=2)
        one, told = decide(seen, SHORT, one, play.now)
        other, same = decide(shuffled(seen, chance), SHORT, other, play.now)
        assert told == same
    assert one == other


@settings(FEW, max_examples=8)
@given(names=st.lists(st.text("abcxyz", min_size=1, max_size=6), min_size=6, max_size=6, unique=True))
def test_no_name_matters(names: list[str]) -> None:
    """Other names of the same pods: the same number of actions in the same rounds, on who held as much."""
    told = []
    for called in (names, ["a", "b", "c", "d", "e", "f"]):
        cast = [
            Actor(f"{name}-1", use * GIB, limit=limit * GIB)
            for name, (use, limit) in zip(called, [(20, 8), (21, 8), (1, 30), (1, 4), (1, 4), (2, 9)], strict=True)
        ]
        play = Play(replace(TIGHT, trigger=Trigger.LIMIT))
        moments = []
        for _ in range(40):
            play.conclude(Result.FAILED)
            verdict = play.step(*cast)
            if verdict.action is not None:
                moments.append((verdict.action.used, play.monotonic))
        told.append(moments)
    assert told[0] == told[1]
    assert told[0]


def test_the_same_call_twice_says_the_same() -> None:
    """INV-18: nothing is kept outside of the history: each call can be made again, and says the same."""
    play = Play(SHORT)
    for number in range(14):
        play.monotonic += 5.0
        seen = snapshot(CAST, play.monotonic, round_=number, gpus=2)
        first, again = decide(seen, SHORT, play.history, play.now), decide(seen, SHORT, play.history, play.now)
        assert first == again
        play.history = first[0]


@FEW
@given(trace=traces, labels=st.sampled_from([{}, {CONSENT: "warn"}, {CONSENT: "off"}, {ALLOW_EXEMPTION: "true"}]))
def test_a_namespace_s_word_never_adds(trace: list[Round], labels: dict[str, str]) -> None:
    """Whatever a namespace says besides its consent: no action is added, none is earlier."""
    play = Play(SHORT)
    begin, moments = play.monotonic, []
    for one in trace:
        verdict = play.step(Actor("greedy-1", USES[one.use]), *OTHERS, namespaces={"team": {**CONSENTING, **labels}})
        if verdict.action is not None:
            moments.append(play.monotonic - begin)
    assert not_hastened(acted(trace), moments)
