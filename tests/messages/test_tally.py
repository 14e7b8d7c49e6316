"""Counters and recent decisions."""

from dataclasses import replace

import pytest

from enforcer.messages.tally import ELSEWHERE, MOST_KEYS, MOST_RECENT, Tally
from enforcer.policy.history import Change, Moment, Result, Standing, Verdict
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, WALL, Play, settled

NOW = Moment(1.0, 1.0)
OFFSET = WALL - BEGIN


def held() -> Standing:
    """Take the state of a real limit holder that is held."""
    play = Play(UNHURRIED)
    verdict = play.until_reason(Reason.NO_CONSENT, GREEDY, MEEK, namespaces={"team": {}})
    return verdict.refusals[0]


def refused(*standings: Standing) -> Verdict:
    return Verdict(NOW, Mode.DRY_RUN, standings, changes=tuple(Change(State.GRACE, one) for one in standings))


def tallied(mode: Mode, rounds: int = 40) -> tuple[Tally, Play]:
    """Let GREEDY come to its action, and count each verdict; no warning is accepted, and no request is sent."""
    rules = replace(UNHURRIED, mode=mode)
    play, tally = Play(rules, settled(rules)), Tally()
    for _ in range(rounds):
        verdict = play.step(GREEDY, MEEK)
        tally = tally.after(verdict, WALL, OFFSET)
        if verdict.action is not None:
            break
    return tally, play


def test_a_decision_is_no_action_and_a_dry_run_never_is() -> None:
    """A verdict counts dry runs. An action counts when its request was sent."""
    dry, _ = tallied(Mode.DRY_RUN)
    assert (dict(dry.requested), dict(dry.dry_runs)) == ({}, {(Rung.EVICT, "team"): 1})
    done, play = tallied(Mode.ENFORCE)
    assert (dict(done.requested), dict(done.dry_runs)) == ({}, {})
    (decision,) = done.recent
    assert (decision.at, decision.action is not None, decision.refusal) == (WALL, True, None)
    action = play.verdicts[-1].action
    assert action is not None
    assert dict(done.sent(action).requested) == {(Rung.EVICT, "team"): 1}


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.DRY_RUN, Mode.ENFORCE])
def test_a_warning_counts_once_when_the_server_accepted_it(mode: Mode) -> None:
    """Reminders of it do not count again; a new warning of the holder does."""
    tally, play = tallied(mode, 5)
    (holder,) = play.history.levels
    assert dict(tally.requested) == {}
    warned = tally.warned(holder)
    assert dict(warned.requested) == {(Rung.NOTIFY, "team"): 1}
    assert warned.warned(holder) is warned
    for actor in [*[replace(GREEDY, used=GIB)] * 20, *[GREEDY] * 5]:
        warned = warned.after(play.step(actor, MEEK), WALL, OFFSET)
    assert dict(warned.warned(holder).requested) == {(Rung.NOTIFY, "team"): 2}


def test_no_warning_is_counted_where_none_is_written() -> None:
    """In mode observe the level rises all the same, and nothing is written on the pod."""
    tally, play = tallied(Mode.OBSERVE)
    assert State.GRACE in {change.after.state for verdict in play.verdicts for change in verdict.changes}
    (holder,) = play.history.levels
    assert tally.warned(holder) is tally
    assert (dict(tally.undelivered), dict(tally.refused)) == ({}, {(Reason.MODE, "team"): 1})


def test_a_warning_that_is_not_accepted_within_a_minute_is_undelivered() -> None:
    """It counts once. Accepted later, it counts as a warning, too."""
    tally, play = tallied(Mode.ENFORCE, 15)
    assert dict(tally.undelivered) == {}
    for _ in range(10):
        tally = tally.after(play.step(GREEDY, MEEK), WALL, OFFSET)
    assert dict(tally.undelivered) == {"team": 1}
    (holder,) = play.history.levels
    assert dict(tally.warned(holder).requested) == {(Rung.NOTIFY, "team"): 1}
    prompt, play = tallied(Mode.ENFORCE, 15)
    prompt = prompt.warned(holder)
    for _ in range(10):
        prompt = prompt.after(play.step(GREEDY, MEEK), WALL, OFFSET)
    assert dict(prompt.undelivered) == {}


