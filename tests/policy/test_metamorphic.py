"""
What must not change, or only in one direction, when a trace of rounds is changed.

Traces of a pod over its limit and its neighbours come in, and one change of each. The actions of both go out. No oracle
is needed: a gap, an unknown or a protection may delay an action, and must not hasten it. Other pods, their outcomes,
annotations and restarts may delay it by budgets and spacing, and by nothing else. An order or a name must not matter.
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
from pace import spread
from policy.hostile import World
from policy.scenes import CONSENTING, GIB, SHORT, Actor, Play, settled, snapshot

LIMIT = replace(SHORT, trigger=Trigger.LIMIT)
"""Warned after three pairs of readings, and acted on after six more."""
TIGHT = replace(LIMIT, spacing=20.0, budgets=Budgets(Budget(3, 600.0), Budget(2, 600.0)), trigger=Trigger.CONTENDED)
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


def acted(
    trace: Sequence[Round], rules: Rules = LIMIT, *, ends: Result | None = None, first: bool = False
) -> list[float]:
    """
    Play a trace; the moments at which GREEDY was acted on, in seconds since the beginning.

    `ends`: how each action ends, one round later; None: it stays in flight, and nothing follows.
    `first`: stop at the first action.
    """
    play = Play(rules)
    begin, moments = play.monotonic, []
    for one in trace:
        if one.restart:
            known = play.history
            play.history = replace(settled(rules), spent=known.spent, breakers=known.breakers)
        if ends is not None and not one.restart:
            play.conclude(ends)
        play.asleep += one.asleep
        greedy = Actor("greedy-1", USES[one.use], facts=one.facts)
        verdict = play.step(greedy, *OTHERS, after=one.after)
        if verdict.action is not None:
            moments.append(play.monotonic - begin)
            if first:
                break
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
    """The daemon restarts without its levels: it remembers tokens and breakers."""
    return [*trace[:where], replace(trace[where], restart=True), *trace[where + 1 :]]


def slept(trace: list[Round], where: int) -> list[Round]:
    """The machine was suspended, shorter than any budget's window."""
    return [*trace[:where], replace(trace[where], asleep=30.0), *trace[where + 1 :]]


def nodded(trace: list[Round], where: int) -> list[Round]:
    """Boot time runs ahead by less than counts as sleep."""
    return [*trace[:where], replace(trace[where], asleep=4.0), *trace[where + 1 :]]


def within(trace: list[Round], where: int) -> list[Round]:
    """It is within its limit in one round."""
    return [*trace[:where], replace(trace[where], use="b"), *trace[where + 1 :]]


CHANGES: list[Callable[[list[Round], int], list[Round]]] = [unknown, missing, restarted, slept, nodded, within]


@pytest.mark.fault(52)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@FEW
@given(trace=traces, where=st.integers(0, 33))
def test_nothing_hastens_the_first_action(
    change: Callable[[list[Round], int], list[Round]], trace: list[Round], where: int
) -> None:
    """Wherever it comes, the first action is not earlier, and there is none where there was none."""
    assert not_hastened(acted(trace, first=True), acted(change(trace, where % len(trace)), first=True))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("rules", [LIMIT, TIGHT], ids=["limit", "contended, with small budgets"])
def test_nothing_hastens_what_follows_either(change: Callable[[list[Round], int], list[Round]], rules: Rules) -> None:
    """Each place of a long excess, whose victim does not go: no action is earlier, none is added."""
    trace = [Round()] * 36  # the third action comes in the 34th round, where no small budgets forbid it
    before = acted(trace, rules, ends=Result.ACCEPTED)
    assert len(before) >= 2
    for where in range(0, 36, 6):
        assert not_hastened(before, acted(change(trace, where), rules, ends=Result.ACCEPTED)), where


def test_a_gap_that_is_inserted_delays() -> None:
    """A pause that is longer than a slow round: what was to come comes at least so much later, if it had not come."""
    trace = [Round()] * 24
    (before,) = acted(trace)
    for where in range(1, 9, 2):
        for pause in (10.1, 13.0, 4000.0):
            longer = [*trace[:where], replace(trace[where], after=5.0 + pause), *trace[where + 1 :]]
            (after,) = acted(longer)
            assert after >= before + pause, (where, pause)


PROTECTIONS: list[Mapping[str, object]] = [
    {"priority": 2_000_000_000},
    {"terminating": True},
    {"phase": "Succeeded"},
    {"config_hash": "0123"},
]


@pytest.mark.parametrize("facts", PROTECTIONS, ids=str)
def test_a_protection_never_adds_an_action(facts: Mapping[str, object]) -> None:
    """Wherever a protection comes and goes, no action is earlier and none is added; while it holds there is none."""
    trace = [Round()] * 24
    before = acted(trace, ends=Result.ACCEPTED)
    for begin, end in [(0, 24), (0, 5), (3, 10), (9, 10), (8, 20), (11, 12)]:
        changed = [replace(one, facts=facts) if begin <= n < end else one for n, one in enumerate(trace)]
        after = acted(changed, ends=Result.ACCEPTED)
        assert not_hastened(before[:1], after[:1])
        assert not [moment for moment in after if begin < moment / 5 <= end]


