"""The reader's terminal, by which the commands of the pages are tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import terminal
from cluster.terminal import Done, Terminal


def test_a_command_that_is_never_good_is_shown_as_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run again and again. What was printed last is returned, not the nothing of a run that has just begun."""
    monkeypatch.setattr(terminal, "PATIENCE", 0.3)
    monkeypatch.setattr(terminal, "PAUSE", 0.2)
    with Terminal(tmp_path, {}) as reader:
        done = reader.run("echo not yet; exit 3", lambda _: False, again=True)
    assert done == Done(3, "not yet\n")
