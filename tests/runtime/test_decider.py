"""The policy at work in the daemon: what it reads, remembers, reports and shows."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from enforcer.messages.action_texts import EventReason
from enforcer.messages.events import Notice
from enforcer.messages.tally import MOST_RECENT
from enforcer.policy.history import Action, History, InFlight, Moment, Opened, Result, Spent
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Place, Reason, Trigger
from enforcer.runtime.decider import SHOWN, Decider
from exporter.model import Fault
from journals import action
from policy.scenes import BEGIN, CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, snapshot

DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)


class Stage:
    """A decider whose clock the test steps, with a stop file; it keeps the notices and the actions that begin."""

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
def test_the_stop_file_counts_from_the_next_round_on(tmp_path: Path) -> None:
    """A holder that is due is held, with the reason. When the file is gone, it is warned anew, with its whole grace."""
    stage = Stage(tmp_path, UNHURRIED)
    stage.stop.touch()
    with capture_logs() as logs:
        stage.rounds(40)
    assert [(one["event"], one["log_level"]) for one in logs if "stop" in one["event"]] == [
        ("enforcer.stopped", "warning")
    ]
    assert (stage.mode, stage.greedy["state"], stage.greedy["reason"]) == ("observe", "held", "stopped")
    assert stage.begun == []
    stage.stop.unlink()
    with capture_logs() as logs:
        stage.rounds(1)
    assert "enforcer.stop_ended" in {one["event"] for one in logs}
    assert (stage.mode, stage.greedy["state"]) == ("enforce", "grace")
    assert stage.greedy["due_at"] == pytest.approx(WALL + stage.monotonic - BEGIN + UNHURRIED.grace, abs=0.01)


def test_after_a_stop_everybody_is_told_before_anything_is_done(tmp_path: Path) -> None:
    """While the stop lasts, no pod is warned. Afterwards the warning comes first, and then the whole grace."""
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


def test_another_trigger_is_announced_before_it_counts(stage: Stage) -> None:
    """A holder that was warned of one trigger is warned of the other one, and has its whole grace from then on."""
    stage.rounds(20)
    other = Trigger.LIMIT if DRY.trigger is Trigger.CONTENDED else Trigger.CONTENDED
    stage.judge.rules = replace(DRY, trigger=other)
    stage.rounds(1)
    assert (stage.greedy["state"], stage.greedy["over_seconds"]) == ("grace", DRY.warn_after)
    assert stage.greedy["due_at"] == pytest.approx(WALL + stage.monotonic - BEGIN + DRY.grace, abs=0.01)


@pytest.mark.fault(56)
def test_a_config_that_cannot_be_used_means_observe(tmp_path: Path) -> None:
    """A fault of the snapshot says so, and the holder is held for it. With a valid config it goes on where it was."""
    stage = Stage(tmp_path, UNHURRIED)
    broken = Fault("config", "config_invalid", "policy.grase: unknown key", incomplete=False)
    stage.rounds(20)
    stage.rounds(20, faults=(broken,))
    assert (stage.mode, stage.greedy["state"], stage.greedy["reason"]) == ("observe", "held", "config")
    assert stage.begun == []
    summary = stage.judge.summary()
    assert summary is not None and summary["breakers"] == []
    stage.rounds(3)
    assert stage.mode == "enforce" and len(stage.begun) == 1, "nothing was written, so that nothing is announced anew"


def test_decisions_are_kept_for_people(stage: Stage) -> None:
    """The newest come first. The page shows ten of them, and a client that asks for all gets two hundred."""
    crowd = [Actor(f"p-{number}", 3 * GIB, limit=GIB) for number in range(25)]
    stage.judge.rules = replace(DRY, grace=0.0)
    for number in range(20):
        stage.rounds(1, *crowd, namespaces={"team": {} if number % 2 else {"gpusteward.io/mode": "warn"}})
    recent = stage.judge.decisions()["recent"]
    summary = stage.judge.summary()
    assert summary is not None
    assert len(recent) == MOST_RECENT
    assert [one["at"] for one in recent] == sorted((one["at"] for one in recent), reverse=True)
    assert summary["recent"] == recent[:SHOWN]
    assert {(one["kind"], one["reason"]) for one in recent} == {("refusal", "no_consent"), ("refusal", "mode")}


def test_only_real_actions_are_begun(tmp_path: Path) -> None:
    """A dry run begins no action; in mode `enforce` an action is handed over once."""
    dry, real = Stage(tmp_path), Stage(tmp_path, UNHURRIED)
    for stage in (dry, real):
        stage.rounds(60)
    assert dry.begun == []
    assert [(one.pod, one.dry) for one in real.begun] == [(GREEDY.pod, False)]


INVALID = replace(MEEK, pod="wrong-1", limit=None, problems=("gpusteward annotation x: no quantity",))


def test_a_declaration_that_cannot_be_used_is_told_from_mode_warn_on(stage: Stage) -> None:
    """The modes of node and namespace must both allow warnings. If they do, one Event reports the declaration."""
    stage.judge.rules = replace(DRY, mode=Mode.OBSERVE)
    stage.rounds(3, INVALID)
    assert stage.notices == []
    stage.judge.rules = replace(DRY, mode=Mode.WARN)
    for labels in ({"gpusteward.io/mode": "observe"}, {"gpusteward.io/mode": "off"}):
        stage.rounds(3, INVALID, namespaces={"team": labels})
        assert stage.notices == []
    stage.rounds(3, INVALID, namespaces={"team": CONSENTING})
    assert [one.reason for one in stage.notices] == [EventReason.INVALID]


def test_a_namespace_below_warn_gets_no_event_of_a_shared_claim_either(stage: Stage) -> None:
    """The limit of a claim that several pods share is unusable in each of them."""
    stage.judge.rules = replace(DRY, mode=Mode.WARN)
    first = replace(INVALID, scope="claim", claim="team/shared")
    pods = (first, replace(first, pod="wrong-2"))
    stage.rounds(3, *pods, namespaces={"team": {"gpusteward.io/mode": "observe"}})
    assert stage.notices == []
    stage.rounds(3, *pods, namespaces={"team": CONSENTING})
    assert [one.reason for one in stage.notices] == [EventReason.INVALID] * 2


def test_who_asks_about_a_pod_hears_of_it_alone(stage: Stage) -> None:
    """The answer has the states of that pod's containers, and of no others."""
    stage.rounds(1)
    (meek,) = stage.judge.standings(MEEK.pod_uid)
    assert (meek["pod"], meek["state"], meek["used_bytes"]) == (MEEK.pod, "ok", 2 * GIB)


