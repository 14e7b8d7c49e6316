"""
What gpusteward 0.1 wrote and said, read and said again by the code of today.

In: the files of `fixtures/0.1`, which commit 7d90aba wrote (README.md there names the commands). Out: the same answers.
Law: a file is compared as 0.1 wrote it; what differs from run to run is taken out of both sides here, by name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.running import Daemon
from default_rules import default_rules
from enforcer.journal import file as journal_file
from enforcer.journal.records import decode, encode
from exporter.config import Arguments, load

FIXTURES = Path(__file__).parent / "fixtures" / "0.1"
COMMAND = Path(sys.executable).with_name("gpusteward")
REWORDED = {
    "explain": {
        "pods of a file (-f) as kubectl prints them,": "pods and pod templates of a file (-f) are explained",
        "wrong usage or files.": "wrong usage or files, or when an object of the file cannot be explained.",
        "Pods, and the": "Pods and objects with pod templates (Deployment, CronJob, PyTorchJob, ...), and the",
        "to check units against its devices;": "for the sizes of its devices: to check units, and to give shares, MIG "
        "instances and fair shares an amount;",
        "a list of {namespace,": "a list of {object, namespace,",
        "this list is `limits`": "this list is `limits` without `object`",
    }
}
"""Of flags that do more since: what the help said, and what it says now."""
COMMANDS = tuple(sorted(path.stem for path in (FIXTURES / "help").glob("*.txt")))

VERSION = re.compile(r"\b\d+\.\d+\.\d+\b(?![.\d])")
TIMES = {
    *("taken_at", "age_seconds", "duration_seconds", "round", "rounds", "sampled_at", "last_at", "created_at", "at"),
    *("over_since", "due_at", "started_at", "monotonic", "duration"),
}
"""Keys of JSON documents whose numbers are of the moment; whether there is a number, and of which type, counts."""
UNORDERED = {"containers", "living", "kinds"}
"""Keys of lists that 0.1 made of sets: their order was another in each process."""
OF_THE_MOMENT = {
    "gpusteward_config_last_reload_success_timestamp_seconds",
    "gpusteward_container_over_limit_seconds_total",
    "gpusteward_gpu_xid_last_timestamp_seconds",
    "gpusteward_round_duration_seconds_bucket",
    "gpusteward_round_duration_seconds_count",
    "gpusteward_round_duration_seconds_sum",
    "gpusteward_rounds_total",
    "gpusteward_snapshot_timestamp_seconds",
}
"""Metrics whose values are of the moment; their names and labels count."""

BOOT, NEXT_BOOT = "aaaaaaaa-0000-4000-8000-000000000001", "cccccccc-0000-4000-8000-000000000003"
NOW = {BOOT: 5000.0, NEXT_BOOT: 40.0}
"""Boots of the kernel in which the journals are read, and the seconds since they began. The first wrote them."""


def old(name: str) -> str:
    """Read a file of 0.1."""
    return (FIXTURES / name).read_text(encoding="utf-8")


def lasting(value: Any, key: str = "") -> Any:
    """Take what is of the moment out of a JSON document: times, the program's version, the folder of a recording."""
    if isinstance(value, dict):
        return {name: lasting(one, name) for name, one in value.items()}
    if isinstance(value, list):
        plain = [lasting(one, key) for one in value]
        return sorted(plain, key=json.dumps) if key in UNORDERED else plain
    if key in TIMES and isinstance(value, int | float):
        return "<time>"
    if key == "program":
        return VERSION.sub("<version>", value)
    if key == "message":
        return value.replace(f"{FIXTURES}{os.sep}", "")
    return value


