"""
What of the past still counts, told of one function at a time.

What comes in: histories that a play left behind, with one fact changed. What goes out: what is left of them.
"""

from dataclasses import replace

import pytest

from enforcer.policy.carry_over import carried, remembered, series_of
from enforcer.policy.decide import blast
from enforcer.policy.evidence import Evidence, Phase, Terms
from enforcer.policy.history import Blocked, Excess, History, InFlight, Moment, Result, Spent, Strikes
from enforcer.policy.judgement import Judged
from enforcer.policy.limit_holders import CaseKey, cases
from enforcer.policy.protection import Permission
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from exporter.model import Claim, ContainerId, PodUid, Snapshot
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, snapshot

BLOCKED = Blocked(1, 1e9)
TERMS = Terms(Mode.ENFORCE, None, Rung.EVICT)
ALLOWED = Permission(Mode.ENFORCE, Rung.EVICT, None)
SEEN = snapshot([GREEDY, MEEK], 1.0)
CASE, OTHER = cases(SEEN)


def told() -> Play:
    """Play until GREEDY has some evidence against it."""
    play = Play()
    play.steps(3, GREEDY, MEEK)
    assert len(play.history.evidence) == 2
    return play


def judged(evidence: Evidence | None) -> Judged:
    """Say that this is known of GREEDY now."""
    return Judged(CASE, None, ALLOWED, evidence)


def later(play: Play, *, slept: float = 0.0, **world: object) -> History:
    """Carry what the play left behind to its next round."""
    seen: Snapshot = snapshot([GREEDY, MEEK], play.monotonic + 5, **world)  # type: ignore[arg-type]
    return carried(play.history, seen, UNHURRIED, Moment(play.monotonic + 5, play.monotonic + 5 + slept))


@pytest.mark.parametrize(
    ("phase", "over", "armed", "counts"),
    [
        (Phase.OK, False, True, 0),
        (Phase.OVER, True, True, 0),
        (Phase.OVER, True, False, 1),
        (Phase.OVER, False, False, 0),
        (Phase.GRACE, True, True, 1),
        (Phase.GRACE, False, True, 0),
        (Phase.DUE, True, False, 1),
        (Phase.DUE, False, False, 0),
    ],
)
def test_who_is_over_now_counts_as_over(phase: Phase, *, over: bool, armed: bool, counts: int) -> None:
    """A pod that was told, and is within its limit now, is none of those over it; one without a reading is neither."""
    found = [judged(Evidence(TERMS, 1.0, phase, over=over)), Judged(OTHER, None, ALLOWED, None)]
    assert blast(found, armed=armed) == (counts, 1)


@pytest.mark.parametrize(("slept", "kept"), [(4.5, True), (5.0, True), (5.5, False)])
def test_a_machine_that_slept_for_longer_than_five_seconds_has_another_past(slept: float, *, kept: bool) -> None:
    """Boot time may run ahead of monotonic time by five seconds between two rounds; a second sleep is none."""
    assert bool(later(told(), slept=slept).evidence) is kept


def test_process_numbers_that_are_not_proven_void_what_was_seen() -> None:
    """In the round without a proof all evidence is void, whatever the breaker does."""
    assert later(told()).evidence
    assert not later(told(), proven=False).evidence


def test_a_device_is_remembered_as_long_as_the_driver_counts_it() -> None:
    """A GPU that is counted and not described is the same one afterwards; one that is not counted is forgotten."""
    play = told()
    (gpu,) = play.history.gpus
    seen = snapshot([GREEDY, MEEK], play.monotonic)
    assert carried(play.history, replace(seen, gpus=()), UNHURRIED, play.now).gpus == {gpu}
    assert carried(play.history, replace(seen, gpus=(), gpus_present={}), UNHURRIED, play.now).gpus == frozenset()


@pytest.mark.fault(30)
@pytest.mark.parametrize("divided", [("MIG-a", "MIG-c"), ("MIG-a",), ("MIG-b", "MIG-a"), (), None], ids=str)
def test_another_division_of_a_gpu_voids_what_was_seen_on_it_and_nothing_else(divided: tuple[str, ...] | None) -> None:
    """An instance that came, went or has another's number: its GPU's subjects begin anew, those of others go on."""
    elsewhere = replace(GREEDY, pod="other-1", gpu=1)
    play = Play()
    for _ in range(3):
        play.step(GREEDY, elsewhere, gpus=2, divided={0: ("MIG-a", "MIG-b")})
    here, there = sorted(play.history.evidence, key=lambda key: key.uuid)
    assert (here.uuid, there.uuid) == ("GPU-0", "GPU-1")

    def left(parts: tuple[str, ...] | None) -> set[CaseKey]:
        split = {} if parts is None else {0: parts}
        seen = snapshot([GREEDY, elsewhere], play.monotonic + 5, gpus=2, divided=split)
        after = carried(play.history, seen, UNHURRIED, Moment(play.monotonic + 5, play.monotonic + 5))
        assert after.breakers == {}
        return set(after.evidence)

    assert left(("MIG-a", "MIG-b")) == {here, there}
    assert left(divided) == {there}


