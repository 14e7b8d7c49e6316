"""`gpusteward replay`, and a daemon that heard the same rounds: they say the same."""

import asyncio
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enforcer.cli import main
from enforcer.messages.log_lines import lines
from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment, Verdict
from enforcer.policy.outcomes import rehearsed
from enforcer.policy.vocabulary import Mode
from enforcer.runtime.policy_config import rules_of
from exporter.config import Arguments, load
from exporter.limits.loading import builtin
from exporter.model import Snapshot
from exporter.recording import Reading, Writing
from exporter.recording.anonymizing import Pseudonyms
from exporter.recording.keeping import Keeping
from exporter.simulated import SimulatedNode
from recordings import BEGINNING, SteppedClock, record

pytestmark = pytest.mark.usefixtures("logging_as_before")

HURRIED = """
policy: {mode: enforce, warn_after: 10s, grace: 15s, hold_off: 10s, spacing: 3m}
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Snapshot]]:
    """
    Record the simulated node while anna's notebook is above its limit, with early rounds; the snapshots with it.

    One minute. Under `HURRIED` an action is due after 25 s, and after 45 s where a test gives it more patience. After
    51 s the notebook is back within its limit.
    """
    path = tmp_path_factory.mktemp("recording") / "node.jsonl.gz"
    clock = SteppedClock(60.0)
    node = SimulatedNode(lambda: clock.time() + 175, started_at=BEGINNING)
    return path, asyncio.run(record(path, node, clock))


def begun(recording: tuple[Path, list[Snapshot]], seconds: float) -> str:
    """Return the lines of the first rounds, as if the node had been recorded for so many seconds."""
    kept, whole = list[str](), 0
    with gzip.open(recording[0], "rt") as lines:
        for line in lines:
            kept.append(line)
            at = json.loads(line).get("monotonic")
            if at is not None and at <= seconds:
                whole = len(kept)
    return "".join(kept[:whole])


@pytest.fixture(scope="module")
def beginning(recording: tuple[Path, list[Snapshot]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep its first 30 s, in which anna's notebook is above its limit and then due."""
    path = tmp_path_factory.mktemp("beginning") / "node.jsonl"
    path.write_text(begun(recording, 30.0))
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(HURRIED)
    return file


def live(snapshots: list[Snapshot], config: Path, mode: Mode) -> list[dict[str, Any]]:
    """Decide as the daemon does, round by round, and collect what it tells its log."""
    rules = replace(rules_of(load(Arguments(config))), mode=mode)
    history, before, told = History(), None, []
    for snapshot in snapshots:
        verdict: Verdict
        now = Moment(snapshot.monotonic, snapshot.monotonic)
        history, verdict = decide(snapshot, rules, history, now)
        if verdict.action is not None:
            history = rehearsed(history, verdict.action, now)
        told += [{"round": snapshot.round, "event": line.event, **line.data} for line in lines(verdict, before)]
        before = verdict
    plain: list[dict[str, Any]] = json.loads(json.dumps(told))
    return plain


def replayed(path: Path, *words: str | Path) -> int:
    return main(["replay", str(path), *map(str, words)])


