"""From the decision to the effect: what is asked of the world, in which order, and when nothing is."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from enforcer.actions.interface import Answer, Heard
from enforcer.messages.action_texts import EventReason
from enforcer.policy.history import Action, Result
from enforcer.policy.rules import Budget, Budgets
from enforcer.policy.vocabulary import Breaker, Rung
from enforcer.runtime.executor import INSISTENCE
from exporter.model import Fault, GpuUuid, Snapshot
from policy.scenes import BEGIN, GIB, UNHURRIED, Actor
from policy.stage import Stage

HOG = Actor("hog-1", used=60 * GIB, limit=40 * GIB)
POOR = Actor("poor-1", used=10 * GIB, limit=40 * GIB)
KILLING = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL))


def breakers(stage: Stage) -> set[str]:
    summary = stage.decider.summary()
    assert summary is not None
    return {one["breaker"] for one in summary["breakers"]}


async def test_an_eviction_is_intended_looked_at_made_and_seen() -> None:
    """Intent on disk, last look, call, answer on disk, effect seen twice: in this order, and once."""
    stage = Stage(HOG, POOR)
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    await stage.play()
    assert stage.script == [
        "intended",
        "asked",
        "looked",
        "acted",
        "heard accepted",
        "looked",
        "waited",
        "looked",
        "verified",
    ]
    told = [notice.reason for notice in stage.notices if notice.regarding.pod == "hog-1"]
    assert told == [EventReason.EXCEEDED, EventReason.EVICTED]
    assert not [notice for notice in stage.notices if notice.regarding.pod == "poor-1"]
    assert breakers(stage) == set()


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


CHANGES = [
    pytest.param(_another, "other_pod", marks=pytest.mark.fault(7, 17)),
    pytest.param(_restarted, "other_container", marks=pytest.mark.fault(20, 38)),
    pytest.param(_deleted, "terminating", marks=pytest.mark.fault(65)),
    pytest.param(_finished, "not_running", marks=pytest.mark.fault(66)),
    (_important, "priority"),
    pytest.param(_edited, "declaration_changed", marks=pytest.mark.fault(57)),
    pytest.param(_freed, "not_over_now", marks=pytest.mark.fault(39)),
    pytest.param(_raised, "not_due", marks=pytest.mark.fault(57)),
    (_no_need, "not_contended"),
    pytest.param(_withdrawn, "no_consent", marks=pytest.mark.fault(58)),
    (_restricted, "mode"),
    pytest.param(_unreadable, "reading_unknown", marks=pytest.mark.fault(25)),
    (_unproven, "pid_domain"),
    pytest.param(_away, "look_failed", marks=pytest.mark.fault(1)),
    (_gone, "pod_gone"),
]
"""What may have changed between decision and call, and the reason why nobody is called."""


@pytest.mark.parametrize(("happens", "spared"), CHANGES, ids=lambda value: value if isinstance(value, str) else "")
async def test_what_the_last_look_sees_spares(happens: Callable[[Stage], None], spared: str) -> None:
    """Whatever has changed between decision and call: nothing is called, and the reason stands in the journal."""
    stage = Stage(HOG, POOR)
    stage.at["intended"] = lambda: happens(stage)
    await stage.play(160)
    assert f"abandoned {spared}" in stage.script, stage.script
    assert "acted" not in stage.script


async def test_a_slow_answer_is_looked_at_again_and_then_given_up() -> None:
    """A round that takes longer than a second after the server's word is too old; so it is tried twice, and no more."""
    stage = Stage(HOG, POOR)
    fresh = stage.fresh

    async def late(only: object) -> object:
        seen = await fresh(only)  # type: ignore[arg-type]
        stage.monotonic_ += 1.5
        return seen

    stage.executor._hands = replace(stage.executor._hands, fresh=late)  # type: ignore[arg-type]
    await stage.play(160)
    assert stage.script[:6] == ["intended", "asked", "looked", "asked", "looked", "abandoned look_too_old"]
    assert "acted" not in stage.script