def test_seconds_above_the_limit_are_counted_between_two_readings_above_it() -> None:
    """Ten rounds above are nine intervals; a reading at the limit, and one a long time later, count nothing."""
    play = Play()
    play.steps(10, GREEDY, MEEK)
    assert play.history.over_seconds == {series_of(CASE): 45.0}
    play.step(GREEDY, MEEK, after=7.5)
    assert play.history.over_seconds == {series_of(CASE): 52.5}
    play.step(GREEDY, MEEK, after=8.0)
    play.step(replace(GREEDY, used=GREEDY.limit), MEEK)
    play.step(GREEDY, MEEK)
    assert play.history.over_seconds == {series_of(CASE): 52.5}


def test_the_seconds_of_a_pod_are_counted_as_long_as_there_is_one() -> None:
    """A round without its limit, or without any names, sets no counter back; its end does."""
    play, counted = Play(), {series_of(CASE): 5.0}
    play.steps(2, GREEDY, MEEK)
    play.step(replace(GREEDY, limit=None), MEEK)
    assert play.history.over_seconds == counted
    play.step(MEEK, live=False)
    assert play.history.over_seconds == counted
    play.step(MEEK)
    assert play.history.over_seconds == {}


WITHIN = replace(GREEDY, used=8 * GIB)
BETWEEN = replace(GREEDY, used=8 * GIB + 100 * 2**20)
LAPSE = replace(GREEDY, limit=None)
UNREAD = replace(GREEDY, used=None)


@pytest.mark.parametrize(
    ("seen", "count"),
    [
        ((), 1),
        ((BETWEEN,), 1),
        ((WITHIN, WITHIN), 1),
        ((WITHIN, BETWEEN, WITHIN, WITHIN), 1),
        ((LAPSE,), 1),
        ((LAPSE, BETWEEN), 1),
        ((LAPSE, WITHIN), 1),
        ((LAPSE, WITHIN, WITHIN), 1),
        ((UNREAD,) * 4, 1),
        (((UNREAD,) * 4 + (WITHIN,)) * 3, 1),
        ((WITHIN, WITHIN, WITHIN), 2),
        ((LAPSE, WITHIN, WITHIN, WITHIN), 2),
        (((UNREAD,) * 4 + (WITHIN,) * 3), 2),
    ],
)
def test_an_excess_lasts_until_three_rounds_in_a_row_saw_its_end(seen: tuple[Actor, ...], count: int) -> None:
    """What interrupts the readings, and whoever dips for a round after that, makes no second excess, so no strike."""
    play = Play(replace(UNHURRIED, strikes=2))
    play.until(State.HELD, GREEDY, MEEK)
    assert (play.reason(GREEDY), play.history.excesses) == (Reason.STRIKES, {CASE.key: Excess(1.0)})
    for one in seen:
        play.step(one, MEEK)
    play.steps(60, GREEDY, MEEK)
    assert play.history.strikes[CASE.workload].count == pytest.approx(count, abs=0.1)
    assert bool(play.actions) is (count > 1)


@pytest.mark.parametrize(
    ("readings", "lasts"),
    [
        ((0.0, 5.0, 8.9), True),
        ((0.0, 5.0, 9.0), False),  # rounds begin some milliseconds late: nine tenths of two intervals
        ((0.0, 7.5, 9.0), False),
        ((0.0, 7.6, 9.0), True),  # what was between the first two nobody saw
        ((0.0, 7.6, 12.6, 16.6), False),
    ],
)
def test_the_end_of_an_excess_is_seen_without_a_gap(readings: tuple[float, ...], *, lasts: bool) -> None:
    """Readings within the limit count from the first of those that are at most one and a half intervals apart."""
    history = History(excesses={CASE.key: Excess(1.0)})
    for at in readings:
        history = remembered(history, [judged(Evidence(TERMS, BEGIN + at))], SEEN, UNHURRIED, Moment(BEGIN, BEGIN))
    assert (CASE.key in history.excesses) is lasts


def test_an_excess_lasts_as_long_as_its_grace() -> None:
    """Rounds that come a little early end an excess before they end its grace, and it must not be told of twice."""
    history = History(excesses={CASE.key: Excess(1.0)})
    for at in (0.0, 5.0, 9.0):
        told = Evidence(TERMS, BEGIN + at, Phase.GRACE)
        history = remembered(history, [judged(told)], SEEN, UNHURRIED, Moment(BEGIN, BEGIN))
    assert (set(history.excesses), history.strikes) == ({CASE.key}, {})


