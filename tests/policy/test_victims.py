"""
Whom it takes, and that it takes one.

What comes in: several over-users that are due in the same round. What goes out: one action, in a total order; the rest
waits for what its end shows.
"""

from dataclasses import replace

import pytest

from enforcer.policy.history import Result
from enforcer.policy.rules import CONSENT
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from exporter.model import DeviceKey
from policy.scenes import GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, Play, gpu_uuid

SHORT = replace(UNHURRIED, grace=30.0)
COST = "controller.kubernetes.io/pod-deletion-cost"
PLAIN = Actor("m-1", 20 * GIB)
NEEDY = Actor("needy-1", GIB, limit=70 * GIB)
BYSTANDERS = tuple(Actor(f"calm{n}-1", GIB, limit=2 * GIB) for n in range(3))
"""So that two over-users are no half of the node."""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"facts": {"priority": -1}}, {}),
        ({"facts": {"priority": -1}}, {"facts": {"annotations": {COST: "-5"}}}),
        ({"facts": {"annotations": {COST: "-5"}}}, {}),
        ({}, {"facts": {"annotations": {COST: "5"}}}),
        ({"used": 20 * GIB}, {"used": 20 * GIB - 1}),
        ({"limit": 8 * GIB}, {"limit": 9 * GIB}),
        ({"facts": {"created_at": WALL - 10}}, {"facts": {"created_at": WALL - 20}}),
        ({"facts": {"annotations": {COST: "-5"}}}, {"used": 30 * GIB}),
        ({"facts": {"annotations": {COST: "not a number"}}, "used": 21 * GIB}, {}),
        ({"facts": {"annotations": {COST: "9" * 99}}, "used": 21 * GIB}, {}),
    ],
)
def test_the_order_of_victims(first: dict[str, object], second: dict[str, object]) -> None:
    """Lower priority, then lower deletion cost, then the farther over, then the younger; whatever their names."""
    for names in (("a-1", "z-1"), ("z-1", "a-1")):
        one, other = (
            replace(PLAIN, pod=name, **change)  # type: ignore[arg-type]
            for name, change in zip(names, (first, second), strict=True)
        )
        play = Play(SHORT)
        play.until_action(other, one, NEEDY, *BYSTANDERS)
        assert play.actions == [f"evict team/{one.pod}"]
        assert play.reason(other) == Reason.QUEUED


def test_equals_have_an_order_too() -> None:
    """Nothing tells two apart but their UIDs: the order is the same each time, and in whatever order they are seen."""
    chosen = set()
    for pair in (("a-1", "b-1"), ("b-1", "a-1")):
        play = Play(SHORT)
        play.until_action(*(replace(PLAIN, pod=name) for name in pair), NEEDY, *BYSTANDERS)
        chosen |= set(play.actions)
    assert chosen == {"evict team/a-1"}


def test_nobody_else_is_taken_instead() -> None:
    """0.5: the first one vanishes, or cannot be evicted: the other one needs new evidence and the spacing."""
    for result in (Result.ABANDONED, Result.FAILED, Result.REFUSED, Result.VERIFIED):
        farther = replace(PLAIN, pod="farther-1", used=21 * GIB)
        play = Play(SHORT)
        play.until_action(PLAIN, farther, NEEDY, *BYSTANDERS)
        assert play.actions == ["evict team/farther-1"]
        play.conclude(result)
        ended = play.monotonic
        play.step(PLAIN, NEEDY, *BYSTANDERS, hidden={0: 21 * GIB})
        assert play.standing(PLAIN) is State.OVER  # from the beginning
        play.until_action(PLAIN, NEEDY, *BYSTANDERS, hidden={0: 21 * GIB})
        assert play.actions == ["evict team/farther-1", "evict team/m-1"]
        assert play.monotonic - ended >= SHORT.spacing


def test_after_an_action_nobody_is_short_any_more() -> None:
    """The end of the first eviction freed enough: the other one is over, and nobody is denied anything."""
    farther = replace(PLAIN, pod="farther-1", used=50 * GIB)
    needy = replace(NEEDY, limit=30 * GIB)
    play = Play(SHORT)
    play.until_action(PLAIN, farther, needy, *BYSTANDERS)
    play.conclude(Result.VERIFIED)
    play.steps(60, PLAIN, needy, *BYSTANDERS)
    assert play.actions == ["evict team/farther-1"]
    assert play.reason(PLAIN) == Reason.NOT_CONTENDED


def test_one_in_flight_on_the_whole_node() -> None:
    """INV-5: an action on one GPU holds back those on all others, until its end is known."""
    elsewhere = (replace(PLAIN, pod="n-1", gpu=1), replace(NEEDY, pod="needy2-1", gpu=1))
    play = Play(SHORT)
    play.steps(100, PLAIN, NEEDY, *elsewhere, *BYSTANDERS, gpus=2)
    assert len(play.actions) == 1
    assert {one.reason for one in play.verdicts[-1].standings if one.state is State.HELD} == {Reason.IN_FLIGHT}


