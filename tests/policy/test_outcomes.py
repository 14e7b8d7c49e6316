"""
What each end of an action means for what follows.

What comes in: an eviction of GREEDY, and each way in which it may end. What goes out: evidence, waits, breakers, and
when GREEDY is acted on again, if it is still there.
"""

from dataclasses import replace

import pytest

from default_rules import default_rules
from enforcer.policy.history import Blocked, History, Result
from enforcer.policy.outcomes import LONGEST_WAIT, conclude, rehearsed
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, State
from policy.scenes import GIB, GREEDY, MEEK, UNHURRIED, Actor, Play

SHORT = replace(UNHURRIED, grace=30.0)
AGAIN = SHORT.warn_after + SHORT.grace
"""Seconds of new evidence that a second action on the same device wants."""


def acted() -> Play:
    play = Play(SHORT)
    play.until_action(GREEDY, MEEK)
    return play


@pytest.mark.fault(3, 15)
def test_while_the_end_is_unknown_nothing_follows() -> None:
    """Row 3, 15: an ambiguous action is in flight until somebody knows better: however long it takes."""
    play = acted()
    play.steps(100, GREEDY, MEEK)
    assert len(play.actions) == 1
    assert play.standing(GREEDY) is State.ACTING


@pytest.mark.parametrize("result", [Result.VERIFIED, Result.ABANDONED, Result.FAILED, Result.REFUSED], ids=str)
def test_afterwards_all_begins_anew(result: Result) -> None:
    """INV-1: what was seen before an action's end is no evidence; whoever is still over has its whole grace again."""
    play = acted()
    play.conclude(result)
    ended = play.monotonic
    play.step(GREEDY, MEEK)
    assert play.standing(GREEDY) is State.OVER
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - ended >= max(AGAIN, SHORT.spacing)


@pytest.mark.fault(17)
def test_the_same_name_with_another_uid_is_another_pod() -> None:
    """Row 17: a StatefulSet's pod comes back under its name: nothing that was known of the old one holds for it."""
    play = acted()
    play.conclude(Result.VERIFIED)
    reborn = replace(GREEDY, uid="uid-reborn")
    ended = play.monotonic
    play.step(reborn, MEEK)
    assert play.standing(reborn) is State.OVER
    assert play.until_action(reborn, MEEK).pod_uid == "uid-reborn"
    assert play.monotonic - ended >= AGAIN


@pytest.mark.fault(45, 47)
def test_stuck_stops_the_node() -> None:
    """Rows 45, 47: accepted and without effect: the breaker opens, and nobody else is tried."""
    play = acted()
    play.conclude(Result.STUCK)
    assert play.history.breakers[Breaker.EFFECTIVENESS].detail == "greedy-1 did not go"
    other = replace(GREEDY, pod="other-1", gpu=1)
    play.steps(60, other, replace(MEEK, gpu=1), gpus=1)
    assert len(play.actions) == 1


@pytest.mark.fault(4, 5)
def test_blocked_waits_longer_each_time() -> None:
    """Rows 4, 5: a PodDisruptionBudget says no: held with `blocked`, asked again later, and never killed instead."""
    play = acted()
    waits = []
    for _ in range(9):
        play.conclude(Result.BLOCKED)
        ended = play.monotonic
        play.step(GREEDY, MEEK)
        assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.HELD, Reason.BLOCKED)
        play.until_action(GREEDY, MEEK)
        waits.append(play.monotonic - ended)
    assert waits == [60.0, 60.0, 60.0, 80.0, 160.0, 300.0, 300.0, 300.0, 300.0]  # at least the spacing
    assert set(play.actions) == {"evict team/greedy-1"}


def test_who_is_blocked_delays_others_for_a_budget_s_window_at_most() -> None:
    """An over-user behind a PodDisruptionBudget is asked first; when its tokens are spent the other one goes."""
    first = replace(GREEDY, pod="behind-1", used=40 * GIB)
    other = replace(GREEDY, pod="other-1", used=30 * GIB)
    calm = (replace(MEEK, limit=60 * GIB), Actor("calm-1", GIB))
    play = Play(default_rules(mode=Mode.ENFORCE, hold_off=0.0))
    begun = play.monotonic
    while "evict team/other-1" not in play.actions:
        play.conclude(Result.BLOCKED)
        play.until_action(first, other, *calm)
        assert len(play.actions) < 30
    assert play.monotonic - begun <= 600.0 + 4 * 60.0


def test_blocked_and_kill_was_written() -> None:
    """The operator wrote kill behind evict: it follows after another whole grace, and only for whom is still over."""
    play = Play(replace(SHORT, ladder=(Rung.EVICT, Rung.KILL), kill_when_blocked=True))
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.BLOCKED)
    ended = play.monotonic
    play.step(GREEDY, MEEK)
    assert play.standing(GREEDY) is State.GRACE
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1", "kill team/greedy-1"]
    assert play.monotonic - ended >= SHORT.grace


