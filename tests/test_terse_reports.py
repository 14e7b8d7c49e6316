"""Promises of tests/terse_reports.py: with workers, whatever did not pass is still reported."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

@pytest.fixture
def breaks_before():
    raise RuntimeError("before")

@pytest.fixture
def breaks_after():
    yield
    raise RuntimeError("after")

def test_passes(): pass
def test_fails(): assert False
def test_errs_before(breaks_before): pass
def test_errs_after(breaks_after): pass
@pytest.mark.skip(reason="why not")
def test_is_skipped(): pass
"""


def test_what_did_not_pass_is_reported(tmp_path: Path) -> None:
    """A setup or teardown that breaks is an error of the run, as it is without workers; a skipped test is counted."""
    (tmp_path / "test_all_ends.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "terse_reports", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    ended = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1].startswith("1 failed, 2 passed, 1 skipped, 2 errors in "), ended.stdout
    assert {word for word in ("before", "after") if f"RuntimeError: {word}" in ended.stdout} == {"before", "after"}
