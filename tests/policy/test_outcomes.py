"""
What each end of an action means for what follows.

An action on GREEDY comes in, and each way in which it may end. Levels, holds and tokens go out, and when GREEDY is
acted on again, if it is still there.

The rule: an outcome concerns its own pod. Only what was, or may have been, done costs a token and the spacing.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from enforcer.policy import outcomes
from enforcer.policy.history import History, Hold, HoldKey, Result
from enforcer.policy.holds import LONGEST_WAIT
from enforcer.policy.outcomes import conclude, rehearsed
from enforcer.policy.rules import CONSENT, MissingStep
from enforcer.policy.vocabulary import Mode, Place, Reason, Rung, State
from policy.scenes import GIB, GREEDY, MEEK, SHORT, Actor, Play

AGAIN = SHORT.warn_after + SHORT.grace
"""Seconds of new excess that a second action on the same holder needs."""
OTHER = Actor("other-1", 4 * GIB, limit=2 * GIB)
SIBLING = replace(GREEDY, container="side", used=4 * GIB, limit=2 * GIB)
"""Another container of GREEDY's pod, over its own limit."""
FENCING = replace(SHORT, ladder=(Rung.FENCE, Rung.EVICT))
BOTH = replace(SHORT, ladder=(Rung.EVICT, Rung.KILL), kill_when_blocked=True)
KILLING = replace(SHORT, ladder=(Rung.NOTIFY, Rung.KILL))
HARMLESS = [each for each in Result if each.harmless and each is not Result.REHEARSED]
DONE = [Result.ACCEPTED, Result.UNKNOWN]
BACKS_OFF = {
    Result.BLOCKED: Reason.BLOCKED,
    Result.FORBIDDEN: Reason.NO_RIGHTS,
    Result.REFUSED: Reason.REFUSED,
    Result.FAILED: Reason.FAILED,
    Result.IMPOSSIBLE: Reason.KILL_IMPOSSIBLE,
}
"""Ends after which the pod waits, longer each time, and for which reason."""


def acted(*others: Actor, rules: Any = SHORT) -> Play:
    """Play until GREEDY is acted on."""
    play = Play(rules)
    play.until_action(GREEDY, MEEK, *others)
    assert play.actions[0].endswith("team/greedy-1")
    return play


def seconds_of(play: Play, actor: Actor) -> float:
    """Return the level of an actor's holder."""
    levels = (each for key, each in play.history.levels.items() if (key.pod_uid, key.container) == _key(actor))
    return next((level.seconds for level in levels), 0.0)


def _key(actor: Actor) -> tuple[str, str]:
    return actor.pod_uid, actor.container


def node_holds(play: Play) -> Mapping[Reason, float]:
    """Return the holds of the node, and in how many seconds each ends."""
    holds = play.history.holds.items()
    return {key[2]: (hold.until or 0.0) - play.monotonic for key, hold in holds if key[0] is Place.NODE}


def pod_holds(play: Play) -> Mapping[Reason, float]:
    """Return the holds of GREEDY's pod, and in how many seconds each ends."""
    holds = play.history.holds.items()
    return {
        key[2]: (hold.until or 0.0) - play.monotonic for key, hold in holds if key[:2] == (Place.POD, GREEDY.pod_uid)
    }


@pytest.mark.fault(3, 15)
def test_while_the_end_is_unknown_nothing_follows() -> None:
    """Rows 3, 15: an ambiguous action is in flight until its end is reported, however long that takes."""
    play = acted()
    play.steps(100, GREEDY, MEEK)
    assert len(play.actions) == 1
    assert play.standing(GREEDY) is State.ACTING


