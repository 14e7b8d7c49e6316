"""
Dry runs: the decision of enforce, carried out up to the last step by hands that cannot change anything.

Over-users come in, and what differs between decision and call. What would have become of each action goes out.

The rule: a dry run makes the same decision, takes no token, delays no action, and makes its pod rest for ten minutes.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from enforcer.actions.dry_run import REHEARSED, DryRun
from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kill.actuator import Kill
from enforcer.policy.history import Action, Result
from enforcer.policy.last_look import Live
from enforcer.policy.outcomes import rehearsed
from enforcer.policy.rules import Budget, Budgets
from enforcer.policy.vocabulary import Mode, Reason, Rung, State, Trigger
from enforcer.runtime.dry_run import DryRuns
from enforcer.runtime.hands import Ask
from exporter.base.cgroup_owner import USUAL
from journals import action
from policy.scenes import GIB, GREEDY, MEEK, UNHURRIED, Play
from policy.stage import Stage
from runtime.test_executor import FAILS, HOG, POOR, SPARES

DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)
MUTATING = {"create", "patch", "send", "limit", "post", "delete", "signal"}


def decided(stage: Stage) -> list[dict[str, Any]]:
    """The actions and dry runs, the newest first."""
    return [each for each in stage.decider.decisions()["recent"] if each["kind"] != "refusal"]


@pytest.mark.parametrize("trigger", Trigger, ids=str)
@pytest.mark.parametrize("ladder", [(Rung.EVICT,), (Rung.KILL,), (Rung.FENCE,)], ids=str)
def test_the_decision_is_that_of_enforce(trigger: Trigger, ladder: tuple[Rung, ...]) -> None:
    """The same holder, step and moment: dry-run shows what enforce would do, and when."""
    decisions = []
    for mode in (Mode.ENFORCE, Mode.DRY_RUN):
        play = Play(replace(UNHURRIED, mode=mode, trigger=trigger, ladder=ladder))
        decisions.append((play.until_action(GREEDY, MEEK), play.monotonic))
    (real, at), (dry, later) = decisions
    assert (replace(dry, dry=False), later) == (real, at)


def test_a_pod_rests_for_ten_minutes_after_its_dry_run() -> None:
    """It stays due, with the reason, and is not decided on once more before; then it is."""
    play = Play(DRY)
    play.until_action(GREEDY, MEEK)
    play.rehearse()
    ended = play.monotonic
    play.step(GREEDY, MEEK)
    assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.DUE, Reason.DRY_RUN)
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - ended == 600.0
    assert play.actions == ["evict team/greedy-1 (dry)"] * 2


def test_dry_runs_are_neither_spaced_nor_budgeted() -> None:
    """Three pods are due at once, and no budget is left: one dry run follows the other, in each round one."""
    none = replace(DRY, budgets=Budgets(Budget(0, 600.0), Budget(0, 600.0)))
    pods = [replace(GREEDY, pod=f"greedy-{number}", used=20 * GIB) for number in range(3)]
    play = Play(none)
    for _ in range(3):
        play.until_action(*pods)
        play.rehearse()
    assert [len(verdict.standings) for verdict in play.verdicts if verdict.action] == [3, 3, 3]
    assert play.history.spent == ()
    assert play.history.ended_at is None
    rounds = [index for index, verdict in enumerate(play.verdicts) if verdict.action]
    assert rounds == [rounds[0], rounds[0] + 1, rounds[0] + 2]


def test_a_dry_run_that_is_in_flight_holds_the_next_dry_run_and_no_action() -> None:
    """Two namespaces in dry-run and one in enforce: the second dry run waits, the action does not."""
    labels = {name: {"gpusteward.io/mode": "dry-run"} for name in ("lab", "labb")}
    labels["team"] = {"gpusteward.io/mode": "enforce"}
    dry = [replace(GREEDY, pod=f"{name}-1", namespace=name, used=20 * GIB) for name in ("lab", "labb")]
    play = Play(UNHURRIED)
    play.until_action(*dry, namespaces=labels)
    play.until_reason(Reason.IN_FLIGHT, dry[1], dry[0], namespaces=labels)
    play.until_action(*dry, replace(GREEDY, used=20 * GIB), namespaces=labels)
    assert play.actions == ["evict lab/lab-1 (dry)", "evict team/greedy-1"]


async def test_a_dry_run_takes_the_way_of_an_action_but_for_the_last_step() -> None:
    """Live answer, fresh round, and then nothing: nothing is noted, done or waited for, and the end is reported."""
    stage = Stage(HOG, POOR, rules=DRY)
    with capture_logs() as logged:
        await stage.play(160)
    assert stage.script == ["asked", "looked"]
    assert stage.results == []
    (decision,) = decided(stage)
    assert (decision["kind"], decision["result"], decision["detail"]) == ("dry_run", "rehearsed", REHEARSED.detail)
    events = [line["event"] for line in logged if line["event"].startswith("enforcer.dry")]
    assert events == ["enforcer.dry_run", "enforcer.dry_run_ended"]
    assert "enforcer.effect_result" not in {line["event"] for line in logged}


@pytest.mark.parametrize(("happens", "reason"), SPARES, ids=lambda value: value if isinstance(value, str) else "")
async def test_what_would_have_spared_the_pod_is_reported(happens: Callable[[Stage], None], reason: str) -> None:
    """Each reason of the last look, as in enforce."""
    rules = replace(DRY, trigger=Trigger.CONTENDED) if reason == "not_contended" else DRY
    stage = Stage(HOG, POOR, rules=rules)
    stage.at["asked"] = lambda: happens(stage)
    await stage.play(160)
    assert "acted" not in stage.script
    decision = decided(stage)[-1]
    assert (decision["kind"], decision["result"], decision["detail"]) == ("dry_run", "abandoned", reason)


@pytest.mark.parametrize(("happens", "reason"), FAILS, ids=lambda value: value if isinstance(value, str) else "")
async def test_a_source_that_does_not_answer_is_reported(happens: Callable[[Stage], None], reason: str) -> None:
    """A look that failed says nothing about the pod: also in a dry run it is a failure of ours."""
    stage = Stage(HOG, POOR, rules=DRY)
    stage.at["asked"] = lambda: happens(stage)
    await stage.play(160)
    assert (decided(stage)[-1]["result"], decided(stage)[-1]["detail"]) == ("failed", reason)


async def test_a_dry_run_without_an_answer_is_tried_again_like_an_action() -> None:
    """It showed nothing of the pod: the next one follows after 10 s, then after longer waits, and not after 10 min."""
    tries: dict[Mode, list[float]] = {Mode.DRY_RUN: [], Mode.ENFORCE: []}
    for mode, times in tries.items():
        stage = Stage(HOG, POOR, rules=replace(DRY, mode=mode))
        stage.away = True
        ask = stage.ask

        async def asked(action: Action, stage: Stage = stage, times: list[float] = times, ask: Ask = ask) -> Live:
            times.append(stage.monotonic_)
            return await ask(action)

        stage.hands(ask=asked)
        stage.dry_runs = DryRuns(stage.decider, asked, stage.fresh, Kill(Path("/nonexistent"), USUAL), clock=stage)
        await stage.play(400)
    waits = [later - before for before, later in pairwise(tries[Mode.DRY_RUN])]
    assert waits == pytest.approx([later - before for before, later in pairwise(tries[Mode.ENFORCE])], abs=5.1)
    assert waits == pytest.approx([10.0, 20.0, 40.0, 80.0], abs=5.1)


def test_a_dry_run_that_failed_delays_no_action() -> None:
    """Its namespace comes to enforce while the dry run waits: the action follows as without a dry run."""
    play = Play(DRY)
    play.until_action(GREEDY, MEEK)
    flight = play.history.dry_flight
    assert flight is not None
    play.history = rehearsed(play.history, flight.action, play.now, result=Result.FAILED, detail="look_too_old")
    (hold,) = play.history.holds.values()
    assert (hold.until, hold.detail) == (play.monotonic + 10.0, "look_too_old")
    play.rules = UNHURRIED
    assert play.until_action(GREEDY, MEEK).dry is False


async def test_a_mode_that_changes_on_the_way_ends_both_kinds() -> None:
    """What was decided as a dry run is never an action, and an action never becomes a dry run."""
    for before, after in ((DRY, UNHURRIED), (UNHURRIED, DRY)):
        stage = Stage(HOG, POOR, rules=before)
        stage.at["asked"] = lambda stage=stage, after=after: setattr(stage.decider, "rules", after)  # type: ignore[misc]
        await stage.play(160)
        assert "acted" not in stage.script
        assert (decided(stage)[-1]["result"], decided(stage)[-1]["detail"]) == ("abandoned", "not_due")


async def test_a_dry_run_counts_as_no_action() -> None:
    """Neither as a failure nor as an effect: what did not happen took no time."""
    stage = Stage(HOG, POOR, rules=DRY)
    await stage.play(160)
    tally = stage.decider._tally
    assert dict(tally.dry_runs) == {(Rung.EVICT, HOG.named().namespace): 1}
    assert (tally.failed, tally.durations, tally.last) == ({}, {}, {})


async def test_a_kill_is_rehearsed_up_to_the_signal() -> None:
    """A container whose init is not held could not be signalled: the dry run finds that out, and reports it."""
    stage = Stage(HOG, POOR, rules=replace(DRY, ladder=(Rung.NOTIFY, Rung.KILL)))
    await stage.play(160)
    assert stage.script == []
    assert {decision["result"] for decision in decided(stage)} == {"failed"}
    assert decided(stage)[0]["detail"].startswith("not tried: ")


@pytest.mark.parametrize("heard", Heard)
async def test_a_stand_in_says_what_the_step_would_say(heard: Heard) -> None:
    """But not that rights are missing: a dry run was not given them, and does nothing with them."""
    doubt = Answer(heard, "because")
    stand_in = DryRun(Rung.KILL, lambda _: doubt)
    asked = action(1)
    assert stand_in.preflight(asked) == (None if heard is Heard.REFUSED else doubt)
    assert DryRun(Rung.EVICT).preflight(asked) is None
    assert await stand_in.act(asked, "id") == REHEARSED
    assert await stand_in.insist(asked, "id") is None
    assert await stand_in.ended(asked) is None


def test_nothing_that_rehearses_can_change_anything(tmp_path: Path) -> None:
    """No method of the stand-ins, nor of what they hold, has a name of a change; the import contract says the rest."""
    stage = Stage(HOG, rules=DRY)
    dry_runs = DryRuns(stage.decider, stage.ask, stage.fresh, Kill(tmp_path, USUAL), clock=stage)
    rungs = dry_runs._executor._hands.rungs
    assert set(rungs) == set(Rung) - {Rung.NOTIFY}
    for stand_in in rungs.values():
        assert isinstance(stand_in, DryRun)
        assert not MUTATING & {name for name in dir(stand_in) if not name.startswith("_")}


def test_the_end_of_a_dry_run_that_is_over_changes_nothing() -> None:
    """It comes too late, or is that of another one: the history is as it was."""
    stage = Stage(HOG, POOR, rules=DRY)
    stage.look()
    before = stage.decider._history
    late: Action = replace(action(1), dry=True)
    stage.decider.conclude(late, Result.ABANDONED, "pod_gone")
    assert stage.decider._history == before