@pytest.mark.fault(60)
async def test_a_disk_that_is_full_holds_every_action_back() -> None:
    """What cannot be written down first is not done."""
    stage = Stage(HOG, POOR)
    stage.disk_full = True
    await stage.play()
    assert stage.script == []


@pytest.mark.parametrize(
    ("heard", "result"),
    [
        (Heard.BLOCKED, Result.BLOCKED),
        pytest.param(Heard.GONE, Result.ABANDONED, marks=pytest.mark.fault(9, 12, 41)),
        pytest.param(Heard.CHANGED, Result.ABANDONED, marks=pytest.mark.fault(8)),
        (Heard.REFUSED, Result.REFUSED),
        pytest.param(Heard.FAILED, Result.FAILED, marks=pytest.mark.fault(2, 6)),
    ],
)
async def test_an_answer_that_is_an_end(heard: Heard, result: Result) -> None:
    """It is one call, and nobody else is tried instead."""
    other = replace(HOG, pod="hog-2", used=12 * GIB, limit=8 * GIB)
    stage = Stage(replace(HOG, used=45 * GIB), POOR, other)
    stage.answer = Answer(heard, "because")
    await stage.play(150)
    assert stage.script == ["intended", "asked", "looked", "acted", f"heard {heard}", f"{result} because"]


@pytest.mark.fault(10, 11)
async def test_three_refusals_open_the_breaker() -> None:
    """Whoever is told three times that he may not does not ask a fourth time."""
    stage = Stage(HOG, POOR)
    stage.answer = Answer(Heard.REFUSED, "no right")
    await stage.play(2000)
    assert stage.script.count("acted") == 3
    assert breakers(stage) == {Breaker.API}


@pytest.mark.fault(47)
async def test_an_effect_that_does_not_come_stops_everything() -> None:
    """Accepted, and two and a half minutes later still there: stuck, told, and no more victims."""
    stage = Stage(HOG, POOR)
    await stage.play(2000)
    assert stage.script.count("acted") == 1
    assert stage.script[-1].startswith("stuck no effect was seen within 150 s")
    assert breakers(stage) == {Breaker.EFFECTIVENESS}


@pytest.mark.fault(47)
async def test_a_pod_that_takes_its_time_stops_nobody_else() -> None:
    """A grace of a week, or a finalizer: after ten minutes and two it is told as such, and no breaker opens."""
    stage = Stage(replace(HOG, facts={"grace_seconds": 604_800.0}), POOR)
    stage.at["acted"] = lambda: setattr(stage, "live", replace(HOG, facts={"terminating": True}))
    await stage.play(1000)
    assert any(line.startswith("lingers the pod still terminates after 7") for line in stage.script), stage.script
    assert breakers(stage) == set()


@pytest.mark.fault(4)
async def test_what_was_not_done_costs_nothing() -> None:
    """A budget of one action in ten minutes: what a PDB blocks leaves it whole."""
    once = replace(UNHURRIED, budgets=Budgets(Budget(1, 600.0), Budget(1, 600.0), Budget(1, 600.0)))
    stage = Stage(HOG, POOR, rules=once)
    stage.answer = Answer(Heard.BLOCKED, "a budget")
    stage.at["heard blocked"] = lambda: setattr(stage, "answer", Answer(Heard.ACCEPTED))
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    await stage.play(300)
    assert stage.script.count("acted") == 2
    assert stage.script[-1] == "verified"


@pytest.mark.fault(60)
async def test_a_disk_that_fills_up_in_an_action_stops_no_look() -> None:
    """What was begun is seen to its end, though nobody can note it."""
    stage = Stage(HOG, POOR)

    def fill_up() -> None:
        stage.empty("hog-1")
        stage.disk_full = True

    stage.at["acted"] = fill_up
    await stage.play(200)
    assert [line for line in stage.script if line not in {"looked", "waited"}] == ["intended", "asked", "acted"]
    assert stage.decider.decisions()["recent"][0]["kind"] == "action"
    assert stage.results == [Result.VERIFIED]