@pytest.mark.parametrize("result", DONE, ids=str)
def test_after_an_accepted_action_its_pod_begins_anew(result: Result) -> None:
    """All holders of the pod begin at 0; a pod that is still over has its warning and its whole grace again."""
    play = acted(SIBLING)
    play.conclude(result)
    ended = play.monotonic
    assert (seconds_of(play, GREEDY), seconds_of(play, SIBLING)) == (0.0, 0.0)
    play.step(GREEDY, MEEK, SIBLING)
    assert (play.standing(GREEDY), play.standing(SIBLING)) == (State.OVER, State.OVER)
    play.until_action(GREEDY, MEEK, SIBLING)
    assert play.monotonic - ended >= max(AGAIN, SHORT.spacing)


@pytest.mark.parametrize("result", [*DONE, *HARMLESS], ids=str)
def test_an_end_changes_no_level_of_another_pod(result: Result) -> None:
    """What other pods used on the same device was as it was: their levels go on."""
    play = acted(OTHER)
    before = seconds_of(play, OTHER)
    assert before >= AGAIN
    play.conclude(result)
    assert seconds_of(play, OTHER) == before


@pytest.mark.parametrize("result", HARMLESS, ids=str)
def test_what_was_in_vain_keeps_the_level(result: Result) -> None:
    """Nothing was done: GREEDY is acted on again as soon as its wait is over, without a new grace."""
    play = acted()
    before = seconds_of(play, GREEDY)
    play.conclude(result)
    assert seconds_of(play, GREEDY) == before
    ended = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - ended == (60.0 if result is Result.UNAUTHORIZED else 10.0)


@pytest.mark.parametrize("result", [*DONE, *HARMLESS], ids=str)
def test_only_what_may_have_been_done_costs_a_token_and_the_spacing(result: Result) -> None:
    """Everything harmless gives the token back, and nothing waits a minute for it."""
    play = acted()
    assert len(play.history.spent) == 1
    play.conclude(result)
    kept = not result.harmless
    assert (len(play.history.spent), play.history.ended_at is not None) == (int(kept), kept)


@pytest.mark.parametrize("result", [*DONE, *HARMLESS], ids=str)
def test_a_request_in_vain_is_followed_by_a_pause_of_the_node(result: Result) -> None:
    """Five seconds, in which the node asks nothing of the API server; without a request there is no pause."""
    play = acted()
    play.conclude(result)
    asked = result in HARMLESS and result is not Result.ABANDONED
    assert (node_holds(play).get(Reason.SPACING) == outcomes.PAUSE) is asked


