"""Promises of exporter/recording: what was said comes back, and what is no recording is refused where it is wrong."""

import gzip
import json
import os
import re
import resource
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builders import GIB, gpu, leaf, memory
from exporter.model import (
    CgroupMemory,
    ContainerId,
    Fault,
    GpuProcess,
    GpuSample,
    HostProcess,
    HostSample,
    Inventory,
    Owner,
    Pod,
    PodUid,
    ProcessKey,
    ProcessKind,
    ProcessUtilization,
    Sharing,
    XidErrors,
)
from exporter.recording import FORMAT, Header, HostRead, Reading, RecordedRound, RecordingError, Writing
from exporter.recording.lines import SHELF
from recordings import rounds

HEADER = Header(gpusteward_recording=FORMAT, program="1.2.3", node="node-1", started_at=1e9, interval=5.0)
HEADER_LINE = json.dumps(
    {"line": "header", "gpusteward_recording": 1, "program": "1", "node": "n", "started_at": 1.0, "interval": 5.0}
)
POD, CONTAINER = PodUid("11111111-1111-1111-1111-111111111111"), ContainerId("a" * 64)
INVENTORY = Inventory(
    pods={POD: Pod(POD, "team", "train", labels={"app": "x"})},
    sharing={leaf(0): (Sharing.TIME_SLICING, 4), leaf(1, 7): (Sharing.MIG, 1)},
    known=True,
    faults=(Fault("names", "api_away", "away", incomplete=False),),
)


def host(*pids: int, living: bool = False) -> HostRead:
    owner = Owner(((POD, CONTAINER), (None, None)))
    processes = {pid: HostProcess(ProcessKey(pid, 77), alive=True, owner=owner) for pid in pids}
    sample = HostSample(processes, frozenset({9}), frozenset({owner}) if living else None, pid_domain_proven=True)
    return HostRead(frozenset({*pids, 9}), sample, want_living=living)


def a_round(number: int = 1, *pids: int, held: int = GIB) -> RecordedRound:
    """Make a round in which one GPU lists these processes, and another one does not answer."""
    whole = gpu(0, memory=memory())
    kinds = frozenset({ProcessKind.COMPUTE, ProcessKind.MPS})
    processes = tuple(GpuProcess(leaf(0), pid, kinds, held) for pid in pids)
    return RecordedRound(
        number,
        1e9 + number,
        float(number),
        0.25,
        frozenset({whole.uuid}) if number % 2 == 0 else None,
        {whole.uuid: 0, gpu(1).uuid: 1},
        (GpuSample(whole, 1e9 + number, processes, (ProcessUtilization(1, 0.5, 0.1, 0.0, 0.0),), 2),),
        (Fault("devices", "gpu_lost", "gone", gpu(1).uuid),),
        (host(*pids), host(living=True)),
        INVENTORY,
    )


def written(path: Path, *recorded: RecordedRound) -> Path:
    with Writing(path, HEADER) as writing:
        for one in recorded:
            writing.add(one)
    assert writing.size == path.stat().st_size
    return path


