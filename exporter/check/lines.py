"""
Lines, their exit code, and how they look.

What comes in: judged lines. What goes out: a number, and text.
"""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from exporter.model import Fault

CONFIG, WEB_CONFIG = "config", "web config"
"""The checks whose failure is a wrong config."""

_FIXES = {
    "driver_hung": "look for Xid errors in the kernel's log (dmesg); often only a reboot of the node helps",
    "gpu_lost": "look for Xid errors in the kernel's log (dmesg); drain the node, and reset the GPU or reboot",
    "driver_gone": "check that nvidia-smi works on the node",
    "library_gone": "check that the vendor's own tool works on the node (npu-smi, cnmon, ixsmi, mx-smi ...)",
    "layout_unknown": "report the version of the vendor's library as a bug: it is not known here",
}
"""What to do about faults whose messages do not say so themselves, because the daemon can do nothing but wait."""
WIDEST = 160
"""Characters of a line."""


class Verdict(StrEnum):
    """How good it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Line:
    """One check, judged; `fix` says what to do where it did not pass."""

    check: str
    verdict: Verdict
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A probe that got no answer, why, and what to do. `status` is HTTP's where a server refused."""

    message: str
    status: int = 0
    fix: str = ""


def exit_code(lines: Iterable[Line]) -> int:
    """0 when the daemon can do what it is asked to, 1 when not, 2 when a config is wrong: as the daemon itself ends."""
    failed = {line.check for line in lines if line.verdict is Verdict.FAIL}
    if failed & {CONFIG, WEB_CONFIG}:
        return 2
    return 1 if failed else 0


def render(lines: Iterable[Line], *, colour: bool = False) -> str:
    """Write the lines for people: aligned, one check a line, and its fix below it."""
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
    """Judge faults as rounds do: what makes them incomplete fails."""
    return Verdict.FAIL if any(fault.incomplete for fault in faults) else Verdict.WARN


def fix_of(faults: Iterable[Fault]) -> str:
    """Say what to do about faults; empty where their messages say it themselves."""
    return "; ".join(dict.fromkeys(_FIXES[fault.reason] for fault in faults if fault.reason in _FIXES))


def count(number: int, what: str) -> str:
    """Write a number of things: 1 pod, 2 pods."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _wrapped(text: str, indent: str) -> str:
    """Keep a message in its column, whatever servers and files put into it."""
    one_line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    width = max(WIDEST - len(indent), len(indent))
    return f"\n{indent}".join(textwrap.wrap(one_line, width, break_long_words=False, break_on_hyphens=False))