ANNOTATIONS: list[Mapping[str, object]] = [
    {"annotations": {EXEMPT: "true"}},
    {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
    {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
    {"annotations": {"gpusteward.io/grace-seconds": "3600"}},
    {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "2147483647"}},
    {"controller_kind": ""},
    {"controller_kind": "DaemonSet"},
    {"workload": "", "workload_kind": ""},
    {"phase": "Pending"},
]


@pytest.mark.parametrize("facts", ANNOTATIONS, ids=str)
def test_nothing_that_a_tenant_writes_by_itself_delays(facts: Mapping[str, object]) -> None:
    """The second law: annotations that the namespace does not allow, and kinds of pods, delay nothing."""
    trace = [Round()] * 14  # four more than it takes
    before = acted(trace)
    assert len(before) == 1
    for begin, end in [(0, 14), (0, 5), (3, 10), (9, 10)]:
        changed = [replace(one, facts=facts) if begin <= n < end else one for n, one in enumerate(trace)]
        assert acted(changed) == before


# The second law: what others do


@pytest.mark.parametrize("seeds", [range(begin, begin + 20) for begin in (1000, 2000, 3000)], ids=str)
def test_others_delay_by_budgets_and_spacing_and_hasten_nothing(seeds: range) -> None:
    """The same victim at the same readings, alone and among hostile others: its action comes within the bound."""
    compared = 0
    for seed in spread(seeds, 2):
        alone, among = World(seed, hostile=False).play(), World(seed).play()
        if alone.promise is None or among.promise is None:
            continue
        assert alone.found == among.found == []
        assert alone.promise.met is not None and among.promise.met is not None
        most = among.promise.deadline(among.rules)
        assert alone.promise.met <= among.promise.met <= most or among.promise.gaps > alone.promise.gaps
        compared += 1
    assert compared > len(spread(seeds, 2)) / 2


def among(
    cast: Callable[[int], Sequence[Actor]],
    end: Callable[[str], Result | None],
    rules: Rules = LIMIT,
    *,
    earlier: int = 0,
) -> int:
    """
    Play GREEDY beside others until it is acted on; return the round.

    `end` says how an action on a pod ends; for `earlier` rounds GREEDY is not there yet.
    """
    play = Play(rules)
    for _ in range(earlier):
        play.step(*cast(0))
    for number in range(1, 400):
        flight = play.history.in_flight
        if flight is not None and (result := end(flight.action.pod)) is not None:
            play.conclude(result)
        verdict = play.step(Actor("greedy-1", 60 * GIB), *cast(number))
        if verdict.action is not None and verdict.action.pod == "greedy-1":
            return number
    raise AssertionError("never acted on")


UNDISTURBED = 10
"""The round in which GREEDY is acted on when it is alone."""
A_REQUEST = 2
"""Rounds of 5 s for a request in vain: the one in which it is decided, and its pause."""


def over(number: int, **facts: object) -> Actor:
    """Another over-user, of a pod that comes first by its name."""
    return Actor(f"a-other-{number}", 2 * GIB, limit=GIB, namespace=f"n{number % 3}", facts=facts)


@pytest.mark.parametrize("count", [1, 3, 6])
@pytest.mark.parametrize(
    "result",
    [Result.BLOCKED, Result.REFUSED, Result.FORBIDDEN, Result.FAILED, Result.ABANDONED, Result.IMPOSSIBLE],
    ids=str,
)
def test_requests_in_vain_delay_by_their_pauses_alone(result: Result, count: int) -> None:
    """PodDisruptionBudgets, missing rights and failed calls of others use up no budget, and delay by pauses."""
    budgets = Budgets(Budget(1, 3600.0), Budget(1, 3600.0))
    others = [over(number) for number in range(count)]
    acted_in = among(lambda _: others, lambda _: result, replace(LIMIT, budgets=budgets))
    assert UNDISTURBED <= acted_in <= UNDISTURBED + 2 * (count + 1) * A_REQUEST


def test_other_pods_that_come_later_delay_nothing() -> None:
    """Pods that start to exceed their limits after GREEDY, however many and however far, come after it."""
    huge = [replace(over(number), used=3 * GIB) for number in range(5)]
    assert among(lambda number: huge if number > 3 else [], lambda _: Result.ACCEPTED) == UNDISTURBED


def test_restarts_and_new_pods_of_others_delay_nothing() -> None:
    """Others that restart, are made anew or change their limits in each round are never due, and delay nothing."""
    for change in (
        lambda number: replace(over(1), generation=number),
        lambda number: replace(over(1), uid=f"uid-{number}"),
        lambda number: replace(over(1), limit=GIB if number % 2 else 4 * GIB),
        lambda number: replace(over(1), used=None if number % 2 else 2 * GIB),
        lambda number: over(1, terminating=True) if number % 3 else over(1),
    ):
        acted_in = among(lambda number, one=change: [one(number)], lambda _: Result.FAILED)  # type: ignore[misc]
        assert UNDISTURBED <= acted_in <= UNDISTURBED + 2 * 2 * A_REQUEST


def test_k_holders_that_were_due_earlier_delay_by_the_budget() -> None:
    """With a budget of one action in 60 s and three holders that were due earlier, GREEDY waits for 180 s."""
    rules = replace(LIMIT, spacing=5.0, budgets=Budgets(Budget(1, 60.0), Budget(9, 60.0)))
    others = [over(number) for number in range(3)]
    gone: set[str] = set()

    def end(pod: str) -> Result:
        gone.add(pod)
        return Result.ACCEPTED

    acted_in = among(lambda _: [one for one in others if one.pod not in gone], end, rules, earlier=2)
    assert UNDISTURBED + 34 <= acted_in <= UNDISTURBED + 36 + 4 * A_REQUEST


@FEW
@given(trace=traces)
def test_a_stricter_mode_never_adds(trace: list[Round]) -> None:
    """`off`, `observe` and `warn` do nothing; `dry-run` decides the same first action as `enforce`."""
    enforced = acted(trace, first=True)
    assert acted(trace, replace(LIMIT, mode=Mode.DRY_RUN), first=True) == enforced
    for mode in (Mode.OFF, Mode.OBSERVE, Mode.WARN):
        assert acted(trace, replace(LIMIT, mode=mode)) == []


@pytest.mark.parametrize(
    "stricter",
    [
        replace(LIMIT, warn_after=20.0),
        replace(LIMIT, grace=60.0),
        replace(LIMIT, trigger=Trigger.CONTENDED),
        replace(LIMIT, confirm=True),
        replace(LIMIT, spacing=120.0),
        replace(LIMIT, budgets=Budgets(Budget(1, 600.0), Budget(1, 600.0))),
        replace(LIMIT, ladder=(Rung.NOTIFY,)),
        replace(LIMIT, consent=("example.com/other", "yes")),
    ],
    ids=lambda rules: str({name for name in rules.__slots__ if getattr(rules, name) != getattr(LIMIT, name)}),
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
        every = list(lines)
        return chance.sample(every, len(every))

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
    one = other = settled(LIMIT)
    chance, play = Random(seed), Play(LIMIT)
    for number in range(12):
        play.monotonic += 5.0
        seen = snapshot(CAST, play.monotonic, round_=number, gpus=2)
        one, said = decide(seen, LIMIT, one, play.now)
        other, same = decide(shuffled(seen, chance), LIMIT, other, play.now)
        assert said == same
    assert one == other


@settings(FEW, max_examples=8)
@given(names=st.lists(st.text("abcxyz", min_size=1, max_size=6), min_size=6, max_size=6, unique=True))
def test_no_name_matters(names: list[str]) -> None:
    """Other names of the same pods: the same number of actions in the same rounds, on pods that held as much."""
    said = []
    for called in (names, ["a", "b", "c", "d", "e", "f"]):
        cast = [
            Actor(f"{name}-1", use * GIB, limit=limit * GIB)
            for name, (use, limit) in zip(called, [(20, 8), (21, 8), (1, 30), (1, 4), (1, 4), (2, 9)], strict=True)
        ]
        play = Play(replace(TIGHT, trigger=Trigger.LIMIT))
        moments = []
        for _ in range(20):
            play.conclude(Result.ACCEPTED)
            verdict = play.step(*cast)
            if verdict.action is not None:
                moments.append((verdict.action.used, play.monotonic))
        said.append(moments)
    assert said[0] == said[1]
    assert said[0]


def test_the_same_call_twice_says_the_same() -> None:
    """Nothing is kept outside of the history: each call can be made again, and says the same."""
    play = Play(LIMIT)
    for number in range(14):
        play.monotonic += 5.0
        seen = snapshot(CAST, play.monotonic, round_=number, gpus=2)
        first, again = decide(seen, LIMIT, play.history, play.now), decide(seen, LIMIT, play.history, play.now)
        assert first == again
        play.history = first[0]


@FEW
@given(trace=traces, labels=st.sampled_from([{}, {CONSENT: "warn"}, {CONSENT: "off"}, {ALLOW_EXEMPTION: "true"}]))
def test_a_namespace_s_label_never_adds(trace: list[Round], labels: dict[str, str]) -> None:
    """Whatever a namespace says besides its consent: no action is added, none is earlier."""
    play = Play(LIMIT)
    begin, moments = play.monotonic, []
    for one in trace:
        verdict = play.step(Actor("greedy-1", USES[one.use]), *OTHERS, namespaces={"team": {**CONSENTING, **labels}})
        if verdict.action is not None:
            moments.append(play.monotonic - begin)
    assert not_hastened(acted(trace), moments)


def test_an_empty_history_is_a_first_start() -> None:
    """A first start waits for the hold-off; a daemon that has watched the node for long does not."""
    rules = replace(LIMIT, hold_off=100.0)
    first, long = Play(rules, History()), Play(rules)
    rounds = [next(n for n in range(99) if play.step(Actor("greedy-1", 60 * GIB)).action) for play in (first, long)]
    assert rounds[0] > rounds[1]
