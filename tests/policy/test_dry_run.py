"""Rehearsals: how far an action would have come, found out with hands that cannot."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from enforcer.actions.dry_run import REHEARSED, DryRun
from enforcer.actions.interface import Answer, Heard
from enforcer.policy.history import Action, Result
from enforcer.policy.rules import Budget, Budgets
from enforcer.policy.vocabulary import Mode, Rung
from enforcer.runtime.dry_run import DryRuns
from journals import action
from policy.scenes import UNHURRIED
from policy.stage import Stage
from runtime.test_executor import CHANGES, HOG, POOR

DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)
MUTATING = {"create", "patch", "send", "limit", "post", "delete", "signal"}


def decided(stage: Stage) -> list[dict[str, Any]]:
    """The actions and rehearsals, the newest first."""
    return [one for one in stage.decider.decisions()["recent"] if one["kind"] != "refusal"]


async def test_a_rehearsal_takes_the_way_of_an_action_but_for_the_last_step() -> None:
    """Live answer, fresh sample, and then nothing: nothing is noted, done or waited for, and the end is told."""
    stage = Stage(HOG, POOR, rules=DRY)
    with capture_logs() as told:
        await stage.play(160)
    assert stage.script == ["asked", "looked"]
    assert stage.results == []
    (one,) = decided(stage)
    assert (one["kind"], one["result"], one["detail"]) == ("dry_run", "rehearsed", REHEARSED.detail)
    events = [line["event"] for line in told if line["event"].startswith("enforcer.re")]
    assert events == ["enforcer.rehearsed", "enforcer.rehearsal_ended"]
    assert "enforcer.ended" not in {line["event"] for line in told}


@pytest.mark.parametrize(("happens", "spared"), CHANGES, ids=lambda value: value if isinstance(value, str) else "")
async def test_what_would_have_spared_the_victim_is_told(happens: Callable[[Stage], None], spared: str) -> None:
    """Each reason of the last look, as in earnest."""
    stage = Stage(HOG, POOR, rules=DRY)
    stage.at["asked"] = lambda: happens(stage)
    await stage.play(160)
    assert "acted" not in stage.script
    one = decided(stage)[-1]
    assert (one["kind"], one["result"], one["detail"]) == ("dry_run", "abandoned", spared)


async def test_a_mode_that_changes_on_the_way_ends_both_kinds() -> None:
    """What was decided as a rehearsal is never an action, and an action never becomes one."""
    for before, after in ((DRY, UNHURRIED), (UNHURRIED, DRY)):
        stage = Stage(HOG, POOR, rules=before)
        stage.at["asked"] = lambda stage=stage, after=after: setattr(stage.decider, "rules", after)  # type: ignore[misc]
        await stage.play(160)
        assert "acted" not in stage.script
        assert (decided(stage)[-1]["result"], decided(stage)[-1]["detail"]) == ("abandoned", "not_due")


async def test_only_what_would_have_been_done_costs_the_shadow_budget() -> None:
    """One action in ten minutes: whoever the last look spares gives the token back, as in earnest."""
    once = replace(DRY, budgets=Budgets(Budget(1, 600.0), Budget(1, 600.0), Budget(1, 600.0)), spacing=60.0)
    stage = Stage(HOG, POOR, rules=once)
    stage.at["asked"] = lambda: setattr(stage, "away", True)
    await stage.play(160)
    assert [one["detail"] for one in decided(stage)] == ["look_failed"]
    stage.away = False
    await stage.play(400)
    assert [one["result"] for one in decided(stage)] == ["rehearsed", "abandoned"]
    summary = stage.decider.summary()
    assert summary is not None
    (hog,) = [one for one in summary["standings"] if one["pod_uid"] == HOG.pod_uid]
    assert (hog["state"], hog["reason"]) == ("held", "budget_workload")


async def test_a_rehearsal_counts_as_no_action() -> None:
    """Neither as a failure nor as an effect: what did not happen took no time."""
    stage = Stage(HOG, POOR, rules=DRY)
    await stage.play(160)
    tally = stage.decider._tally
    assert dict(tally.rehearsed) == {(Rung.EVICT, HOG.named().namespace): 1}
    assert (tally.failed, tally.durations, tally.last) == ({}, {}, {})


async def test_a_kill_is_rehearsed_up_to_the_signal(tmp_path: Path) -> None:
    """A container whose init is not held could not be signalled: that is found out, and told."""
    stage = Stage(HOG, POOR, rules=replace(DRY, ladder=(Rung.NOTIFY, Rung.KILL)))
    await stage.play(160)
    assert stage.script == []
    (one,) = decided(stage)
    assert one["result"] == "abandoned" and one["detail"].startswith("not tried: ")


@pytest.mark.parametrize("heard", Heard)
async def test_a_stand_in_says_what_the_rung_would_say(heard: Heard) -> None:
    """But not that we may not: whoever rehearses was not given the rights, and does nothing with them."""
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
    dry_runs = DryRuns(stage.decider, stage.ask, stage.fresh, tmp_path, clock=stage)
    rungs = dry_runs._executor._hands.rungs
    assert set(rungs) == set(Rung) - {Rung.NOTIFY}
    for one in rungs.values():
        assert isinstance(one, DryRun)
        assert not MUTATING & {name for name in dir(one) if not name.startswith("_")}


def test_the_end_of_a_rehearsal_that_is_over_changes_nothing() -> None:
    """It came after the time that separates two, or of another one: the history is as it was."""
    stage = Stage(HOG, POOR, rules=DRY)
    stage.look()
    before = stage.decider._history
    late: Action = replace(action(1), dry=True)
    stage.decider.conclude(late, Result.ABANDONED, "pod_gone")
    assert stage.decider._history == before