@pytest.mark.parametrize("late", [0, 2, 3, 10])
def test_a_restart_makes_no_second_excess(late: int) -> None:
    """However late limits or names come, the excess that the journal names is the same one: its strike was counted."""
    past = History(strikes={CASE.workload: Strikes(1.0, BEGIN - 20)}, excesses={CASE.key: Excess(1.0)})
    play = Play(replace(UNHURRIED, strikes=2), past)
    for _ in range(late):
        play.step(LAPSE, MEEK)
    play.steps(60, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.STRIKES)


_PENDING = replace(SEEN, containers=tuple(replace(one, id=None) for one in SEEN.containers))
_RESTARTED = replace(SEEN, containers=tuple(replace(one, id=ContainerId("anew")) for one in SEEN.containers))
_CLAIM = replace(CASE.key, pod_uid=PodUid(""), container="", container_id=ContainerId(""), claim="team/shared")


@pytest.mark.parametrize(
    ("seen", "key", "kept"),
    [
        (SEEN, CASE.key, True),
        (_PENDING, CASE.key, True),
        (replace(SEEN, containers=()), CASE.key, True),
        (replace(_RESTARTED, names_live=False), CASE.key, True),
        (replace(SEEN, pods={}, names_live=False), CASE.key, True),
        (_RESTARTED, CASE.key, False),
        (replace(SEEN, pods={}), CASE.key, False),
        (SEEN, replace(CASE.key, container="", container_id=ContainerId("")), True),
        (SEEN, _CLAIM, True),  # claims are read after pods
        (replace(SEEN, claims=(Claim("team", "shared"),)), _CLAIM, True),
        (replace(SEEN, claims=(Claim("team", "other"), Claim("other", "shared"))), _CLAIM, False),
        (replace(SEEN, claims=(Claim("team", "other"),)), replace(_CLAIM, pod_uid=CASE.key.pod_uid), True),
        (replace(SEEN, claims=(Claim("team", "shared"),)), replace(_CLAIM, pod_uid=PodUid("gone")), False),
    ],
)
def test_a_round_that_misses_a_subject_forgets_neither_its_fence_nor_that_it_was_told(
    seen: Snapshot, key: CaseKey, *, kept: bool
) -> None:
    """What has no case is gone only where names that are true now say so: pod, generation of its container, claim."""
    now = Moment(BEGIN, BEGIN)
    after = remembered(
        History(excesses={key: Excess(1.0)}, fenced=frozenset({key}), blocked={key: BLOCKED}), [], seen, UNHURRIED, now
    )
    assert set(after.excesses) == set(after.fenced) == set(after.blocked) == ({key} if kept else set())


def test_who_is_found_is_not_gone() -> None:
    """A pod that was deleted by force is no name any more, and its processes may hold memory: its fence stands."""
    history, now = History(excesses={CASE.key: Excess(1.0)}, fenced=frozenset({CASE.key})), Moment(BEGIN, BEGIN)
    found = [judged(Evidence(TERMS, BEGIN, Phase.OVER, above=True))]
    after = remembered(history, found, replace(SEEN, pods={}, containers=()), UNHURRIED, now)
    assert (after.excesses, after.fenced) == (history.excesses, history.fenced)


def test_a_lapse_in_the_middle_of_an_excess_hastens_nothing() -> None:
    """The grace begins anew after a round without its limit, but the strike was counted: who acts on two waits."""
    play = Play(replace(UNHURRIED, strikes=2))
    play.until(State.HELD, GREEDY, MEEK)
    assert play.reason(GREEDY) == Reason.STRIKES
    play.step(replace(GREEDY, limit=None), MEEK)
    play.steps(100, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.STRIKES)


def test_a_daemon_that_is_started_anew_does_not_fence_twice() -> None:
    """Its first rounds know no limits yet; the fence that the journal names stands all the same."""
    play = Play(replace(UNHURRIED, ladder=(Rung.FENCE, Rung.EVICT)), History(fenced=frozenset({CASE.key})))
    play.step(live=False)
    play.step(replace(GREEDY, limit=None), MEEK)
    assert play.until_action(GREEDY, MEEK).rung is Rung.EVICT


