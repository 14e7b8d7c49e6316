"""From the decision to the confirmed answer: what is asked of the world, in which order, and when nothing is."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from enforcer.actions.interface import Answer, Heard
from enforcer.messages.action_texts import EventReason
from enforcer.policy.history import Action, Result
from enforcer.policy.rules import Budget, Budgets
from enforcer.policy.vocabulary import Rung, State, Trigger
from enforcer.runtime.last_looks import LATE_LOOKS
from exporter.model import GpuUuid, Snapshot
from policy.scenes import GIB, UNHURRIED, Actor
from policy.stage import Stage

HOG = Actor("hog-1", used=60 * GIB, limit=40 * GIB)
POOR = Actor("poor-1", used=10 * GIB, limit=40 * GIB)
OTHER = replace(HOG, pod="hog-2", used=12 * GIB, limit=8 * GIB)
KILLING = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL))
CONTENDED = replace(UNHURRIED, trigger=Trigger.CONTENDED)
LATER_POD = "11111111-2222-3333-4444-555555555555"


async def test_an_eviction_is_intended_looked_at_made_confirmed_and_seen() -> None:
    """Intent on disk, last look, call, answer on disk, a look that confirms it, effect seen twice: in this order."""
    stage = Stage(HOG, POOR)
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    await stage.play()
    assert stage.script == [
        "intended",
        "asked",
        "looked",
        "acted",
        "heard accepted",
        "looked up",
        "looked",
        "waited",
        "looked",
        "verified",
    ]
    reasons = [notice.reason for notice in stage.notices if notice.regarding.pod == "hog-1"]
    assert reasons[0] is EventReason.EXCEEDED and reasons[-1] is EventReason.EVICTED
    assert not [notice for notice in stage.notices if notice.regarding.pod == "poor-1"]
    assert stage.breakers() == set()


async def test_a_deletion_that_is_confirmed_keeps_no_other_pod_waiting() -> None:
    """The first victim terminates for an hour. The second is acted on after the usual spacing."""
    stage = Stage(replace(HOG, used=45 * GIB), OTHER)

    async def act(action: Action, _decision: str) -> Answer:
        stage.acted.append(action)
        stage.delete(action.pod, grace_seconds=3600.0)
        return Answer(Heard.ACCEPTED)

    stage.act = act  # type: ignore[method-assign]
    await stage.play(300)
    assert [action.pod for action in stage.acted] == ["hog-1", "hog-2"]
    assert stage.results == [], "both are still watched"


def _another(stage: Stage) -> None:
    stage.live = replace(HOG, uid="another")


def _restarted(stage: Stage) -> None:
    stage.live = replace(HOG, generation=1)


def _deleted(stage: Stage) -> None:
    stage.live = replace(HOG, facts={"terminating": True})


def _finished(stage: Stage) -> None:
    stage.live = replace(HOG, facts={"phase": "Succeeded"})


def _important(stage: Stage) -> None:
    stage.live = replace(HOG, facts={"priority": 2_000_000_000})


def _edited(stage: Stage) -> None:
    stage.live = replace(HOG, facts={"annotations": {"nvidia.com/container.main.gpu-memory.limit": "70Gi"}})


def _freed(stage: Stage) -> None:
    stage.actors[0] = replace(HOG, used=30 * GIB)


def _raised(stage: Stage) -> None:
    stage.actors[0] = replace(HOG, limit=70 * GIB)


def _no_need(stage: Stage) -> None:
    stage.actors[1] = replace(POOR, limit=10 * GIB)


def _withdrawn(stage: Stage) -> None:
    stage.labels = {}


def _restricted(stage: Stage) -> None:
    stage.labels = {"gpusteward.io/mode": "warn"}


def _unreadable(stage: Stage) -> None:
    stage.actors[0] = replace(HOG, used=None)


def _unproven(stage: Stage) -> None:
    stage.world["proven"] = False


def _away(stage: Stage) -> None:
    stage.away = True


def _gone(stage: Stage) -> None:
    stage.actors = [POOR]


SPARES = [
    pytest.param(_another, "other_pod", marks=pytest.mark.fault(7, 17)),
    pytest.param(_restarted, "other_container", marks=pytest.mark.fault(20, 38)),
    pytest.param(_deleted, "terminating", marks=pytest.mark.fault(65)),
    pytest.param(_finished, "not_running", marks=pytest.mark.fault(66)),
    (_important, "priority"),
    pytest.param(_edited, "declaration_changed", marks=pytest.mark.fault(57)),
    pytest.param(_freed, "not_over_now", marks=pytest.mark.fault(39)),
    pytest.param(_raised, "not_over_now", marks=pytest.mark.fault(57)),
    (_no_need, "not_contended"),
    pytest.param(_withdrawn, "no_consent", marks=pytest.mark.fault(58)),
    (_restricted, "mode"),
    (_gone, "pod_gone"),
]
"""What may have changed between decision and call, so that the action is not justified any more."""
FAILS = [
    pytest.param(_unreadable, "reading_unknown", marks=pytest.mark.fault(25)),
    (_unproven, "pid_domain"),
    pytest.param(_away, "look_failed", marks=pytest.mark.fault(1)),
]
"""Sources that do not answer between decision and call."""


@pytest.mark.parametrize(("happens", "reason"), SPARES, ids=lambda value: value if isinstance(value, str) else "")
async def test_what_the_last_look_sees_spares(happens: Callable[[Stage], None], reason: str) -> None:
    """The action is not justified any more: no call, and the reason stands in the journal."""
    stage = Stage(HOG, POOR, rules=CONTENDED if reason == "not_contended" else UNHURRIED)
    stage.at["intended"] = lambda: happens(stage)
    await stage.play(until=lambda: stage.results)
    assert f"abandoned {reason}" in stage.script, stage.script
    assert "acted" not in stage.script
    assert stage.remaining() == UNHURRIED.budgets.node.most


@pytest.mark.parametrize(("happens", "reason"), FAILS, ids=lambda value: value if isinstance(value, str) else "")
async def test_a_last_look_without_an_answer_fails_with_its_reason(
    happens: Callable[[Stage], None], reason: str
) -> None:
    """A source does not answer: no call, and a failure of ours, not a pod that is within its limit."""
    stage = Stage(HOG, POOR)
    stage.at["intended"] = lambda: happens(stage)
    await stage.play(until=lambda: stage.results)
    assert f"failed {reason}" in stage.script, stage.script
    assert "acted" not in stage.script
    assert stage.remaining() == UNHURRIED.budgets.node.most


def slow(stage: Stage, *seconds: float) -> None:
    """Let it take so many seconds from the end of a round until it is judged; the last one's time stays."""
    fresh, times = stage.fresh, list(seconds)

    async def late(only: Collection[GpuUuid]) -> Snapshot | None:
        seen = await fresh(only)
        stage.monotonic_ += times.pop(0) if len(times) > 1 else times[0]
        return seen

    stage.hands(fresh=late)


