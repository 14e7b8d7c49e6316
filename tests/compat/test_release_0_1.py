"""
What gpusteward 0.1 wrote and said, read and said again by the code of today.

In: the files of `fixtures/0.1`, which commit 7d90aba wrote (README.md there names the commands). Out: each is readable,
and what is said of it has at least the names of then. Law: names (commands, flags, config keys, keys of documents,
metrics and their labels) stay, and there may be more of them. The policy's verdicts change; other tests look at these.
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


def names(value: Any, path: str = "") -> set[str]:
    """List the keys of a JSON document, each with its path and the type of its value; a list's items are one."""
    if isinstance(value, dict):
        return {path}.union(*(names(one, f"{path}.{key}") for key, one in value.items()))
    if isinstance(value, list):
        return {path}.union(*(names(one, f"{path}[]") for one in value))
    return {path if value is None else f"{path}: {'number' if isinstance(value, int | float) else 'text'}"}


def missing(expected: Any, now: Any) -> set[str]:
    """List the names of 0.1 that are there no more, or have a value of another type."""
    return names(expected) - names(now)


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


def replayed(recording: str | Path) -> tuple[set[str], list[dict[str, Any]]]:
    """Replay a recording: the events of its lines, and the lines."""
    ended = gpusteward("replay", recording, "--config", "policy.yaml", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return {line["event"] for line in lines}, lines


@pytest.mark.daemon
@pytest.mark.parametrize(
    ("recording", "expected"),
    [("node.jsonl.gz", "replay.jsonl"), ("anonymized.jsonl.gz", "replay-anonymized.jsonl")],
)
def test_a_recording_is_replayed_to_its_end(recording: str, expected: str) -> None:
    """As many rounds as then; each kind of line that was written then has the keys of then."""
    before = [json.loads(line) for line in old(expected).splitlines()]
    events, lines = replayed(recording)
    assert lines[-1]["rounds"] == before[-1]["rounds"]
    assert {line["event"] for line in before} <= events
    for event in events:
        assert not missing([one for one in before if one["event"] == event], [x for x in lines if x["event"] == event])


@pytest.mark.daemon
def test_a_torn_recording_is_read_to_the_same_line(tmp_path: Path) -> None:
    """Of a recording that was cut off, as many rounds are replayed, and the same is told of its end."""
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes((FIXTURES / "node.jsonl.gz").read_bytes()[:60_000])
    _, lines = replayed(torn)
    assert lines[-1]["rounds"] == json.loads(old("replay-torn.jsonl").splitlines()[-1])["rounds"]


@pytest.mark.daemon
def test_a_recording_is_written_as_it_was(tmp_path: Path) -> None:
    """What `record` makes of a recording has the same lines, keys and values as then; `reservation` is new."""
    made = tmp_path / "again.jsonl"
    ended = gpusteward("record", "-o", made, "--devices=recorded:moment.jsonl", "--rounds=1")
    assert ended.returncode == 0, ended.stderr
    expected = [lasting(json.loads(line)) for line in old("again.jsonl").splitlines()]
    now = [lasting(json.loads(line)) for line in made.read_text().splitlines()]
    for inventory in (line["inventory"] for line in now if isinstance(line.get("inventory"), dict)):
        assert {pod.pop("reservation") for pod in inventory["pods"].values()} == {""}
    assert now == expected


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


def nothing_missing(missing_now: Callable[[], set[str]]) -> None:
    """Wait until each name is there: the shortest grace is half a minute. Fails with those that are not."""
    deadline = time.monotonic() + 75
    while (last := missing_now()) and time.monotonic() < deadline:
        time.sleep(0.25)
    assert not last


@pytest.mark.daemon
@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_document_has_each_key_of_then(daemon: Daemon, name: str) -> None:
    """Each key is there with a value of the same type, also those of a rehearsed eviction and of held pods."""

    def missing_now() -> set[str]:
        status, body = daemon.get(DOCUMENTS[name])
        return missing(json.loads(old(name)), json.loads(body) if status == 200 else None)

    nothing_missing(missing_now)


LABELS = re.compile(r'(\w+)="')


def series(page: str) -> dict[str, set[str]]:
    """Map each family with its type to nothing, and the name of each series to its labels."""
    labels: dict[str, set[str]] = {}
    for line in page.splitlines():
        if line.startswith("# TYPE"):
            labels[line] = set()
        elif not line.startswith("#"):
            name, _, written = line.rpartition(" ")[0].partition("{")
            labels.setdefault(name, set()).update(LABELS.findall(written))
    return labels


@pytest.mark.daemon
def test_each_metric_of_then_is_there(daemon: Daemon) -> None:
    """Names, types and labels; a label may be new."""

    def missing_now() -> set[str]:
        now = series(daemon.get("/metrics")[1])
        return {
            name for name, labels in series(old("metrics.txt")).items() if name not in now or not labels <= now[name]
        }

    nothing_missing(missing_now)


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
