"""A fence, from the decision to its effect: it takes nothing, so no memory is waited for."""

from dataclasses import replace

from enforcer.actions.interface import Answer, Heard
from enforcer.messages.action_texts import EventReason
from enforcer.policy.history import Action, Result
from enforcer.policy.vocabulary import Rung
from policy.scenes import GIB, UNHURRIED, Actor
from policy.stage import Stage

HOG = Actor("hog-1", used=60 * GIB, limit=40 * GIB)
POOR = Actor("poor-1", used=10 * GIB, limit=40 * GIB)
FENCING = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE))


def stand(stage: Stage) -> None:
    """Let the fence be in force; the victim holds what it held."""
    stage.gone = True


async def test_a_fence_is_verified_when_the_driver_tells_it() -> None:
    """Intent, last look, call, answer, a look at the driver: in this order, once. No memory is waited for."""
    stage = Stage(HOG, POOR, rules=FENCING)
    stage.answer = Answer(Heard.ACCEPTED, "fenced at 60 GiB")
    stage.at["acted"] = lambda: stand(stage)
    await stage.play(1000)
    calls = ["intended", "asked", "looked", "acted", "heard accepted", "looked up"]
    assert stage.script == [*calls, "verified fenced at 60 GiB"]
    notices = [notice for notice in stage.notices if notice.regarding.pod == "hog-1"]
    assert notices[0].reason is EventReason.EXCEEDED
    (fenced,) = (notice for notice in notices if notice.reason is EventReason.FENCED)
    assert "the driver refuses it more memory of this device" in fenced.note
    assert not [notice for notice in stage.notices if notice.regarding.pod == "poor-1"]
    assert stage.breakers() == set()


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
    reasons = [notice.reason for notice in stage.notices if notice.regarding.pod == "hog-1"]
    assert reasons.index(EventReason.FENCED) < reasons.index(EventReason.EVICTED)


async def test_a_limit_of_another_program_is_left_alone_and_the_next_step_follows() -> None:
    """Impossible: its token is given back, no breaker opens, and the eviction follows. A fence must be no shield."""
    stage = Stage(HOG, POOR, rules=replace(FENCING, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT)))
    stage.frees = False
    rungs: list[Rung] = []

    async def act(action: Action, _decision: str) -> Answer:
        rungs.append(action.rung)
        stage.frees = True
        return Answer(Heard.TAKEN, "another program has set a limit of its cgroup")

    stage.act = act  # type: ignore[method-assign]
    await stage.play(600, until=lambda: len(rungs) == 2)
    assert rungs == [Rung.FENCE, Rung.EVICT]
    assert stage.results[0] is Result.IMPOSSIBLE
    assert "impossible another program has set a limit of its cgroup" in stage.script
    assert stage.breakers() == set() and stage.remaining() == FENCING.budgets.node.most


async def test_a_fence_that_the_driver_does_not_show_has_failed() -> None:
    """Accepted, and a minute later not in force: failed. A pod's own grace is no matter here, and no breaker opens."""
    stage = Stage(replace(HOG, facts={"grace_seconds": 3600.0}), POOR, rules=FENCING)
    await stage.play(600, until=lambda: stage.results)
    assert stage.script[-1] == "failed it was not carried out, as far as was seen"
    assert stage.breakers() == set()


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
        await stage.play(100, until=lambda stage=stage: stage.results)  # type: ignore[misc]
        assert "acted" not in stage.script and stage.results == [result]
