"""
Which limit holder is acted on, and that it is one.

Several over-users come in, due at the same time or one after the other, and how their actions end. The actions go out,
in their order.

The rule: the holder that is due for longest comes first. Pods that were tried in vain take turns with the others.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from enforcer.policy.history import Action, Result
from enforcer.policy.outcomes import warned
from enforcer.policy.rules import CONSENT, Budget
from enforcer.policy.vocabulary import Reason, Rung, State, Trigger
from exporter.model import DeviceKey
from policy.scenes import GIB, GREEDY, MEEK, SHORT, UNHURRIED, WALL, Actor, Play, gpu_uuid

CONTENDED = replace(SHORT, trigger=Trigger.CONTENDED)
COST = "controller.kubernetes.io/pod-deletion-cost"
PLAIN = Actor("m-1", 20 * GIB)
NEEDY = Actor("needy-1", GIB, limit=70 * GIB)
SMALL = Actor("s-1", 3 * GIB, limit=GIB)
"""An over-user of which many fit on the device."""


def ends(
    play: Play, actors: Iterable[Actor], result: Callable[[Action], Result], rounds: int
) -> list[tuple[float, str]]:
    """Play so many rounds; each action ends at once. Returns when each pod was acted on, or tried."""
    tried: list[tuple[float, str]] = []
    actors = list(actors)
    for _ in range(rounds):
        action = play.step(*actors).action
        if action is not None:
            tried.append((play.monotonic, action.pod))
            play.conclude(result(action))
            if result(action) is Result.ACCEPTED:
                actors = [actor for actor in actors if actor.pod_uid != action.pod_uid]
    return tried


@pytest.mark.parametrize(
    "second",
    [
        {},
        {"used": 40 * GIB},
        {"facts": {"priority": -1}},
        {"facts": {"annotations": {COST: "-5"}}},
        {"facts": {"created_at": WALL - 10}},
        {"namespace": "another"},
    ],
    ids=str,
)
def test_the_one_that_is_due_for_longest_comes_first(second: dict[str, object]) -> None:
    """One round later is later: no excess, priority, deletion cost or name makes up for it."""
    for names in (("a-1", "z-1"), ("z-1", "a-1")):
        one, other = replace(PLAIN, pod=names[0]), replace(PLAIN, pod=names[1], **second)  # type: ignore[arg-type]
        play = Play(SHORT)
        play.step(one)
        play.steps(12, one, other)
        assert play.actions == [f"evict team/{one.pod}"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"used": 20 * GIB}, {"used": 20 * GIB - 1}),
        ({"limit": 8 * GIB}, {"limit": 9 * GIB}),
        ({"used": 30 * GIB}, {"facts": {"priority": -1}}),
        ({"used": 30 * GIB}, {"facts": {"annotations": {COST: "-5"}}}),
        ({"used": 30 * GIB, "facts": {"created_at": WALL - 20}}, {"facts": {"created_at": WALL - 10}}),
        ({"used": 30 * GIB, "facts": {"annotations": {COST: "9" * 99}}}, {}),
    ],
    ids=str,
)
def test_of_those_that_became_due_together_the_larger_excess_comes_first(
    first: dict[str, object], second: dict[str, object]
) -> None:
    """What the tenant writes of itself (priority, deletion cost, age) is not in the order."""
    for names in (("a-1", "z-1"), ("z-1", "a-1")):
        one, other = (
            replace(PLAIN, pod=name, **change)  # type: ignore[arg-type]
            for name, change in zip(names, (first, second), strict=True)
        )
        play = Play(SHORT)
        play.until_action(other, one)
        assert play.actions == [f"evict team/{one.pod}"]
        assert play.reason(other) == Reason.QUEUED


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"facts": {"priority": -1}}, {}),
        ({"facts": {"priority": -1}}, {"used": 30 * GIB}),
        ({"used": 20 * GIB}, {"used": 20 * GIB - 1}),
        ({"used": 30 * GIB}, {"facts": {"annotations": {COST: "-5"}}}),
    ],
    ids=str,
)
def test_under_contention_the_least_important_comes_first(first: dict[str, object], second: dict[str, object]) -> None:
    """Lower priority, then the larger excess, whichever was due first; the deletion cost is ignored."""
    one, other = (
        replace(PLAIN, pod=name, **change)  # type: ignore[arg-type]
        for name, change in (("z-1", first), ("a-1", second))
    )
    play = Play(CONTENDED)
    play.steps(20, other, one)  # no neighbour is short of memory
    play.until_action(other, one, NEEDY)
    assert play.actions == [f"evict team/{one.pod}"]


def test_equals_have_an_order_too() -> None:
    """Only their UIDs differ: the order is the same each time, and in whatever order they are seen."""
    chosen = set()
    for pair in (("a-1", "b-1"), ("b-1", "a-1")):
        play = Play(SHORT)
        play.until_action(*(replace(PLAIN, pod=name) for name in pair))
        chosen |= set(play.actions)
    assert chosen == {"evict team/a-1"}


@pytest.mark.parametrize(
    "result",
    [Result.ABANDONED, Result.BLOCKED, Result.FORBIDDEN, Result.REFUSED, Result.FAILED, Result.IMPOSSIBLE],
    ids=str,
)
def test_what_was_in_vain_costs_the_next_one_nothing_but_a_pause(result: Result) -> None:
    """The first one cannot be evicted: the other one keeps its level, and is acted on a round later."""
    farther = replace(PLAIN, pod="farther-1", used=21 * GIB)
    play = Play(SHORT)
    play.until_action(PLAIN, farther)
    assert play.actions == ["evict team/farther-1"]
    play.conclude(result)
    ended = play.monotonic
    play.until_action(PLAIN, farther)
    assert play.actions == ["evict team/farther-1", "evict team/m-1"]
    assert play.monotonic - ended == SHORT.interval


@pytest.mark.parametrize("result", [Result.ACCEPTED, Result.UNKNOWN], ids=str)
def test_after_an_action_the_next_one_waits_for_the_spacing_only(result: Result) -> None:
    """The level of another pod goes on while the first one is acted on."""
    farther = replace(PLAIN, pod="farther-1", used=21 * GIB)
    play = Play(SHORT)
    play.until_action(PLAIN, farther)
    play.conclude(result)
    ended = play.monotonic
    assert play.reason(PLAIN) == Reason.QUEUED
    play.step(PLAIN)
    assert play.reason(PLAIN) == Reason.SPACING
    play.until_action(PLAIN)
    assert play.monotonic - ended == SHORT.spacing


def test_after_an_action_nobody_is_short_any_more() -> None:
    """Under contention the first eviction frees enough: the other one is over, and no neighbour is short any more."""
    farther = replace(PLAIN, pod="farther-1", used=50 * GIB)
    needy = replace(NEEDY, limit=30 * GIB)
    play = Play(CONTENDED)
    play.until_action(PLAIN, farther, needy)
    play.conclude(Result.ACCEPTED)
    play.steps(60, PLAIN, needy)
    assert play.actions == ["evict team/farther-1"]
    assert play.reason(PLAIN) == Reason.NOT_CONTENDED


def test_one_in_flight_on_the_whole_node() -> None:
    """An action on one GPU holds back those on all others, until its answer is confirmed."""
    elsewhere = replace(PLAIN, pod="n-1", gpu=1)
    play = Play(SHORT)
    play.steps(100, PLAIN, elsewhere, gpus=2)
    assert len(play.actions) == 1
    assert {each.reason for each in play.verdicts[-1].standings if each.state is State.HELD} == {Reason.IN_FLIGHT}


@pytest.mark.parametrize("result", [Result.BLOCKED, Result.REFUSED, Result.FAILED, Result.FORBIDDEN, Result.ABANDONED])
@pytest.mark.parametrize("decoys", [2, 8, 20])
def test_pods_that_cannot_be_acted_on_starve_nobody(result: Result, decoys: int) -> None:
    """
    Decoys in the namespace of S, due before it and farther over, are tried in vain for ever.

    S is acted on once each of them was tried once, and no later.
    """
    before = [replace(SMALL, pod=f"decoy{number}-1", used=SMALL.used + GIB // 2) for number in range(decoys)]  # type: ignore[operator]
    play = Play(SHORT)
    play.step(*before)
    rounds = 12 + 2 * decoys + 2
    tried = ends(play, [*before, SMALL], lambda action: Result.ACCEPTED if action.pod == SMALL.pod else result, rounds)
    assert SMALL.pod in [pod for _, pod in tried], tried


def test_two_decoys_do_not_keep_a_pod_from_its_second_try() -> None:
    """S was tried once, and that failed. Two decoys of its namespace are blocked for ever: S comes in a minute."""
    decoys = [replace(SMALL, pod=f"decoy{number}-1", used=4 * GIB) for number in range(2)]
    play, seen = Play(SHORT), list[str]()

    def result(action: Action) -> Result:
        seen.append(action.pod)
        if action.pod != SMALL.pod:
            return Result.BLOCKED
        return Result.FAILED if seen.count(SMALL.pod) <= 2 else Result.ACCEPTED  # asked twice for each end

    tried = ends(play, [*decoys, SMALL], result, 60)
    mine = [at for at, pod in tried if pod == SMALL.pod]
    assert len(mine) == 2
    assert mine[1] - mine[0] <= 60.0


def test_pods_that_become_due_all_the_time_leave_every_second_turn_to_one_that_was_tried() -> None:
    """S was tried in vain. New pods, due in each round, are tried in vain too: S has its turn after each wait."""
    tide = [replace(SMALL, pod=f"tide{number}-1", used=3 * GIB, gpu=number // 20) for number in range(100)]
    play = Play(SHORT)
    for number in range(60):
        action = play.step(SMALL, *tide[: number + 1], gpus=5).action
        if action is not None:
            play.conclude(Result.FAILED)
    mine = [at for at, verdict in enumerate(play.verdicts) if verdict.action and verdict.action.pod == SMALL.pod]
    waits = [(later - before) * SHORT.interval for before, later in pairwise(mine)]
    assert waits, "S was tried once only"
    assert all(wait <= 10.0 * 2**number + 15.0 for number, wait in enumerate(waits))


def test_namespaces_take_turns_among_those_that_were_tried() -> None:
    """Ten pods of one namespace are blocked, and one of another: the other namespace has every second turn."""
    many = [replace(SMALL, pod=f"many{number}-1") for number in range(10)]
    lone = replace(SMALL, pod="lone-1", namespace="other")
    play = Play(SHORT)
    ends(play, [*many, lone], lambda _: Result.ABANDONED, 40)  # each was tried, and waits ten seconds only
    play.verdicts.clear()
    tried = [pod for _, pod in ends(play, [*many, lone], lambda _: Result.ABANDONED, 40)]
    gaps = [index for index, pod in enumerate(tried) if pod == lone.pod]
    assert len(tried) == 40
    assert max(later - before for before, later in pairwise(gaps)) <= 3  # it rests two rounds


def test_a_dry_run_never_delays_an_action() -> None:
    """A namespace in dry-run is farther over, and due first: the real action comes when it would come alone."""
    rehearsing = replace(PLAIN, pod="dry-1", namespace="lab", used=40 * GIB, facts={"priority": -10})
    labels = {"team": {CONSENT: "enforce"}, "lab": {CONSENT: "dry-run"}}
    alone, both = Play(SHORT), Play(SHORT)
    alone.until_action(PLAIN, namespaces=labels)
    both.until_action(PLAIN, rehearsing, namespaces=labels)
    assert both.actions == alone.actions == ["evict team/m-1"]
    assert both.monotonic == alone.monotonic
    play = Play(SHORT)
    play.steps(4, rehearsing, namespaces=labels)
    play.until_action(rehearsing, PLAIN, namespaces=labels)
    assert play.actions == ["evict lab/dry-1 (dry)"]
    play.until_action(PLAIN, rehearsing, namespaces=labels)
    assert play.actions[1] == "evict team/m-1"
    assert play.history.dry_flight is not None


def test_an_action_has_all_that_carrying_it_out_needs() -> None:
    """Which container in which generation, where, how much of how much, by which declaration, and since when."""
    play = Play(SHORT)
    play.step(GREEDY, MEEK)
    since = play.monotonic
    action = play.until_action(GREEDY, MEEK)
    assert (action.rung, action.namespace, action.pod, action.container) == (Rung.EVICT, "team", "greedy-1", "main")
    assert (action.pod_uid, action.container_id, action.device) == (GREEDY.pod_uid, GREEDY.id, DeviceKey(gpu_uuid(0)))
    assert (action.used, action.limit.memory, action.limit.declared) == (70 * GIB, 8 * GIB, "policy annotation")
    assert (action.workload, action.since, action.dry) == (("team", "Deployment", "greedy"), since, False)


def test_of_two_limits_the_one_that_binds_counts() -> None:
    """Of two declarations for one holder the smaller counts; one that is only reported hides none that is enforced."""
    for first, second in ((8, 60), (60, 8)):
        play = Play(SHORT)
        play.until_action(replace(GREEDY, limit=first * GIB), replace(GREEDY, limit=second * GIB, used=0), MEEK)
        assert play.verdicts[-1].action is not None
        assert play.verdicts[-1].action.limit.memory == 8 * GIB
    hint = replace(GREEDY, limit=GIB, used=0, report_only=("a hint",))
    for actors in ((GREEDY, hint), (hint, GREEDY)):
        play = Play(SHORT)
        assert play.until_action(*actors, MEEK).limit.memory == 8 * GIB


@pytest.mark.parametrize("same", [True, False])
def test_of_two_equal_limits_the_stricter_about_acting_is_no_matter_of_order(same: bool) -> None:
    """The same amount, once to be enforced and once only to be reported: whichever comes first, the verdict is one."""
    hint = replace(GREEDY, used=0, report_only=() if same else ("a hint",))
    outcomes = set()
    for actors in ((GREEDY, hint), (hint, GREEDY)):
        play = Play(SHORT)
        play.steps(12, *actors, MEEK)
        outcomes.add((tuple(play.actions), play.reason(GREEDY)))
    assert len(outcomes) == 1


@pytest.mark.parametrize("kind", ["ReplicaSet", ""])
def test_a_pod_whose_owner_is_not_known_is_its_own_workload(kind: str) -> None:
    """A bare pod, and one of which no owner was read yet: both are acted on, and their tokens are the pod's own."""
    play = Play(SHORT)
    unowned = replace(PLAIN, facts={"workload": "", "workload_kind": "", "controller_kind": kind})
    assert play.until_action(unowned).workload == ("team", "Pod", "m-1")


