"""Promises of exporter/rounds/logs.py: lines that hide no failure, show no secret and never end the daemon."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from builders import gpu_uuid, snapshot
from exporter.model import PodUid, XidCounts, XidErrors
from exporter.rounds.latest import Latest
from exporter.rounds.limit_facts import Invalid
from exporter.rounds.logs import INVALID, XIDS_TOLD, tell
from patience import PATIENCE

ROOT = Path(__file__).parents[2]

FAILING = r"""
import json, logging, os, structlog, sys
from exporter.rounds import logs

ended = {}
for case, (style, first) in json.loads(sys.argv[1]).items():
    child = os.fork()
    if not child:
        break
    ended[case] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
else:
    print(json.dumps(ended))
    sys.exit()

exec(first)
logs.configure("info", style)

def login(word):
    raise ValueError("no entry")

try:
    login("hunter" + str(2))
except ValueError:
    structlog.get_logger().exception("failed", path="\udcff")
    logging.getLogger("library").warning("%d words", 2)
"""
INTO_FILE = "os.dup2(os.open({file!r}, os.O_WRONLY | os.O_CREAT), 2)"
NO_READER = "reading, writing = os.pipe(); os.close(reading); os.dup2(writing, 2)"
NO_LINE = "kept = open({file!r}, 'wb'); assert kept.fileno() == 2"

Cases = dict[str, tuple[str, str]]
"""Style of the log by the name of the case, and what to do about descriptor 2 before the first line."""


def failing(cases: Cases, *shell: str) -> dict[str, int]:
    """Start Python once and fork it for each case, because its imports take 0.3 s; return each exit code."""
    words = [*shell, sys.executable, "-c", FAILING, json.dumps(cases)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE)
    ended: dict[str, int] = json.loads(done.stdout)
    assert ended.keys() == cases.keys()
    return ended


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """How a failing program ends and what it writes to standard error, by the style; and that without a reader."""
    styles, folder = ("json", "console"), tmp_path_factory.mktemp("failed")
    read = {style: (style, INTO_FILE.format(file=str(folder / style))) for style in styles}
    unread = {f"{style} without reader": (style, NO_READER) for style in styles}
    ended = failing({**read, **unread})
    return {case: (code, (folder / case).read_text() if case in read else "") for case, code in ended.items()}


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_shows_no_variables(style: str, failed: dict[str, tuple[int, str]]) -> None:
    """The values of variables (tokens, passwords) are never logged; the traceback itself is."""
    ended, said = failed[style]
    assert ended == 0
    assert "hunter2" not in said
    assert "in login" in said and "ValueError: no entry" in said


def test_every_line_is_json(failed: dict[str, tuple[int, str]]) -> None:
    """What libraries warn of, too; bytes that are no text are escaped."""
    ended, said = failed["json"]
    assert ended == 0
    error, warned = map(json.loads, said.splitlines())
    assert (error["event"], error["level"], error["path"]) == ("failed", "error", r"\udcff")
    assert (warned["event"], warned["level"], warned["logger"], warned["message"]) == (
        "library.said", "warning", "library", "2 words",
    )  # fmt: skip


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_reader_that_went_away_ends_nothing(style: str, failed: dict[str, tuple[int, str]]) -> None:
    """A log collector may die first: the lines are lost, and the exit code stays 0."""
    ended, _ = failed[f"{style} without reader"]
    assert ended == 0


@pytest.fixture(scope="module")
def without_standard_error(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, bytes]]:
    """How a failing program ends that was started without descriptor 2, and what is in the file that got its number."""
    files = {style: tmp_path_factory.mktemp("kept") / style for style in ("auto", "json", "console")}
    cases = {style: (style, NO_LINE.format(file=str(file))) for style, file in files.items()}
    ended = failing(cases, "sh", "-c", 'exec "$@" 2>&-', "sh")
    return {style: (ended[style], file.read_bytes()) for style, file in files.items()}


@pytest.mark.parametrize("style", ["auto", "json", "console"])
def test_without_standard_error_nothing_is_written_elsewhere(
    style: str, without_standard_error: dict[str, tuple[int, bytes]]
) -> None:
    """Descriptor 2 that was closed at the start belongs to whatever is opened next, and gets no lines."""
    assert without_standard_error[style] == (0, b"")


def invalid(pod: str, number: int = 0) -> Invalid:
    row = "gpusteward annotation nvidia.com/container.*.gpu-memory.limit"
    return Invalid(PodUid(f"uid-{pod}"), "team-a", pod, "main", row, f"key-{number:03}", "eight", "no quantity")


async def told(*rounds: list[Invalid]) -> list[list[tuple[str, str]]]:
    """Let `tell` see rounds with the invalid declarations of each; return pod and key of its log lines, by round."""
    latest, now = Latest(), list[Invalid]()
    with capture_logs() as lines:
        task = asyncio.create_task(tell(latest, lambda: now))
        found = []
        for number, each in enumerate(rounds, start=1):
            now[:] = each
            before = len(lines)
            latest.publish(snapshot(round=number), latest.tally)
            async with asyncio.timeout(10):
                while not any(line["event"] == "sampling.round" and line["round"] == number for line in lines):
                    await asyncio.sleep(0)
            found.append([(one["pod"], one["key"]) for one in lines[before:] if one["event"] == "limits.invalid"])
        task.cancel()
    return found


async def test_a_declaration_in_vain_is_told_once_for_each_change() -> None:
    """It is not logged in every round, but anew when it was fixed and is wrong again."""
    a, b = invalid("a"), invalid("b")
    found = await told([a], [a], [a, b], [b], [a, b])
    assert found == [[("a", "key-000")], [], [("b", "key-000")], [], [("a", "key-000")]]


async def test_the_line_says_what_to_mend() -> None:
    """A warning names the pod and container, the key, its text, and why that cannot be used."""
    latest = Latest()
    with capture_logs() as lines:
        latest.publish(snapshot(), latest.tally)
        task = asyncio.create_task(tell(latest, lambda: [invalid("a")]))
        async with asyncio.timeout(10):
            while not lines:
                await asyncio.sleep(0)
        task.cancel()
    assert lines[0] == {
        "event": "limits.invalid",
        "log_level": "warning",
        "namespace": "team-a",
        "pod": "a",
        "container": "main",
        "row": "gpusteward annotation nvidia.com/container.*.gpu-memory.limit",
        "key": "key-000",
        "text": "eight",
        "reason": "no quantity",
    }


async def test_one_pod_does_not_fill_the_log() -> None:
    """A round has a bounded number of such lines, each pod's first ones first. The others follow in later rounds."""
    many = [invalid("a", number) for number in range(2 * INVALID)]
    first, second, third = await told(*[[*many, invalid("b")]] * 3)
    assert ("b", "key-000") in first
    assert [len(each) for each in (first, second, third)] == [INVALID, INVALID, 1]
    assert {*first, *second, *third} == {(one.pod, one.key) for one in [*many, invalid("b")]}