def gpusteward(*words: str | Path, program: str = "gpusteward") -> subprocess.CompletedProcess[str]:
    """Run a command in the folder of the fixtures to its end; lines are as long as they like."""
    return subprocess.run(
        [str(COMMAND.with_name(program)), *map(str, words)],
        cwd=FIXTURES,
        env={**os.environ, "COLUMNS": "1000", "NODE_NAME": "node-7"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# --- command line and config -----------------------------------------------------------------------------------------


@pytest.mark.daemon
@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_and_flag_is_still_there(name: str) -> None:
    """The help of each command is the same, to the letter."""
    program, *command = [name] if name.startswith("gpusteward") else ["gpusteward", name]
    ended = gpusteward(*command, "--help", program=program)
    assert (ended.returncode, ended.stderr) == (0, "")
    expected = old(f"help/{name}.txt")
    for then, now in REWORDED.get(name, {}).items():
        assert then in expected
        expected = expected.replace(then, now)
    assert ended.stdout == expected


def test_each_config_key_has_its_default() -> None:
    """A file with all keys of 0.1, each with its default of then, is taken, and says what no file says."""
    with_file = load(Arguments(FIXTURES / "config.yaml"))
    assert with_file == load(Arguments(overrides={"node.name": "node-7"}))


# --- recordings ------------------------------------------------------------------------------------------------------


@pytest.mark.daemon
@pytest.mark.parametrize(
    ("recording", "flags", "expected"),
    [
        ("node.jsonl.gz", (), "replay.txt"),
        ("node.jsonl.gz", ("--json",), "replay.jsonl"),
        ("anonymized.jsonl.gz", ("--json",), "replay-anonymized.jsonl"),
    ],
)
def test_the_policy_says_the_same_of_a_recording(recording: str, flags: tuple[str, ...], expected: str) -> None:
    """What was recorded is replayed to the same lines."""
    ended = gpusteward("replay", recording, "--config", "policy.yaml", *flags)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == old(expected)


@pytest.mark.daemon
def test_a_torn_recording_is_read_to_the_same_line(tmp_path: Path) -> None:
    """Of a recording that was cut off, as many rounds are replayed, and the same is told of its end."""
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes((FIXTURES / "node.jsonl.gz").read_bytes()[:60_000])
    ended = gpusteward("replay", torn, "--config", "policy.yaml", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == old("replay-torn.jsonl")


@pytest.mark.daemon
def test_a_recording_is_written_as_it_was(tmp_path: Path) -> None:
    """What `record` makes of a recording has the same lines, keys and values as then."""
    made = tmp_path / "again.jsonl"
    ended = gpusteward("record", "-o", made, "--devices=recorded:moment.jsonl", "--rounds=1")
    assert ended.returncode == 0, ended.stderr
    expected = [lasting(json.loads(line)) for line in old("again.jsonl").splitlines()]
    assert [lasting(json.loads(line)) for line in made.read_text().splitlines()] == expected


# --- what the daemon serves ------------------------------------------------------------------------------------------

DOCUMENTS = {
    "snapshot.json": "/api/v1/snapshot",
    "decisions.json": "/api/v1/decisions",
    "preview.json": "/api/v1/preview",
    "explain.json": "/api/v1/explain?namespace=team-vision&pod=anna-notebook-0",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Start the daemon on a recording of one round, which it plays over and over."""
    flags = ("--config", str(FIXTURES / "run.yaml"), f"--devices=recorded:{FIXTURES / 'moment.jsonl'}")
    with Daemon(*flags, "--log.format=json", command=(COMMAND, "run")) as running:
        yield running


def same(found: Callable[[], Any], expected: Any) -> None:
    """Wait until it is as expected: the shortest grace is half a minute. Fails with the difference."""
    deadline = time.monotonic() + 75
    while (last := found()) != expected and time.monotonic() < deadline:
        time.sleep(0.25)
    assert last == expected


@pytest.mark.daemon
@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_document_is_the_same(daemon: Daemon, name: str) -> None:
    """Keys, values and their order in lists; in the end one eviction was rehearsed, and the rest is held."""

    def found() -> Any:
        status, body = daemon.get(DOCUMENTS[name])
        return lasting(json.loads(body)) if status == 200 else status

    same(found, lasting(json.loads(old(name))))


def metrics(page: str) -> list[str]:
    """Sort the lines of a page, without what is of the moment."""
    lines = []
    for line in page.splitlines():
        series, _, _ = line.rpartition(" ")
        if series.partition("{")[0] in OF_THE_MOMENT:
            lines.append(series)
        elif line.startswith("gpusteward_build_info"):
            lines.append(VERSION.sub("<version>", line))
        else:
            lines.append(line)
    return sorted(lines)


@pytest.mark.daemon
def test_the_metrics_are_the_same(daemon: Daemon) -> None:
    """Names, types, help texts, labels and values."""
    same(lambda: metrics(daemon.get("/metrics")[1]), metrics(old("metrics.txt")))


# --- the journal -----------------------------------------------------------------------------------------------------


def whole_lines(name: str) -> list[bytes]:
    """Read the lines of a journal that have an end."""
    return (FIXTURES / name).read_bytes().split(b"\n")[:-1]


def taken_over(data: bytes, boot: str, folder: Path) -> dict[str, Any]:
    """
    Have the journal's own code take over a journal in this boot; what it adds up to, as it is written down.

    A journal that is too large is rewritten as the one record `state` by who opens it; here each one is.
    """
    path = folder / "state" / "journal"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(data)
    path.chmod(0o600)
    given = journal_file.Given(boot, lambda: (NOW[boot], 1.7e9 + NOW[boot]), 1)
    with capture_logs() as logs:
        journal_file.opened(path, default_rules(), version="later", given=given).close()
    state = json.loads(path.read_bytes().splitlines()[0])
    shutil.rmtree(path.parent)
    told = [[one["event"], one["what"], [*one["problems"]]] for one in logs if one["event"] == "journal.mended"]
    return {"state": state, "told": told}


def journals() -> dict[str, tuple[bytes, str]]:
    """The journals that are read, and the boot in which."""
    torn, rewritten = (FIXTURES / "journal").read_bytes(), (FIXTURES / "journal.rewritten").read_bytes()
    whole = b"".join(line + b"\n" for line in whole_lines("journal"))
    return {
        "torn": (torn, BOOT),
        "torn, after a reboot": (torn, NEXT_BOOT),
        "whole": (whole, BOOT),
        "rewritten": (rewritten, BOOT),
        "rewritten, after a reboot": (rewritten, NEXT_BOOT),
        "damaged": (whole.replace(b"the end is stuck", b"the end is struc", 1), BOOT),
    }


@pytest.mark.parametrize("case", sorted(journals()))
def test_a_journal_adds_up_to_the_same(case: str, tmp_path: Path) -> None:
    """Tokens, breakers, strikes, open decisions, fences and excesses; and what is told of a damaged one."""
    expected = json.loads(old("journal-states.json"))[case]
    assert taken_over(*journals()[case], tmp_path) == expected


@pytest.mark.parametrize("name", ["journal", "journal.rewritten"])
def test_each_kind_of_record_is_written_as_it_was(name: str) -> None:
    """A record that is read and written again is the same line, byte for byte."""
    for line in whole_lines(name):
        read = decode(line)
        assert read is not None, line
        assert encode(*read) == line + b"\n"


def test_the_journals_hold_each_kind_of_record() -> None:
    """The fixtures are what they are meant to be: docs/journal.md lists the kinds."""
    kinds = {json.loads(line)["record"] for line in whole_lines("journal")}
    assert kinds == {
        *("state", "started", "stopped", "intent", "sent", "acked", "ended", "breaker_opened", "breaker_closed"),
        *("struck", "exceeds", "within", "fenced", "unfenced"),
    }
    assert not (FIXTURES / "journal").read_bytes().endswith(b"\n")
