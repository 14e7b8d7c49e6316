"""
What gpusteward 0.1 wrote and said, read and said again by the code of today.

In: the files of `fixtures/0.1`, which commit 7d90aba wrote (README.md there names the commands). Out: each is readable,
and what is said of it has at least the names of release 0.1. Law: names (commands, flags, config keys, keys of
documents, metrics and their labels) stay, and there may be more of them. The policy's verdicts change; other tests
look at these.
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

import msgspec
import pytest
from structlog.testing import capture_logs

from command_line import commands
from daemon.running import Daemon
from default_rules import default_rules
from enforcer.cli import parser
from enforcer.journal import file as journal_file
from enforcer.journal.records import decode, encode
from enforcer.policy.vocabulary import Breaker, State
from exporter.config import Arguments, ConfigError, load
from exporter.config.arguments import exporter_parser
from exporter.config.policy import REMOVED, removed
from exporter.model import Hardware
from patience import PATIENCE

FIXTURES = Path(__file__).parent / "fixtures" / "0.1"
COMMAND = Path(sys.executable).with_name("gpusteward")
GONE = {
    ".policy.budget_remaining.workload: number",  # a workload has a back-off instead of a budget
    ".limits[].report_only[]: text",  # verdicts: limits of MIG instances and of shared claims are judged by the policy
}
"""Names of 0.1's documents that are gone: CHANGELOG.md says so of each."""
RENAMED_METRICS = {
    "gpusteward_held": "gpusteward_held_containers",
    "gpusteward_processes": "gpusteward_gpu_processes",
}
"""Metrics that have another name since: CHANGELOG.md lists them first."""
RENAMED_KEYS = {"memory_evicted_seconds": "queue_evicted_seconds"}
"""Keys of the JSON documents that have another name since: CHANGELOG.md says so of each."""
RENAMED = {"rehearsed": "dry_run"}
"""Log events that have another name since: CHANGELOG.md says so of each."""
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
    """
    List the names of 0.1 that are there no more, or have a value of another type.

    A value that was null, because a verdict had none, may be of any type now.
    """
    present = names(now)
    return names(expected) - present - {path.partition(":")[0] for path in present} - GONE


