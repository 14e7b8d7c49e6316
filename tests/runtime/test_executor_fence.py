"""A fence, from the decision to its effect: it takes nothing, so no memory is waited for."""

from dataclasses import replace

from enforcer.actions.interface import Answer, Heard
from enforcer.messages.action_texts import EventReason
from enforcer.policy.history import Action, Result
from enforcer.policy.vocabulary import Breaker, Rung
from policy.scenes import GIB, UNHURRIED, Actor
from policy.stage import Stage

HOG = Actor("hog-1", used=60 * GIB, limit=40 * GIB)
POOR = Actor("poor-1", used=10 * GIB, limit=40 * GIB)
FENCING = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE))


def stand(stage: Stage) -> None:
    """Let the fence be in force; the victim holds what it held."""
    stage.gone = True


def breakers(stage: Stage) -> set[str]:
    summary = stage.decider.summary()
    assert summary is not None
    return {one["breaker"] for one in summary["breakers"]}


def remaining(stage: Stage) -> int:
    summary = stage.decider.summary()
    assert summary is not None
    return int(summary["budget_remaining"]["node"])


async def test_a_fence_is_verified_when_the_driver_tells_it() -> None:
    """Intent, last look, call, answer, seen: in this order, once; its user is told, and nobody waits for memory."""
    stage = Stage(HOG, POOR, rules=FENCING)
    stage.answer = Answer(Heard.ACCEPTED, "fenced at 60 GiB")
    stage.at["acted"] = lambda: stand(stage)
    await stage.play(1000)
    assert stage.script == ["intended", "asked", "looked", "acted", "heard accepted", "verified fenced at 60 GiB"]
    told = [notice for notice in stage.notices if notice.regarding.pod == "hog-1"]
    assert [notice.reason for notice in told[:2]] == [EventReason.EXCEEDED, EventReason.FENCED]
    assert told[1].note.endswith("the driver refuses it more memory of this device. What it holds stays with it.")
    assert EventReason.FENCED not in [notice.reason for notice in told[2:]], "once"
    assert not [notice for notice in stage.notices if notice.regarding.pod == "poor-1"]
    assert breakers(stage) == set()


async def test_after_a_fence_that_frees_nothing_the_next_rung_follows() -> None:
    """Another warning, another grace, and then the eviction; the fence is not set twice."""
    stage = Stage(HOG, POOR, rules=replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT)))
    stage.frees = False  # of the fence, which is played first
    rungs: list[Rung] = []
    act = stage.act

    async def acted(action: Action, decision: str) -> Answer:
        rungs.append(action.rung)
        stage.gone, stage.frees = True, action.rung is Rung.EVICT
        if action.rung is Rung.EVICT:
            stage.empty("hog-1")
        return await act(action, decision)

    stage.act = acted  # type: ignore[method-assign, assignment]
    await stage.play(1000)
    assert rungs == [Rung.FENCE, Rung.EVICT] and stage.results == [Result.VERIFIED] * 2
    told = [notice.reason for notice in stage.notices if notice.regarding.pod == "hog-1"]
    assert told == [EventReason.EXCEEDED, EventReason.FENCED, EventReason.EXCEEDED, EventReason.EVICTED]


async def test_a_limit_of_somebody_else_costs_nothing_and_opens_nothing() -> None:
    """Abandoned, its token is given back, and however often it is met no breaker opens; the reason stands there."""
    stage = Stage(HOG, POOR, rules=FENCING)
    stage.answer = Answer(Heard.TAKEN, "somebody else has set a limit of its cgroup")
    await stage.play(2000)
    assert stage.script.count("acted") >= 3
    assert set(stage.results) == {Result.ABANDONED}
    assert "abandoned somebody else has set a limit of its cgroup" in stage.script
    assert breakers(stage) == set() and remaining(stage) == FENCING.budgets.node.most


async def test_a_fence_that_the_driver_does_not_tell_has_no_effect() -> None:
    """Accepted, and two minutes later not in force: stuck, and no more victims. A pod's own grace is no matter here."""
    stage = Stage(replace(HOG, facts={"grace_seconds": 3600.0}), POOR, rules=FENCING)
    await stage.play(600)
    assert stage.script[-1] == "stuck no effect was seen within 120 s"
    assert breakers(stage) == {Breaker.EFFECTIVENESS}


async def test_a_fence_of_a_daemon_before_is_seen_to_its_end() -> None:
    """In force: verified, by looks alone; not in force a minute later: failed. Neither sets it again."""
    first = Stage(HOG, POOR, rules=FENCING)
    begun: list[Action] = []
    first.decider._begin = begun.append
    await first.play(160)
    for stands, result in ((True, Result.VERIFIED), (False, Result.FAILED)):
        stage = Stage(replace(HOG, used=41 * GIB), POOR, rules=FENCING)
        stage.gone = stands
        stage.executor.resume("11111111-2222-3333-4444-555555555555", begun[0])
        await stage.play(100)
        assert "acted" not in stage.script and stage.results == [result]
