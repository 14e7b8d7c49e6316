"""
Keeps book of the tests that show a fault: `pytest --faults=FILE`.

What comes in: the marker `fault`, and how each marked test ended. What goes out: FILE, brought up to date.

The law: a mark names faults that there are. A test shows something when all of it passed in this run; what an earlier
run said of a test is replaced, not added to. With several workers, and with `--collect-only`, the same.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from faults.book import Book, Ended, Kept, function, read, write
from faults.rows import FAULTS

PROPERTY = "fault"
RANK = (Ended.COLLECTED, Ended.PASSED, Ended.SKIPPED, Ended.FAILED)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--faults`."""
    told = "bring this file up to date: which tests show which fault of docs/faults.md, and how they ended"
    parser.addoption("--faults", metavar="FILE", type=Path, help=told)


def pytest_configure(config: pytest.Config) -> None:
    """Keep book where that is wanted; a worker leaves it to the one who started it."""
    file = config.getoption("--faults")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Keeping(file))


COLLECTED = pytest.StashKey[Book]()
"""All marked tests that this run collected."""
FILES = pytest.StashKey[frozenset[str]]()
"""The files of all tests that this run collected."""


@pytest.hookimpl(tryfirst=True)  # before `-m` takes some away
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each report of a marked test tell its faults, and note which tests there are."""
    marks = {item: [*item.iter_markers("fault")] for item in items}
    config.stash[COLLECTED] = _book_of(marks)
    config.stash[FILES] = frozenset(item.nodeid.partition("::")[0] for item in items)
    for item, its_own in marks.items():
        for mark in its_own:
            unknown = [row for row in mark.args if row not in FAULTS]
            if unknown or mark.kwargs or not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: fault{mark.args} names no faults of tests/faults/rows.py")
            item.user_properties += [(PROPERTY, row) for row in mark.args]


def _book_of(marks: Mapping[pytest.Item, list[pytest.Mark]]) -> Book:
    rows = {item.nodeid: {row for mark in its_own for row in mark.args} for item, its_own in marks.items()}
    marked = {function(test) for test, its_own in rows.items() if its_own}
    return {
        test: Kept(Ended.COLLECTED, tuple(sorted(its_own)))
        for test, its_own in rows.items()
        if function(test) in marked
    }


class Keeping:
    """The book of one run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._kept: dict[str, Kept] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note which tests there are; of a test that is marked all examples, so that some are told from all."""
        self._kept |= _book_of({item: [*item.iter_markers("fault")] for item in items})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a part of a test ended: the worst counts."""
        rows = {row for name, row in report.user_properties if name == PROPERTY and isinstance(row, int)}
        if rows:
            before = self._kept.get(report.nodeid, Kept(Ended.COLLECTED, ()))
            ended = max(before.ended, Ended(report.outcome), key=RANK.index)
            self._kept[report.nodeid] = Kept(ended, tuple(sorted(rows)))

    def pytest_sessionfinish(self) -> None:
        """Write what this run found over what earlier ones did; a test that it did not run stays as it was."""
        found = read(self._file) if self._file.exists() else {}
        for test, kept in self._kept.items():
            if kept.ended is not Ended.COLLECTED or test not in found:
                found[test] = kept
        write(self._file, found)