def gpusteward(*words: str | Path, program: str = "gpusteward") -> subprocess.CompletedProcess[str]:
    """Run a command in the folder of the fixtures to its end; lines are as long as they like."""
    return subprocess.run(
        [str(COMMAND.with_name(program)), *map(str, words)],
        cwd=FIXTURES,
        env={**os.environ, "COLUMNS": "1000", "NODE_NAME": "node-7"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


# --- command line and config -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_and_flag_is_still_there(name: str) -> None:
    """Each flag of then is accepted, with a value or without as then, also by a command whose help lists it no more."""
    then = old(f"help/{name}.txt")
    now = commands().get(name) or (parser() if name == "gpusteward" else exporter_parser(name, "0"))
    flags = {flag: action for action in now._actions for flag in action.option_strings}
    written = re.findall(r"^  (-[^ ].*?)(?:  |$)", then, re.MULTILINE)
    assert written and then.startswith(f"usage: {now.prog} ")
    for flag in ", ".join(written).split(", "):
        word, _, metavar = flag.partition(" ")
        action = flags[word]
        assert metavar == (action.metavar or (action.dest.upper() if action.nargs is None else "")), flag
    if name == "gpusteward":
        assert set(re.findall(r"^    ([a-z]+) ", then, re.MULTILINE)) <= commands().keys()


def without_removed(data: dict[str, Any]) -> dict[str, Any]:
    """Leave out the keys that 0.2 has no more."""
    for key in REMOVED:
        *sections, name = key.split(".")
        part = data
        for section in sections:
            part = part[section]
        del part[name]
    return data


def test_each_config_key_is_still_there(tmp_path: Path) -> None:
    """
    A file with all keys of 0.1, each with its default of then, is taken without those that were removed.

    It says what no file says, but for the defaults that are others since: trigger, DaemonSet pods, pods without a
    controller.
    """
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(without_removed(json.loads(old("config.yaml")))))
    of_then, of_now = load(Arguments(file)), load(Arguments(overrides={"node.name": "node-7"}))
    assert (of_then.policy.trigger, of_now.policy.trigger) == ("contended", "limit")
    protect = msgspec.structs.replace(of_then.policy.protect, daemon_sets=False, bare_pods=False)
    policy = msgspec.structs.replace(of_then.policy, trigger="limit", protect=protect)
    assert msgspec.structs.replace(of_then, policy=policy) == of_now


@pytest.mark.parametrize("key", REMOVED)
def test_a_removed_key_is_refused_with_what_replaces_it(tmp_path: Path, key: str) -> None:
    """0.1's file as it is does not start 0.2: the error names a key that is gone, and what to do."""
    data = json.loads(old("config.yaml"))
    kept: Any = data
    for name in key.split("."):
        kept = kept[name]
    data = without_removed(data)
    (data["policy"]["budgets"] if "budgets" in key else data["policy"])[key.rpartition(".")[2]] = kept
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=re.escape(str(removed(key, str(file))))):
        load(Arguments(file))


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
    """
    As many rounds as then; each kind of line that was written then has the keys of then.

    Lines of states are one kind: in which states a pod is, is the policy's verdict.
    """

    def by_kind(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
        kinds: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            event = RENAMED.get(line["event"], line["event"])
            kinds.setdefault("state" if event in tuple(State) else event, []).append(line)
        return kinds

    before = [json.loads(line) for line in old(expected).splitlines()]
    now = replayed(recording)[1]
    assert now[-1]["rounds"] == before[-1]["rounds"]
    for kind, lines in by_kind(before).items():
        assert not missing(lines, by_kind(now)[kind])


@pytest.mark.daemon
def test_a_torn_recording_is_read_to_the_same_line(tmp_path: Path) -> None:
    """Of a recording that was cut off, as many rounds are replayed, and its last line reports as many as in 0.1."""
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes((FIXTURES / "node.jsonl.gz").read_bytes()[:60_000])
    _, lines = replayed(torn)
    assert lines[-1]["rounds"] == json.loads(old("replay-torn.jsonl").splitlines()[-1])["rounds"]


@pytest.mark.daemon
def test_a_recording_is_written_as_it_was(tmp_path: Path) -> None:
    """
    What `record` makes of a recording has its lines, keys and values.

    `consumers` of a claim, which no version read, is gone. `reservation` and `deleted` of a pod are new, `watched` of a
    claim, and `hardware` and the memory's temperature of a GPU. The host is asked once for the processes of all GPUs,
    and no longer for each GPU.
    """
    made = tmp_path / "again.jsonl"
    ended = gpusteward("record", "-o", made, "--devices=recorded:moment.jsonl", "--rounds=1")
    assert ended.returncode == 0, ended.stderr
    expected = [lasting(json.loads(line)) for line in old("again.jsonl").splitlines()]
    now = [lasting(json.loads(line)) for line in made.read_text().splitlines()]
    for inventory in (line["inventory"] for line in expected if isinstance(line.get("inventory"), dict)):
        assert all(claim.pop("consumers") for claim in inventory["claims"])
    for inventory in (line["inventory"] for line in now if isinstance(line.get("inventory"), dict)):
        assert {pod.pop("reservation") for pod in inventory["pods"].values()} == {""}
        assert {pod.pop("deleted") for pod in inventory["pods"].values()} == {False}
        assert [claim.pop("watched") for claim in inventory["claims"]] == [[]] * len(inventory["claims"])
    for gpu in (sample["gpu"] for line in now for sample in line.get("gpus", ())):
        assert msgspec.convert(gpu.pop("hardware"), Hardware) == Hardware()
        assert gpu["health"].pop("memory_temperature_celsius") is None
    assert [len(one["hosts"]) for one in now if one["line"] == "round"] == [2]
    assert apart(now) == apart(expected)


def apart(lines: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[bool, tuple[set[int], dict[str, Any]]]]:
    """Take the answers of the host out of a recording, and put together those with and without all living processes."""
    rest, answers = [], {False: (set[int](), dict[str, Any]()), True: (set[int](), dict[str, Any]())}
    for line in lines:
        if line["line"] != "host":
            rest.append({key: value for key, value in line.items() if key != "hosts"})
            continue
        asked, merged = answers[line["host"]["want_living"]]
        asked |= set(line["host"]["asked"])
        for key, value in line["host"]["sample"].items():
            if isinstance(value, dict):
                merged.setdefault(key, {}).update(value)
            else:
                assert merged.setdefault(key, value) == value
    places = {line["number"]: place for place, line in enumerate(rest) if "number" in line}
    for line in rest:
        line |= {key: places[line[key]] for key in ("number", "inventory", "xids") if isinstance(line.get(key), int)}
        for sample in line.get("gpus", ()):
            sample["processes"] = places[sample["processes"]]
    return rest, answers


# --- what the daemon serves ------------------------------------------------------------------------------------------


def renamed(document: str) -> str:
    """Put the names of now into a JSON document of then."""
    for before, after in RENAMED_KEYS.items():
        document = document.replace(f'"{before}":', f'"{after}":')
    return document


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
    deadline = time.monotonic() + PATIENCE
    while (last := missing_now()) and time.monotonic() < deadline:
        time.sleep(0.25)
    assert not last


@pytest.mark.daemon
@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_document_has_each_key_of_then(daemon: Daemon, name: str) -> None:
    """Each key is there with a value of the same type, also those of a dry run's eviction and of held pods."""

    def missing_now() -> set[str]:
        status, body = daemon.get(DOCUMENTS[name])
        return missing(json.loads(renamed(old(name))), json.loads(body) if status == 200 else None)

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
    """Names, types and labels; a label may be new. Renamed metrics are there under their new name alone."""
    then = old("metrics.txt")
    for before, after in RENAMED_METRICS.items():
        assert re.search(rf"^{before}{{", then, re.MULTILINE), before
        then = re.sub(rf"\b{before}\b", after, then)

    def missing_now() -> set[str]:
        now = series(daemon.get("/metrics")[1])
        assert not RENAMED_METRICS.keys() & now.keys()
        return {name for name, labels in series(then).items() if name not in now or not labels <= now[name]}

    nothing_missing(missing_now)


# --- the journal -----------------------------------------------------------------------------------------------------


def whole_lines(name: str) -> list[bytes]:
    """Read the lines of a journal that have an end."""
    return (FIXTURES / name).read_bytes().split(b"\n")[:-1]


def taken_over(data: bytes, boot: str, folder: Path) -> dict[str, Any]:
    """
    Have the journal's own code take over a journal in this boot. Return the state that it adds up to, as it is written.

    Opening a journal that is too large rewrites it as the one record `state`. Here each journal is too large.
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
    # The line had the name `journal.mended` then.
    told = [["journal.mended", one["damage"], [*one["problems"]]] for one in logs if one["event"] == "journal.repaired"]
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


RETIRED = {"struck", "exceeds", "within"}
"""Records that are read, and not written any more."""
NOT_DONE = {"refused", "failed"}
"""Ends that give the token back since: it was certain in 0.1, too, that nothing was done."""


def given_back(data: bytes) -> int:
    """Count the tokens of actions that ended so."""
    read = [json.loads(line) for line in data.split(b"\n") if decode(line)]
    real = {one["decision"] for one in read if one["record"] == "intent" and not one["action"]["dry"]}
    return sum(one["record"] == "ended" and one["result"] in NOT_DONE and one["decision"] in real for one in read)


@pytest.mark.parametrize("case", sorted(journals()))
def test_a_journal_adds_up_to_the_same(case: str, tmp_path: Path) -> None:
    """
    Spent budgets, breakers, open decisions and fences add up to the same; a damaged journal is logged as before.

    A dry run takes nothing from the budget any more. An action that was certainly not carried out gives its part back.
    Breakers that no longer exist, `strikes` and `excesses` count for nothing.
    """
    data, boot = journals()[case]
    before, now = json.loads(old("journal-states.json"))[case], taken_over(data, boot, tmp_path)
    assert now["told"] == before["told"]
    then, state = before["state"], now["state"]
    assert {"strikes", "excesses"} & state.keys() == set()
    for name in ("seq", "boot_id", "boottime", "time", "record", "detail", "fences"):
        assert state[name] == then[name], name
    assert state["breakers"] == {
        name: {"at": opened["at"], "detail": opened["detail"]}
        for name, opened in then["breakers"].items()
        if name in tuple(Breaker)
    }
    for opened in state["open"].values():
        assert opened["action"].pop("allowance") == 0
    assert state["open"] == then["open"]
    tokens = [(token["at"], token["workload"]) for token in then["spent"] if not token["dry"]]
    kept = [(token["at"], token["workload"]) for token in state["spent"]]
    assert all(token in tokens for token in kept)
    assert len(tokens) - len(kept) == given_back(data)


@pytest.mark.parametrize("name", ["journal", "journal.rewritten"])
def test_each_kind_of_record_is_written_with_the_fields_of_then(name: str) -> None:
    """What is still written says the same under the same names; `until` of a breaker is gone, `allowance` is new."""
    for line in whole_lines(name):
        read = decode(line)
        assert read is not None, line
        before, now = json.loads(line), json.loads(encode(*read))
        if before["record"] in RETIRED or before["record"] == "state":
            continue
        for one in (before, now):
            one.pop("sum")
            one.get("action", {}).pop("allowance", None)
            one.get("opened", {}).pop("until", None)
        assert now == before


def test_the_journals_hold_each_kind_of_record() -> None:
    """The fixtures are what they are meant to be: docs/journal.md lists the kinds."""
    kinds = {json.loads(line)["record"] for line in whole_lines("journal")}
    assert kinds == {
        *("state", "started", "stopped", "intent", "sent", "acked", "ended", "breaker_opened", "breaker_closed"),
        *("struck", "exceeds", "within", "fenced", "unfenced"),
    }
    assert not (FIXTURES / "journal").read_bytes().endswith(b"\n")
