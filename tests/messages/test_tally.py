"""Counters and recent decisions."""

from dataclasses import replace

import pytest

from enforcer.messages.tally import ELSEWHERE, MOST_KEYS, MOST_RECENT, Tally
from enforcer.policy.history import Change, Moment, Standing, Verdict
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from policy.scenes import GREEDY, MEEK, UNHURRIED, WALL, Play

NOW = Moment(1.0, 1.0)


def held() -> Standing:
    """Take the standing of a real subject that is held."""
    play = Play(replace(UNHURRIED, mode=Mode.DRY_RUN))
    verdict = play.until_reason(Reason.NO_CONSENT, GREEDY, MEEK, namespaces={"team": {}})
    return verdict.refusals[0]


def refused(*standings: Standing) -> Verdict:
    return Verdict(NOW, Mode.DRY_RUN, standings, changes=tuple(Change(State.GRACE, one) for one in standings))


def tallied(rules: Mode) -> tuple[Tally, Play]:
    """Let GREEDY come to its action, and count each verdict."""
    play, tally = Play(replace(UNHURRIED, mode=rules)), Tally()
    for _ in range(40):
        verdict = play.step(GREEDY, MEEK)
        tally = tally.after(verdict, WALL)
        if verdict.action is not None:
            break
    return tally, play


def test_what_is_begun_and_what_is_rehearsed_are_counted_apart() -> None:
    """A rehearsal must not look like an eviction; the notice before it was real in both modes."""
    rehearsed, _ = tallied(Mode.DRY_RUN)
    assert dict(rehearsed.begun) == {(Rung.NOTIFY, "team"): 1}
    assert dict(rehearsed.rehearsed) == {(Rung.EVICT, "team"): 1}
    done, _ = tallied(Mode.ENFORCE)
    assert dict(done.begun) == {(Rung.NOTIFY, "team"): 1, (Rung.EVICT, "team"): 1}
    assert dict(done.rehearsed) == {}
    (decision,) = done.recent
    assert (decision.at, decision.action is not None, decision.refusal) == (WALL, True, None)


def test_where_nobody_is_told_no_notice_is_counted() -> None:
    """In mode observe a grace begins all the same, and its user learns nothing of it."""
    tally, play = tallied(Mode.OBSERVE)
    assert State.GRACE in {change.after.state for verdict in play.verdicts for change in verdict.changes}
    assert dict(tally.begun) == {}
    assert dict(tally.refused) == {(Reason.MODE, "team"): 1}


def test_a_quiet_round_changes_nothing() -> None:
    """It is the very same tally: a node where nothing happens costs nothing."""
    tally, play = tallied(Mode.DRY_RUN)
    play = Play(UNHURRIED)
    assert tally.after(play.steps(3, replace(GREEDY, used=0), MEEK), WALL) is tally


def test_a_refusal_that_lasts_is_counted_once() -> None:
    """Changes into a refusal are counted, not rounds in it."""
    play, tally = Play(replace(UNHURRIED, mode=Mode.ENFORCE)), Tally()
    for _ in range(60):
        tally = tally.after(play.step(GREEDY, MEEK, namespaces={"team": {}}), WALL)
    assert dict(tally.refused) == {(Reason.NO_CONSENT, "team"): 1}
    assert [one.refusal.reason for one in tally.recent if one.refusal] == [Reason.NO_CONSENT]


def test_recent_decisions_are_bounded_and_the_newest_come_first() -> None:
    """Of one round the last standing comes first, too."""
    one, tally = held(), Tally()
    for number in range(MOST_RECENT):
        first, second = replace(one, pod=f"a-{number}"), replace(one, pod=f"b-{number}")
        tally = tally.after(refused(first, second), float(number))
    assert len(tally.recent) == MOST_RECENT
    newest = [decision.refusal.pod for decision in tally.recent[:3] if decision.refusal]
    assert newest == [f"b-{MOST_RECENT - 1}", f"a-{MOST_RECENT - 1}", f"b-{MOST_RECENT - 2}"]


def test_counters_are_bounded_and_lose_nothing() -> None:
    """Who makes namespaces without end makes no series without end; the sum stays right."""
    one, tally = held(), Tally()
    count = MOST_KEYS + 100
    for number in range(0, count, 100):
        tally = tally.after(refused(*(replace(one, namespace=f"n-{number + i}") for i in range(100))), 0.0)
    assert len(tally.refused) == MOST_KEYS + 1
    assert tally.refused[Reason.NO_CONSENT, ELSEWHERE] == 100
    assert sum(tally.refused.values()) == count
    again = tally.after(refused(replace(one, namespace="n-0")), 0.0)
    assert again.refused[Reason.NO_CONSENT, "n-0"] == 2, "who has a series keeps it"


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.DRY_RUN])
def test_counters_only_grow(mode: Mode) -> None:
    """A counter that falls looks like a restart to Prometheus."""
    play, tally = Play(replace(UNHURRIED, mode=mode)), Tally()
    for number in range(120):
        before = tally
        tally = tally.after(play.step(GREEDY if number % 50 < 40 else replace(GREEDY, used=0), MEEK), WALL + number)
        for was, now in ((before.begun, tally.begun), (before.rehearsed, tally.rehearsed)):
            assert all(now[key] >= value for key, value in was.items())
    assert tally.begun[Rung.NOTIFY, "team"] > 1
