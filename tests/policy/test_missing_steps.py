"""
Steps of the ladder that this node cannot perform.

Ladders and missing steps come in. The next step of a pod that is over its limit goes out, or why it is held.

The rule: a step that is missing for good is passed over. One of which it is not known whether it is possible lets no
harsher step follow. No step follows that is not in the ladder.
"""

from dataclasses import replace

import pytest

from enforcer.policy.history import Result
from enforcer.policy.next_step import DELETION
from enforcer.policy.preview import preview
from enforcer.policy.rules import MissingStep, Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from policy.scenes import GREEDY, MEEK, SHORT, UNHURRIED, Play, snapshot

NOTIFY, FENCE, EVICT, KILL = Rung
NO_FENCE, NO_KILL = MissingStep(FENCE, "no driver"), MissingStep(KILL, "no right")
SILENT = MissingStep(FENCE, "the driver hangs", lasting=False)


def rules_of(*ladder: Rung, missing: tuple[MissingStep, ...] = (), rules: Rules = SHORT) -> Rules:
    """Make rules with a ladder of which some steps are missing."""
    return replace(rules, ladder=ladder, missing=missing, kill_when_blocked=EVICT in ladder and KILL in ladder)


@pytest.mark.parametrize(
    ("ladder", "missing", "done"),
    [
        ((NOTIFY, FENCE, EVICT), (), "fence team/greedy-1"),
        ((NOTIFY, FENCE, EVICT), (NO_FENCE,), "evict team/greedy-1"),
        ((NOTIFY, FENCE, KILL), (NO_FENCE,), "kill team/greedy-1"),
        ((NOTIFY, FENCE, EVICT, KILL), (NO_FENCE, NO_KILL), "evict team/greedy-1"),
        ((NOTIFY, EVICT, KILL), (NO_KILL,), "evict team/greedy-1"),
        ((NOTIFY, EVICT), (NO_KILL, NO_FENCE), "evict team/greedy-1"),
    ],
)
def test_the_next_step_follows_one_that_is_missing(
    ladder: tuple[Rung, ...], missing: tuple[MissingStep, ...], done: str
) -> None:
    """At the moment at which the missing step would have been taken: the grace is the same."""
    play, usual = Play(rules_of(*ladder, missing=missing)), Play(rules_of(*ladder))
    play.until_action(GREEDY, MEEK)
    usual.until_action(GREEDY, MEEK)
    assert (play.actions, play.monotonic) == ([done], usual.monotonic)


@pytest.mark.parametrize(
    ("ladder", "missing", "step", "why"),
    [
        ((NOTIFY, FENCE), (NO_FENCE,), FENCE, "no driver"),
        ((NOTIFY, KILL), (NO_KILL,), KILL, "no right"),
        ((NOTIFY, FENCE, KILL), (NO_FENCE, NO_KILL), FENCE, "no driver; no right"),
        ((NOTIFY, FENCE, EVICT), (SILENT,), FENCE, "the driver hangs"),
        ((NOTIFY, FENCE, KILL), (SILENT, NO_KILL), FENCE, "the driver hangs"),
    ],
)
def test_a_pod_is_held_where_no_step_may_follow(
    ladder: tuple[Rung, ...], missing: tuple[MissingStep, ...], step: Rung, why: str
) -> None:
    """The reason names what is missing. When it is there, the step follows at once: it was announced."""
    play = Play(rules_of(*ladder, missing=missing))
    verdict = play.steps(20, GREEDY, MEEK)
    (state,) = (each for each in verdict.standings if each.reason is not None)
    assert (state.state, state.reason, state.detail, state.rung) == (State.HELD, Reason.STEP_MISSING, why, step)
    assert (play.actions, play.history.spent, verdict.mode) == ([], (), Mode.ENFORCE)
    play.rules = rules_of(*ladder)
    play.step(GREEDY, MEEK)
    assert play.actions == [f"{step} team/greedy-1"]


def test_a_harsher_step_is_announced_when_a_gentler_one_turns_out_to_be_missing() -> None:
    """The pod was warned of a fence. It has a whole grace after the warning of its eviction."""
    play = Play(rules_of(NOTIFY, FENCE, EVICT, missing=(SILENT,)))
    play.steps(20, GREEDY, MEEK)
    play.rules = rules_of(NOTIFY, FENCE, EVICT, missing=(NO_FENCE,))
    play.step(GREEDY, MEEK)
    announced = play.monotonic
    assert play.standing(GREEDY) is State.GRACE
    play.until_action(GREEDY, MEEK)
    assert (play.actions, play.monotonic - announced >= SHORT.grace) == (["evict team/greedy-1"], True)


