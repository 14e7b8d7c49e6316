"""
One subject, judged by itself: when a reading counts.

What comes in: one case, what is remembered of it, and the moments of the snapshot and of the look at it. What goes out:
the evidence after it.
"""

import pytest

from enforcer.policy.evidence import Evidence, Phase, Terms
from enforcer.policy.history import History, Moment
from enforcer.policy.judgement import judge
from enforcer.policy.limit_holders import cases
from enforcer.policy.vocabulary import Mode, Rung
from policy.scenes import BEGIN, GREEDY, MEEK, UNHURRIED, snapshot

TERMS = Terms(Mode.ENFORCE, None, Rung.EVICT)
BEFORE = Evidence(TERMS, BEGIN, Phase.OVER, BEGIN, over=True, above=True, counted=1, least=GREEDY.used or 0)


def evidence(taken: float, looked: float, before: Evidence | None = BEFORE) -> Evidence | None:
    """Judge GREEDY by a snapshot of one moment, at another one."""
    seen = snapshot([GREEDY, MEEK], taken)
    case, *_ = cases(seen)
    history = History(evidence={} if before is None else {case.key: before})
    return judge(case, seen, UNHURRIED, history, Moment(looked, looked)).evidence


@pytest.mark.parametrize("early", [0.0, 0.1])
def test_a_reading_that_is_not_later_adds_nothing(early: float) -> None:
    """What was read at the moment of the last reading, or before it, is known."""
    assert evidence(BEGIN - early, BEGIN + 1) is BEFORE
    later = evidence(BEGIN + 5, BEGIN + 5)
    assert later is not None
    assert (later.read_at, later.seen) == (BEGIN + 5, 5.0)


@pytest.mark.parametrize(("late", "counts"), [(12.5, True), (12.6, False), (-12.5, True), (-12.6, False)])
def test_a_snapshot_that_waited_for_the_longest_gap_counts(late: float, *, counts: bool) -> None:
    """Looked at two and a half intervals after it was taken it counts, later it tells of another time."""
    found = evidence(BEGIN + 5, BEGIN + 5 + late, None)
    assert (found is not None) is counts
