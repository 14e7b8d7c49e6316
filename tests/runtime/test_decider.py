"""The policy at work in the daemon: what it hears, remembers, tells and shows."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from enforcer.journal.resume import larger
from enforcer.messages.action_texts import EventReason
from enforcer.messages.events import Notice
from enforcer.messages.tally import MOST_RECENT
from enforcer.policy.history import Action, Excess, History, Moment, Strikes
from enforcer.policy.limit_holders import CaseKey, cases
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Mode, Reason
from enforcer.runtime.decider import SHOWN, Decider
from exporter.model import Fault
from policy.scenes import BEGIN, CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, snapshot

DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)


class Stage:
    """A judge with a clock that somebody steps, a stop file, and ears for what it tells."""

    def __init__(self, folder: Path, rules: Rules = DRY) -> None:
        self.monotonic = BEGIN
        self.notices: list[Notice] = []
        self.begun: list[Action] = []
        self.stop = folder / "stop"
        self.judge = Decider(
            rules, self.stop, tell=self._told, begin=self.begun.append, moment=lambda: Moment(self.monotonic, 5e5)
        )

    def _told(self, notices: Iterable[Notice]) -> None:
        self.notices += notices

    def rounds(self, count: int, *actors: Actor, **world: Any) -> None:
        """Let so many rounds pass."""
        for _ in range(count):
            self.monotonic += self.judge.rules.interval
            self.judge.hear(snapshot(actors or (GREEDY, MEEK), self.monotonic, **world))

    @property
    def greedy(self) -> dict[str, Any]:
        """Where GREEDY stands, as the JSON document says it."""
        (found,) = self.judge.standings(GREEDY.pod_uid)
        return found

    @property
    def mode(self) -> str:
        """The node's."""
        summary = self.judge.summary()
        assert summary is not None
        return str(summary["mode"])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_before_the_first_round_nothing_is_said(stage: Stage) -> None:
    """Unknown is not "all is well"."""
    judge = stage.judge
    assert judge.summary() is judge.preview() is None
    assert judge.decisions() == {"recent": []}
    assert judge.standings(GREEDY.pod_uid) == []
    assert list(judge.families(snapshot((GREEDY,), BEGIN))) == []


@pytest.mark.fault(59)
def test_the_stop_file_counts_from_the_next_round_on(stage: Stage) -> None:
    """Who is due is held, with the reason; when the file is gone, he has his whole grace again."""
    stage.rounds(32)
    assert stage.greedy["state"] == "due"
    stage.stop.touch()
    with capture_logs() as told:
        stage.rounds(3)
    assert (stage.mode, stage.greedy["state"], stage.greedy["mode"]) == ("observe", "grace", "observe")
    assert [(one["event"], one["log_level"]) for one in told if "stop" in one["event"]] == [
        ("enforcer.stopped", "warning")
    ]
    stage.rounds(40)
    assert (stage.greedy["state"], stage.greedy["reason"]) == ("held", "stopped")
    stage.stop.unlink()
    with capture_logs() as told:
        stage.rounds(1)
    assert "enforcer.stop_ended" in {one["event"] for one in told}
    assert (stage.mode, stage.greedy["state"]) == ("dry-run", "grace")
    assert stage.greedy["due_at"] == pytest.approx(WALL + stage.monotonic - BEGIN + DRY.grace, abs=0.01)


def test_after_a_stop_everybody_is_told_before_anything_is_done(tmp_path: Path) -> None:
    """While it lasts nobody is told; afterwards the word comes first, and then the whole grace."""
    stage = Stage(tmp_path, UNHURRIED)
    stage.stop.touch()
    stage.rounds(60)
    assert stage.notices == []
    stage.stop.unlink()
    stage.rounds(1)
    assert [one.reason for one in stage.notices] == [EventReason.EXCEEDED]
    stage.rounds(23)
    assert stage.begun == []
    stage.rounds(1)
    assert [one.pod for one in stage.begun] == [GREEDY.pod]