@pytest.mark.parametrize("result", sorted(set(Result) - {Result.REHEARSED}))
def test_each_failure_has_its_reason(result: Result) -> None:
    """A last look that spares and a budget that blocks are no failures; an action that is accepted is not yet one."""
    tally, play = tallied(Mode.ENFORCE)
    action = play.verdicts[-1].action
    assert action is not None
    ended = tally.ended(action, result, "says the test", WALL + 9, 144.0)
    good = {Result.ACCEPTED, Result.VERIFIED, Result.ABANDONED, Result.BLOCKED}
    assert dict(ended.failed) == ({} if result in good else {(Rung.EVICT, "team", result): 1})
    assert (ended.recent[0].result, ended.recent[0].detail) == (result, "says the test")
    assert dict(ended.requested) == {}, "an end is no request"


def test_an_effect_is_counted_when_it_is_seen() -> None:
    """Accepted is not freed: the duration and the time of the last action come with the effect."""
    tally, play = tallied(Mode.ENFORCE)
    action = play.verdicts[-1].action
    assert action is not None
    accepted = tally.ended(action, Result.ACCEPTED, "", WALL, 140.0)
    assert (dict(accepted.durations), dict(accepted.last)) == ({}, {})
    late = accepted.ended(action, Result.LINGERS, "", WALL + 60, 200.0)
    seen = late.ended(action, Result.VERIFIED, "", WALL + 90, 230.0)
    assert seen.recent[0].result is Result.VERIFIED
    assert dict(seen.seconds) == {Rung.EVICT: 230.0}
    assert dict(seen.last) == {("team", "greedy-1", "main", Rung.EVICT): WALL + 90}


def test_a_quiet_round_changes_nothing() -> None:
    """It is the very same tally: a node where nothing happens costs nothing."""
    tally, play = tallied(Mode.DRY_RUN)
    play = Play(UNHURRIED)
    assert tally.after(play.steps(3, replace(GREEDY, used=0), MEEK), WALL, OFFSET) is tally


def test_a_refusal_that_lasts_is_counted_once() -> None:
    """Changes into a refusal are counted, not rounds in it."""
    play, tally = Play(replace(UNHURRIED, mode=Mode.ENFORCE)), Tally()
    for _ in range(60):
        tally = tally.after(play.step(GREEDY, MEEK, namespaces={"team": {}}), WALL, OFFSET)
    assert dict(tally.refused) == {(Reason.NO_CONSENT, "team"): 1}
    assert [one.refusal.reason for one in tally.recent if one.refusal] == [Reason.NO_CONSENT]


def test_recent_decisions_are_bounded_and_the_newest_come_first() -> None:
    """Of one round, the last decision comes first, too."""
    one, tally = held(), Tally()
    for number in range(MOST_RECENT):
        first, second = replace(one, pod=f"a-{number}"), replace(one, pod=f"b-{number}")
        tally = tally.after(refused(first, second), float(number), OFFSET)
    assert len(tally.recent) == MOST_RECENT
    newest = [decision.refusal.pod for decision in tally.recent[:3] if decision.refusal]
    assert newest == [f"b-{MOST_RECENT - 1}", f"a-{MOST_RECENT - 1}", f"b-{MOST_RECENT - 2}"]


def test_counters_are_bounded_and_lose_nothing() -> None:
    """Namespaces without end make no series without end; the sum stays right."""
    one, tally = held(), Tally()
    count = MOST_KEYS + 100
    for number in range(0, count, 100):
        tally = tally.after(refused(*(replace(one, namespace=f"n-{number + i}") for i in range(100))), 0.0, OFFSET)
    assert len(tally.refused) == MOST_KEYS + 1
    assert tally.refused[Reason.NO_CONSENT, ELSEWHERE] == 100
    assert sum(tally.refused.values()) == count
    again = tally.after(refused(replace(one, namespace="n-0")), 0.0, OFFSET)
    assert again.refused[Reason.NO_CONSENT, "n-0"] == 2, "a namespace that has a series keeps it"


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.DRY_RUN])
def test_counters_only_grow(mode: Mode) -> None:
    """A counter that falls looks like a restart to Prometheus."""
    rules = replace(UNHURRIED, mode=mode)
    play, tally = Play(rules, settled(rules)), Tally()
    for number in range(240):
        before = tally
        actor = GREEDY if number % 120 < 40 else replace(GREEDY, used=0)
        tally = tally.after(play.step(actor, MEEK), WALL + number, OFFSET)
        for holder in play.history.levels:
            tally = tally.warned(holder)
        for was, now in ((before.requested, tally.requested), (before.dry_runs, tally.dry_runs)):
            assert all(now[key] >= value for key, value in was.items())
    assert tally.requested[Rung.NOTIFY, "team"] > 1
