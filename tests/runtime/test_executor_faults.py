"""
Faults of the world while an action is carried out: nothing is done twice, nothing is done blindly, and it goes on.

What comes in: one over-user and a neighbour that is short, on the stepped stage. What goes out: what was asked.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kube_writer import Writer
from enforcer.actions.notify.actuator import Notifier
from enforcer.messages.action_texts import EventReason
from enforcer.messages.events import Notice
from enforcer.policy.history import Result
from enforcer.policy.vocabulary import Reason, State
from exporter.kube.credentials import from_kubeconfig
from exporter.model import GpuUuid, Snapshot
from policy.scenes import GIB, UNHURRIED, Actor
from policy.stage import Stage
from sources.kube_api import kubeconfig, refusal, serving, until

HOG = Actor("hog-1", used=60 * GIB, limit=40 * GIB)
POOR = Actor("poor-1", used=10 * GIB, limit=40 * GIB)
SELDOM = replace(UNHURRIED, interval=15.0)
"""For hours: 480 rounds in two, where those of 5 s are 1,440."""


def refused(stage: Stage) -> list[str]:
    """The reasons that were recorded, the newest first."""
    return [one["reason"] for one in stage.decider.decisions()["recent"] if one["kind"] == "refusal"]


@pytest.mark.fault(1)
async def test_with_the_servers_return_the_action_follows_without_another_grace() -> None:
    """Away in the last look: failed with its reason. Back again: another look within seconds, and then the call."""
    stage = Stage(HOG, POOR)
    times: list[float] = []
    stage.at["intended"] = lambda: setattr(stage, "away", True)

    def back() -> None:
        stage.away = False
        times.append(stage.monotonic_)

    stage.at["failed look_failed"] = back
    stage.at["acted"] = lambda: times.append(stage.monotonic_)
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    await stage.play(600)
    calls = [line for line in stage.script if line not in {"looked", "looked up", "waited"}]
    first = ["intended", "asked", "failed look_failed"]
    assert calls == [*first, "intended", "asked", "acted", "heard accepted", "verified"]
    assert times[1] - times[0] <= 20, "ten seconds, and a round"


@pytest.mark.fault(25)
async def test_a_driver_that_hangs_in_the_last_look_fails() -> None:
    """No round comes, twice: no call is made, and `look_failed` stands in the journal. When it answers, it goes on."""
    stage = Stage(HOG, POOR)
    real, hung = stage.fresh, True

    async def fresh(only: Collection[GpuUuid]) -> Snapshot | None:
        return None if hung else await real(only)

    stage.hands(fresh=fresh)
    await stage.play(160, until=lambda: stage.results)
    assert stage.script == ["intended", "asked", "asked", "failed look_failed"]
    hung = False
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    await stage.play(400)
    assert stage.script[-1] == "verified"


@pytest.mark.fault(2, 6)
async def test_what_certainly_failed_costs_no_budget_and_is_tried_at_growing_intervals() -> None:
    """Requests that could not be sent, for an hour: no token, no breaker, and in the end one in five minutes."""
    stage = Stage(HOG, POOR, rules=SELDOM)
    stage.answer = Answer(Heard.FAILED, "connection refused")
    await stage.play(3600)
    assert set(stage.results) == {Result.FAILED}
    assert 3600 / 330 < stage.script.count("acted") < 3600 / 300 + 6
    assert stage.remaining() == UNHURRIED.budgets.node.most
    assert stage.breakers() == set()


@pytest.mark.fault(5)
async def test_a_budget_that_says_no_for_hours_is_asked_seldom() -> None:
    """Two hours: every five minutes in the end; no breaker, and the pod is never killed instead."""
    stage = Stage(HOG, POOR, rules=SELDOM)
    stage.answer = Answer(Heard.BLOCKED, "a budget")
    await stage.play(2 * 3600.0)
    assert 2 * 3600 / 330 < stage.script.count("acted") < 2 * 3600 / 300 + 6
    assert set(stage.results) == {Result.BLOCKED} and "insisted" not in stage.script
    assert stage.state(HOG) is State.HELD and refused(stage)[0] == Reason.BLOCKED
    assert stage.breakers() == set()


@pytest.mark.fault(59)
async def test_the_stop_file_ends_nothing_that_is_under_way(tmp_path: Path) -> None:
    """It appears right after the call: the effect is looked for to its end. The next over-user is held: `stopped`."""
    stop = tmp_path / "stop"
    stage = Stage(HOG, POOR, stop_file=stop)

    def comes_after_the_call() -> None:
        stop.touch()
        stage.empty("hog-1")

    stage.at["acted"] = comes_after_the_call
    await stage.play(200)
    assert stage.script[-1] == "verified"
    other = replace(HOG, pod="hog-2")
    stage.actors.append(other)
    await stage.play(600)
    assert (stage.script.count("acted"), refused(stage)[0]) == (1, Reason.STOPPED)
    stop.unlink()
    stage.gone = False
    stage.at["heard accepted"] = lambda: stage.empty("hog-2")
    await stage.play(600)
    assert (stage.script.count("acted"), stage.script[-1]) == (2, "verified")


@pytest.mark.fault(69)
@pytest.mark.parametrize("code", [None, 403, 429])
async def test_events_that_cannot_be_written_hold_up_no_action(tmp_path: Path, code: int | None) -> None:
    """The server refuses Events or never answers: the pod is evicted all the same, and the Events are kept."""
    stage = Stage(HOG, POOR)
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    tried = 0

    async def answer(_request: object) -> object:
        nonlocal tried
        tried += 1
        if code is None:
            await asyncio.Event().wait()
        return refusal(code or 500, "Forbidden" if code == 403 else "TooManyRequests")

    async with serving(answer) as server:  # type: ignore[arg-type]
        writer = Writer(from_kubeconfig(kubeconfig(tmp_path / "config", server.url)), clock=stage, deadline=60.0)
        notifier = Notifier(writer, "node", clock=Still(stage), random=Random(1))

        def tell(told: Iterable[Notice]) -> None:
            stage.notices.extend(kept := list(told))
            notifier.tell(kept)

        stage.decider.tell = tell
        writing = asyncio.create_task(notifier.run())
        try:
            await stage.play(200)
            await until(lambda: tried)
            assert stage.results == [Result.VERIFIED]
            assert notifier.written == 0 and not writing.done()
            told = [one.reason for one in stage.notices if one.regarding.pod == "hog-1"]
            assert set(told) == {EventReason.EXCEEDED, EventReason.EVICTED}
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await writer.close()


class Still:
    """The stage's clock, for one whose sleep must not move the stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def time(self) -> float:
        return self._stage.time()

    def monotonic(self) -> float:
        return self._stage.monotonic()

    async def sleep(self, _seconds: float) -> None:
        await asyncio.Event().wait()
