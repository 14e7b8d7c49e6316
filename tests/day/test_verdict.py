"""The verdict on a day finds what leaks, in made-up readings and in a process that really leaks."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from day.readings import MIB, Progress, Reading, Written, read, readings
from day.script import OFTEN, ROUNDS, Event, script
from day.verdict import BOUNDS, FEWEST, PER_ACTION, findings, rows, table

STEADY = Reading(
    round=0,
    seconds=0.0,
    pods=0,
    evictions=0,
    rss=80 * MIB,
    anonymous=60 * MIB,
    descriptors=30,
    threads=6,
    journal=0,
    saved=1000,
)
COUNT = 288


def day(**grown: float) -> list[Reading]:
    """Make a day in which pods come and are evicted; each named quantity grows by so much per round."""
    return [
        replace(
            STEADY,
            round=at,
            pods=at // 20,
            evictions=at // 60,
            journal=at // 60 * 1500,
            **{name: getattr(STEADY, name) + round(each * at) for name, each in grown.items()},
        )
        for at in (number * ROUNDS // COUNT for number in range(COUNT + 1))
    ]


def named(found: Iterator[str]) -> set[str]:
    return {line.partition(":")[0] for line in found}


def test_a_steady_day_is_flat() -> None:
    """Nothing is found, although the journal has grown by its records."""
    assert list(findings(day())) == []
    assert {row.bound.name: row.growth for row in rows(day())}["journal"] > 0


@pytest.mark.parametrize(
    ("quantity", "each", "name"),
    [
        ("rss", 400, "RSS"),
        ("anonymous", 400, "anonymous memory"),
        ("descriptors", 3 / ROUNDS * 2, "open descriptors"),
        ("threads", 8 / ROUNDS, "threads"),
        ("saved", 10, "other saved files"),
    ],
)
def test_a_leak_is_found(quantity: str, each: float, name: str) -> None:
    """400 bytes per round, six descriptors a day, a thread for each loss of the driver: each is found and named."""
    assert named(findings(day(**{quantity: each}))) == {name}


def test_what_fills_in_the_first_quarter_is_no_leak() -> None:
    """Caches fill, and stay."""
    filled = [replace(one, rss=one.rss - 20 * MIB if one.round < ROUNDS // 4 else one.rss) for one in day()]
    assert list(findings(filled)) == []


def test_a_journal_may_grow_by_its_records_alone() -> None:
    """Twice the bytes of its actions are too many."""
    grown = [replace(one, journal=one.evictions * 2 * PER_ACTION) for one in day()]
    assert named(findings(grown)) == {"journal"}


@pytest.mark.parametrize("quantity", ["pods", "evictions"])
def test_an_idle_quarter_proves_nothing(quantity: str) -> None:
    """If no pod began or none was evicted in a quarter, the day fails."""
    half = getattr(day()[COUNT // 2 - 2], quantity)
    idle = [replace(one, **{quantity: min(getattr(one, quantity), half)}) for one in day()]
    assert {"quarter 3", "quarter 4"} <= named(findings(idle))


def test_a_day_of_few_readings_is_refused() -> None:
    """The verdict needs enough readings in each quarter."""
    for short in ([], [STEADY], day()[: 4 * FEWEST - 1]):
        with pytest.raises(ValueError, match="too few readings"):
            list(findings(short))


LEAKING = """
import os, sys, threading
kept = []
print(flush=True)
for number, line in enumerate(sys.stdin):
    if "leak" in sys.argv:
        kept.append(bytes([1]) * (256 << 10))
        os.dup(0)
        if not number % 2:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
    print(flush=True)
"""


@pytest.mark.parametrize("leak", [True, False])
def test_a_process_that_leaks_is_found(tmp_path: Path, leak: bool) -> None:
    """Memory, descriptors and threads of a real process, read as those of the daemon are, and from a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", LEAKING, "leak" if leak else ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    written = Written(tmp_path / "day.csv")
    with process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        for number in range(4 * FEWEST + 4):
            (tmp_path / "journal").write_text("x" * 1500 * number)
            written.add(read(process.pid, tmp_path, Progress(number, float(number), number, number)))
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
        process.stdin.close()
    written.close()
    (tmp_path / "journal").unlink()
    found = named(findings(list(readings(tmp_path / "day.csv"))))
    leaks = {"RSS", "anonymous memory", "open descriptors", "threads"}
    assert found & leaks == (leaks if leak else set()), found


def test_the_script_of_a_day() -> None:
    """Each event happens as often as it says, in each half of the day, and the quiet ends stay quiet."""
    turns = script()
    assert {event: sum(turn.event is event for turn in turns) for event in Event} == dict(OFTEN)
    for event in Event:
        assert {turn.round < ROUNDS // 2 for turn in turns if turn.event is event} == {True, False}
    assert turns[0].round >= ROUNDS // 20 and turns[-1].round <= ROUNDS * 19 // 20
    assert turns == sorted(turns)


def test_the_table_and_the_picture(tmp_path: Path) -> None:
    """The table has a row per quantity. The same day gives the same picture, which runs no scripts."""
    lines = list(table(day()))
    assert [line.split("|")[1].strip() for line in lines[2:]] == [bound.name for bound in BOUNDS]
    assert "| RSS | 80.00 MiB | 80.00 MiB | 80.00 MiB | 0.00 MiB | 3.00 MiB |" in lines[2]
    pytest.importorskip("matplotlib", reason="`make docs-site` installs it; CI runs this test after that")
    drawing = importlib.import_module("day.drawing")
    for name in ("one.svg", "two.svg"):
        drawing.draw(day(), script(), tmp_path / name)
    assert (tmp_path / "one.svg").read_text() == (text := (tmp_path / "two.svg").read_text())
    assert "open descriptors" in text and "<script" not in text
