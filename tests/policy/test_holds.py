"""
Holds begin, end and are forgotten, and what the end of an action leaves behind.

A history, a place and a reason come in, or an action in flight and its result. Holds and steps that are done go out.
"""

from dataclasses import replace

import pytest

from enforcer.policy import budgets, holds
from enforcer.policy.history import History, Hold, InFlight, Moment, Result, Spent
from enforcer.policy.outcomes import conclude, watching
from enforcer.policy.settling import settled
from enforcer.policy.vocabulary import Place, Reason, Rung
from policy.scenes import GREEDY, MEEK, UNHURRIED, Play, snapshot
from policy.scenes import settled as watched_for_long

NOW = Moment(1000.0, 1000.0)
KILLS = replace(UNHURRIED, ladder=(Rung.EVICT, Rung.KILL), kill_when_blocked=True, warn_after=0.0, grace=0.0)


def in_flight() -> tuple[History, InFlight]:
    """Play until an action on GREEDY is in flight."""
    play = Play(KILLS)
    play.until_action(GREEDY, MEEK, most=5)
    assert play.history.in_flight is not None
    return play.history, play.history.in_flight


FLYING, FLIGHT = in_flight()
POD = (Place.POD, FLIGHT.action.pod_uid)


def test_a_hold_is_lifted_alone() -> None:
    """Another pod's, and one for another reason, stay."""
    history = History()
    for name, reason in (("a", Reason.REFUSED), ("b", Reason.REFUSED), ("a", Reason.BLOCKED)):
        history = holds.held(history, Place.POD, name, reason, NOW, seconds=None)
    left = holds.lifted(history, Place.POD, "a", Reason.REFUSED).holds
    assert set(left) == {(Place.POD, "b", Reason.REFUSED), (Place.POD, "a", Reason.BLOCKED)}


@pytest.mark.parametrize(
    ("until", "in_force", "remembered"),
    [(None, True, True), (1000.1, True, True), (1000.0, False, True), (400.1, False, True), (400.0, False, False)],
)
def test_a_hold_is_in_force_until_its_end_and_remembered_for_ten_minutes(
    until: float | None, *, in_force: bool, remembered: bool
) -> None:
    """One without an end lasts until it is lifted."""
    table = {(Place.POD, "a", Reason.REFUSED): Hold(until)}
    assert (holds.InForce(table, NOW).on(Place.POD, "a") is not None) is in_force
    assert bool(holds.pruned(table, NOW)) is remembered


def test_the_rest_after_a_dry_run_holds_dry_runs_only() -> None:
    """A real action on the same pod waits for other holds, and not for that."""
    table = {(Place.POD, "a", reason): Hold(None) for reason in (Reason.DRY_RUN, Reason.REFUSED)}
    rests = {(Place.POD, "a", Reason.DRY_RUN): Hold(None)}
    assert holds.InForce(table, NOW).on(Place.POD, "a") == (Reason.REFUSED, "")
    assert holds.InForce(rests, NOW).on(Place.POD, "a") is None
    assert holds.InForce(rests, NOW).on(Place.POD, "a", dry=True) == (Reason.DRY_RUN, "")


def test_how_long_each_hold_is() -> None:
    """The node pauses for 5 s. A pod is held for 10 s after a last look, 5 min at most, and 15 min while watched."""
    at = Moment(1000.0, 1000.0)
    spared = conclude(FLYING, Result.ABANDONED, at).holds
    assert spared == {(*POD, Reason.LAST_LOOK): Hold(1010.0)}
    assert conclude(FLYING, Result.FAILED, at).holds[Place.NODE, "", Reason.SPACING].until == 1005.0
    history = FLYING
    for _ in range(9):
        history = conclude(replace(history, in_flight=FLIGHT), Result.FAILED, at)
    assert history.holds[*POD, Reason.FAILED].until == 1300.0
    assert watching(FLYING, FLIGHT.action, at).holds[*POD, Reason.IN_FLIGHT].until == 1900.0


def test_who_was_tried_for_the_first_time_leaves_the_next_turn_to_those_tried_before() -> None:
    """A pod that was tried before leaves it to the others, after an accepted action as well."""
    for result in (Result.FAILED, Result.ACCEPTED):
        assert conclude(FLYING, result, NOW).retry_next
        assert not conclude(replace(FLYING, tried={FLIGHT.action.pod_uid: 1.0}), result, NOW).retry_next


def test_only_a_blocked_eviction_leads_to_a_kill() -> None:
    """Where kill_when_blocked is written: not one that failed, and not a kill that is blocked."""
    key = FLIGHT.action.key
    killing = InFlight(replace(FLIGHT.action, rung=Rung.KILL), FLIGHT.at, FLIGHT.token)
    assert conclude(FLYING, Result.BLOCKED, NOW).done == {(key, Rung.EVICT)}
    assert conclude(FLYING, Result.FAILED, NOW).done == frozenset()
    assert conclude(replace(FLYING, in_flight=killing), Result.BLOCKED, NOW).done == frozenset()


def test_a_blocked_eviction_is_forgotten_with_its_excess() -> None:
    """A new excess begins again at the gentler step: the PodDisruptionBudget may allow the eviction now."""
    play = Play(replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.EVICT, Rung.KILL), kill_when_blocked=True))
    assert play.until_action(GREEDY, MEEK).rung is Rung.EVICT
    play.conclude(Result.BLOCKED)
    play.step(GREEDY, MEEK)
    assert len(play.history.done) == 1
    play.steps(100, replace(GREEDY, used=MEEK.used), MEEK)
    assert play.history.done == frozenset()
    assert play.until_action(GREEDY, MEEK).rung is Rung.EVICT


def test_an_action_of_an_earlier_daemon_may_end_before_the_first_round() -> None:
    """The rules are not known yet: a blocked eviction is tried again, and nothing is killed for it."""
    ended = conclude(replace(FLYING, settled=None), Result.BLOCKED, NOW)
    assert (ended.done, (*POD, Reason.BLOCKED) in ended.holds) == (frozenset(), True)


def test_a_token_that_was_never_taken_cannot_be_given_back() -> None:
    """What is left is what was there."""
    tokens = (Spent(1.0, ("team", "Pod", "a")),)
    assert budgets.without(tokens, Spent(2.0, ("team", "Pod", "a"))) == tokens
    assert budgets.without(tokens, None) == tokens
    assert budgets.without(tokens * 2, tokens[0]) == tokens


def test_the_first_driver_that_is_seen_is_no_other_one() -> None:
    """A node whose GPUs answer late has changed nothing."""
    before = watched_for_long()
    assert before.settled is not None
    before = replace(before, settled=replace(before.settled, drivers=frozenset()))
    assert settled(before, snapshot([GREEDY], 1000.0), UNHURRIED, NOW).since == before.settled.since  # type: ignore[union-attr]


@pytest.mark.parametrize(("live", "since"), [(True, 1000.0), (False, None)])
def test_namespaces_are_readable_where_their_names_are_live(*, live: bool, since: float | None) -> None:
    """Remembered labels do not say that they can be read now."""
    assert settled(History(), snapshot([GREEDY], 1000.0, live=live), UNHURRIED, NOW).read_all == since
