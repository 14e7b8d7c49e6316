"""Counts of commands that ask a Prometheus: none, or fewer than none, is refused before anything is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).parent / "gpusteward"


@pytest.mark.parametrize(("command", "option"), [("advise", "--min-days"), ("report", "--top")])
@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_count_is_at_least_one(command: str, option: str, text: str) -> None:
    """The error names the option, what was expected, and what was found."""
    words = [str(COMMAND), command, "--prometheus", "http://127.0.0.1:9", option, text]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option}: expected a whole number of at least 1, got {text!r}" in done.stderr