@pytest.mark.fault(45)
async def test_memory_that_stays_is_no_effect() -> None:
    """The pod is gone, its memory is not (a process in the driver's hands): that is stuck, and no success."""
    stage = Stage(HOG, POOR)
    stage.gone = True
    await stage.play(600)
    assert stage.script[-1].startswith("stuck")
    assert stage.script.count("acted") == 1


@pytest.mark.fault(3, 15)
async def test_an_answer_that_was_lost_is_waited_for_and_never_repeated() -> None:
    """For a minute the server may still do it; if the pod is alive then, nothing came of it."""
    stage = Stage(HOG, POOR)
    stage.answer = Answer(Heard.AMBIGUOUS, "the connection broke")
    await stage.play(215)
    assert stage.script[:5] == ["intended", "asked", "looked", "acted", "heard ambiguous"]
    assert stage.script[-1] == "failed nothing came of it, as far as was seen"
    assert stage.script.count("acted") == 1


async def test_a_stall_that_outlasts_the_patience_is_no_effect_that_is_missing() -> None:
    """The minute, and all the time for an effect, went by in one pause: the pod is looked at before that is said."""
    stage = Stage(HOG, POOR)
    stage.answer = Answer(Heard.AMBIGUOUS, "the connection broke")
    stage.at["waited"] = lambda: setattr(stage, "monotonic_", stage.monotonic_ + 300)
    await stage.play(160)
    assert stage.script[-1] == "failed nothing came of it, as far as was seen" and not breakers(stage)


@pytest.mark.fault(3, 15)
async def test_an_answer_that_was_lost_and_came_about() -> None:
    """The pod terminates after all: it is seen to its end."""
    stage = Stage(HOG, POOR)
    stage.answer = Answer(Heard.AMBIGUOUS, "504")
    stage.at["heard ambiguous"] = lambda: setattr(stage, "live", replace(HOG, facts={"terminating": True}))
    task = asyncio.create_task(stage.play(400))
    while "asked" not in stage.script[4:]:
        await asyncio.sleep(0)
    stage.empty("hog-1")
    await task
    assert stage.script[-1] == "verified"
    assert stage.script.count("acted") == 1


@pytest.mark.fault(50, 54)
async def test_a_daemon_that_ends_in_a_call_says_that_it_does_not_know() -> None:
    """The journal has the intent, and that nobody heard the answer; the next daemon looks before it does anything."""
    stage = Stage(HOG, POOR)
    begun = asyncio.Event()

    async def forever(_action: object, _decision: str) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    stage.act = forever  # type: ignore[method-assign]
    task = asyncio.create_task(stage.play(400))
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert stage.script == ["intended", "asked", "looked", "heard ambiguous"]


@pytest.mark.fault(46)
async def test_a_container_that_does_not_heed_is_killed_after_its_grace_and_another_look() -> None:
    """SIGTERM, the pod's own grace, a look, SIGKILL once."""
    stage = Stage(HOG, POOR, rules=KILLING)
    stage.at["insisted"] = lambda: stage.empty("hog-1")
    await stage.play(400)
    calls = [line for line in stage.script if line in {"acted", "insisted", "asked"}]
    assert calls == ["asked", "acted", "asked", "insisted"]
    assert stage.script[-1] == "verified"
    assert EventReason.KILLED in [notice.reason for notice in stage.notices]


async def test_a_container_that_frees_its_memory_on_sigterm_is_not_killed() -> None:
    """It heeded in its own way: what justified the kill is gone. It was sent a signal, so the token stays spent."""
    stage = Stage(HOG, POOR, rules=KILLING)
    stage.at["acted"] = lambda: stage.actors.__setitem__(0, replace(HOG, used=30 * GIB))
    await stage.play(400)
    assert "insisted" not in stage.script
    assert stage.script[-1] == "failed not_due"
    summary = stage.decider.summary()
    assert summary is not None and summary["budget_remaining"]["workload"] == KILLING.budgets.workload.most - 1


