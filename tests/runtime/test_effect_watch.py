"""After the acceptance: what is watched in the background, when it ends, and that no other action waits for it."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kill.actuator import ASKED, GRACE_OVER, INSISTED
from enforcer.messages.action_texts import EventReason
from enforcer.policy.history import Action, Result
from enforcer.policy.last_look import Spared
from enforcer.policy.vocabulary import Breaker, Reason
from enforcer.runtime.effect_watch import INSISTENCE
from enforcer.runtime.survivors import elsewhere, processes_of
from exporter.model import Fault, GpuUuid, ProcessKey, Snapshot
from policy.scenes import BEGIN, GIB, Actor, snapshot
from policy.stage import Stage
from runtime.test_executor import HOG, KILLING, LATER_POD, OTHER, POOR, decided


@pytest.mark.fault(47)
async def test_an_effect_that_does_not_come_is_reported_and_stops_nothing() -> None:
    """Evacuating, and ten minutes later still there: stuck. No breaker opens, and other pods are still acted on."""
    stage = Stage(replace(HOG, used=45 * GIB), OTHER)

    async def act(action: Action, _decision: str) -> Answer:
        stage.acted.append(action)
        if action.pod == "hog-1":
            return Answer(Heard.EVACUATING, "a virtual machine is moved")
        stage.delete(action.pod)
        return Answer(Heard.ACCEPTED)

    stage.act = act  # type: ignore[method-assign]
    await stage.play(1000, until=lambda: Result.STUCK in stage.results)
    assert any(line.startswith("stuck no effect was seen within 63") for line in stage.script), stage.script
    assert {action.pod for action in stage.acted} == {"hog-1", "hog-2"}
    assert stage.breakers() == set()


@pytest.mark.fault(47)
async def test_a_pod_that_takes_its_time_lingers() -> None:
    """A grace of a week, or a finalizer: after ten minutes and two it is reported as such, and no breaker opens."""
    stage = Stage(HOG, POOR)
    stage.at["acted"] = lambda: stage.delete("hog-1", grace_seconds=604_800.0)
    await stage.play(1000, until=lambda: stage.results)
    assert any(line.startswith("lingers the pod still terminates after 7") for line in stage.script), stage.script
    assert stage.breakers() == set()


@pytest.mark.fault(45)
async def test_memory_that_stays_is_no_effect() -> None:
    """The pod is gone, its memory is not (a process in the driver's hands): that is stuck, and no success."""
    stage = Stage(HOG, POOR)
    stage.gone = True
    await stage.play(600, until=lambda: stage.results)
    assert any(line.startswith("stuck no effect was seen within 15") for line in stage.script), stage.script
    assert Result.VERIFIED not in stage.results


async def test_several_effects_are_watched_at_once() -> None:
    """Two victims terminate at the same time; each is verified when its own memory is free."""
    stage = Stage(replace(HOG, used=45 * GIB), OTHER)

    async def act(action: Action, _decision: str) -> Answer:
        stage.acted.append(action)
        stage.delete(action.pod, grace_seconds=600.0)
        return Answer(Heard.ACCEPTED)

    stage.act = act  # type: ignore[method-assign]
    await stage.play(300, until=lambda: len(stage.acted) == 2)
    assert stage.results == []


@pytest.mark.fault(16)
async def test_an_evacuation_outlives_the_daemon() -> None:
    """Another controller moves the pod away: the next daemon only watches, for the same ten minutes."""
    action = await decided(HOG, POOR)
    stage = Stage(HOG, POOR)
    stage.executor.resume(LATER_POD, action, Answer(Heard.EVACUATING, "a virtual machine is moved"))
    playing = asyncio.create_task(stage.play(900, until=lambda: stage.results))
    while stage.monotonic() < BEGIN + 100:
        await asyncio.sleep(0)
    assert stage.results == [] and not stage.decider.in_flight
    stage.empty("hog-1")
    await playing
    assert stage.results == [Result.VERIFIED] and "acted" not in stage.script


async def test_what_was_accepted_before_a_restart_holds_up_no_other_action() -> None:
    """The journal has the acceptance: the pod is watched in the background, and the next pod is acted on."""
    action = await decided(HOG, POOR)
    stage = Stage(OTHER)
    stage.executor.resume(LATER_POD, action, Answer(Heard.ACCEPTED, "", 201))
    stage.at["acted"] = lambda: stage.delete("hog-2")
    await stage.play(200, until=lambda: stage.acted)
    assert [action.pod for action in stage.acted] == ["hog-2"]


async def test_a_long_grace_is_known_as_soon_as_the_pod_is() -> None:
    """After a restart the first rounds know no pod: its own ten minutes count all the same."""
    patient = replace(HOG, facts={"grace_seconds": 600.0, "terminating": True})
    action = await decided(HOG, POOR)
    stage = Stage(patient, POOR)
    stage.executor.resume(LATER_POD, action, Answer(Heard.ACCEPTED, "", 201))
    await stage.play(900, until=lambda: stage.results)
    assert any(line.startswith("lingers the pod still terminates after 72") for line in stage.script), stage.script


# --- kill -------------------------------------------------------------------------------------------------------------


@pytest.mark.fault(46)
async def test_a_container_that_ignores_sigterm_is_killed_after_its_grace_and_another_look() -> None:
    """SIGTERM, the pod's own grace, a look, SIGKILL once, for one token."""
    stage = Stage(HOG, POOR, rules=KILLING)
    stage.at["insisted"] = lambda: stage.empty("hog-1")
    await stage.play(400)
    calls = [line for line in stage.script if line in {"acted", "insisted", "asked"}]
    assert calls == ["asked", "acted", "asked", "insisted"]
    assert stage.script[-1] == f"verified {GRACE_OVER}"
    assert GRACE_OVER in killed_event(stage)
    assert stage.remaining() == KILLING.budgets.node.most - 1


async def test_the_event_of_a_kill_says_which_signal_ended_the_container() -> None:
    """SIGTERM alone where it ended in its grace; SIGKILL at once where it had lived on after an earlier SIGTERM."""
    for done in (ASKED, INSISTED):
        stage = Stage(HOG, POOR, rules=KILLING)
        stage.answer = Answer(Heard.ACCEPTED, done)
        stage.at["acted"] = lambda stage=stage: stage.empty("hog-1")  # type: ignore[misc]
        await stage.play(400)
        assert stage.script[-1] == f"verified {done}"
        assert f"the container was killed: {done}. " in killed_event(stage)


def killed_event(stage: Stage) -> str:
    """Return the note of the Event that says that a container was killed."""
    (note,) = (notice.note for notice in stage.notices if notice.reason is EventReason.KILLED)
    return note


async def test_a_container_that_frees_its_memory_on_sigterm_is_not_killed() -> None:
    """The excess that justified the kill is gone. SIGTERM was sent, so its budget stays spent."""
    stage = Stage(HOG, POOR, rules=KILLING)
    stage.at["acted"] = lambda: stage.actors.__setitem__(0, replace(HOG, used=30 * GIB))
    await stage.play(400)
    assert "insisted" not in stage.script
    assert stage.script[-1] == "lingers SIGKILL was not sent: not_over_now"
    assert stage.remaining() == KILLING.budgets.node.most - 1


async def test_another_action_meanwhile_does_not_spare_from_sigkill() -> None:
    """While the first container has its grace, a second one is signalled: both are killed in the end."""
    stage = Stage(replace(HOG, used=45 * GIB), OTHER, rules=KILLING)
    killed: list[str] = []

    async def insist(action: Action, _decision: str) -> Answer:
        killed.append(action.pod)
        stage.actors = [replace(each, used=0, limit=None) if each.pod == action.pod else each for each in stage.actors]
        return Answer(Heard.ACCEPTED)

    async def ended(action: Action) -> bool:
        return action.pod in killed

    stage.insist, stage.ended = insist, ended  # type: ignore[method-assign, assignment]
    await stage.play(400, until=lambda: len(stage.results) == 2)
    assert sorted(killed) == ["hog-1", "hog-2"] and stage.results == [Result.VERIFIED] * 2


async def test_a_daemon_that_starts_anew_kills_nothing_that_another_one_signalled() -> None:
    """SIGTERM was accepted before the restart: its effect is watched, and no signal follows."""
    action = await decided(HOG, POOR, rules=KILLING)
    stage = Stage(replace(HOG, used=41 * GIB), POOR, rules=KILLING)
    stage.executor.resume(LATER_POD, action, Answer(Heard.ACCEPTED))
    await stage.play(200, until=lambda: stage.results)
    assert "insisted" not in stage.script and stage.results == [Result.STUCK]


async def test_a_watch_that_is_lost_with_the_journal_holds_its_pod_no_longer() -> None:
    """The container ignored SIGTERM, and nothing waits for its grace any more: it is due again like any other."""
    stage = Stage(replace(HOG, used=41 * GIB), POOR, rules=KILLING)
    await stage.play(400, until=lambda: stage.acted and stage.script[-1] == "waited")
    assert len(stage.acted) == 1
    lost = stage.monotonic_
    await stage.play(400, until=lambda: len(stage.acted) == 2)
    assert len(stage.acted) == 2 and "insisted" not in stage.script
    assert stage.monotonic_ - lost <= 30 + KILLING.warn_after + KILLING.grace


def _away(stage: Stage) -> None:
    stage.away = True


def _unreadable(stage: Stage) -> None:
    stage.actors[0] = replace(HOG, used=None)


def _hung(stage: Stage) -> None:
    stage.hands(fresh=_no_round)


async def _no_round(_only: object) -> None:
    return None


def _late(stage: Stage) -> None:
    stage.slow = 4.0
    stage.hands(fresh=lambda only: _slowly(stage, only))


async def _slowly(stage: Stage, only: Collection[GpuUuid]) -> Snapshot | None:
    seen = await stage.fresh(only)
    return None if seen is None else replace(seen, monotonic=seen.monotonic - stage.slow)


def _forgotten(stage: Stage) -> None:
    stage.world["faults"] = (Fault("allocations", "kubelet_away", "no answer"),)


SILENT = [
    pytest.param(_away, "look_failed", marks=pytest.mark.fault(1)),
    pytest.param(_hung, "look_failed", marks=pytest.mark.fault(25)),
    (_late, "look_too_old"),
    (_unreadable, "reading_unknown"),
    (_forgotten, "allocations_stale"),
]


@pytest.mark.fault(46)
@pytest.mark.parametrize(("breaks", "reason"), SILENT)
async def test_a_look_before_sigkill_without_an_answer_is_repeated(
    breaks: Callable[[Stage], None], reason: str
) -> None:
    """A source answers late three times: the next look is a whole one, and SIGKILL follows upon it, once."""
    stage = Stage(HOG, POOR, rules=KILLING)
    sane, looks = stage.executor._hands, list[str | None]()
    look = stage.executor._looks.look

    async def watched(action: Action, *, second: bool = False) -> Spared | Reason | None:
        if len(looks) == 1:
            breaks(stage)
        why = await look(action, second=second)
        looks.append(why)
        if len(looks) == 4:  # before SIGTERM, and three times before SIGKILL
            stage.away, stage.slow, stage.world = False, 0.0, {}
            stage.actors[0] = HOG
            stage.hands(ask=sane.ask, fresh=sane.fresh)
        return why

    stage.executor._looks.look = watched  # type: ignore[method-assign]
    stage.at["insisted"] = lambda: stage.empty("hog-1")
    await stage.play(400)
    assert looks == [None, reason, reason, reason, None]
    assert stage.script.count("acted") == stage.script.count("insisted") == 1
    assert stage.results == [Result.VERIFIED]


@pytest.mark.parametrize(("breaks", "reason"), SILENT[:3])
async def test_looks_before_sigkill_that_are_never_answered_end_in_time(
    breaks: Callable[[Stage], None], reason: str
) -> None:
    """Half a minute after the grace it is given up: no signal, and no breaker that a person would have to close."""
    stage = Stage(HOG, POOR, rules=KILLING)
    began, ended = list[float](), list[float]()

    def signalled() -> None:
        began.append(stage.monotonic_)
        breaks(stage)

    stage.at["heard accepted"] = signalled
    stage.at[f"lingers SIGKILL was not sent: {reason}"] = lambda: ended.append(stage.monotonic_)
    await stage.play(260, until=lambda: stage.results)
    assert "insisted" not in stage.script
    assert stage.results == [Result.LINGERS]
    assert 30.0 + INSISTENCE <= ended[0] - began[0] < 30.0 + INSISTENCE + 30.0, (
        "its own grace, half a minute, two slow looks"
    )
    assert stage.breakers() == set()


# --- whose processes they are -----------------------------------------------------------------------------------------

WORKER = ProcessKey(4711, 88)


def with_process(seen: Snapshot, pod: Actor, process: ProcessKey) -> Snapshot:
    """Let a process use the device on behalf of a pod."""
    usages = (
        replace(usage, processes=frozenset({process})) if usage.subject.pod_uid == pod.pod_uid else usage
        for usage in seen.usages
    )
    return replace(seen, usages=tuple(usages))


async def test_a_victims_process_that_lives_on_in_another_pod_opens_the_breaker() -> None:
    """The accounts named the wrong pod: nothing more is done on this node until a person has looked."""
    stage = Stage(HOG, POOR)
    stage.shown = lambda seen: with_process(seen, POOR if stage.acted else HOG, WORKER)
    stage.at["acted"] = lambda: stage.delete("hog-1")
    await stage.play(200, until=lambda: stage.acted and stage.breakers())
    assert stage.breakers() == {Breaker.ATTRIBUTION}
    summary = stage.decider.summary()
    assert summary is not None and "process 4711 was counted to pod hog-1" in summary["breakers"][0]["detail"]


async def test_a_victims_process_that_ends_opens_nothing() -> None:
    """Its process is gone with it: verified, and no breaker."""
    stage = Stage(HOG, POOR)
    stage.shown = lambda seen: seen if stage.acted else with_process(seen, HOG, WORKER)
    stage.at["acted"] = lambda: stage.empty("hog-1")
    await stage.play(200, until=lambda: stage.results)
    assert stage.results == [Result.VERIFIED] and stage.breakers() == set()


async def test_a_number_that_was_given_to_another_process_is_no_survivor() -> None:
    """The same number with another start time is another process, and a process of the victim itself is no survivor."""
    seen, action = snapshot([HOG, POOR], BEGIN), await decided(HOG, POOR)
    known = processes_of(action, with_process(seen, HOG, WORKER))
    assert known == {WORKER}
    assert elsewhere(known, action, with_process(seen, HOG, WORKER)) is None
    assert elsewhere(known, action, with_process(seen, POOR, replace(WORKER, start_ticks=99))) is None
    assert elsewhere(known, action, with_process(seen, POOR, WORKER)) == (WORKER, POOR.pod_uid)
