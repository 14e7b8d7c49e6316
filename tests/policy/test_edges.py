"""
Exactly there, and one step beside it: the edges of the policy's comparisons.

Readings, moments and amounts on an edge come in. On which side of it they count goes out.
"""

from dataclasses import replace

import pytest

from default_rules import default_budgets, default_rules
from enforcer.policy.decide import decide
from enforcer.policy.history import Moment, Result
from enforcer.policy.protection import Protection
from enforcer.policy.rules import ALLOW_EXEMPTION, GRACE, LONGEST_GRACE, Budget, Ceiling
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from policy.scenes import CONSENTING, GIB, MEEK, UNHURRIED, Actor, Play, settled, snapshot

MIB = 2**20
QUICK = replace(UNHURRIED, warn_after=5.0, grace=30.0)
LIMIT = 8 * GIB
CEILING = QUICK.tolerance.above(LIMIT)
OVER = 12 * GIB
GREEDY = Actor("greedy-0", OVER)


@pytest.mark.parametrize(
    ("limit", "used", "over"),
    [
        (8 * GIB, 8 * GIB + 256 * MIB, False),
        (8 * GIB, 8 * GIB + 256 * MIB + 1, True),
        (40 * GIB, 40 * GIB + 40 * GIB // 50, False),
        (40 * GIB, 40 * GIB + 40 * GIB // 50 + 1, True),
    ],
)
def test_the_tolerance_is_the_larger_of_both(limit: int, used: int, *, over: bool) -> None:
    """256 MiB or 2 %: not over at the sum, over one byte above it."""
    play = Play()
    play.step(Actor("greedy-0", used, limit=limit), MEEK)
    assert play.standing(GREEDY) is (State.OVER if over else State.OK)


def test_a_reading_at_limit_and_tolerance_is_not_over_now() -> None:
    """A holder that is due, and holds limit and tolerance to the byte in this round, is not acted on in it."""
    play = Play(replace(QUICK, budgets=default_budgets(node=Budget(0, 600.0))))
    play.until(State.HELD, GREEDY)
    play.history = replace(play.history, settled=settled(QUICK).settled)
    play.rules = QUICK
    play.step(replace(GREEDY, used=CEILING))
    assert play.reason(GREEDY) == Reason.NOT_OVER_NOW
    play.step(replace(GREEDY, used=CEILING + 1))
    assert play.actions


@pytest.mark.parametrize("early", [0.0, 0.1])
def test_a_hold_off_is_over_when_it_has_passed(early: float) -> None:
    """Exactly the hold-off after the first snapshot an action is possible, not a moment before."""
    play = Play(replace(QUICK, hold_off=200.0))
    play.history = replace(play.history, settled=None)
    first = play.monotonic + 5
    play.steps(40, GREEDY)
    assert play.reason(GREEDY) == Reason.HOLD_OFF
    play.step(GREEDY, after=first + 200.0 - early - play.monotonic)
    assert bool(play.actions) is not bool(early)


@pytest.mark.parametrize(("early", "acted"), [(0.0, True), (0.1, False)])
def test_the_spacing_counts_from_the_last_action(early: float, *, acted: bool) -> None:
    """A minute after the end of an action the next one may begin."""
    second = replace(GREEDY, pod="second-0")
    play = Play(replace(QUICK, spacing=100.0))
    play.until_action(GREEDY, second)
    play.conclude(Result.ACCEPTED)
    ended = play.monotonic
    assert play.history.in_flight is None
    while play.monotonic + 5.0 < ended + 100.0:
        play.step(second)
    assert play.reason(second) == Reason.SPACING
    play.step(second, after=ended + 100.0 - early - play.monotonic)
    assert (len(play.actions) == 2) is acted


def test_a_dry_run_waits_for_no_spacing_of_actions() -> None:
    """After an action the next one waits; a dry run in another namespace does not."""
    other = Actor("other-0", OVER, namespace="dry")
    spaces = {"team": CONSENTING, "dry": {"gpusteward.io/mode": "dry-run"}}
    play = Play(replace(QUICK, spacing=1000.0))
    play.until(State.ACTING, GREEDY, namespaces=spaces)
    play.conclude(Result.ACCEPTED)
    play.steps(100, other, namespaces=spaces)
    assert play.monotonic < (play.history.ended_at or 0.0) + 1000.0
    assert "evict dry/other-0 (dry)" in play.actions


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("000000060", 60.0),
        ("0000000060", 120.0),
        ("30", 30.0),
        ("0", 0.0),
        ("-5", 120.0),
        ("1e1", 120.0),
        ("\u00b2", 120.0),
        ("\u0666\u0660", 120.0),
        ("9" * 500, 120.0),
        ("", 120.0),
    ],
)
def test_a_grace_is_written_with_nine_ascii_digits_at_most(text: str, seconds: float) -> None:
    """What is no such number is the rules' grace."""
    pod = replace(GREEDY, facts={"annotations": {GRACE: text}}).named()
    assert Protection(default_rules(), {"team": {}}).grace(pod) == seconds


