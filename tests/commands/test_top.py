"""docs/top.md says what `gpusteward top` takes, and what its words mean."""

import argparse
import re
from pathlib import Path

from enforcer.commands import top
from exporter.top.layout import HEAD

PAGE = (Path(__file__).parents[2] / "docs" / "top.md").read_text(encoding="utf-8")


def test_the_page_has_each_flag() -> None:
    """In its table, and no other."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    top.add(commands)
    taken = set(re.findall(r"--[a-z]+", commands.choices["top"].format_usage()))
    assert set(re.findall(r"^\| `(--[a-z]+)", PAGE, re.MULTILINE)) == taken


def test_the_page_has_each_word() -> None:
    """The page has what a person may look up: columns, ages, states of containers without a policy."""
    columns = (HEAD.used, HEAD.limit, HEAD.share, HEAD.sm, *HEAD.notes)
    for word in (*columns, "live", "INCOMPLETE", "STALE", "over", "near", "no process"):
        assert word in PAGE, word


def test_a_number_without_end_is_no_traceback() -> None:
    """A figure of 5,000 digits is kept as text, and the others stay numbers."""
    digits = "9" * 5000
    assert top._json(f'{{"a": {digits}, "b": 7}}'.encode()) == f'{{"a": "{digits}", "b": 7}}\n'