def lines(path: Path) -> list[str]:
    return [json.loads(line)["line"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_what_was_said_comes_back(tmp_path: Path, name: str) -> None:
    """Each round equals the one that was written, whatever it holds: unknown parts, MIG keys, early rounds, faults."""
    nothing = replace(a_round(3), samples=(replace(a_round(3).samples[0], processes=None, utilization=None),))
    counted = CgroupMemory(Owner(((PodUid("p"), ContainerId("c" * 64)),)), leaf(0), GIB, limit=2 * GIB, peak=GIB)
    amd = replace(
        a_round(4).samples[0],
        utilization=(ProcessUtilization(1, None, None, 0.5, None),),
        cgroups=(counted, replace(counted, limit=None, peak=None)),
        processes=(GpuProcess(leaf(0), 1, frozenset(), GIB, memory_sure=0),),
    )
    given = [
        a_round(1, 5, 6),
        a_round(2, 5),
        nothing,
        replace(a_round(4), samples=(amd,)),
        RecordedRound(5, 0.0, 0.0, 0.0),
        replace(a_round(6), by_time=False),
        replace(a_round(7), by_time=False),
    ]
    path = written(tmp_path / name, *given)
    assert list(rounds(path)) == given
    with Reading(path) as reading:
        assert (reading.header, list(reading), reading.torn) == (HEADER, given, "")
    assert path.read_bytes().startswith(b"\x1f\x8b") is name.endswith(".gz")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "it names everybody on the node"


def test_what_stays_is_written_once(tmp_path: Path) -> None:
    """An unchanged inventory, process list or answer of the kernel is named by its number, not repeated."""
    path = written(tmp_path / "r", a_round(1, 5), a_round(2, 5), a_round(3, 5, held=2 * GIB))
    assert lines(path) == ["header", "inventory", "host", "host", "processes", *["round"] * 2, "processes", "round"]


@pytest.mark.parametrize("fact", ["memory", "total", "free", "reserved", "used", "limit", "peak"])
def test_a_negative_size_is_refused(tmp_path: Path, fact: str) -> None:
    """No source reports less than nothing: such a file is not computed again, and the error names the line."""
    held = CgroupMemory(Owner(), leaf(0), 7, limit=7, peak=7)
    sample = replace(a_round(1, 5).samples[0], cgroups=(held,))
    path = written(tmp_path / "r", replace(a_round(1, 5), samples=(sample,)))
    text, count = re.subn(rf'"{fact}":\d+', f'"{fact}":-1', path.read_text())
    assert count
    path.write_text(text)
    with pytest.raises(RecordingError, match=r"r:\d+: a.* of -1 bytes"):
        list(rounds(path))


@pytest.mark.parametrize(
    ("named", "other"),
    [
        ('"inventory":1,"hosts"', '"inventory":2,"hosts"'),
        ('"hosts":[2', '"hosts":[4'),
        ('"processes":4', '"processes":1'),
    ],
)
def test_a_part_of_another_kind_is_refused(tmp_path: Path, named: str, other: str) -> None:
    """A round that takes a list of processes for an answer of the kernel is no round, and no traceback follows."""
    path = written(tmp_path / "r", a_round(1, 5))
    text = path.read_text()
    assert named in text
    path.write_text(text.replace(named, other))
    with pytest.raises(RecordingError, match="a part of another kind"):
        list(rounds(path))


def test_xids_are_written_when_they_change(tmp_path: Path) -> None:
    """Counters that do not change cost nothing. Where XIDs were not listened for there are none, and none come back."""
    uuid = gpu(0).uuid
    heard = [{uuid: {31: XidErrors(count, 1.5 if count else None, 0), 79: XidErrors()}} for count in (0, 0, 3)]
    given = [replace(a_round(number, 5), xid_errors=errors) for number, errors in enumerate([*heard, {}], start=1)]
    path = written(tmp_path / "r", *given)
    assert lines(path).count("xids") == 2
    assert list(rounds(path)) == given


def test_a_recording_from_before_there_were_xids_plays(tmp_path: Path) -> None:
    """A round that names no such part has heard of none; a GPU without GPM figure has none."""
    path = written(tmp_path / "r", a_round(1, 5))
    assert b"xid" not in path.read_bytes()
    (recorded,) = rounds(path)
    assert recorded.xid_errors == {}


def test_neither_side_remembers_more_than_the_shelf(tmp_path: Path) -> None:
    """However much changes, old parts are let go on both sides alike; what is still named stays."""
    given = [a_round(number, 5, number) for number in range(1, SHELF + 10)]
    path = written(tmp_path / "r", *given)
    with Reading(path) as reading:
        assert list(reading) == given
        assert len(reading._shelf) == SHELF
    assert lines(path).count("inventory") == 1


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_torn_end_costs_the_last_round(tmp_path: Path, name: str) -> None:
    """A process that was killed leaves a file whose whole rounds are read. What is missing is reported."""
    given = [a_round(1, 5), a_round(2, 5, 6), a_round(3, 7)]
    content = written(tmp_path / name, *given).read_bytes()
    torn = tmp_path / "torn"
    for cut in (1, 20, 100):
        torn.write_bytes(content[:-cut])
        with Reading(torn) as reading:
            found = list(reading)
            assert found == given[: len(found)] and found
            assert reading.torn, cut
        if name == "r.jsonl":
            assert (found, "torn off" in reading.torn) == (given[:2], True)


def test_after_each_round_the_file_can_be_read(tmp_path: Path) -> None:
    """Nothing waits in a buffer: a kill right after a round leaves that round, compressed or not."""
    for name in ("r", "r.gz"):
        with Writing(tmp_path / name, HEADER) as writing:
            for number in (1, 2, 3):
                writing.add(a_round(number, 5))
                assert [one.number for one in rounds(tmp_path / name)] == list(range(1, number + 1))


def edited(line: int, change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        found = content.decode().splitlines()
        found[line - 1] = change(found[line - 1])
        return "\n".join([*found, ""]).encode()

    return edit


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda _: b"", ": expected a recording, got an empty file"),
        (lambda _: b"{}\n", ":1: expected the header of a recording, got {}"),
        (lambda _: b"half", ": expected a recording, got only line 1, which is torn off after 4 bytes"),
        (lambda _: b"PK\x03\x04\xff\n", ":1: expected the header of a recording"),
        (lambda content: content.split(b"\n", 1)[1], ":1: expected the header of a recording"),
        (
            edited(1, lambda line: line.replace(f":{FORMAT},", ":7,", 1).replace("1.2.3", "9.9")),
            ":1: expected format 1, got format 7, which gpusteward 9.9 wrote: read it with that version or a later one",
        ),
        (edited(1, lambda line: line.replace('"interval":5.0', '"interval":null')), ":1: expected the header"),
        (edited(3, lambda line: line[:40]), ":3: expected a round or a part of one, as gpusteward writes it"),
        (edited(3, lambda _: "[" * 100_000), ":3: expected a round or a part of one"),
        (edited(3, lambda line: line.replace('"pid":5', '"pid":"five"')), "$.host.sample.processes[...].key.pid"),
        (edited(2, lambda line: line.replace('"number":1', '"number":99')), "the round names part 1, which no line"),
        (edited(3, lambda _: HEADER_LINE), ":3: a second header"),
        (lambda content: content + b"x" * (17 << 20), "bytes"),
    ],
)
def test_what_is_no_recording_is_refused_with_its_place(
    tmp_path: Path, edit: Callable[[bytes], bytes], told: str
) -> None:
    """One sentence with file, line and what was expected; compressed or not, and never anything but RecordingError."""
    content = edit(written(tmp_path / "good", a_round(1, 5), a_round(2, 5)).read_bytes())
    for name, bytes_ in (("plain", content), ("packed", gzip.compress(content))):
        path = tmp_path / name
        path.write_bytes(bytes_)
        with pytest.raises(RecordingError) as refused:
            list(rounds(path))
        assert str(refused.value).startswith(str(path)) and told in str(refused.value)