@pytest.mark.parametrize(("seconds", "again"), [(1.5, []), (2.5, []), (3.1, ["asked"]), (14.0, ["asked"])])
async def test_a_round_of_a_busy_machine_is_fresh_enough(seconds: float, again: list[str]) -> None:
    """A neighbour that keeps the machine or the GPU's driver busy does not keep the pod from its eviction."""
    stage = Stage(HOG, POOR)
    fresh = stage.fresh

    async def long(only: Collection[GpuUuid]) -> Snapshot | None:
        seen = await fresh(only)
        stage.monotonic_ += seconds
        return None if seen is None else replace(seen, duration=seconds)

    stage.hands(fresh=long)
    await stage.play(150, until=lambda: stage.acted)
    assert stage.script[: 4 + len(again)] == ["intended", "asked", "looked", *again, "acted"]


@pytest.mark.parametrize("seconds", [3.1, 14.0])
async def test_where_the_round_waited_the_server_is_asked_again(seconds: float) -> None:
    """A driver that is slow for another GPU does not keep the pod from its eviction: both answers are fresh."""
    stage = Stage(HOG, POOR)
    fresh = stage.fresh

    async def waits(only: Collection[GpuUuid]) -> Snapshot | None:
        stage.monotonic_ += seconds
        return await fresh(only)

    stage.hands(fresh=waits)
    await stage.play(150, until=lambda: stage.acted)
    assert stage.script[:5] == ["intended", "asked", "looked", "asked", "acted"]