def test_a_token_of_this_very_moment_is_too_soon() -> None:
    """The spacing begins with the action before, which a daemon before us may have begun at the same second."""
    free = Play()
    free.until_action(GREEDY, MEEK)
    spent = Spent(free.now.boot, ("elsewhere", "Deployment", "other"), dry=False)
    play = Play(history=History(spent=(spent,)))
    play.steps(len(free.verdicts), GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.SPACING)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (Phase.OK, Phase.OVER, False),  # not told yet
        (Phase.OVER, Phase.GRACE, True),
        (None, Phase.GRACE, True),
        (Phase.GRACE, Phase.GRACE, False),  # as it was told, however much was forgiven since
        (Phase.DUE, Phase.GRACE, False),  # the same excess, with a grace anew
        (Phase.DUE, Phase.DUE, False),
    ],
)
def test_strikes_are_what_they_were_when_it_was_told(before: Phase | None, after: Phase, *, told: bool) -> None:
    """The beginning of an excess's first grace is an episode, and no other round is."""
    known = {} if before is None else {CASE.key: Evidence(TERMS, BEGIN, before)}
    lasts = {CASE.key: Excess(7.0)} if before in {Phase.GRACE, Phase.DUE} else {}
    history = History(evidence=known, excesses=lasts, strikes={CASE.workload: Strikes(2.0, BEGIN - 20)})
    now = Moment(BEGIN, BEGIN - 20)
    found = [judged(Evidence(TERMS, BEGIN + 5, after, strikes=7.0))]
    later = remembered(history, found, SEEN, UNHURRIED, now)
    assert later.evidence[CASE.key].strikes == (2.0 if told else 7.0)
    first = remembered(replace(history, strikes={}), found, SEEN, UNHURRIED, now)
    assert first.strikes == ({CASE.workload: Strikes(1.0, now.boot)} if told else {})


def test_what_is_forgiven_later_is_not_forgiven_an_excess_that_lasts() -> None:
    """Two strikes when it was told, a neighbour that is short hours later, a lapse between: it is acted on."""
    rules = replace(UNHURRIED, strikes=2, strike_half_life=3600.0)
    past = {CASE.workload: Strikes(1.0, BEGIN)}
    for lapse in ((), (LAPSE,), (UNREAD,) * 4):
        play = Play(rules, History(strikes=past))
        play.until(State.HELD, GREEDY)
        assert (play.reason(GREEDY), play.history.excesses[CASE.key].strikes > 1) == (Reason.NOT_CONTENDED, True)
        play.steps(1000, GREEDY)
        for one in lapse:
            play.step(one, MEEK)
        play.steps(60, GREEDY, MEEK)
        assert play.actions == ["evict team/greedy-1"], lapse


@pytest.mark.parametrize("late", [1, 5, 40])
def test_whose_strike_it_is_may_come_later(late: int) -> None:
    """While the owner is not read nobody has a strike; then its own workload has one, with those of before."""
    past = {CASE.workload: Strikes(1.0, BEGIN)}
    play = Play(replace(UNHURRIED, strikes=2), History(strikes=past))
    play.steps(late, replace(GREEDY, facts={"workload": "", "workload_kind": ""}), MEEK)
    assert set(play.history.strikes) == set(past)
    play.steps(60, GREEDY, MEEK)
    assert (play.actions, set(play.history.strikes)) == (["evict team/greedy-1"], set(past))


def test_of_the_next_excess_a_budget_is_asked_anew() -> None:
    """A PodDisruptionBudget's no outlives what interrupts an excess, and not the excess itself."""
    play = Play()
    play.until(State.ACTING, GREEDY, MEEK)
    play.conclude(Result.BLOCKED)
    play.step(LAPSE, MEEK)
    play.steps(2, WITHIN, MEEK)
    assert set(play.history.blocked) == {CASE.key}
    play.step(WITHIN, MEEK)
    assert (play.history.blocked, play.history.excesses) == ({}, {})


@pytest.mark.parametrize(("after", "ended"), [(59.9, False), (60.0, True)])
def test_a_rehearsal_ends_after_the_spacing_and_takes_its_own_evidence_along(after: float, *, ended: bool) -> None:
    """What was seen on other devices stays, and so does what was seen of those who are not rehearsed on this one."""
    play = Play(replace(UNHURRIED, mode=Mode.DRY_RUN))
    action = play.until_action(GREEDY, MEEK)
    rehearsed = Evidence(replace(TERMS, mode=Mode.DRY_RUN), play.monotonic)
    real, elsewhere = replace(CASE.key, container="real"), replace(CASE.key, uuid="GPU-9")
    evidence = {CASE.key: rehearsed, real: replace(rehearsed, terms=TERMS), elsewhere: rehearsed}
    flight = InFlight(action, play.monotonic)
    history = replace(play.history, rehearsal=flight, evidence=evidence)
    now = Moment(play.monotonic + after, play.monotonic + after)
    landed = carried(history, snapshot([GREEDY, MEEK], now.monotonic), play.rules, now)
    assert landed.rehearsal == (None if ended else flight)
    assert set(landed.evidence) == ({real, elsewhere} if ended else set(evidence))