def test_a_damaged_compression_is_told(tmp_path: Path) -> None:
    """Bits that flipped in the middle: after which line."""
    path = written(tmp_path / "r.gz", *(a_round(number, number) for number in range(1, 200)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"r\.gz(:\d+: expected|: damaged after line \d+)"):
        list(rounds(path))


def test_parts_that_no_round_names_are_not_collected_for_ever(tmp_path: Path) -> None:
    """A file of parts alone is refused before it fills the memory."""
    good = written(tmp_path / "good", a_round(1, 5)).read_text().splitlines()
    part = good[2]
    with (tmp_path / "bad").open("w") as file:
        file.write(good[0] + "\n")
        file.writelines(part.replace('"number":2', f'"number":{number}', 1) + "\n" for number in range(5000))
    with pytest.raises(RecordingError, match="parts without a round"):
        list(rounds(tmp_path / "bad"))


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    """An older recording may be evidence."""
    path = written(tmp_path / "r", a_round(1))
    before = path.read_bytes()
    with pytest.raises(RecordingError, match="exists already"):
        Writing(path, HEADER)
    assert path.read_bytes() == before


def test_what_cannot_be_read_or_made_is_named(tmp_path: Path) -> None:
    """A folder that is missing, a folder in the place of a file, a pipe without a reader."""
    with pytest.raises(RecordingError, match="no such file or directory"):
        Writing(tmp_path / "missing" / "r", HEADER)
    with pytest.raises(RecordingError, match="no such file or directory"):
        Reading(tmp_path / "missing")
    with pytest.raises(RecordingError, match="is a directory"):
        Reading(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordingError, match="not a regular file"):
        Reading(tmp_path / "pipe")
    with pytest.raises(RecordingError, match="cannot be written: no such device or address"):
        Writing(tmp_path / "pipe", HEADER)


def test_a_full_disk_is_told() -> None:
    """No space left: at once, with the file's name."""
    with pytest.raises(RecordingError, match="/dev/full: cannot be written: no space left on device"):
        Writing(Path("/dev/full"), HEADER)


@pytest.mark.parametrize("name", ["r", "r.gz"])
def test_a_disk_that_becomes_full_leaves_whole_rounds(tmp_path: Path, name: str) -> None:
    """Where the file cannot grow any more it ends with the round before, and is readable."""
    path = tmp_path / name
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writing = Writing(path, HEADER)
    number = 0

    def fill() -> None:
        nonlocal number
        while number < 1000:
            number += 1
            writing.add(a_round(number, *range(number, number + 50), held=number))

    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
        with pytest.raises(RecordingError, match="cannot be written: file too large"):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    writing.close()
    assert writing.rounds == number - 1 > 0
    assert [one.number for one in rounds(path)] == list(range(1, number))


def test_a_recording_of_0_1_says_which_rounds_the_clock_asked_for(tmp_path: Path) -> None:
    """Then full rounds were due by the clock, and movement asked for the others: such rounds are written as then."""
    then = [a_round(1), replace(a_round(2), by_time=False)]
    path = written(tmp_path / "r.jsonl", *then)
    assert "by_time" not in path.read_text()
    assert [recorded.by_time for recorded in rounds(path)] == [True, False]
    written(tmp_path / "now.jsonl", replace(a_round(2), by_time=True))
    assert '"by_time":true' in (tmp_path / "now.jsonl").read_text()
