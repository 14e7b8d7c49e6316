"""
Exactly there, and one step beside it: the edges of the policy's comparisons.

What comes in: readings, moments and amounts on an edge. What goes out: on which side of it they count.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from enforcer.evidence import Evidence, Phase, Reading, Terms, gone_stale, weigh
from enforcer.rules import Rules
from enforcer.terms import Mode, Rung
from policy.scenes import GIB, UNHURRIED

TERMS = Terms(Mode.ENFORCE, None, Rung.EVICT)
QUICK = replace(UNHURRIED, warn_after=5.0, grace=30.0)
LIMIT = 8 * GIB
CEILING = QUICK.tolerance.above(LIMIT)
OVER = 12 * GIB


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
    before = weighed((0, 5, 10), used=(CEILING + extra, OVER))
    lower = weighed((0, 5, 10), used=(OVER, CEILING + extra, OVER))
    for evidence in (before, lower):
        assert evidence.phase is Phase.GRACE or not extra
    raised = QUICK.tolerance.above(LIMIT + GIB)
    least = raised + extra
    evidence = weighed((0, 5, 10), used=(least, OVER))
    assert weigh(evidence, Reading(15, OVER, LIMIT + GIB, 30), TERMS, QUICK).phase is (
        Phase.GRACE if kept else Phase.OVER
    )


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