def test_only_an_eviction_can_be_blocked() -> None:
    """Of another rung nobody could have said so: nothing is blocked, no kill follows from it, and all begins anew."""
    play = Play(replace(SHORT, ladder=(Rung.NOTIFY, Rung.KILL)))
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.BLOCKED)
    assert not play.history.blocked and not play.history.evidence
    play.step(GREEDY, MEEK)
    assert play.standing(GREEDY) is State.OVER


def test_a_grace_of_which_nobody_heard_is_none() -> None:
    """
    Other rules while an eviction is in flight: the grace until their kill begins when the eviction has ended.

    In flight the standing is `acting`, and so nobody was told of another grace.
    """
    play = acted()
    play.rules = replace(SHORT, ladder=(Rung.NOTIFY, Rung.KILL))
    play.steps(20, GREEDY, MEEK)
    assert play.standing(GREEDY) is State.ACTING
    play.conclude(Result.BLOCKED)
    ended = play.monotonic
    play.step(GREEDY, MEEK)
    assert play.standing(GREEDY) is State.OVER
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1", "kill team/greedy-1"]
    assert State.GRACE in [one.state for verdict in play.verdicts for one in verdict.standings if one.rung is Rung.KILL]
    assert play.monotonic - ended >= AGAIN


def test_blocked_keeps_what_was_told() -> None:
    """The evidence of before the eviction, and that of everybody else, goes on: others are told meanwhile as ever."""
    play = acted()
    other = Actor("other-1", 4 * GIB, limit=2 * GIB)
    play.steps(8, GREEDY, MEEK, other)
    assert play.standing(other) is State.GRACE
    before = dict(play.history.evidence)
    play.conclude(Result.BLOCKED)
    assert play.history.evidence == before and len(before) == 3


def test_blocked_is_forgotten_with_the_excess() -> None:
    """Who comes below its limit and exceeds it again later is asked for an eviction first, not killed."""
    play = Play(replace(SHORT, ladder=(Rung.EVICT, Rung.KILL), kill_when_blocked=True))
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.BLOCKED)
    play.step(replace(GREEDY, generation=1, used=0), MEEK)
    play.steps(4, MEEK)
    reborn = replace(GREEDY, generation=1)
    play.until_action(reborn, MEEK)
    assert play.actions == ["evict team/greedy-1"] * 2


def test_a_fence_holds_and_the_next_rung_follows() -> None:
    """Fenced and still above its limit: the next rung comes after another grace, not at once."""
    play = Play(replace(SHORT, ladder=(Rung.FENCE, Rung.EVICT)))
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.VERIFIED)
    ended = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["fence team/greedy-1", "evict team/greedy-1"]
    assert play.monotonic - ended >= max(AGAIN, SHORT.spacing)


@pytest.mark.parametrize("result", [Result.ABANDONED, Result.REFUSED, Result.STUCK], ids=str)
def test_a_fence_that_was_not_tried_to_the_end_does_not_hold(result: Result) -> None:
    """Spared, refused or unseen: it is tried again, and nothing harsher follows from it."""
    play = Play(replace(SHORT, ladder=(Rung.FENCE, Rung.EVICT)))
    play.until_action(GREEDY, MEEK)
    play.conclude(result)
    play.history = replace(play.history, breakers={})
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["fence team/greedy-1"] * 2


def test_who_cannot_be_fenced_goes_on_up_the_ladder() -> None:
    """Odd cgroups are no shield: when the driver cannot fence it, the next rung follows after another whole grace."""
    play = Play(replace(SHORT, ladder=(Rung.FENCE, Rung.EVICT)))
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.FAILED)
    ended = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["fence team/greedy-1", "evict team/greedy-1"]
    assert play.monotonic - ended >= max(AGAIN, SHORT.spacing)


def test_a_fence_is_the_container_s() -> None:
    """Another generation is not fenced."""
    play = Play(replace(SHORT, ladder=(Rung.FENCE, Rung.EVICT)))
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.VERIFIED)
    play.steps(2, MEEK)
    play.until_action(replace(GREEDY, generation=1), MEEK)
    assert play.actions == ["fence team/greedy-1"] * 2


def test_an_end_without_an_action_is_none() -> None:
    """Whoever reports an end twice changes nothing."""
    history = History()
    for result in Result:
        assert conclude(history, result, Play().now) is history


@pytest.mark.fault(5)
def test_the_longest_wait_is_bounded() -> None:
    """A PDB of weeks: the wait stays at five minutes, and no number overflows."""
    play = acted()
    flight = play.history.in_flight
    for _ in range(2000):
        play.history = conclude(replace(play.history, in_flight=flight), Result.BLOCKED, play.now)
    (one,) = play.history.blocked.values()
    assert (one.times, one.until - play.monotonic) == (2000, LONGEST_WAIT)