def test_the_same_is_decided_as_was_then(
    recording: tuple[Path, list[Snapshot]], config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Line by line, round by round, reason by reason. Mode `enforce` is a dry run here, because the victim stays."""
    path, snapshots = recording
    assert replayed(path, "--config", config, "--json") == 0
    *told, summary = map(json.loads, capfd.readouterr().out.splitlines())
    for line in told:
        for key in ("used", "limit", "over_for"):  # the names of 0.1, which scripts read
            line.pop(key, None)
        line["event"] = f"enforcer.{line['event']}"
        assert line.pop("at").endswith("+00:00")
    assert told == live(snapshots, config, Mode.DRY_RUN)
    assert [line["mode"] for line in told if line["event"] == "enforcer.mode"] == ["dry-run"]
    assert summary == {
        "event": "summary",
        "rounds": len(snapshots),
        "torn": "",
        "rehearsed": {"evict": 1},
        "held": summary["held"],
    }


def test_an_anonymized_recording_is_decided_the_same(
    recording: tuple[Path, list[Snapshot]], config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the names, each line comes in the same round, with the same state, action, reason and figures."""
    names = Pseudonyms(b"salt", Keeping.of(builtin(), [load(Arguments(config)).policy.namespaces.label]))
    other, told = tmp_path / "anonymous.jsonl", []
    with (
        Reading(recording[0]) as plain,
        Writing(
            other, names.header(plain.header), inventory=names.inventory, host=names.host, owner=names.owner
        ) as anonymous,
    ):
        for recorded in plain:
            anonymous.add(recorded)
    for path in (recording[0], other):
        assert replayed(path, "--config", config, "--json") == 0
        said = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        nameless = [
            {key: line[key] for key in line.keys() - {"namespace", "pod", "pod_uid", "container"}} for line in said
        ]
        told.append(sorted(json.dumps(line, sort_keys=True) for line in nameless))
    assert told[0] == told[1] and any('"dry_run"' in line for line in told[0])
    assert "anna" not in other.read_text()


def test_people_read_when_who_what_and_why(
    recording: tuple[Path, list[Snapshot]], config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line for each change, with the time, and reasons in words; at the end what it comes to."""
    path, snapshots = recording
    assert replayed(path, "--config", config) == 0
    *told, last = capfd.readouterr().out.splitlines()
    mine = [line for line in told if "  team-vision/anna-notebook-0/notebook  " in line]
    assert [line.split()[2] for line in mine] == ["over", "grace", "due", "dry_run", "due", "held"]
    assert all(line[:10] == "2025-10-09" and line[19] == "Z" for line in told)
    assert "limit=16GiB mode=dry-run over=10s capacity=25s" in mine[1]
    assert mine[3].split()[4] == "action=evict"
    assert last.startswith(f"{len(snapshots)} rounds: dry run: 1 evict")


def test_reasons_stand_there_in_words(beginning: Path, config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--mode` counts instead of the file's mode, and the lines of held pods name it as the reason."""
    assert replayed(beginning, "--config", config, "--mode", "observe") == 0
    out = capfd.readouterr().out
    assert "reason=mode (the mode does not allow it)" in out
    assert re.search(r"^\d+ rounds: no action was due; held: \d+ mode$", out.splitlines()[-1])


def test_without_a_config_the_defaults_count(beginning: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They observe."""
    assert replayed(beginning, "--json") == 0
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["mode"] for line in told if line["event"] == "mode"] == ["observe"]
    assert told[-1]["rehearsed"] == {}


def test_rules_that_make_no_sense_at_the_pace_of_the_recording(
    beginning: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The config is good for its own interval; the recording has another one. Exit code 2, and what to write."""
    file = tmp_path / "fast.yaml"
    file.write_text("sampling: {interval: 200ms}\npolicy: {spacing: 1s}\n")
    assert replayed(beginning, "--config", file) == 2
    err = capfd.readouterr().err
    assert err.startswith("gpusteward replay: policy.spacing: the rounds of ")
    assert "are 5s apart; expected a duration of at least one sampling.interval" in " ".join(err.split())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("policy: {grace: 2h}", "policy.yaml: policy.grace: expected a duration from 0s to 3600s"),
        ("polcy: {}", "polcy: unknown key\nfix: use"),
    ],
)
def test_a_config_that_cannot_be_meant(
    beginning: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    text: str,
    told: str,
) -> None:
    """Exit code 2, with its place; nothing is replayed."""
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    assert replayed(beginning, "--config", file) == 2
    out, err = capfd.readouterr()
    assert (out, told in err) == ("", True), err


@pytest.mark.parametrize("mode", ["kill", ""])
def test_a_mode_that_nobody_knows(beginning: Path, capfd: pytest.CaptureFixture[str], mode: str) -> None:
    """Exit code 2; the flag is named, and what it takes."""
    assert replayed(beginning, "--mode", mode) == 2
    assert "--mode: expected off or observe or warn or dry-run or enforce" in capfd.readouterr().err


def test_two_policies_are_compared_on_one_recording(
    recording: tuple[Path, list[Snapshot]], config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each `--set` changes B alone: timelines below one another, when each would act first, and what each comes to."""
    path, snapshots = recording
    assert replayed(path, "--config", config, "--set", "policy.grace=30s", "--set", "policy.warn_after=15s") == 0
    out = capfd.readouterr().out.splitlines()
    assert out[:2] == [f"A: {config}", "B: A with policy.grace=30s policy.warn_after=15s"]
    place = out.index("team-vision/anna-notebook-0/notebook")
    a, b = out[place + 1 : place + 3]
    assert (a[:4], b[:4], len(a), len(b)) == ("  A ", "  B ", 100, 100)
    assert a.index("!") < b.index("!")
    (row,) = [line for line in out if line.startswith("team-vision/anna-notebook-0/notebook  ")]
    assert row.split("  ")[-1] == "20 s later"
    assert [line[:3] for line in out[-2:]] == ["A: ", "B: "]
    assert all(f"{len(snapshots)} rounds: dry run: 1 evict" in line for line in out[-2:])


def test_scripts_get_both_policies(beginning: Path, config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An object for each container that was over, then a summary of each policy with its settings."""
    assert replayed(beginning, "--config", config, "--set", "policy.mode=observe", "--json") == 0
    *containers, a, b = map(json.loads, capfd.readouterr().out.splitlines())
    (anna,) = [one for one in containers if one["pod"] == "anna-notebook-0"]
    assert (len(anna["a"]["actions"]), anna["b"]["actions"], anna["b"]["held"]) == (1, [], "mode")
    assert ((a["policy"], a["set"]), (b["policy"], b["set"])) == (("a", []), ("b", ["policy.mode=observe"]))
    assert (a["rehearsed"], b["rehearsed"]) == ({"evict": 1}, {})


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("policy.budgets.node=3/10m", ""),
        ("policy.ladder=[notify, fence, evict]", ""),
        ("limits.fair_share=on", ""),
        ("policy.protect.labels={team: a}", ""),
        ("policy.grace=2h", "--set policy.grace: expected a duration from 0s to 3600s"),
        ("policy.grace=soon", "--set policy.grace: expected a duration"),
        ("policy.grce=60s", "policy.grce: unknown key\nfix: use"),
        ("policy.grace.more=1", "policy.grace: expected a duration"),
        ("policy.ladder=[notify", "--set policy.ladder:1:"),
        ("policy.grace=", "--set policy.grace: expected a value"),
        ("policy.grace", "--set: expected a key below policy or limits and its value"),
        ("sampling.interval=1s", "--set: expected a key below policy or limits and its value"),
        ("policy.=1", "--set: expected a key below policy or limits and its value"),
    ],
)
def test_a_setting_is_read_as_in_the_config(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], setting: str, told: str
) -> None:
    """Any key below policy and limits, any depth; what cannot be meant is refused with its place, before any round."""
    missing = tmp_path / "none"
    assert replayed(missing, "--set", setting) == (2 if told else 1)
    out, err = capfd.readouterr()
    assert (out, (told or str(missing)) in err) == ("", True), err


def test_what_is_no_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, file and line; a file that is not there as well."""
    wrong = tmp_path / "wrong"
    wrong.write_text('{"kind": "Pod"}\n')
    for path, told in ((wrong, f"{wrong}:1: expected the header of a recording"), (tmp_path / "none", "none")):
        assert replayed(path) == 1
        out, err = capfd.readouterr()
        assert (out, told in err, err.startswith("gpusteward replay: ")) == ("", True, True), err


def test_names_of_strangers_leave_the_terminal_alone(
    recording: tuple[Path, list[Snapshot]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A recording may come from anywhere; no escape sequence of it reaches the terminal."""
    path = tmp_path / "node.jsonl"
    path.write_text(begun(recording, 20.0).replace("anna-notebook-0", "anna\\u001b[2J"))
    for settings in ((), ("--set", "policy.grace=60s")):
        assert replayed(path, *settings) == 0
        out = capfd.readouterr().out
        assert "anna\\x1b[2J" in out
        assert "\x1b" not in out