def test_each_pod_of_a_shared_claim_hears_of_the_claim(stage: Stage) -> None:
    """The state is the claim's, and the action names the pod that it would hit. Other claims are not in the answer."""
    claim = {"scope": "claim", "claim": "team/shared"}
    largest, other = Actor("rank-0", 40 * GIB, **claim), Actor("rank-1", 30 * GIB, **claim)  # type: ignore[arg-type]
    stranger = Actor("alone-0", 1 * GIB, scope="claim", claim="team/own")
    elsewhere = replace(stranger, pod="rank-2", claim="team/shared", gpu=1)
    stage.rounds(12, largest, other, stranger, elsewhere, gpus=2)
    (state,) = stage.judge.standings(largest.pod_uid)
    assert (state["claim"], state["uuid"], state["pod"], state["state"]) == ("team/shared", "GPU-0", "rank-0", "grace")
    assert ", evict rank-0 in " in state["text"]
    assert stage.judge.standings(other.pod_uid) == [state]
    assert [one["claim"] for one in stage.judge.standings(stranger.pod_uid)] == ["team/own"]
    assert [one["uuid"] for one in stage.judge.standings(elsewhere.pod_uid)] == ["GPU-1"]


def test_what_lacks_is_named_as_in_a_preview(stage: Stage) -> None:
    """Without consent the label is named, before the action is due and afterwards."""
    stage.judge.rules = UNHURRIED
    lacks = "its namespace does not consent (no_consent): the namespace needs the label gpusteward.io/mode: enforce"
    for rounds, state in ((5, "grace"), (40, "held")):
        stage.rounds(rounds, namespaces={"team": {}})
        preview = stage.judge.preview()
        assert preview is not None
        (held,) = preview["held"]
        assert f"{held['why']} ({held['reason']}): {held['detail']}" == lacks
        assert (stage.greedy["state"], lacks in stage.greedy["text"]) == (state, True)