def test_evidence_of_other_devices_stays() -> None:
    """An action's end voids what was seen on its own device only: elsewhere the next one waits for the spacing."""
    farther = (replace(PLAIN, pod="n-1", gpu=1, used=30 * GIB), replace(NEEDY, pod="needy2-1", gpu=1))
    play = Play(SHORT)
    play.until_action(PLAIN, NEEDY, *farther, *BYSTANDERS, gpus=2)
    assert play.actions == ["evict team/n-1"]
    play.conclude(Result.VERIFIED)
    ended = play.monotonic
    play.until_action(PLAIN, NEEDY, farther[1], *BYSTANDERS, gpus=2)
    assert play.monotonic - ended == SHORT.spacing


def test_a_rehearsal_never_delays_an_action() -> None:
    """A namespace that rehearses is farther over, and first in all else: the real one is taken."""
    rehearsing = replace(PLAIN, pod="dry-1", namespace="lab", used=40 * GIB, facts={"priority": -10})
    labels = {"team": {CONSENT: "enforce"}, "lab": {CONSENT: "dry-run"}}
    alone, both = Play(SHORT), Play(SHORT)
    alone.until_action(PLAIN, NEEDY, *BYSTANDERS, namespaces=labels, hidden={0: 40 * GIB})
    while not any(not one.endswith("(dry)") for one in both.actions):
        both.until_action(PLAIN, rehearsing, NEEDY, *BYSTANDERS, namespaces=labels)
        assert len(both.actions) < 9
    assert both.monotonic == alone.monotonic
    play = Play(SHORT)
    play.steps(4, rehearsing, NEEDY, *BYSTANDERS, namespaces=labels)
    play.until_action(rehearsing, PLAIN, NEEDY, *BYSTANDERS, namespaces=labels)
    begun = play.monotonic
    assert play.actions == ["evict lab/dry-1 (dry)"]
    play.until_action(PLAIN, rehearsing, NEEDY, *BYSTANDERS, namespaces=labels)
    assert play.actions[1] == "evict team/m-1"
    assert play.monotonic - begun < SHORT.spacing


def test_a_rehearsed_victim_is_a_new_one_afterwards() -> None:
    """Dry runs go through the same spacing and evidence as real ones: a stubborn over-user is rehearsed again later."""
    play = Play(replace(SHORT, mode=Mode.DRY_RUN))
    play.until_action(GREEDY, MEEK)
    first = play.monotonic
    assert play.standing(GREEDY) is State.DUE
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - first >= SHORT.spacing + SHORT.warn_after + SHORT.grace
    assert play.history.in_flight is None


def test_an_action_says_all_that_its_user_has_to_know() -> None:
    """Who, which generation, where, how much of how much, by which declaration, and since when."""
    play = Play(SHORT)
    play.step(GREEDY, MEEK)
    since = play.monotonic
    action = play.until_action(GREEDY, MEEK)
    assert (action.rung, action.namespace, action.pod, action.container) == (Rung.EVICT, "team", "greedy-1", "main")
    assert (action.pod_uid, action.container_id, action.device) == (GREEDY.pod_uid, GREEDY.id, DeviceKey(gpu_uuid(0)))
    assert (action.used, action.limit.memory, action.limit.declared) == (70 * GIB, 8 * GIB, "policy annotation")
    assert (action.workload, action.since, action.dry) == (("team", "Deployment", "greedy"), since, False)


def test_of_two_limits_the_one_that_binds_counts() -> None:
    """Two declarations for one subject: the smaller; one that must not be enforced hides none that may."""
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
    told = set()
    for actors in ((GREEDY, hint), (hint, GREEDY)):
        play = Play(SHORT)
        play.steps(12, *actors, MEEK)
        told.add((tuple(play.actions), play.reason(GREEDY)))
    assert len(told) == 1


def test_a_pod_without_a_controller_has_no_owner_to_wait_for() -> None:
    """Where bare pods may be evicted, one is its own workload; one that is controlled waits until its owner is read."""
    play = Play(replace(SHORT, protect=replace(SHORT.protect, bare_pods=False)))
    owner = {"workload": "", "workload_kind": ""}
    controlled, bare = (replace(PLAIN, facts={**owner, "controller_kind": kind}) for kind in ("ReplicaSet", ""))
    play.steps(60, controlled, NEEDY, *BYSTANDERS)
    assert (play.actions, play.reason(PLAIN)) == ([], Reason.OWNER_UNKNOWN)
    play.steps(2, bare, NEEDY, *BYSTANDERS)  # in the first one its strike is counted
    assert play.actions == ["evict team/m-1"]