@pytest.mark.parametrize("result", BACKS_OFF, ids=str)
def test_the_pod_waits_twice_as_long_each_time(result: Result) -> None:
    """Ten seconds, twenty, forty, up to five minutes; held with the reason, and asked again each time."""
    rules = KILLING if result is Result.IMPOSSIBLE else SHORT
    play = acted(rules=rules)
    for wait in (10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0):
        play.conclude(result, "because")
        ended = play.monotonic
        play.steps(2, GREEDY, MEEK, after=2.0)
        assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.HELD, BACKS_OFF[result])
        assert [each.detail for each in play.verdicts[-1].standings if each.pod == GREEDY.pod] == ["because"]
        for _ in range(max(0, int(wait) - 24) // 10):  # and every two seconds where the wait should end
            assert play.step(GREEDY, MEEK, after=10.0).action is None
        play.until_action(GREEDY, MEEK, after=2.0)
        assert play.monotonic - ended == wait
    assert len(set(play.actions)) == 1


@pytest.mark.parametrize(("pause", "wait"), [(599.0, 20.0), (600.0, 10.0)])
def test_a_wait_is_forgotten_ten_minutes_after_its_end(pause: float, wait: float) -> None:
    """A pod that was blocked once, and again much later, waits as for the first time."""
    play = acted()
    flight = play.history.in_flight
    play.conclude(Result.BLOCKED)
    play.step(GREEDY, MEEK, after=10.0 + pause)
    play.history = replace(play.history, in_flight=flight)
    play.conclude(Result.BLOCKED)
    assert pod_holds(play) == {Reason.BLOCKED: wait}


@pytest.mark.fault(5)
def test_the_longest_wait_is_bounded() -> None:
    """A PodDisruptionBudget of weeks: the wait stays at five minutes, and no number overflows."""
    play = acted()
    flight = play.history.in_flight
    for _ in range(1100):  # 2.0**1024 is no number
        play.history = conclude(replace(play.history, in_flight=flight), Result.BLOCKED, play.now)
    assert pod_holds(play) == {Reason.BLOCKED: LONGEST_WAIT}


def test_a_403_holds_its_pod_and_not_its_namespace() -> None:
    """Another pod of the namespace is tried itself; only the rights watch holds a namespace."""
    play = acted(OTHER)
    play.conclude(Result.FORBIDDEN)
    assert all(place is not Place.NAMESPACE for place, _, _ in play.history.holds)
    assert play.until_action(GREEDY, MEEK, OTHER).pod == OTHER.pod


def test_a_401_holds_the_node_for_a_minute() -> None:
    """The token of the daemon is not accepted: no pod is to blame, and no other pod would fare better."""
    play = acted(OTHER)
    play.conclude(Result.UNAUTHORIZED, "401")
    assert node_holds(play)[Reason.UNAUTHORIZED] == 60.0
    assert pod_holds(play) == {}
    play.steps(11, GREEDY, MEEK, OTHER)
    assert len(play.actions) == 1
    assert (play.reason(GREEDY), play.reason(OTHER)) == (Reason.UNAUTHORIZED, Reason.UNAUTHORIZED)
    play.step(GREEDY, MEEK, OTHER)
    assert len(play.actions) == 2


def test_a_last_look_that_spares_is_repeated_after_ten_seconds_each_time() -> None:
    """Without a wait that grows: a pod that is within its limit for a moment gains ten seconds by it."""
    play, waits = acted(), []
    for _ in range(5):
        play.conclude(Result.ABANDONED, "not_over_now")
        ended = play.monotonic
        play.step(GREEDY, MEEK)
        assert play.reason(GREEDY) == Reason.LAST_LOOK
        play.until_action(GREEDY, MEEK)
        waits.append(play.monotonic - ended)
    assert waits == [10.0] * 5


@pytest.mark.fault(4)
def test_blocked_alone_never_kills() -> None:
    """Row 4: where no kill was written, a blocked eviction is asked again, and nothing else follows."""
    play = acted()
    for _ in range(8):  # the wait is the longest one at the sixth
        play.conclude(Result.BLOCKED)
        play.until_action(GREEDY, MEEK)
    assert set(play.actions) == {"evict team/greedy-1"}


def test_blocked_and_kill_was_written() -> None:
    """The operator wrote kill behind evict: it follows after another warning and a whole grace."""
    play = acted(rules=BOTH)
    play.conclude(Result.BLOCKED)
    ended = play.monotonic
    play.step(GREEDY, MEEK)
    assert play.standing(GREEDY) is State.GRACE
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1", "kill team/greedy-1"]
    assert play.monotonic - ended >= SHORT.grace


@pytest.mark.parametrize(
    ("result", "next_step"),
    [(Result.IMPOSSIBLE, "evict"), (Result.FAILED, "kill"), (Result.REFUSED, "kill"), (Result.ABANDONED, "kill")],
    ids=str,
)
def test_after_a_kill_that_is_impossible_the_eviction_is_requested_again(result: Result, next_step: str) -> None:
    """Its PodDisruptionBudget may allow it by then. A kill that was only in vain is tried again itself."""
    play = acted(rules=BOTH)
    play.conclude(Result.BLOCKED)
    play.until_action(GREEDY, MEEK)
    play.conclude(result)
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1", "kill team/greedy-1", f"{next_step} team/greedy-1"]


def test_a_blocked_eviction_of_an_earlier_generation_is_forgotten() -> None:
    """A container that restarted is asked for by an eviction first, and not killed."""
    play = acted(rules=BOTH)
    play.conclude(Result.BLOCKED)
    reborn = replace(GREEDY, generation=1)
    play.until_action(reborn, MEEK)
    assert play.actions == ["evict team/greedy-1"] * 2


def test_only_an_eviction_can_be_blocked() -> None:
    """A kill that is answered like this is tried again, and counts as no step that is done."""
    play = acted(rules=KILLING)
    play.conclude(Result.BLOCKED)
    assert not play.history.done
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["kill team/greedy-1"] * 2


def test_a_fence_that_failed_is_tried_again() -> None:
    """A driver that does not answer, or a full disk, skips no step of the ladder."""
    play = acted(rules=FENCING)
    play.conclude(Result.FAILED)
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["fence team/greedy-1"] * 2


def test_a_container_that_cannot_be_fenced_goes_on_up_the_ladder() -> None:
    """Odd cgroups are no shield: the next step follows after another warning and a whole grace."""
    play = acted(rules=FENCING)
    play.conclude(Result.IMPOSSIBLE)
    ended = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["fence team/greedy-1", "evict team/greedy-1"]
    assert play.monotonic - ended >= SHORT.grace


@pytest.mark.parametrize("result", DONE, ids=str)
def test_a_fence_holds_and_the_next_step_follows(result: Result) -> None:
    """Fenced and still above its limit: the next step comes after a new warning, and not at once."""
    play = acted(rules=FENCING)
    play.conclude(result)
    ended = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["fence team/greedy-1", "evict team/greedy-1"]
    assert play.monotonic - ended >= max(AGAIN, SHORT.spacing)


def test_a_fence_restarts_the_level_of_its_own_holder_only() -> None:
    """A fence limits one container: what another one of the pod uses is as it was."""
    play = acted(SIBLING, rules=FENCING)
    play.conclude(Result.ACCEPTED)
    assert seconds_of(play, GREEDY) == 0.0
    assert seconds_of(play, SIBLING) >= AGAIN


@pytest.mark.parametrize("result", [Result.ABANDONED, Result.REFUSED, Result.BLOCKED, Result.FORBIDDEN], ids=str)
def test_a_fence_that_was_not_set_is_tried_again(result: Result) -> None:
    """Spared or refused: nothing harsher follows from it."""
    play = acted(rules=FENCING)
    play.conclude(result)
    play.until_action(GREEDY, MEEK)
    assert play.actions == ["fence team/greedy-1"] * 2


@pytest.mark.parametrize("result", [*DONE, Result.IMPOSSIBLE], ids=str)
@pytest.mark.parametrize("rounds", [4, 5, 8, 12, 40])
def test_a_container_that_restarts_after_each_fence_is_evicted(result: Result, rounds: int) -> None:
    """It restarts every so many rounds: a fence that was set, or cannot be, is behind each later generation."""
    play = acted(rules=FENCING)
    play.conclude(result)
    ended = play.monotonic
    while len(play.actions) < 2 and play.monotonic < ended + 600:
        generation = 1 + int(play.monotonic - ended) // int(rounds * play.rules.interval)
        play.step(replace(GREEDY, generation=generation), MEEK)
    assert play.actions == ["fence team/greedy-1", "evict team/greedy-1"]
    least = SHORT.grace if result is Result.IMPOSSIBLE else AGAIN
    assert least <= play.monotonic - ended <= AGAIN + SHORT.spacing


def test_where_no_other_step_follows_each_generation_is_fenced() -> None:
    """A ladder that ends with the fence, a namespace that does not consent, a kill that this node lacks."""
    no_kill = replace(FENCING, ladder=(Rung.FENCE, Rung.KILL), missing=(MissingStep(Rung.KILL, "no right"),))
    for rules, labels in (
        (replace(FENCING, ladder=(Rung.NOTIFY, Rung.FENCE)), {CONSENT: "enforce"}),
        (FENCING, {"unrelated": "label"}),
        (no_kill, {CONSENT: "enforce"}),
    ):
        play = Play(rules)
        for generation in range(3):
            actor = replace(GREEDY, generation=generation)
            play.until_action(actor, MEEK, namespaces={"team": labels})
            play.conclude(Result.ACCEPTED)
            play.steps(40, actor, MEEK, namespaces={"team": labels})
        assert play.actions == ["fence team/greedy-1"] * 3


def test_a_fence_of_one_container_and_device_is_behind_no_other() -> None:
    """Another container of the pod, and the same one on another device, are fenced first themselves."""
    play = acted(SIBLING, rules=FENCING)
    play.conclude(Result.ACCEPTED)
    play.steps(2, MEEK)
    reborn = replace(GREEDY, generation=1)
    play.until_action(replace(SIBLING, generation=1), replace(reborn, used=GIB), MEEK)
    play.conclude(Result.ACCEPTED)
    play.until_action(replace(reborn, gpu=1), MEEK, gpus=2)
    assert play.actions == ["fence team/greedy-1"] * 3


def test_a_fence_of_a_pod_that_is_gone_is_forgotten() -> None:
    """The history does not grow with the pods of a node; while names are only remembered nothing is forgotten."""
    play = acted(rules=FENCING)
    play.conclude(Result.ACCEPTED)
    play.step(MEEK, live=False)
    assert play.history.fenced
    play.history = replace(play.history, done=frozenset())  # the container was restarted meanwhile
    play.step(MEEK)
    assert not play.history.fenced


@pytest.mark.fault(17)
def test_the_same_name_with_another_uid_is_another_pod() -> None:
    """Row 17: a StatefulSet's pod comes back under its name: nothing that was known of the old one holds for it."""
    play = acted()
    play.conclude(Result.ACCEPTED)
    reborn = replace(GREEDY, uid="uid-reborn")
    ended = play.monotonic
    play.step(reborn, MEEK)
    assert play.standing(reborn) is State.OVER
    assert play.until_action(reborn, MEEK).pod_uid == "uid-reborn"
    assert play.monotonic - ended >= AGAIN


def test_an_accepted_action_starts_the_claim_of_its_pod_anew() -> None:
    """The pod that held most of a shared claim is evicted: the pods that stay begin at 0."""
    shared = [
        Actor(f"sharer{number}-1", used * GIB, limit=8 * GIB, scope="claim", claim="team/shared")
        for number, used in ((1, 10), (2, 4))
    ]
    play = Play(SHORT)
    assert play.until_action(*shared, MEEK).pod == "sharer1-1"
    play.conclude(Result.ACCEPTED)
    assert play.history.levels == {}


def test_an_end_without_an_action_is_none() -> None:
    """An end that is reported twice changes nothing."""
    history = History()
    for result in Result:
        assert conclude(history, result, Play().now) is history


def test_a_blocked_pod_that_is_not_read_is_not_shown_as_acted_on() -> None:
    """Nothing is in flight any more: it is due or held."""
    play = acted()
    play.conclude(Result.BLOCKED)
    play.step(GREEDY, MEEK, read=())
    assert play.standing(GREEDY) in {State.DUE, State.HELD}


def test_an_action_outlives_what_changes_levels() -> None:
    """Other rules, a sleep, another driver: the action in flight stays, because the world does not forget it."""
    play = acted()
    play.rules = replace(SHORT, spacing=90.0)
    play.asleep += 600.0
    play.steps(60, Actor("other-1", GREEDY.used), MEEK, driver="590.10")
    assert play.history.in_flight is not None
    assert len(play.actions) == 1


def test_one_token_comes_back_and_no_other() -> None:
    """Two tokens were taken at once: the one of the action is given back; one that is not there cannot be."""
    flight, now = acted().history.in_flight, Play().now
    assert flight is not None
    assert flight.token is not None
    mine, other = flight.token, replace(flight.token, at=1.0)
    for spent, left in (((other, mine, mine), (other, mine)), ((other,), (other,)), ((mine, other), (other,))):
        assert conclude(History(in_flight=flight, spent=spent), Result.ABANDONED, now).spent == left
        assert conclude(History(in_flight=flight, spent=spent), Result.ACCEPTED, now).spent == spent
    untaken = replace(flight, token=None)
    assert conclude(History(in_flight=untaken, spent=(mine,)), Result.ABANDONED, now).spent == (mine,)


@pytest.mark.parametrize("result", HARMLESS, ids=str)
def test_a_try_in_vain_is_remembered_until_the_pod_is_acted_on(result: Result) -> None:
    """The pod and its namespace have had their turn; an accepted action clears the pod's."""
    play = acted()
    play.conclude(result)
    assert play.history.tried == {GREEDY.pod_uid: play.monotonic}
    assert play.history.turns == {"team": play.monotonic}
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.ACCEPTED)
    assert play.history.tried == {}


