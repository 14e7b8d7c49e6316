"""
The lines of a preflight, their exit code, and their text for a terminal.

What comes in: judged lines. What goes out: a number, and text.
"""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from exporter.model import Fault

CONFIG, WEB_CONFIG = "config", "web config"
"""The checks whose failure is a wrong config."""

WIDEST = 160
"""Characters of a line."""


class Verdict(StrEnum):
    """The result of a check: good, working with less, or failed."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Line:
    """One judged check; `fix` says what to do. Only a check that passed has none."""

    check: str
    verdict: Verdict
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A probe without an answer: the reason and the fix. `status` is the HTTP status of a server's refusal."""

    message: str
    status: int = 0
    fix: str = ""


def exit_code(lines: Iterable[Line]) -> int:
    """Return the daemon's own exit code: 0 when it can work, 1 when not, 2 when a config is wrong."""
    failed = {line.check for line in lines if line.verdict is Verdict.FAIL}
    if failed & {CONFIG, WEB_CONFIG}:
        return 2
    return 1 if failed else 0


def render(lines: Iterable[Line], *, colour: bool = False) -> str:
    """Write the lines for people: aligned, one line per check, and its fix below it."""
    lines = list(lines)
    width = max((len(line.check) for line in lines), default=0)
    indent = " " * (width + 8)
    paint = {Verdict.OK: "\x1b[32m{}\x1b[0m", Verdict.WARN: "\x1b[33m{}\x1b[0m", Verdict.FAIL: "\x1b[1;31m{}\x1b[0m"}
    return "".join(
        f"{(paint[line.verdict] if colour else '{}').format(f'{line.verdict:<4}')}  {line.check:<{width}}  "
        f"{_wrapped(line.message, indent)}\n"
        + (f"{indent}{_wrapped(f'fix: {line.fix}', indent)}\n" if line.fix else "")
        for line in lines
    )


def worst(faults: Iterable[Fault]) -> Verdict:
    """Judge faults as rounds do: a fault that makes a round incomplete is a failure."""
    return Verdict.FAIL if any(fault.incomplete for fault in faults) else Verdict.WARN


def count(number: int, what: str) -> str:
    """Write a number of things: 1 pod, 2 pods."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _wrapped(text: str, indent: str) -> str:
    """Keep a message in its column, whatever text a server or a file supplied."""
    one_line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    width = max(WIDEST - len(indent), len(indent))
    return f"\n{indent}".join(textwrap.wrap(one_line, width, break_long_words=False, break_on_hyphens=False))