def _hung(stage: Stage) -> None:
    stage.executor._hands = replace(stage.executor._hands, fresh=_no_round)


async def _no_round(_only: object) -> None:
    return None


def _late(stage: Stage) -> None:
    stage.slow = 2.0
    stage.executor._hands = replace(stage.executor._hands, fresh=lambda only: _slowly(stage, only))


async def _slowly(stage: Stage, only: Collection[GpuUuid]) -> Snapshot | None:
    stage.monotonic_ += stage.slow
    return await stage.fresh(only)


def _forgotten(stage: Stage) -> None:
    stage.world["faults"] = (Fault("allocations", "kubelet_away", "no answer"),)


TELL_NOTHING = [
    pytest.param(_away, "look_failed", marks=pytest.mark.fault(1)),
    pytest.param(_hung, "look_failed", marks=pytest.mark.fault(25)),
    (_late, "look_too_old"),
    (_unreadable, "reading_unknown"),
    (_forgotten, "allocations_stale"),
]


@pytest.mark.fault(46)
@pytest.mark.parametrize(("breaks", "reason"), TELL_NOTHING)
async def test_a_look_before_sigkill_that_tells_nothing_is_repeated(
    breaks: Callable[[Stage], None], reason: str
) -> None:
    """Somebody answers late once: the next look is a whole one, and SIGKILL follows upon it, once."""
    stage = Stage(HOG, POOR, rules=KILLING)
    sane, told = stage.executor._hands, list[str | None]()
    look = stage.executor._look

    async def watched(action: Action) -> str | None:
        if len(told) == 1:
            breaks(stage)
        told.append(await look(action))
        if len(told) == 4:  # before SIGTERM, and three times before SIGKILL
            stage.away, stage.slow, stage.world = False, 0.0, {}
            stage.actors[0] = HOG
            stage.executor._hands = sane
        return told[-1]

    stage.executor._look = watched  # type: ignore[method-assign]
    stage.at["insisted"] = lambda: stage.empty("hog-1")
    await stage.play(400)
    assert told == [None, reason, reason, reason, None]
    assert stage.script.count("acted") == stage.script.count("insisted") == 1
    assert stage.results == [Result.VERIFIED]


@pytest.mark.parametrize(("breaks", "reason"), TELL_NOTHING[:3])
async def test_looks_before_sigkill_that_never_tell_end_in_time(breaks: Callable[[Stage], None], reason: str) -> None:
    """Half a minute after the grace it is given up: no signal, no breaker that a person would have to close."""
    stage = Stage(HOG, POOR, rules=KILLING)
    began, ended = list[float](), list[float]()

    def signalled() -> None:
        began.append(stage.monotonic_)
        breaks(stage)

    stage.at["heard accepted"] = signalled
    stage.at[f"failed {reason}"] = lambda: ended.append(stage.monotonic_)
    await stage.play(260)
    assert "insisted" not in stage.script
    assert stage.results == [Result.FAILED]
    assert 30.0 + INSISTENCE <= ended[0] - began[0] < 30.0 + INSISTENCE + 15.0, "its own grace, and half a minute"
    assert breakers(stage) == set()
    summary = stage.decider.summary()
    assert summary is not None and summary["budget_remaining"]["workload"] == KILLING.budgets.workload.most - 1


async def test_the_stop_file_holds_an_action_in_its_last_look(tmp_path: Path) -> None:
    """It needs no API server, and works until the call is made."""
    stop = tmp_path / "stop"
    stage = Stage(HOG, POOR, stop_file=stop)
    stage.at["asked"] = stop.touch
    await stage.play(160)
    assert "acted" not in stage.script
    assert stage.script[-1] == "abandoned stopped"