async def test_a_look_that_came_too_late_is_repeated_at_once() -> None:
    """Three rounds are too slow, and the fourth is not: the action follows without a wait, and in the same flight."""
    stage = Stage(HOG, POOR)
    slow(stage, 3.1, 3.1, 3.1, 0.0)
    await stage.play(150, until=lambda: stage.acted)
    assert stage.script[:13] == ["intended", *["asked", "looked", "asked"] * 3, "asked", "looked", "acted"]
    assert stage.results == []


@pytest.mark.parametrize(("seconds", "looks"), [(3.01, 4), (6.0, 2), (30.0, 1)])
async def test_looks_that_all_come_too_late_are_given_up(seconds: float, looks: int) -> None:
    """No other action begins meanwhile, so the looks end after some ten seconds, and the budget is not charged."""
    stage = Stage(HOG, POOR)
    slow(stage, seconds)
    await stage.play(200, until=lambda: stage.results)
    script = ["intended", *["asked", "looked", "asked"] * looks, "failed look_too_old"]
    assert stage.script[: len(script)] == script and "acted" not in stage.script
    assert stage.remaining() == UNHURRIED.budgets.node.most


async def test_no_more_than_five_looks_come_too_late() -> None:
    """An answer of the server that is followed by a round from the past counts as late, too: it ends by number."""
    stage = Stage(HOG, POOR)
    stage.at["intended"] = lambda: setattr(stage, "shown", lambda seen: replace(seen, monotonic=seen.monotonic - 4.0))
    await stage.play(200, until=lambda: stage.results)
    script = ["intended", *["asked", "looked"] * LATE_LOOKS, "failed look_too_old"]
    assert stage.script[: len(script)] == script


@pytest.mark.fault(60)
async def test_a_disk_that_is_full_holds_every_action_back() -> None:
    """What cannot be written down first is not done."""
    stage = Stage(HOG, POOR)
    stage.disk_full = True
    await stage.play()
    assert stage.script == []


ANSWERS = [
    (Heard.BLOCKED, Result.BLOCKED, "blocked"),
    pytest.param(Heard.GONE, Result.ABANDONED, "last_look", marks=pytest.mark.fault(9, 12, 41)),
    pytest.param(Heard.CHANGED, Result.ABANDONED, "last_look", marks=pytest.mark.fault(8)),
    pytest.param(Heard.FORBIDDEN, Result.FORBIDDEN, "no_rights", marks=pytest.mark.fault(10)),
    pytest.param(Heard.UNAUTHORIZED, Result.UNAUTHORIZED, "unauthorized", marks=pytest.mark.fault(10)),
    pytest.param(Heard.REFUSED, Result.REFUSED, "refused", marks=pytest.mark.fault(11)),
    pytest.param(Heard.FAILED, Result.FAILED, "failed", marks=pytest.mark.fault(2, 6)),
]


@pytest.mark.parametrize(("heard", "result", "reason"), ANSWERS)
async def test_an_answer_that_is_an_end(heard: Heard, result: Result, reason: str) -> None:
    """It is one call, its token is given back, and the holder says why it is held."""
    stage = Stage(HOG, POOR)
    stage.answer = Answer(heard, "because")
    await stage.play(until=lambda: stage.results)
    assert stage.script == ["intended", "asked", "looked", "acted", f"heard {heard}", f"{result} because"]
    assert (stage.state(HOG), stage.reason(HOG)) == (State.HELD, reason)
    assert stage.remaining() == UNHURRIED.budgets.node.most


@pytest.mark.fault(10, 11)
async def test_refusals_open_no_breaker_and_hold_no_other_namespace() -> None:
    """Half an hour without the right in one namespace: asked ever more seldom, while other pods are evicted."""
    stranger = replace(OTHER, namespace="other-team")
    stage = Stage(replace(HOG, used=45 * GIB), stranger)

    async def act(action: Action, _decision: str) -> Answer:
        stage.acted.append(action)
        if action.namespace == "team":
            return Answer(Heard.FORBIDDEN, "no right", 403)
        stage.delete(action.pod)
        return Answer(Heard.ACCEPTED, "", 201)

    stage.act = act  # type: ignore[method-assign]
    await stage.play(1800)
    assert "other-team" in [action.namespace for action in stage.acted[:2]]
    assert 5 < len([action for action in stage.acted if action.namespace == "team"]) < 15
    assert stage.breakers() == set()