@pytest.mark.parametrize("kind", ["link", "folder", "behind a file"])
def test_whatever_stands_there_stops(stage: Stage, kind: str) -> None:
    """A link that leads nowhere, a folder, a path that cannot be walked: what is not certainly absent is there."""
    if kind == "link":
        stage.stop.symlink_to("nowhere")
    elif kind == "folder":
        stage.stop.mkdir()
    else:
        stage.stop.touch()
        stage.judge.stop_file.path = stage.stop / "stop"
    with capture_logs() as told:
        stage.rounds(5)
    assert stage.mode == "observe"
    (line,) = [one for one in told if one["event"] == "enforcer.stopped"]
    assert ("cannot be looked for" in line["reason"]) is (kind == "behind a file")


def test_a_missing_folder_is_no_stop_file(stage: Stage) -> None:
    """/run/gpusteward need not exist."""
    stage.judge.stop_file.path = stage.stop / "there" / "is" / "nothing"
    stage.rounds(1)
    assert stage.mode == "dry-run"


def test_the_lowest_ceiling_counts(stage: Stage) -> None:
    """The stop file does not lift a mode that is lower still, and neither does what else restricts."""
    stage.stop.touch()
    stage.judge.rules = replace(DRY, mode=Mode.OFF)
    stage.rounds(1)
    assert stage.mode == "off"
    stage.stop.unlink()
    stage.judge.rules = DRY
    stage.judge.ceilings = (Ceiling(Mode.WARN, Reason.MODE),)
    stage.rounds(1)
    assert stage.mode == "warn"


def test_other_rules_void_the_evidence(stage: Stage) -> None:
    """Under them nobody was told."""
    stage.rounds(40)
    stage.judge.rules = replace(DRY, grace=60.0)
    stage.rounds(1)
    assert (stage.greedy["state"], stage.greedy["over_since"]) == (
        "over",
        pytest.approx(WALL + stage.monotonic - BEGIN, abs=0.01),
    )


@pytest.mark.fault(56)
def test_a_config_that_cannot_be_used_means_observe(stage: Stage) -> None:
    """It is said by a fault of the snapshot; the breaker tells the same, and closes with the fault."""
    broken = Fault("config", "config_invalid", "policy.grase: unknown key", incomplete=False)
    stage.rounds(32)
    stage.rounds(1, faults=(broken,))
    summary = stage.judge.summary()
    assert summary is not None
    assert (summary["mode"], stage.greedy["mode"]) == ("observe", "observe")
    assert summary["breakers"] == [{"breaker": "config", "detail": "policy.grase: unknown key", "by_itself": True}]
    stage.rounds(1)
    assert stage.mode == "dry-run"
    assert stage.greedy["due_at"] == pytest.approx(WALL + stage.monotonic - BEGIN + DRY.grace, abs=0.01)


def test_decisions_are_kept_for_people(stage: Stage) -> None:
    """The newest first; the page gets ten of them, and whoever asks for all gets two hundred."""
    crowd = [Actor(f"p-{number}", 3 * GIB, limit=GIB) for number in range(25)]
    for number in range(9):
        stage.judge.rules = replace(DRY, grace=30.0 + number)
        stage.rounds(12, *crowd, namespaces={"team": {}})
    recent = stage.judge.decisions()["recent"]
    summary = stage.judge.summary()
    assert summary is not None
    assert len(recent) == MOST_RECENT
    assert [one["at"] for one in recent] == sorted((one["at"] for one in recent), reverse=True)
    assert summary["recent"] == recent[:SHOWN]
    assert {(one["kind"], one["reason"]) for one in recent} == {("refusal", "no_consent")}


def test_only_real_actions_are_begun(tmp_path: Path) -> None:
    """A rehearsal begins nothing; an action is handed over once."""
    dry, real = Stage(tmp_path), Stage(tmp_path, UNHURRIED)
    for stage in (dry, real):
        stage.rounds(60)
    assert dry.begun == []
    assert [(one.pod, one.dry) for one in real.begun] == [(GREEDY.pod, False)]


