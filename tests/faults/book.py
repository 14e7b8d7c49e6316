"""
Which test shows which fault: what a run of the tests found out, and what follows from that.

What comes in: a file that `pytest --faults` keeps, the faults. What goes out: docs/faults.md, what is missing.

The law: of a fault every step is shown, each by a test that passed; where a test lies says which step it shows. The
page is the same for every run: it tells which tests there are, not how they ended.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from faults.rows import FAULTS, Step

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "faults.md"
PLACES = (
    ("policy/", Step.DECIDED),
    ("runtime/test_decider", Step.DECIDED),
    ("actions/", Step.ACTED),
    ("commands/", Step.ACTED),
    ("journal/", Step.ACTED),
    ("messages/", Step.ACTED),
    ("runtime/", Step.ACTED),
    ("cluster/test_enforce", Step.ACTED),
    ("cluster/test_evict", Step.ACTED),
    ("cluster/test_fence", Step.ACTED),
    ("cluster/test_events", Step.ACTED),
    ("cluster/test_decide", Step.DECIDED),
    ("containers/test_kill", Step.ACTED),
    ("daemon/test_run", Step.DECIDED),
    ("", Step.SEEN),
)
"""Beginnings of a test's path below tests/; the first that fits says which step it shows."""


MARKS = re.compile(r"mark\.fault\(|showing\(")
"""How a file shows that it has marked tests: imports of all others are seconds."""
IMPORTS = re.compile(r"^from (\S+) import ", re.MULTILINE)
"""The modules that a file imports names from."""


class Ended(StrEnum):
    """How a test ended; `collected`: it was not run."""

    COLLECTED = "collected"
    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of one test."""

    ended: Ended
    rows: tuple[int, ...]


Book = dict[str, Kept]
"""Id of a test -> what is known of it."""


def read(file: Path) -> Book:
    """Read what `write` wrote."""
    found = json.loads(file.read_text())
    return {test: Kept(Ended(told["ended"]), tuple(told["rows"])) for test, told in found.items()}


def write(file: Path, book: Book) -> None:
    """Write a book, one test a line's worth."""
    told = {test: {"ended": kept.ended, "rows": kept.rows} for test, kept in sorted(book.items())}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told, indent=1) + "\n")


def function(test: str) -> str:
    """Take the example away from a test's id."""
    return test.partition("[")[0]


def step_of(test: str) -> Step:
    """Say which step the test of this id shows."""
    path = test.removeprefix("tests/")
    return next(step for begin, step in PLACES if path.startswith(begin))


def missing(book: Mapping[str, Kept]) -> Iterator[str]:
    """Say of each fault which of its steps no test showed that passed, and which tests would have."""
    shown: dict[tuple[int, Step], dict[str, Ended]] = defaultdict(dict)
    for test, one in book.items():
        for number in one.rows:
            shown[number, step_of(test)][test] = one.ended
    for number, row in FAULTS.items():
        for step in row.steps:
            tests = shown[number, step]
            if Ended.PASSED not in tests.values():
                would = ", ".join(f"{test} ({ended})" for test, ended in tests.items()) or "no test of it was collected"
                yield f"{number}. {row.fault}: not shown as {step}: {would}"


@cache
def marked_files(folder: Path = TESTS) -> tuple[Path, ...]:
    """Name the test files below a folder that have marks, or import from a file of it that has: lists of examples."""
    texts = {file: file.read_text() for file in sorted(folder.rglob("*.py"))}
    named = {".".join(file.relative_to(folder).with_suffix("").parts): file for file in texts}
    imports = {file: {named.get(name) for name in IMPORTS.findall(text)} for file, text in texts.items()}
    found = {file for file, text in texts.items() if MARKS.search(text) and file.name.startswith("test_")}
    while more := {file for file, these in imports.items() if these & found} - found:
        found |= more
    return tuple(file for file in texts if file in found and file.name.startswith("test_"))


def marked() -> Book:
    """Collect all tests that are marked, in another process; nothing is run."""
    files = list(map(str, marked_files()))
    with tempfile.TemporaryDirectory() as folder:
        book = Path(folder) / "book.json"
        quick = ("-qq", "-p", "no:cacheprovider", "--assert=plain", "--collect-only")
        words = ("-m", "pytest", *quick, "--faults", str(book), *files)
        done = subprocess.run([sys.executable, *words], cwd=TESTS.parent, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the tests cannot be collected:\n{done.stdout}\n{done.stderr}")
        return read(book)


def page(book: Mapping[str, Kept]) -> str:
    """Write docs/faults.md."""
    lines = [HEAD]
    for number, row in FAULTS.items():
        shown = [test for test, kept in book.items() if number in kept.rows]
        cells = [f"*{step}:* {', '.join(links(book, shown, step))}" for step in Step if links(book, shown, step)]
        lines.append(f"| {number} | {row.fault} | {row.follows} | {'<br>'.join(cells)} |")
    return "\n".join(lines) + "\n"


def links(book: Mapping[str, Kept], shown: list[str], step: Step) -> list[str]:
    """
    Name the tests that show a step, as links to their files.

    A test of which all examples show it is named once; else each example is.
    """
    examples: dict[str, list[str]] = defaultdict(list)
    for test in shown:
        if step_of(test) is step:
            examples[function(test)].append(test.removeprefix(function(test)).strip("[]-"))
    found = []
    for test, names in sorted(examples.items()):
        path, _, name = test.partition("::")
        every = len(names) == sum(function(other) == test for other in book)
        which = "" if every else f" ({'; '.join(sorted(names))})"
        found.append(f"[{name.removeprefix('test_').replace('_', ' ')}{which}](../{path})")
    return found


HEAD = """\
# Faults

What can go wrong around a daemon that evicts and kills, what follows from it, and the tests that show it. A word in
`code` is the one in log, metrics, Events and journal; [policy.md](policy.md) and [journal.md](journal.md) explain it.
Unless the table says something else, no pod is acted on.

A fault can show at three steps. It is *seen*: the daemon measures it or notices it. The policy *decides* with it. An
action that was decided is *acted* out, or not. Each step has its own tests. This page lists the tests; it does not say
how they ended. `make test` ends with a line for each step that no test showed in that run. With `CI=true` such a line
is a failure.
`make golden` writes this page from the marks of the tests and from `tests/faults/rows.py`.

| # | fault | what follows | shown by |
|---|---|---|---|"""