@pytest.mark.parametrize(
    ("text", "labels", "seconds"),
    [
        ("600", {}, 120.0),
        ("600", {ALLOW_EXEMPTION: "true"}, 600.0),
        ("600", {ALLOW_EXEMPTION: "yes"}, 120.0),
        ("99999", {ALLOW_EXEMPTION: "true"}, LONGEST_GRACE),
        ("30", {}, 30.0),
        ("30", {ALLOW_EXEMPTION: "true"}, 30.0),
    ],
)
def test_a_longer_grace_needs_permission_of_the_namespace(text: str, labels: dict[str, str], seconds: float) -> None:
    """A pod may shorten its grace; it may lengthen it, to an hour at most, where its namespace allows exemptions."""
    pod = replace(GREEDY, facts={"annotations": {GRACE: text}}).named()
    assert Protection(default_rules(), {"team": labels}).grace(pod) == seconds


def test_a_pod_s_own_grace_is_the_time_until_the_action() -> None:
    """A pod that asks for ten seconds is acted on ten seconds after its warning."""
    hasty = replace(GREEDY, facts={"annotations": {GRACE: "10"}})
    play = Play()
    play.until(State.GRACE, hasty, MEEK)
    begun = play.monotonic
    play.until_action(hasty, MEEK)
    assert play.monotonic - begun == 10.0


def test_a_grace_that_a_pod_writes_after_its_warning_shortens_nothing() -> None:
    """What was announced holds; a patch of the annotation each round delays nothing either."""
    play = Play()
    play.until(State.GRACE, GREEDY, MEEK)
    begun = play.monotonic
    for index in range(60):
        text = str(index % 7)
        play.step(replace(GREEDY, facts={"annotations": {GRACE: text}}), MEEK)
        if play.actions:
            break
    assert play.monotonic - begun == 120.0


def test_of_stop_file_and_namespace_the_stop_file_is_the_reason() -> None:
    """Where both say `observe`, the operator's own file is to be removed first."""
    play = Play(replace(QUICK, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),)))
    play.steps(40, GREEDY, namespaces={"team": {"gpusteward.io/mode": "observe"}})
    assert play.reason(GREEDY) == Reason.STOPPED


def test_after_a_fence_the_next_step_follows() -> None:
    """A fence that holds is not set again: a holder that is still over is evicted, after another whole time."""
    play = Play(replace(QUICK, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT)))
    play.until(State.ACTING, GREEDY)
    play.conclude(Result.ACCEPTED)
    fenced = play.monotonic
    play.until(State.ACTING, GREEDY)
    assert play.actions == ["fence team/greedy-0", "evict team/greedy-0"]
    assert play.monotonic - fenced >= QUICK.warn_after + QUICK.grace


def test_a_limit_on_a_device_that_does_not_answer_is_no_error() -> None:
    """A GPU that the driver counts and does not describe leaves its holders unjudged, and the policy whole."""
    play = Play(QUICK)
    play.step(GREEDY)
    lost = replace(snapshot([GREEDY], play.monotonic + 20), devices=(), gpus=(), gpus_read=frozenset())
    moment = Moment(play.monotonic + 20, play.monotonic + 20)
    _, verdict = decide(lost, QUICK, play.history, moment)
    assert not verdict.breakers
    assert all(standing.state is not State.DUE for standing in verdict.standings)
    assert verdict.action is None


@pytest.mark.parametrize(
    ("pod_since", "acted"), [(-1.0, True), (0.0, False), (1.0, False)], ids=["older", "same second", "newer"]
)
def test_a_back_off_applies_to_pods_made_after_the_last_action(pod_since: float, *, acted: bool) -> None:
    """A pod that existed when its sibling was evicted is no successor, and does not wait for the back-off."""
    first, second = replace(GREEDY, pod="job-a"), replace(GREEDY, pod="job-b")
    play = Play(replace(QUICK, spacing=5.0))
    play.until_action(first)
    spent = play.history.spent[-1].time
    play.conclude(Result.ACCEPTED)
    second = replace(second, facts={"created_at": spent + pod_since, "workload": "job"})
    play.steps(9, second)
    assert (len(play.actions) == 2) is acted
    if not acted:
        assert play.reason(second) == Reason.BACK_OFF
        play.until_action(second, most=6)
