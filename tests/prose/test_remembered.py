"""Promises of prose/remembered.py: the same findings as without a memory, and no second look at an unchanged file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from prose.linting import Finding
from prose.remembered import remembered

FILES = {"a.md": "right", "b.md": "wrong", "c.md": "wrong too"}


class Looking:
    """Finds each file that is wrong, and notes which files it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, files: Mapping[str, str]) -> list[Finding]:
        self.asked += files
        return [Finding(path, 1, "rule", "message", text) for path, text in files.items() if "wrong" in text]


def test_an_unchanged_file_is_looked_at_once(tmp_path: Path) -> None:
    """The findings of the second run are those of the first, and a changed file is looked at anew."""
    look, kept = Looking(), tmp_path / "cache" / "prose.json"
    first = remembered(FILES, look, kept)
    assert [one.path for one in first] == ["b.md", "c.md"] and look.asked == [*FILES]
    assert remembered(FILES, look, kept) == first and look.asked == [*FILES]
    after = remembered({**FILES, "b.md": "right now"}, look, kept)
    assert [one.path for one in after] == ["c.md"] and look.asked == [*FILES, "b.md"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null"], ids=["empty", "cut off", "a list", "null"])
def test_a_memory_that_cannot_be_read_costs_time_alone(tmp_path: Path, text: str) -> None:
    """Everything is looked at again."""
    look, kept = Looking(), tmp_path / "prose.json"
    kept.write_text(text)
    assert len(remembered(FILES, look, kept)) == 2 and look.asked == [*FILES]


def test_other_rules_are_another_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other rules found says nothing about these."""
    look, kept = Looking(), tmp_path / "prose.json"
    remembered(FILES, look, kept)
    monkeypatch.setattr("prose.remembered._rules", lambda: "other rules")
    remembered(FILES, look, kept)
    assert look.asked == [*FILES, *FILES]