def test_the_mode_of_a_namespace_that_was_not_read_is_explained(tmp_path: Path) -> None:
    """The daemon enforces; only this pod's namespace is not known yet."""
    stage = Stage(tmp_path, UNHURRIED)
    stage.rounds(1, namespaces={})
    assert stage.greedy["mode"] == "observe"
    assert stage.greedy["text"].endswith(" [mode observe until the labels of its namespace are read]")
    stage.rounds(1, namespaces={"team": {"gpusteward.io/mode": "observe"}})
    assert stage.greedy["text"].endswith(" [mode observe]")


def test_a_preview_counts_the_hold_off_down(tmp_path: Path) -> None:
    """Its seconds are known to the daemon."""
    stage = Stage(tmp_path, replace(UNHURRIED, hold_off=1000.0))
    stage.rounds(60)
    preview = stage.judge.preview()
    assert preview is not None
    (waits,) = preview["would_act_on"]
    left = 1000.0 - 59 * UNHURRIED.interval
    assert (waits["reason"], waits["wait_seconds"]) == ("hold_off", pytest.approx(left))
    assert "(hold_off, 11 min 45 s left)" in waits["text"]


def test_what_was_done_to_a_pod_is_known_by_its_name(tmp_path: Path) -> None:
    """Its actions, newest first, also when the pod is gone. A dry run did nothing to it."""
    real = Stage(tmp_path, UNHURRIED)
    real.rounds(30)
    (action_,) = real.begun
    real.judge.conclude(action_, Result.ACCEPTED, "")
    real.rounds(1, MEEK)
    (done,) = real.judge.actions("team", GREEDY.pod)
    assert (done["kind"], done["result"], done["pod_uid"]) == ("action", "accepted", GREEDY.pod_uid)
    assert f"gpusteward evicted pod team/{GREEDY.pod}, because " in done["text"]
    assert real.judge.actions("team", MEEK.pod) == []
    dry = Stage(tmp_path)
    dry.rounds(60)
    assert dry.judge.decisions()["recent"]
    assert dry.judge.actions("team", GREEDY.pod) == []


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
    """Armed late, with a breaker and a token of the daemon before: both count, and what a person closes is noted."""
    stage = Stage(tmp_path, UNHURRIED)
    noted: list[tuple[set[Breaker], set[Breaker], str]] = []
    stage.rounds(3)
    past = History(
        breakers={Breaker.JOURNAL: Opened(1.0, "it was damaged")},
        spent=(Spent(5e5 - 60.0, ("team", "Deployment", "greedy"), 0.0),),
    )
    stage.judge.arm(
        stage.begun.append,
        past,
        lambda before, after, by: noted.append((set(before.breakers), set(after.breakers), by)),
    )
    stage.rounds(60)
    assert (stage.begun, stage.greedy["state"], stage.greedy["reason"]) == ([], "held", "breaker")
    summary = stage.judge.summary()
    assert summary is not None and summary["budget_remaining"]["node"] == UNHURRIED.budgets.node.most - 1
    assert stage.judge.close(Breaker.JOURNAL, "ann")
    assert noted[-1] == ({Breaker.JOURNAL}, set(), "ann")
    stage.rounds(1)
    assert len(stage.begun) == 1


# --- levels that were saved -------------------------------------------------------------------------------------------

CAREFUL = replace(UNHURRIED, hold_off=300.0, build="1.0")


def restarted(stage: Stage, folder: Path, rules: Rules = CAREFUL) -> Stage:
    """Start another daemon at the same moment, with the levels that this one saves."""
    saved = stage.judge.levels()
    assert saved is not None
    another = Stage(folder, rules)
    another.monotonic = stage.monotonic
    another.judge.arm(another.begun.append, History(), lambda _before, _after, _by: None, saved)
    return another


@pytest.fixture
def old(tmp_path: Path) -> Stage:
    """A daemon that has watched for long; GREEDY is over for a minute."""
    stage = Stage(tmp_path, CAREFUL)
    stage.rounds(70, MEEK)
    stage.rounds(13)
    return stage


