"""
Exactly there, and one step beside it: the edges of the policy's comparisons.

What comes in: readings, moments and amounts on an edge. What goes out: on which side of it they count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from default_rules import default_budgets, default_rules
from enforcer.policy.decide import decide
from enforcer.policy.evidence import Evidence, Phase, Reading, Terms, gone_stale, weigh
from enforcer.policy.history import Moment, Result
from enforcer.policy.protection import grace
from enforcer.policy.rules import ALLOW_EXEMPTION, Budget, Ceiling, Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, State, Trigger
from policy.scenes import CONSENTING, GIB, UNHURRIED, Actor, Play, snapshot

TERMS = Terms(Mode.ENFORCE, None, Rung.EVICT)
QUICK = replace(UNHURRIED, warn_after=5.0, grace=30.0)
LIMIT = 8 * GIB
CEILING = QUICK.tolerance.above(LIMIT)
OVER = 12 * GIB
GREEDY = Actor("greedy-0", OVER)
ALONE = replace(UNHURRIED, trigger=Trigger.LIMIT)
"""The limit alone counts."""


def weighed(
    moments: Sequence[float], rules: Rules = QUICK, *, used: Sequence[int] = (), limit: int = LIMIT
) -> Evidence:
    """Weigh a reading at each moment, of the amounts in `used`, the last of which stays."""
    evidence: Evidence | None = None
    for index, at in enumerate(moments):
        amount = used[min(index, len(used) - 1)] if used else OVER
        evidence = weigh(evidence, Reading(at, amount, limit, rules.grace), TERMS, rules)
    assert evidence is not None
    return evidence


@pytest.mark.parametrize(
    ("moments", "phase"),
    [
        ((0, 5), Phase.OVER),  # seen for warn_after, in two rounds only
        ((0, 5, 10), Phase.GRACE),
        ((0, 4.5, 9.0), Phase.GRACE),  # nine tenths of an interval apart
        ((0, 4, 8), Phase.OVER),  # less: 0 and 8 are two rounds
        ((0, 4, 8, 12, 16), Phase.GRACE),
    ],
)
def test_three_rounds_are_nine_tenths_of_an_interval_apart(moments: Sequence[float], phase: Phase) -> None:
    """Rounds that begin some milliseconds early count, early rounds do not."""
    assert weighed(moments).phase is phase


@pytest.mark.parametrize(("step", "seen"), [(7.0, 7.0), (7.5, 7.5), (7.6, 0.0)])
def test_two_readings_vouch_for_one_and_a_half_intervals(step: float, seen: float) -> None:
    """The time between two readings over counts when it is at most one and a half intervals."""
    assert weighed((0.0, step)).seen == seen


@pytest.mark.parametrize(("gap", "stale"), [(12.5, False), (12.6, True)])
def test_a_gap_of_two_and_a_half_intervals_is_the_longest(gap: float, *, stale: bool) -> None:
    """Two and a half intervals after the last reading the evidence stands, later it does not."""
    assert gone_stale(weighed((0.0,)), gap, QUICK) is stale
    assert weighed((0.0, gap)).since == (gap if stale else 0.0)


def test_amounts_on_the_edge_are_not_above_it() -> None:
    """A use that is its limit, or limit and tolerance, is not above it; a byte more is."""
    assert [weighed((0.0,), used=(used,)).over for used in (CEILING, CEILING + 1)] == [False, True]
    assert [weighed((0.0,), used=(used,)).above for used in (LIMIT, LIMIT + 1)] == [False, True]


@pytest.mark.parametrize(("extra", "kept"), [(0, False), (1, True)])
def test_a_limit_raised_exactly_to_the_use_voids_the_evidence(extra: int, *, kept: bool) -> None:
    """What was seen must exceed the new limit, too: as much as the new one and its tolerance is not above it."""
    raised = LIMIT + GIB
    least = QUICK.tolerance.above(raised) + extra
    for used in ((least, OVER), (OVER, least, OVER)):
        evidence = weighed((0, 5, 10), used=used)
        assert evidence.phase is Phase.GRACE
        after = weigh(evidence, Reading(15, OVER, raised, 30), TERMS, QUICK)
        assert after.phase is (Phase.GRACE if kept else Phase.OVER)


def test_within_the_tolerance_nothing_was_seen_that_a_new_limit_could_void() -> None:
    """Between limit and tolerance the evidence waits from the beginning: a raise of the limit leaves it there."""
    waiting = weighed((0, 5), used=(OVER, LIMIT + 1))
    assert waiting.phase is Phase.OVER
    raised = weigh(waiting, Reading(10, 20 * GIB + 1, 20 * GIB, 30), TERMS, QUICK)
    assert raised.phase is Phase.OVER
    again = weigh(raised, Reading(15, 30 * GIB, 20 * GIB, 30), TERMS, QUICK)
    assert (again.since, again.counted, again.least) == (15, 1, 30 * GIB)


@pytest.mark.parametrize(("step", "phase"), [(4.5, Phase.GRACE), (4.4, Phase.DUE)])
def test_three_rounds_within_the_tolerance_end_what_was_due(step: float, phase: Phase) -> None:
    """Three rounds, each nine tenths of an interval after the other, give the whole grace again."""
    due = weighed([5.0 * index for index in range(9)])
    assert due.phase is Phase.DUE
    for index in range(1, 4):
        due = weigh(due, Reading(40 + step * index, LIMIT + 1, LIMIT, 30), TERMS, QUICK)
    assert due.phase is phase


@pytest.mark.parametrize("early", [0.0, 0.1])
def test_a_hold_off_is_over_when_it_has_passed(early: float) -> None:
    """Exactly the hold-off after the first snapshot somebody may be acted on, not a moment before."""
    play = Play(replace(ALONE, hold_off=200.0, interval=5.0))
    first = play.monotonic + 5
    play.steps(40, GREEDY)
    assert play.reason(GREEDY) == "hold_off"
    play.step(GREEDY, after=first + 200.0 - early - play.monotonic)
    assert bool(play.actions) is not bool(early)


def test_a_rehearsal_waits_for_no_spacing_of_actions() -> None:
    """After an action the next one waits; a rehearsal in another namespace does not."""
    other = Actor("other-0", OVER, namespace="dry")
    spaces: dict[str, Mapping[str, str]] = {"team": CONSENTING, "dry": {"gpusteward.io/mode": "dry-run"}}
    play = Play(replace(ALONE, spacing=1000.0))
    play.until(State.ACTING, GREEDY, namespaces=spaces)
    play.conclude(Result.VERIFIED)
    play.steps(100, other, namespaces=spaces)
    assert play.monotonic < (play.history.ended_at or 0.0) + 1000.0
    assert "evict dry/other-0 (dry)" in play.actions


@pytest.mark.parametrize(
    ("cost", "first"),
    [
        ("", True),
        ("3", False),
        ("-3", True),
        ("2147483647", False),
        ("99999999999", True),
        ("\u0663", True),
        ("\u00b2", True),
        ("3.0", True),
    ],
)
def test_only_a_number_of_ten_ascii_digits_is_a_deletion_cost(cost: str, *, first: bool) -> None:
    """What is no such number costs nothing: then the larger excess goes first."""
    larger = Actor("larger-0", 14 * GIB, facts={"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}})
    play = Play(ALONE)
    play.until_action(GREEDY, larger)
    assert (play.actions == ["evict team/larger-0"]) is first


def test_a_reading_that_is_limit_and_tolerance_is_not_over_now() -> None:
    """Who is due, and holds limit and tolerance to the byte in this round, is not acted on in it."""
    play = Play(replace(ALONE, budgets=default_budgets(node=Budget(0, 600.0))))
    play.until(State.HELD, GREEDY)
    play.history = replace(play.history, rules=ALONE)
    play.rules = ALONE
    play.step(replace(GREEDY, used=CEILING))
    assert play.reason(GREEDY) == "not_over_now"
    play.step(replace(GREEDY, used=CEILING + 1))
    assert play.actions


def test_who_is_ok_has_a_fresh_record() -> None:
    """Of a subject within its limit nothing is kept but when it was read."""
    assert weighed((0, 5, 10), used=(1,)) == weighed((10,), used=(1,))
    assert weighed((0, 5), used=(1, LIMIT + 1)) == Evidence(TERMS, 5, above=True)


def test_the_end_of_an_excess_is_three_rounds_the_first_of_them_at_once() -> None:
    """The first reading at the limit counts, however early; each next one nine tenths of an interval later."""
    told = weighed((0, 5, 10))
    phases = []
    for at in (11, 15.5, 20.0):
        told = weigh(told, Reading(at, LIMIT, LIMIT, 30), TERMS, QUICK)
        phases.append(told.phase)
    assert phases == [Phase.GRACE, Phase.GRACE, Phase.OK]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("000000060", 60.0),
        ("0000000060", 120.0),
        ("30", 30.0),
        ("29", 30.0),
        ("\u00b2", 120.0),
        ("\u0666\u0660", 120.0),
    ],
)
def test_a_grace_is_written_with_nine_digits_at_most(text: str, seconds: float) -> None:
    """A pod may write nine digits; longer ones are no number that anybody means."""
    pod = replace(GREEDY, facts={"annotations": {"gpusteward.io/grace-seconds": text}}).named()
    assert grace(pod, None, default_rules()) == seconds


def test_a_grace_that_begins_anew_has_no_unseen_past() -> None:
    """What was not seen before the terms changed is no part of the new grace."""
    told = weighed((0, 5, 10))
    assert told.phase is Phase.GRACE
    anew = weigh(told, Reading(15, LIMIT + 1, LIMIT, 45), replace(TERMS, rung=Rung.KILL), QUICK)
    assert (anew.phase, anew.unseen, anew.seen, anew.phase_from, anew.grace) == (Phase.GRACE, (), 0.0, 15, 45)


def test_a_longer_grace_wants_the_word_of_the_namespace() -> None:
    """600 s are granted where the namespace allows exemptions, and nowhere else; 30 s are granted to everybody."""
    word = {ALLOW_EXEMPTION: "true"}
    longer, shorter = (
        replace(GREEDY, facts={"annotations": {"gpusteward.io/grace-seconds": text}}).named() for text in ("600", "30")
    )
    assert [grace(longer, labels, default_rules()) for labels in (None, {}, word)] == [120.0, 120.0, 600.0]
    assert [grace(shorter, labels, default_rules()) for labels in (None, {}, word)] == [30.0, 30.0, 30.0]


def test_of_two_that_say_the_same_the_node_is_the_reason() -> None:
    """Where stop file and namespace both say `observe`, it is the stop file that somebody has to remove."""
    rules = replace(ALONE, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),))
    play = Play(rules)
    play.steps(40, GREEDY, namespaces={"team": {"gpusteward.io/mode": "observe"}})
    assert play.reason(GREEDY) == Reason.STOPPED


def test_after_a_fence_the_next_rung_follows() -> None:
    """A fence that holds is not put up again: who is still over is evicted, after another grace."""
    play = Play(replace(ALONE, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT)))
    play.until(State.ACTING, GREEDY)
    play.conclude(Result.VERIFIED)
    fenced = play.monotonic
    play.until(State.ACTING, GREEDY)
    assert play.actions == ["fence team/greedy-0", "evict team/greedy-0"]
    assert play.monotonic - fenced >= ALONE.grace


def test_a_limit_on_a_device_that_does_not_answer_is_no_error() -> None:
    """A GPU that the driver counts and does not describe leaves its subjects unjudged, and the policy whole."""
    play = Play(ALONE)
    play.step(GREEDY)
    lost = replace(snapshot([GREEDY], play.monotonic + 20), devices=(), gpus=(), gpus_read=frozenset())
    moment = Moment(play.monotonic + 20, play.monotonic + 20)
    _, verdict = decide(lost, ALONE, play.history, moment)
    assert not verdict.breakers
    assert [(one.state, one.reason) for one in verdict.standings] == [(State.UNJUDGED, Reason.READING_UNKNOWN)]


@pytest.mark.parametrize(("every", "due"), [(10, False), (40, True)])
def test_a_tenth_of_a_grace_may_be_unseen_and_no_more(every: int, *, due: bool) -> None:
    """A dip takes two intervals away: one in ten rounds is a fifth, one in forty a twentieth."""
    rules = replace(QUICK, grace=600.0)
    used = [LIMIT if index % every == every - 1 else OVER for index in range(400)]
    found = weighed([5.0 * index for index in range(400)], rules, used=used)
    assert (found.phase is Phase.DUE) is due