def test_a_warning_is_accepted_once_and_only_the_present_one() -> None:
    """What the API server accepted of an earlier warning says nothing of the present one."""
    play = Play(replace(SHORT, confirm=True))
    play.until(State.GRACE, GREEDY, MEEK)
    ((key, level),) = play.history.levels.items()
    assert level.warned_at is not None
    earlier = outcomes.warned(play.history, key, level.warned_at - 1.0)
    assert earlier.levels[key].unheard_at == level.warned_at
    accepted = outcomes.warned(play.history, key, level.warned_at)
    assert accepted.levels[key].unheard_at is None
    assert outcomes.warned(accepted, key, level.warned_at) == accepted
    assert outcomes.warned(play.history, key._replace(container="another"), level.warned_at) is play.history


def test_while_the_end_of_a_pod_is_watched_no_second_action_on_it_begins() -> None:
    """The pod is held while its watch runs; other pods are acted on meanwhile."""
    play = acted(OTHER)
    flight = play.history.in_flight
    assert flight is not None
    play.conclude(Result.ACCEPTED)
    play.history = outcomes.watching(play.history, flight.action, play.now)
    play.until_action(OTHER, GREEDY, MEEK)
    assert play.verdicts[-1].action is not None
    assert play.verdicts[-1].action.pod == OTHER.pod
    play.conclude(Result.ACCEPTED)
    play.until_reason(Reason.IN_FLIGHT, GREEDY, MEEK)
    play.steps(20, GREEDY, MEEK)
    assert len(play.actions) == 2
    play.history = outcomes.watched(play.history, flight.action)
    play.step(GREEDY, MEEK)
    assert play.actions[2:] == ["evict team/greedy-1"]


def test_a_watch_that_never_reports_holds_for_fifteen_minutes() -> None:
    """A watch that was lost holds its pod for a bounded time."""
    play = acted()
    flight = play.history.in_flight
    assert flight is not None
    play.conclude(Result.ACCEPTED)
    play.history = outcomes.watching(play.history, flight.action, play.now)
    ended = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - ended == 900.0


def test_a_dry_run_makes_its_pod_rest_and_changes_nothing_else() -> None:
    """Ten minutes; the end of another dry run, or one too late, changes nothing at all."""
    play = Play(replace(SHORT, mode=Mode.DRY_RUN))
    action = play.until_action(GREEDY, MEEK)
    history = play.history
    assert history.dry_flight is not None
    assert history.spent == ()
    after = rehearsed(history, action, play.now, detail="would have been evicted")
    rests: dict[HoldKey, Hold] = {
        (Place.POD, GREEDY.pod_uid, Reason.DRY_RUN): Hold(play.monotonic + 600.0, "would have been evicted")
    }
    assert after == replace(history, dry_flight=None, holds=rests)
    assert rehearsed(history, replace(action, pod="another"), play.now) is history
    assert rehearsed(after, action, play.now) is after