def test_a_blocked_eviction_is_repeated_where_the_node_cannot_kill() -> None:
    """As if `when_blocked` were hold: with growing waits, and shown as blocked."""
    play = Play(rules_of(NOTIFY, EVICT, KILL, missing=(NO_KILL,)))
    waits = []
    for _ in range(3):
        play.until_action(GREEDY, MEEK)
        play.conclude(Result.BLOCKED)
        ended = play.monotonic
        play.step(GREEDY, MEEK)
        assert play.reason(GREEDY) in (Reason.BLOCKED, Reason.SPACING)
        play.until_action(GREEDY, MEEK)
        waits.append(play.monotonic - ended)
        play.conclude(Result.ABANDONED)
    assert set(play.actions) == {"evict team/greedy-1"}
    assert waits == sorted(waits) and waits[-1] > waits[0]


def test_an_eviction_that_was_blocked_is_asked_for_again_when_the_node_cannot_kill_any_more() -> None:
    """It was to be followed by a kill. That is missing now, and the eviction is the only step that is left."""
    play = Play(rules_of(NOTIFY, EVICT, KILL))
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.BLOCKED)
    play.rules = rules_of(NOTIFY, EVICT, KILL, missing=(NO_KILL,))
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"] * 2


def test_a_pod_that_was_deleted_long_ago_is_held_by_the_missing_kill() -> None:
    """Only a kill could follow. The tenant does not evade it: the node lacks the right."""
    terminating = replace(GREEDY, facts={"terminating": True})
    play = Play(rules_of(NOTIFY, FENCE, EVICT, KILL, missing=(NO_KILL,)))
    play.steps(int(DELETION / SHORT.interval) + 20, terminating, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.STEP_MISSING)


def test_a_pod_that_was_deleted_long_ago_is_killed_and_not_fenced_before() -> None:
    """A fence takes no memory back from a pod that does not end."""
    terminating = replace(GREEDY, facts={"terminating": True})
    play = Play(rules_of(NOTIFY, FENCE, KILL))
    play.until_action(terminating, MEEK, most=int(DELETION / SHORT.interval) + 60)
    assert play.actions == ["kill team/greedy-1"]


def test_what_a_namespace_chose_is_named_before_what_the_node_lacks() -> None:
    """A namespace that does not consent is evicted from by no repair of the node."""
    play = Play(rules_of(NOTIFY, FENCE, EVICT, missing=(NO_FENCE,)))
    play.steps(20, GREEDY, MEEK, namespaces={"team": {}})
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.NO_CONSENT)


def test_a_missing_step_is_no_other_wish() -> None:
    """It starts no hold-off."""
    assert not UNHURRIED.differs(replace(UNHURRIED, missing=(NO_FENCE,)))


def test_a_kill_does_not_take_the_place_of_an_eviction() -> None:
    """It was written for blocked evictions alone: where the node could not evict, the pod is held."""
    play = Play(rules_of(NOTIFY, EVICT, KILL, missing=(MissingStep(EVICT, "no way"),)))
    play.steps(20, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.STEP_MISSING)


def test_an_eviction_that_was_blocked_is_asked_for_again_when_the_ladder_loses_its_kill() -> None:
    """The operator takes `kill` away: the eviction is the last step again, and not behind the pod."""
    play = Play(rules_of(NOTIFY, EVICT, KILL))
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.BLOCKED)
    play.rules = rules_of(NOTIFY, EVICT)
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"] * 2


@pytest.mark.parametrize(
    ("missing", "step", "reason"), [((NO_FENCE,), EVICT, None), ((SILENT,), FENCE, Reason.STEP_MISSING)]
)
def test_a_preview_shows_the_step_that_would_be_taken(
    missing: tuple[MissingStep, ...], step: Rung, reason: Reason | None
) -> None:
    """On a node that cannot fence the preview promises the eviction, or names what holds it."""
    play = Play(rules_of(NOTIFY, FENCE, EVICT, missing=missing))
    play.steps(4, GREEDY, MEEK)
    shown = preview(snapshot([GREEDY, MEEK], play.monotonic), play.rules, play.history)
    ((state,), none) = (shown.would, shown.held) if reason is None else (shown.held, shown.would)
    assert (state.rung, state.reason if reason else None, none) == (step, reason, ())