@pytest.mark.fault(4)
async def test_what_was_not_done_costs_nothing() -> None:
    """A budget of one action in ten minutes: what a PodDisruptionBudget blocks leaves it whole."""
    once = replace(UNHURRIED, budgets=Budgets(Budget(1, 600.0), Budget(1, 600.0)))
    stage = Stage(HOG, POOR, rules=once)
    stage.answer = Answer(Heard.BLOCKED, "a budget")
    stage.at["heard blocked"] = lambda: setattr(stage, "answer", Answer(Heard.ACCEPTED))
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    await stage.play(300)
    assert stage.script.count("acted") == 2
    assert stage.script[-1] == "verified"


@pytest.mark.fault(60)
async def test_a_disk_that_fills_up_in_an_action_stops_no_look() -> None:
    """What was begun is watched to its end, though nothing of it can be noted."""
    stage = Stage(HOG, POOR)

    def fill_up() -> None:
        stage.empty("hog-1")
        stage.disk_full = True

    stage.at["acted"] = fill_up
    await stage.play(200)
    looks = {"looked", "looked up", "waited"}
    assert [line for line in stage.script if line not in looks] == ["intended", "asked", "acted"]
    assert stage.decider.decisions()["recent"][0]["kind"] == "action"
    assert stage.results == [Result.VERIFIED]


@pytest.mark.fault(3, 15)
async def test_an_answer_that_was_lost_is_looked_up_and_never_repeated() -> None:
    """For a minute the server may still do it. If the pod is not being deleted then, it failed."""
    stage = Stage(HOG, POOR)
    stage.answer = Answer(Heard.AMBIGUOUS, "the connection broke")
    await stage.play(until=lambda: stage.results)
    assert stage.script[:6] == ["intended", "asked", "looked", "acted", "heard ambiguous", "looked up"]
    assert stage.script[-1] == "failed it was not carried out, as far as was seen: the connection broke"
    assert stage.script.count("acted") == 1
    assert stage.remaining() == UNHURRIED.budgets.node.most


async def test_an_acceptance_is_not_believed_before_a_look_confirms_it() -> None:
    """The server said 201, and the pod is not being deleted a minute later: it failed, and the token is given back."""
    stage = Stage(HOG, POOR)
    await stage.play(until=lambda: stage.results)
    assert stage.script[-1] == "failed it was not carried out, as far as was seen"
    assert (stage.reason(HOG), stage.remaining()) == ("failed", UNHURRIED.budgets.node.most)


async def test_a_stall_that_outlasts_the_deadline_is_followed_by_a_look() -> None:
    """The minute, and all the time to look it up, went by in one pause: the pod is looked at before an end is noted."""
    stage = Stage(HOG, POOR)
    stage.answer = Answer(Heard.AMBIGUOUS, "the connection broke")
    stage.at["waited"] = lambda: setattr(stage, "monotonic_", stage.monotonic_ + 300)
    await stage.play(150)
    assert stage.results[0] is Result.FAILED and not stage.breakers()


@pytest.mark.fault(3, 15)
async def test_an_answer_that_was_lost_and_came_about() -> None:
    """The pod is being deleted after all: the request counts as accepted, and its budget stays spent."""
    stage = Stage(HOG, POOR)
    stage.answer = Answer(Heard.AMBIGUOUS, "504")
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    stage.at["waited"] = lambda: stage.delete("hog-1")
    await stage.play(300)
    assert stage.script[4:8] == ["heard ambiguous", "looked up", "waited", "looked up"]
    assert stage.script[-1] == "verified"
    assert stage.script.count("acted") == 1
    assert stage.remaining() == UNHURRIED.budgets.node.most - 1


@pytest.mark.fault(3, 15)
async def test_an_answer_that_was_lost_and_cannot_be_looked_up_may_have_been_a_yes() -> None:
    """No look is answered for two minutes: `unknown`. The budget stays spent, and the counted time starts anew."""
    stage = Stage(HOG, POOR)
    stage.answer = Answer(Heard.AMBIGUOUS, "the connection broke")
    stage.at["acted"] = lambda: _away(stage)
    await stage.play(until=lambda: stage.results)
    assert stage.results == [Result.UNKNOWN]
    assert stage.remaining() == UNHURRIED.budgets.node.most - 1
    assert stage.state(HOG) in (State.OK, State.OVER)