INVALID = replace(MEEK, pod="wrong-1", limit=None, problems=("gpusteward annotation x: no quantity",))


def test_a_declaration_that_cannot_be_used_is_told_from_mode_warn_on(stage: Stage) -> None:
    """Node and namespace have to let people be told; when they do, it is told once."""
    stage.judge.rules = replace(DRY, mode=Mode.OBSERVE)
    stage.rounds(3, INVALID)
    assert stage.notices == []
    stage.judge.rules = replace(DRY, mode=Mode.WARN)
    for labels in ({"gpusteward.io/mode": "observe"}, {"gpusteward.io/mode": "off"}):
        stage.rounds(3, INVALID, namespaces={"team": labels})
        assert stage.notices == []
    stage.rounds(3, INVALID, namespaces={"team": CONSENTING})
    assert [one.reason for one in stage.notices] == [EventReason.INVALID]


def test_who_asks_about_a_pod_hears_of_it_alone(stage: Stage) -> None:
    """Standings are those of the pod's subjects."""
    stage.rounds(1)
    (meek,) = stage.judge.standings(MEEK.pod_uid)
    assert (meek["pod"], meek["state"], meek["used_bytes"]) == (MEEK.pod, "ok", 2 * GIB)


@pytest.mark.fault(73)
def test_a_preview_tells_what_enforcing_would_hit(stage: Stage) -> None:
    """Whatever the mode is, and although no grace is over; it changes nothing of what is remembered."""
    stage.judge.rules = replace(DRY, mode=Mode.OBSERVE)
    stage.rounds(1)
    before = stage.greedy
    found = stage.judge.preview()
    assert found is not None
    assert [one["pod"] for one in found["would_act_on"]] == [GREEDY.pod]
    assert (found["pods_over"], found["pods_with_limits"], found["blast_radius_breaker_would_open"]) == (1, 2, False)
    assert stage.greedy == before
    stage.rounds(1, namespaces={"team": {}})
    found = stage.judge.preview()
    assert found is not None
    assert (found["would_act_on"], [one["reason"] for one in found["held"]]) == ([], ["no_consent"])


def test_what_the_journal_says_counts_and_what_changes_is_noted(tmp_path: Path) -> None:
    """Armed late, with the excess that the daemon before us told: no strike is added, and its end is noted."""
    stage = Stage(tmp_path, replace(UNHURRIED, strikes=2))
    (greedy,) = cases(snapshot([GREEDY], BEGIN))
    key = greedy.key
    noted: list[tuple[set[CaseKey], set[CaseKey]]] = []
    stage.rounds(3)
    stage.judge.arm(
        stage.begun.append,
        History(strikes={("team", "Deployment", "greedy"): Strikes(1.0, 5e5 - 20)}, excesses={key: Excess(1.0)}),
        lambda before, after, _by: noted.append((set(before.excesses), set(after.excesses))),
    )
    stage.rounds(60)
    assert (stage.begun, stage.greedy["state"], stage.greedy["reason"]) == ([], "held", "strikes")
    stage.rounds(3, replace(GREEDY, used=0), MEEK)
    assert noted[-1] == ({key}, set())


def test_armed_late_no_strike_is_forgiven() -> None:
    """Who counted without the journal began at one: of each workload the larger count stands, the newer of equals."""
    earlier = {
        ("a", "Job", "x"): Strikes(2.9, 1.0),
        ("a", "Job", "y"): Strikes(1.0, 1.0),
        ("a", "Job", "z"): Strikes(1, 1),
    }
    mine = {
        ("a", "Job", "x"): Strikes(1.0, 9.0),
        ("a", "Job", "y"): Strikes(1.0, 9.0),
        ("a", "Job", "w"): Strikes(1, 9),
    }
    assert larger(earlier, mine) == {**mine, ("a", "Job", "x"): Strikes(2.9, 1.0), ("a", "Job", "z"): Strikes(1, 1)}