def test_a_restart_delays_no_action_by_more_than_three_readings(old: Stage, tmp_path: Path) -> None:
    """The level goes on where it was, and there is no second hold-off."""
    before = old.greedy["over_seconds"]
    assert before == pytest.approx(60.0)
    stage = restarted(old, tmp_path)
    stage.rounds(1)
    assert before - CAREFUL.interval <= stage.greedy["over_seconds"] <= before, "a gap raises no level"
    rounds = 1
    while not stage.begun:
        stage.rounds(1)
        rounds += 1
    assert rounds * CAREFUL.interval <= CAREFUL.capacity(CAREFUL.grace) - before + 4 * CAREFUL.interval


@pytest.mark.parametrize("change", [{"build": "1.1"}, {"grace": 60.0}])
def test_levels_of_another_version_or_of_other_rules_are_not_restored(
    old: Stage, tmp_path: Path, change: dict[str, Any]
) -> None:
    """A change of ours: the levels begin at 0, and the hold-off runs."""
    stage = restarted(old, tmp_path, replace(CAREFUL, **change))
    stage.rounds(2)
    assert stage.greedy["over_seconds"] == CAREFUL.interval
    stage.rounds(40)
    assert (stage.begun, stage.greedy["reason"]) == ([], "hold_off")


def test_a_daemon_that_was_not_vetted_hands_no_hold_off_over(tmp_path: Path) -> None:
    """It ended in its hold-off: the next one restores the levels, and has a hold-off of its own."""
    first = Stage(tmp_path, CAREFUL)
    first.rounds(13)
    stage = restarted(first, tmp_path)
    stage.rounds(30)
    assert stage.greedy["over_seconds"] == CAREFUL.capacity(CAREFUL.grace)
    assert (stage.begun, stage.greedy["reason"]) == ([], "hold_off")


def test_of_two_levels_the_higher_one_counts(old: Stage, tmp_path: Path) -> None:
    """The new daemon has watched for longer than the one before it: its own level stays."""
    saved = old.judge.levels()
    stage = Stage(tmp_path, CAREFUL)
    stage.rounds(25)
    own = stage.greedy["over_seconds"]
    stage.judge.arm(stage.begun.append, History(), lambda _before, _after, _by: None, saved)
    stage.rounds(1)
    assert stage.greedy["over_seconds"] == own + CAREFUL.interval > 60.0


# --- what the rest of the daemon reports ------------------------------------------------------------------------------


def test_the_grace_runs_when_the_warning_was_accepted(tmp_path: Path) -> None:
    """Until then the level waits at warn_after; the acceptance counts as a warning."""
    stage = Stage(tmp_path, replace(UNHURRIED, confirm=True))
    stage.rounds(10)
    assert (stage.greedy["state"], stage.greedy["over_seconds"]) == ("grace", UNHURRIED.warn_after)
    (notice,) = [one for one in stage.notices if one.holder is not None]
    assert notice.holder is not None
    stage.judge.warned(notice.holder, notice.warned_at)
    stage.rounds(2)
    assert stage.greedy["over_seconds"] == UNHURRIED.warn_after + 2 * UNHURRIED.interval
    assert sum(stage.judge._tally.requested.values()) == 1


def test_a_hold_lasts_until_it_is_lifted(tmp_path: Path) -> None:
    """A namespace without rights: its pods are held, with the words, and acted on when the hold is lifted."""
    stage = Stage(tmp_path, UNHURRIED)
    stage.judge.hold(Place.NAMESPACE, "team", Reason.NO_RIGHTS, detail="no RoleBinding")
    stage.rounds(60)
    assert (stage.begun, stage.greedy["reason"], stage.greedy["detail"]) == ([], "no_rights", "no RoleBinding")
    stage.judge.lift(Place.NAMESPACE, "team", Reason.NO_RIGHTS)
    stage.rounds(1)
    assert len(stage.begun) == 1


def test_memory_that_was_counted_to_the_wrong_pod_opens_the_breaker_once(tmp_path: Path) -> None:
    """It is noted for the next daemon, and repeated looks change nothing."""
    stage = Stage(tmp_path, UNHURRIED)
    noted: list[set[Breaker]] = []
    stage.judge.arm(stage.begun.append, History(), lambda _before, after, _by: noted.append(set(after.breakers)))
    for _ in range(3):
        stage.judge.misattributed("process 7 lives on")
    assert noted == [{Breaker.ATTRIBUTION}]
    stage.rounds(60)
    assert stage.begun == []