@pytest.mark.fault(50, 54)
async def test_a_daemon_that_ends_in_a_call_says_that_it_does_not_know() -> None:
    """The journal has the intent, and that no answer was heard; the next daemon looks before it does anything."""
    stage = Stage(HOG, POOR)
    begun = asyncio.Event()

    async def forever(_action: object, _decision: str) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    stage.act = forever  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(stage.play(400))
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert stage.script == ["intended", "asked", "looked", "heard ambiguous"]


async def test_an_action_counts_when_its_call_has_left() -> None:
    """A refusal was sent, a connection that was never made was not; a PodDisruptionBudget's no costs a request, too."""
    for answer, requests in ((Answer(Heard.REFUSED, "no", 422), 1), (Answer(Heard.FAILED, "connection refused"), 0)):
        stage = Stage(HOG, POOR)
        stage.answer = answer
        await stage.play(until=lambda stage=stage: stage.results)  # type: ignore[misc]
        assert sum(stage.decider._tally.requested.values()) == requests


async def test_the_stop_file_holds_an_action_in_its_last_look(tmp_path: Path) -> None:
    """It needs no API server, and works until the call is made."""
    stop = tmp_path / "stop"
    stage = Stage(HOG, POOR, stop_file=stop)
    stage.at["asked"] = stop.touch
    await stage.play(160)
    assert "acted" not in stage.script
    assert stage.script[-1] == "abandoned stopped"


async def decided(*actors: Actor, rules: object = UNHURRIED) -> Action:
    """Let the policy decide an action, as a daemon would that ends before it is carried out."""
    stage = Stage(*actors, rules=rules)  # type: ignore[arg-type]
    begun: list[Action] = []
    stage.decider._begin = begun.append
    await stage.play(160)
    return begun[0]


@pytest.mark.fault(50, 54)
async def test_what_another_daemon_began_is_looked_up_and_never_done_again() -> None:
    """Its victim is gone: accepted, and watched to its end."""
    action = await decided(HOG, POOR)
    stage = Stage(POOR)
    stage.gone = True
    stage.executor.resume(LATER_POD, action)
    await stage.play(30)
    assert "acted" not in stage.script
    assert stage.script[:2] == ["looked up", "heard accepted"]
    assert stage.script[-1] == "verified"


@pytest.mark.fault(50, 54)
async def test_what_another_daemon_began_and_was_answered_is_ended_by_the_answer() -> None:
    """It was blocked, and the daemon ended before it could note the end: no minute of waiting."""
    action = await decided(HOG, POOR)
    stage = Stage(HOG, POOR)
    stage.executor.resume(LATER_POD, action, Answer(Heard.BLOCKED, "a budget"))
    await stage.play(10)
    assert stage.script == ["blocked a budget"]


async def test_of_several_that_were_begun_each_is_in_flight_when_its_turn_comes() -> None:
    """Neither was answered: each is looked up, one after the other, and the node waits for both."""
    action = await decided(HOG, POOR)
    stage = Stage(replace(HOG, used=41 * GIB), POOR)
    stage.executor.resume(LATER_POD, action)
    stage.executor.resume(LATER_POD.replace("1", "2"), action)
    flights: list[bool] = []
    stage.at["failed it was not carried out, as far as was seen: begun by a daemon before this one"] = lambda: (
        flights.append(stage.decider.in_flight)
    )
    await stage.play(130)
    assert stage.results[:2] == [Result.FAILED, Result.FAILED]
    assert flights == [True] and "acted" not in stage.script


@pytest.mark.fault(48)
async def test_what_could_not_be_done_is_not_begun() -> None:
    """The container shares its PID namespace: no intent, no look, no call, no token; and the holder says so."""
    stage = Stage(HOG, POOR, rules=KILLING)
    stage.doubt = Answer(Heard.IMPOSSIBLE, "it shares a PID namespace")
    await stage.play(1000)
    assert not {"intended", "acted", "asked"} & set(stage.script)
    recent = [one for one in stage.decider.decisions()["recent"] if one["kind"] == "action"]
    assert {(one["result"], one["detail"]) for one in recent} == {
        ("impossible", "not tried: it shares a PID namespace"),
    }
    assert len(recent) <= 8, "tried again after waits that grow to five minutes"
    assert (stage.reason(HOG), stage.remaining()) == ("kill_impossible", KILLING.budgets.node.most)
    stage.doubt = None
    await stage.play(400)
    assert "acted" in stage.script, "and when it is possible, it is done"
