"""
The preview: what enforcing would do from now on.

What comes in: one snapshot, and what the policy knows of the past. What goes out: which holders would be acted on, with
their real levels, and which are held.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from default_rules import default_rules
from enforcer.policy import breakers
from enforcer.policy.history import History, Spent
from enforcer.policy.holds import held
from enforcer.policy.preview import preview
from enforcer.policy.rules import Budget, Budgets, Ceiling
from enforcer.policy.vocabulary import Breaker, Mode, Place, Reason, State
from exporter.model import Sharing
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, Play, settled, snapshot

NEW = History()


@pytest.mark.parametrize("mode", Mode, ids=str)
def test_it_asks_what_enforcing_would_do_whatever_the_mode(mode: Mode) -> None:
    """In each mode, below each ceiling, in the first round: GREEDY would be evicted, MEEK is not mentioned."""
    rules = default_rules(mode=mode, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),))
    seen = preview(snapshot([GREEDY, MEEK], BEGIN), rules, NEW)
    assert [(one.pod, one.state, one.mode) for one in seen.would] == [("greedy-1", State.OVER, Mode.ENFORCE)]
    assert (seen.held, seen.over, seen.limited, seen.trips) == ((), 1, 2, False)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.DRY_RUN, Mode.ENFORCE], ids=str)
def test_the_level_is_the_real_one(mode: Mode) -> None:
    """How much of the grace is used, and when the action follows at this rate; nothing is added by looking."""
    rules = replace(UNHURRIED, mode=mode)
    play = Play(rules, settled(rules))
    play.steps(10, GREEDY, MEEK)
    for _ in range(2):
        (one,) = preview(snapshot([GREEDY, MEEK], play.monotonic), rules, play.history).would
        assert (one.level, one.capacity, one.due_in, one.state) == (45.0, 135.0, 90.0, State.GRACE)


def test_a_holder_that_comes_and_goes_is_not_hidden_by_one_reading() -> None:
    """Its level shows that it was over; while it is within its limit no action follows at this rate."""
    play = Play()
    play.steps(10, GREEDY, MEEK)
    calm = replace(GREEDY, used=GIB)
    play.step(calm, MEEK)
    (one,) = preview(snapshot([calm, MEEK], play.monotonic), UNHURRIED, play.history).would
    assert (one.over, one.level, one.due_in) == (False, 45.0, None)


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        ({"sharing": Sharing.EXCLUSIVE}, Reason.EXCLUSIVE),
        ({"namespaces": {"team": {}}}, Reason.NO_CONSENT),
        ({"namespaces": {}}, Reason.NAMESPACE_UNKNOWN),
        ({"vendor": "amd"}, Reason.UNVERIFIED_BACKEND),
        ({"live": False}, Reason.NAMES_STALE),
    ],
)
def test_what_prevents_an_action_is_named(world: Mapping[str, object], reason: Reason) -> None:
    """Chosen or unknown: the holder is held, long before its level is full."""
    seen = preview(snapshot([GREEDY, MEEK], BEGIN, **world), UNHURRIED, settled())  # type: ignore[arg-type]
    assert seen.would == ()
    assert [(one.state, one.reason, one.prevented) for one in seen.held] == [(State.HELD, reason, reason)]


@pytest.mark.parametrize(
    ("place", "name", "reason"),
    [
        (Place.NAMESPACE, "team", Reason.NO_RIGHTS),
        (Place.NODE, "", Reason.UNAUTHORIZED),
        (Place.POD, GREEDY.pod_uid, Reason.BLOCKED),
    ],
)
def test_holds_that_do_not_end_by_themselves_are_named(place: Place, name: str, reason: Reason) -> None:
    """A missing RoleBinding and a PodDisruptionBudget are seen before anything is due, with their particulars."""
    play = Play()
    play.steps(5, GREEDY, MEEK)
    history = held(play.history, place, name, reason, play.now, seconds=60.0, detail="says the test")
    (one,) = preview(snapshot([GREEDY, MEEK], play.monotonic), UNHURRIED, history).held
    assert (one.reason, one.detail) == (reason, "says the test")


def test_an_open_breaker_is_named() -> None:
    """It stops all actions until a person closes it."""
    history = replace(settled(), breakers=breakers.opened({}, Breaker.ATTRIBUTION, 0.0, "lives on"))
    (one,) = preview(snapshot([GREEDY, MEEK], BEGIN), UNHURRIED, history).held
    assert (one.reason, one.detail) == (Reason.BREAKER, "attribution")


def test_what_only_delays_is_left_out_of_account() -> None:
    """A hold-off and a used-up budget end by themselves, and the action follows."""
    slow = replace(UNHURRIED, hold_off=3600.0)
    seen = preview(snapshot([GREEDY, MEEK], BEGIN), slow, NEW)
    assert (len(seen.would), seen.held) == (1, ())
    scarce = replace(UNHURRIED, budgets=Budgets(Budget(1, 600.0), Budget(1, 600.0)))
    spent = (Spent(BEGIN, ("other", "Deployment", "earlier"), WALL),)
    play = Play(scarce, replace(settled(scarce), spent=spent))
    play.until(State.HELD, GREEDY, MEEK)
    seen = preview(snapshot([GREEDY, MEEK], play.monotonic), scarce, play.history)
    assert [(one.state, one.reason) for one in seen.would] == [(State.HELD, Reason.BUDGET_NODE)]


def test_a_budget_of_no_action_never_ends() -> None:
    """An operator who allows 0 actions wants none."""
    none = replace(UNHURRIED, budgets=Budgets(Budget(0, 600.0), Budget(2, 600.0)))
    seen = preview(snapshot([GREEDY, MEEK], BEGIN), none, settled(none))
    assert (seen.would, [one.reason for one in seen.held]) == ((), [Reason.BUDGET_NODE])


def test_protected_pods_are_not_mentioned() -> None:
    """No mode lifts a protection."""
    rules = replace(UNHURRIED, protect=replace(UNHURRIED.protect, namespaces=("team",)))
    seen = preview(snapshot([GREEDY, MEEK], BEGIN), rules, settled(rules))
    assert (seen.would, seen.held, seen.limited) == ((), (), 0)


def test_whatever_is_acted_on_was_in_the_preview() -> None:
    """A preview of the snapshot in which a pod is acted on names it."""
    play = Play(replace(UNHURRIED, grace=30.0))
    past = play.history
    for _ in range(60):
        past = play.history
        verdict = play.step(GREEDY, MEEK)
        if verdict.action is not None:
            break
    assert verdict.action is not None
    seen = preview(snapshot([GREEDY, MEEK], play.monotonic), play.rules, past)
    assert verdict.action.key in {one.key for one in seen.would}


@pytest.mark.fault(73)
def test_it_says_that_the_breaker_would_open() -> None:
    """Row 73: half of the node would be hit: the breaker would open instead."""
    crowd = [Actor(f"p{n}-1", 4 * GIB, limit=GIB) for n in range(3)] + [MEEK, replace(MEEK, pod="other-2")]
    seen = preview(snapshot(crowd, BEGIN), UNHURRIED, settled())
    assert (seen.over, seen.limited, seen.trips) == (3, 5, True)
    fewer = preview(snapshot(crowd[1:], BEGIN), UNHURRIED, settled())
    assert (fewer.over, fewer.limited, fewer.trips) == (2, 4, False)


def test_a_gpu_that_was_not_read_in_this_round_was_read_before() -> None:
    """An early round that read another GPU does not hide a holder that is over on this one."""
    assert len(preview(snapshot([GREEDY, MEEK], BEGIN, read=()), UNHURRIED, settled()).would) == 1


def test_an_empty_node_has_an_empty_preview() -> None:
    """Without pods there is nothing to act on, and nothing breaks."""
    seen = preview(snapshot([], BEGIN), default_rules(), NEW)
    assert (seen.would, seen.held, seen.over, seen.limited, seen.trips) == ((), (), 0, 0, False)