def test_who_acts_no_more_is_not_told_to_act() -> None:
    """Blocked, and unread in the next round: it stands as due or held, not as acting, for nothing is in flight."""
    play = acted()
    play.conclude(Result.BLOCKED)
    play.step(GREEDY, MEEK, read=())
    assert play.standing(GREEDY) in {State.DUE, State.HELD}


def test_an_action_outlives_what_voids_evidence() -> None:
    """Other rules, a sleep, another driver: the action in flight stays, for the world does not forget it."""
    play = acted()
    play.rules = replace(SHORT, spacing=90.0)
    play.asleep += 600.0
    play.steps(60, Actor("other-1", GREEDY.used), MEEK, driver="590.10")
    assert play.history.in_flight is not None
    assert len(play.actions) == 1


def test_each_end_says_its_own() -> None:
    """What one end leaves behind: refusals in a row, breakers and fences, told for an eviction and for a fence."""
    flight = acted().history.in_flight
    assert flight is not None
    fence = replace(flight, action=replace(flight.action, rung=Rung.FENCE))
    key = flight.action.key
    for in_flight in (flight, fence):
        fenced = {key} if in_flight is fence else set()
        for result, refused, broken, holds in (
            (Result.VERIFIED, 0, set(), fenced),
            (Result.REFUSED, 3, {Breaker.API}, set()),
            (Result.BLOCKED, 2 if in_flight is fence else 0, set(), set()),
            (Result.STUCK, 2, {Breaker.EFFECTIVENESS}, set()),
            (Result.FAILED, 2, set(), fenced),
            (Result.ABANDONED, 2, set(), set()),
            (Result.LINGERS, 2, set(), set()),
        ):
            after = conclude(History(in_flight=in_flight, refused=2), result, Play().now, detail="403")
            assert (after.refused, set(after.breakers), set(after.fenced)) == (refused, broken, holds), result
    second = conclude(History(in_flight=flight, refused=1), Result.REFUSED, Play().now)
    assert (second.refused, second.breakers) == (2, {})


@pytest.mark.parametrize(("times", "wait"), [(0, 10.0), (1, 20.0), (2, 40.0), (4, 160.0), (5, 300.0), (50, 300.0)])
def test_a_blocked_eviction_waits_twice_as_long_each_time(times: int, wait: float) -> None:
    """Ten seconds, twenty, forty, up to five minutes."""
    flight, now = acted().history.in_flight, Play().now
    assert flight is not None
    key = flight.action.key
    blocked = {key: Blocked(times, 0.0)} if times else {}
    after = conclude(History(in_flight=flight, blocked=blocked), Result.BLOCKED, now)
    assert after.blocked == {key: Blocked(times + 1, now.monotonic + wait)}


def test_one_token_comes_back_and_no_other() -> None:
    """Two tokens were taken at once: the one of the action is given back; one that is not there cannot be."""
    flight, now = acted().history.in_flight, Play().now
    assert flight is not None
    assert flight.token is not None
    mine, other = flight.token, replace(flight.token, at=1.0)
    for spent, left in (((other, mine, mine), (other, mine)), ((other,), (other,)), ((mine, other), (other,))):
        assert conclude(History(in_flight=flight, spent=spent), Result.ABANDONED, now).spent == left
        assert conclude(History(in_flight=flight, spent=spent), Result.FAILED, now).spent == spent
    untaken = replace(flight, token=None)
    assert conclude(History(in_flight=untaken, spent=(mine,)), Result.ABANDONED, now).spent == (mine,)


def test_why_nothing_happened_is_told_in_the_asker_s_words() -> None:
    """Whoever knows more says it; else the pod is named."""
    flight, now = acted().history.in_flight, Play().now
    for detail, told in (("a finalizer", "a finalizer"), ("", "greedy-1 did not go")):
        after = conclude(History(in_flight=flight), Result.STUCK, now, detail=detail)
        assert after.breakers[Breaker.EFFECTIVENESS].detail == told


@pytest.mark.parametrize("result", Result)
def test_a_rehearsal_gives_its_token_back_where_the_play_would(result: Result) -> None:
    """Nothing else of the history changes; the end of another rehearsal, or one too late, changes nothing at all."""
    play = Play(replace(SHORT, mode=Mode.DRY_RUN))
    action = play.until_action(GREEDY, MEEK)
    history = play.history
    assert history.rehearsal is not None and [one.dry for one in history.spent] == [True]
    after = rehearsed(history, action, result)
    assert after == replace(history, spent=() if result.harmless else history.spent)
    assert rehearsed(history, replace(action, pod="another"), result) == history
    late = replace(history, rehearsal=None)
    assert rehearsed(late, action, result) == late