@pytest.mark.fault(50, 54)
async def test_what_another_daemon_began_is_watched_and_never_done_again() -> None:
    """Its victim is gone: seen, and ended."""
    first = Stage(HOG, POOR)
    begun: list[Action] = []
    first.decider._begin = begun.append
    await first.play(160)
    stage = Stage(POOR)
    stage.gone = True
    stage.executor.resume("11111111-2222-3333-4444-555555555555", begun[0])
    await stage.play(30)
    assert "acted" not in stage.script
    assert stage.script[-1] == "verified"


@pytest.mark.fault(16)
async def test_an_evacuation_outlives_the_daemon() -> None:
    """Somebody else moves the pod away: the next daemon grants the same ten minutes, and not the minute of doubt."""
    first = Stage(HOG, POOR)
    begun: list[Action] = []
    first.decider._begin = begun.append
    await first.play(160)
    stage = Stage(HOG, POOR)
    evacuating = Answer(Heard.EVACUATING, "a virtual machine is moved")
    stage.executor.resume("11111111-2222-3333-4444-555555555555", begun[0], evacuating)
    playing = asyncio.create_task(stage.play(700))
    while stage.monotonic() < BEGIN + 500:
        await asyncio.sleep(0)
    assert stage.results == []
    stage.empty("hog-1")
    await playing
    assert stage.results[0] is Result.VERIFIED and "acted" not in stage.script[: stage.script.index("verified")]


async def test_a_long_grace_is_known_as_soon_as_the_pod_is() -> None:
    """After a restart the first rounds know no pod: its own ten minutes count all the same."""
    patient = replace(HOG, facts={"grace_seconds": 600.0})
    first = Stage(patient, POOR)
    begun: list[Action] = []
    first.decider._begin = begun.append
    await first.play(160)
    stage = Stage(patient, POOR)
    stage.live = replace(patient, facts={"terminating": True})
    stage.executor.resume("11111111-2222-3333-4444-555555555555", begun[0])
    await stage.play(900)
    assert stage.results[0] is Result.LINGERS
    assert any(line.startswith("lingers the pod still terminates after 72") for line in stage.script), stage.script


async def test_of_several_that_were_begun_each_is_in_flight_when_its_turn_comes() -> None:
    """The second has no effect: that stops the node, as if it had been the only one."""
    first = Stage(HOG, POOR)
    begun: list[Action] = []
    first.decider._begin = begun.append
    await first.play(160)
    stage = Stage(POOR)
    stage.gone = True
    stage.executor.resume("11111111-2222-3333-4444-555555555555", begun[0])
    stage.executor.resume("21111111-2222-3333-4444-555555555555", replace(begun[0], rung=Rung.KILL))
    stage.at["verified"] = lambda: setattr(stage, "gone", False)
    await stage.play(600)
    assert stage.results == [Result.VERIFIED, Result.STUCK]
    assert not stage.decider.in_flight
    assert breakers(stage) == {Breaker.EFFECTIVENESS}


@pytest.mark.fault(48)
async def test_what_could_not_be_done_is_not_begun() -> None:
    """The kernel would not let us signal it: no intent, no look, no call, no token; and it is told."""
    stage = Stage(HOG, POOR, rules=KILLING)
    stage.doubt = Answer(Heard.REFUSED, "the kernel does not let us signal it (CAP_KILL)")
    await stage.play(1000)
    assert not {"intended", "acted", "asked"} & set(stage.script)
    told = [one for one in stage.decider.decisions()["recent"] if one["kind"] == "action"]
    assert {(one["result"], one["detail"]) for one in told} == {
        ("abandoned", "not tried: the kernel does not let us signal it (CAP_KILL)")
    }
    assert stage.decider.summary()["budget_remaining"]["node"] == KILLING.budgets.node.most  # type: ignore[index]
    stage.doubt = None
    await stage.play(400)
    assert "acted" in stage.script, "and when it may, it does"