TRAIN = action(1)
MINE = ("team", "Deployment", "train")
TOKENS = (Spent(10.0, MINE, WALL), Spent(40.0, ("team", "Deployment", "other"), WALL), Spent(30.0, MINE, WALL))


@pytest.mark.parametrize(
    ("result", "left"),
    [
        (Result.FAILED, TOKENS[:2]),
        (Result.ABANDONED, TOKENS[:2]),
        (Result.BLOCKED, TOKENS[:2]),
        (Result.UNKNOWN, TOKENS),
        (Result.ACCEPTED, TOKENS),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["in flight since it was armed", "the second of two"])
def test_an_action_of_an_earlier_daemon_keeps_its_token_only_if_it_may_have_been_carried_out(
    stage: Stage, result: Result, left: tuple[Spent, ...], known: bool
) -> None:
    """Its token is the newest one of its workload: it is given back, and no other one, where nothing was done."""
    flight = InFlight(TRAIN, BEGIN) if known else None
    stage.judge.arm(stage.begun.append, History(spent=TOKENS, in_flight=flight), lambda *_: None)
    stage.judge.resumed(TRAIN)
    assert stage.judge.in_flight
    stage.judge.conclude(TRAIN, result, "")
    assert stage.judge._history.spent == left and not stage.judge.in_flight


def test_an_action_in_flight_keeps_its_own_token(stage: Stage) -> None:
    """An action of an earlier daemon does not take its place."""
    mine = InFlight(action(2), BEGIN, TOKENS[0])
    stage.judge.arm(stage.begun.append, History(spent=TOKENS, in_flight=mine), lambda *_: None)
    stage.judge.resumed(TRAIN)
    stage.judge.resumed(mine.action)
    assert stage.judge._history.in_flight == mine


def test_a_pod_whose_dry_run_is_in_flight_is_due(stage: Stage) -> None:
    """Its own dry run keeps nothing from happening: it is not shown as held by another action."""
    stage.judge.rehearse = stage.begun.append
    while not stage.begun:
        stage.rounds(1)
        assert stage.monotonic < BEGIN + 1000
    stage.rounds(3)
    assert (stage.greedy["state"], stage.greedy["reason"], len(stage.begun)) == ("due", None, 1)


def test_a_pod_that_waits_for_the_dry_run_of_another_one_is_held(stage: Stage) -> None:
    """The twin: another pod's dry run is in flight, and that is the reason."""
    stage.judge.rehearse = stage.begun.append
    second = replace(GREEDY, pod="second-1", used=20 * GIB)
    while not stage.begun:
        stage.rounds(1, replace(GREEDY, used=40 * GIB), second)
        assert stage.monotonic < BEGIN + 1000
    stage.rounds(3, replace(GREEDY, used=40 * GIB), second)
    waits = next(pod for pod in (GREEDY, second) if pod.pod_uid != stage.begun[0].pod_uid)
    (state,) = stage.judge.standings(waits.pod_uid)
    assert (state["state"], state["reason"]) == ("held", "in_flight")


def test_what_was_told_of_a_decision_stays_when_the_clock_is_set(stage: Stage) -> None:
    """Clients know a decision by its times: they stay to the last digit, also after the Unix clock jumped."""
    stage.rounds(60)
    told = stage.judge.decisions()["recent"]
    assert told and all(one["over_since"] for one in told)
    stage.monotonic += stage.judge.rules.interval
    seen = snapshot((GREEDY, MEEK), stage.monotonic)
    stage.judge.hear(replace(seen, taken_at=seen.taken_at + 3600))
    assert stage.judge.decisions()["recent"] == told


def test_a_dry_run_without_an_api_server_ends_at_once(stage: Stage) -> None:
    """It is logged, and keeps no other dry run waiting."""
    stage.rounds(60)
    (decision,) = [one for one in stage.judge.decisions()["recent"] if one["kind"] == "dry_run"]
    assert decision["result"] == "rehearsed" and "no API server" in decision["detail"]
    assert stage.judge._history.dry_flight is None