def test_a_gentler_step_on_another_device_comes_first() -> None:
    """A container that is fenced on one device and over on a second one is fenced there before it is evicted."""
    play = Play(replace(SHORT, ladder=(Rung.FENCE, Rung.EVICT)))
    first = play.until_action(PLAIN, replace(PLAIN, gpu=1), gpus=2)
    play.conclude(Result.ACCEPTED)
    second = play.until_action(PLAIN, replace(PLAIN, gpu=1), gpus=2)
    assert play.actions == ["fence team/m-1"] * 2
    assert first.device != second.device
    play.conclude(Result.ACCEPTED)
    play.until_action(PLAIN, replace(PLAIN, gpu=1), gpus=2)
    assert play.actions[2] == "evict team/m-1"


@pytest.mark.parametrize(
    "elsewhere",
    [replace(PLAIN, gpu=1, used=GIB), replace(PLAIN, gpu=1, report_only=("a hint",))],
    ids=["within", "held"],
)
def test_a_device_that_leads_to_no_action_delays_no_harsher_step_on_another(elsewhere: Actor) -> None:
    """It was fenced where it is over and has neighbours: it is evicted, although no step was done elsewhere."""
    play = Play(replace(SHORT, ladder=(Rung.FENCE, Rung.EVICT), warn_after=0.0, grace=0.0))
    play.until_action(PLAIN, elsewhere, MEEK, gpus=2, most=5)
    play.conclude(Result.ACCEPTED)
    play.until_action(PLAIN, elsewhere, MEEK, gpus=2, most=20)
    assert play.actions == ["fence team/m-1", "evict team/m-1"]


