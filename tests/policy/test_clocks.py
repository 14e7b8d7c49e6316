"""
Clocks, stalls, sleep, and sources that fall silent: doubt about the whole node.

GREEDY comes in, far over its limit, and a time that does not pass as it should. Delay goes out, which is bounded, and
never haste.
"""

from dataclasses import replace

import pytest

from enforcer.policy.decide import decide
from enforcer.policy.history import Moment
from enforcer.policy.vocabulary import Mode, Reason, State
from policy.scenes import GREEDY, MEEK, UNHURRIED, Play, snapshot

UNDISTURBED = 28
"""The round in which GREEDY is acted on when nothing disturbs."""


@pytest.mark.fault(22)
def test_the_wall_clock_counts_for_nothing() -> None:
    """Row 22: the clock on the wall is an hour ahead, an hour behind, in turn: the same round."""
    play = Play()
    for number in range(1, 41):
        play.monotonic += 5
        seen = snapshot([GREEDY, MEEK], play.monotonic, round_=number)
        seen = replace(seen, taken_at=seen.taken_at + (3600 if number % 2 else -3600))
        play.history, verdict = decide(seen, play.rules, play.history, play.now)
        if verdict.action is not None:
            break
    assert number == UNDISTURBED


@pytest.mark.fault(23)
def test_a_machine_that_slept_counts_nothing_of_its_sleep() -> None:
    """Row 23: what was before a sleep of more than five seconds says nothing about what is now: from the beginning."""
    for asleep, begins_anew in ((4.0, False), (600.0, True)):
        play = Play()
        play.steps(20, GREEDY, MEEK)
        play.asleep += asleep
        play.step(GREEDY, MEEK)
        assert play.standing(GREEDY) is (State.OVER if begins_anew else State.GRACE)
        play.until_action(GREEDY, MEEK)
        assert play.round == UNDISTURBED + (20 if begins_anew else 0)


@pytest.mark.fault(24)
def test_a_stall_of_ours_delays_and_bursts_nothing() -> None:
    """Row 24: nothing is decided for 30 s, then the rounds that waited come at once: none leads to an action."""
    play = Play()
    play.steps(26, GREEDY, MEEK)
    play.monotonic += 30.0
    waiting = [snapshot([GREEDY, MEEK], play.monotonic - 25.0 + 5.0 * late, round_=27 + late) for late in range(4)]
    for number, seen in enumerate(waiting):
        play.monotonic += 0.01
        play.history, verdict = decide(seen, play.rules, play.history, play.now)
        assert verdict.action is None, number
    assert play.actions == []
    begun = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert 10.0 <= play.monotonic - begun <= 60.0


@pytest.mark.fault(68)
def test_the_first_snapshot_twice_is_one() -> None:
    """Row 68: a snapshot that is not later than the one before adds nothing."""
    play = Play()
    seen = snapshot([GREEDY, MEEK], play.monotonic + 5)
    for _ in range(400):
        play.monotonic += 0.02
        play.history, verdict = decide(seen, play.rules, play.history, play.now)
        assert verdict.action is None
    assert {one.state for one in verdict.standings if one.pod == "greedy-1"} == {State.OVER}


@pytest.mark.fault(1, 18)
def test_names_that_are_remembered_only_hold_back() -> None:
    """Row 18: the API server is silent: the level rises, no action follows, and with its return one does."""
    play = Play()
    play.steps(40, GREEDY, MEEK, live=False)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.NAMES_STALE)
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]


def test_dry_run_doubts_as_enforce_does() -> None:
    """In dry-run the same doubts hold back as in enforce."""
    play = Play(replace(UNHURRIED, mode=Mode.DRY_RUN))
    play.steps(60, replace(GREEDY, used=None), MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.READING_UNKNOWN)


@pytest.mark.fault(68)
def test_neither_an_old_snapshot_nor_an_old_moment_is_news() -> None:
    """The same snapshot a moment later, and a later snapshot at the same moment, leave the history as it is."""
    play = Play()
    play.steps(5, GREEDY, MEEK)
    known = play.history
    seen, newer = (snapshot([GREEDY, MEEK], play.monotonic + later) for later in (0.0, 1.0))
    second = Moment(play.monotonic + 1, play.monotonic + 1)
    assert decide(seen, play.rules, known, second)[0] is known
    assert decide(newer, play.rules, known, play.now)[0] is known
    assert decide(newer, play.rules, known, second)[0] is not known
