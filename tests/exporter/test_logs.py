"""Promises of exporter/logs.py: lines that hide no failure, show no secret and never end the daemon."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FAILING = """
import logging, structlog
from exporter import logs

logs.configure("info", "{style}")

def login(word):
    raise ValueError("no entry")

try:
    login("hunter" + str(2))
except ValueError:
    structlog.get_logger().exception("failed", path="\\udcff")
    logging.getLogger("library").warning("%d words", 2)
"""


def program(text: str, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", text], cwd=ROOT, stderr=stderr, text=True, check=True, timeout=30)


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_shows_no_variables(style: str) -> None:
    """What stands in variables (tokens, passwords) is nobody's business; the traceback itself is told."""
    said = program(FAILING.format(style=style)).stderr
    assert "hunter2" not in said
    assert "in login" in said and "ValueError: no entry" in said


def test_every_line_is_json() -> None:
    """What libraries warn of, too; bytes that are no text are escaped."""
    failed, warned = map(json.loads, program(FAILING.format(style="json")).stderr.splitlines())
    assert (failed["event"], failed["level"], failed["path"]) == ("failed", "error", r"\udcff")
    assert (warned["event"], warned["level"], warned["logger"], warned["message"]) == (
        "library.said", "warning", "library", "2 words",
    )  # fmt: skip


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_reader_that_went_away_ends_nothing(style: str) -> None:
    """A log collector may die first: the lines are lost, and the exit code stays 0."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        program(FAILING.format(style=style), writing)
    finally:
        os.close(writing)


@pytest.mark.parametrize("style", ["auto", "json", "console"])
def test_without_standard_error_nothing_is_written_elsewhere(tmp_path: Path, style: str) -> None:
    """Descriptor 2 that was closed at the start belongs to whatever is opened next, and gets no lines."""
    file = tmp_path / "file"
    text = f"kept = open({str(file)!r}, 'wb'); assert kept.fileno() == 2\n{FAILING.format(style=style)}"
    subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", text], cwd=ROOT, check=True, timeout=30)
    assert file.read_bytes() == b""