async def heard(*rounds: XidCounts) -> list[list[tuple[int, int]]]:
    """Let `tell` see rounds with these XIDs; return each XID and its new count from the log lines, by round."""
    latest = Latest()
    with capture_logs() as lines:
        task = asyncio.create_task(tell(latest))
        found = []
        for number, errors in enumerate(rounds, start=1):
            before = len(lines)
            latest.publish(snapshot(round=number, present={gpu_uuid(0): 0}, xid_errors=errors), latest.tally)
            async with asyncio.timeout(10):
                while not any(line["event"] == "sampling.round" and line["round"] == number for line in lines):
                    await asyncio.sleep(0)
            found.append([(one["xid"], one["new_count"]) for one in lines[before:] if one["event"] == "devices.xid"])
        task.cancel()
    return found


async def test_xids_are_told_when_they_come() -> None:
    """Once a round with how many there were, those before the first round too; zeros and repetitions are no news."""

    def counted(**counts: int) -> XidCounts:
        return {gpu_uuid(0): {int(code[1:]): XidErrors(count, 1.0) for code, count in counts.items()}}

    found = await heard(counted(_31=2, _79=0), counted(_31=2, _79=0), counted(_31=10_002, _79=1), counted(_31=1, _79=1))
    assert found == [[(31, 2)], [], [(31, 10_000), (79, 1)], [(31, 1)]]


async def test_a_storm_of_xids_does_not_fill_the_log() -> None:
    """A round logs so many numbers and no more; the others follow."""
    storm: XidCounts = {gpu_uuid(0): {code: XidErrors(1, 1.0) for code in range(XIDS_TOLD + 5)}}
    first, second, third = await heard(storm, storm, storm)
    assert [len(each) for each in (first, second, third)] == [XIDS_TOLD, 5, 0]
    assert len({*first, *second}) == XIDS_TOLD + 5


async def test_the_line_of_an_xid_says_what_it_means() -> None:
    """Which GPU and instance, how often by now, what it means and what helps; of an unknown number just that."""
    latest = Latest()
    errors = {31: XidErrors(2, 1.5, 7), 4711: XidErrors(1, 2.0)}
    with capture_logs() as lines:
        latest.publish(snapshot(present={gpu_uuid(0): 0}, xid_errors={gpu_uuid(0): errors}), latest.tally)
        task = asyncio.create_task(tell(latest))
        async with asyncio.timeout(10):
            while len(lines) < 2:
                await asyncio.sleep(0)
        task.cancel()
    known, strange = lines[:2]
    assert (known["log_level"], known["gpu"], known["uuid"], known["gpu_instance"]) == ("warning", 0, gpu_uuid(0), 7)
    assert (known["xid"], known["count"], known["new_count"], known["last_at"]) == (31, 2, 2, 1.5)
    assert known["cause"] == "application" and "address" in known["meaning"] and known["remedy"]
    assert (strange["xid"], strange["cause"], strange["meaning"], strange["remedy"]) == (4711, None, None, None)