def test_a_holder_that_is_held_on_each_of_its_devices_is_held_and_says_why() -> None:
    """Over on two GPUs, in a namespace that does not consent: the reason is the same on both, and no breaker opens."""
    play = Play(SHORT)
    pods = [replace(GREEDY, gpu=gpu) for gpu in (0, 1)]
    verdict = play.steps(12, *pods, gpus=2, namespaces={"team": {}})
    assert {(one.state, one.reason) for one in verdict.standings} == {(State.HELD, Reason.NO_CONSENT)}
    assert len(verdict.standings) == 2 and not verdict.breakers


def test_a_holder_that_pauses_keeps_its_place_among_many_that_come_back() -> None:
    """It is over for two fifths of the time, and is acted on although twelve workloads break their limits for ever."""
    budgets = replace(UNHURRIED.budgets, node=Budget(1, 600.0))
    rules = replace(UNHURRIED, interval=60.0, spacing=60.0, warn_after=60.0, grace=60.0, budgets=budgets)
    play = Play(rules)
    flapping, crowd = Actor("flapping-1", 3 * GIB, limit=2 * GIB), [Actor(f"w{i}-1", 3 * GIB, GIB) for i in range(12)]
    for round_ in range(400):
        flapping = replace(flapping, used=(3 if round_ % 40 >= 24 else 1) * GIB)
        action = play.step(flapping, *crowd).action
        if action is None:
            continue
        if action.pod == flapping.pod:
            return
        play.conclude(Result.ACCEPTED)
        uid, facts = f"uid-{action.pod}-{round_}", {"created_at": WALL + play.monotonic}
        crowd = [replace(each, uid=uid, facts=facts) if each.pod == action.pod else each for each in crowd]
    raise AssertionError(f"overtaken by {len(play.actions)} actions")


def test_a_pod_that_joins_a_claim_is_not_acted_on_before_its_warning_is_accepted() -> None:
    """However short the grace is, and however long the other pod of the claim was over."""
    play = Play(replace(UNHURRIED, grace=0.0, confirm=True))
    first, second = (Actor(f"sharer{n}-1", 20 * GIB + n, scope="claim", claim="team/shared") for n in range(2))

    def accept() -> None:
        ((holder, level),) = play.history.levels.items()
        assert level.warned_at is not None
        play.history = warned(play.history, holder, level.warned_at)

    play.steps(4, first, MEEK, live=False)
    accept()
    play.steps(4, first, MEEK, live=False)
    assert play.reason(first) == Reason.NAMES_STALE
    play.steps(6, first, second, MEEK)
    assert play.actions == []
    accept()
    assert play.until_action(first, second, MEEK, most=4).pod == second.pod
