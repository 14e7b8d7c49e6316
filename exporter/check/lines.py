"""
Lines, their exit code, and how they look.

What comes in: judged lines. What goes out: a number, and text.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from exporter.model import Fault

CONFIG, WEB_CONFIG = "config", "web config"
"""The checks whose failure is a wrong config."""

_REMEDIES = {
    "driver_hung": "look for Xid errors in the kernel's log (dmesg); often only a reboot of the node helps",
    "gpu_lost": "look for Xid errors in the kernel's log (dmesg); drain the node, and reset the GPU or reboot",
    "driver_gone": "see that nvidia-smi works on the node",
    "library_gone": "see that the vendor's own tool works on the node (npu-smi, cnmon, ixsmi, mx-smi ...)",
    "layout_unknown": "a version of the vendor's library that is not known here: please report it with its version",
}
"""What to do about faults whose messages do not say so themselves, because the daemon can do nothing but wait."""


class Verdict(StrEnum):
    """How good it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Line:
    """One check, judged."""

    check: str
    verdict: Verdict
    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A probe that got no answer, and why. `status` is HTTP's where a server refused."""

    message: str
    status: int = 0


def exit_code(lines: Iterable[Line]) -> int:
    """0 when the daemon can do what it is asked to, 1 when not, 2 when a config is wrong: as the daemon itself ends."""
    failed = {line.check for line in lines if line.verdict is Verdict.FAIL}
    if failed & {CONFIG, WEB_CONFIG}:
        return 2
    return 1 if failed else 0


def render(lines: Iterable[Line], *, colour: bool = False) -> str:
    """Write the lines for people: aligned, one check a line."""
    lines = list(lines)
    width = max((len(line.check) for line in lines), default=0)
    paint = {Verdict.OK: "\x1b[32m{}\x1b[0m", Verdict.WARN: "\x1b[33m{}\x1b[0m", Verdict.FAIL: "\x1b[1;31m{}\x1b[0m"}
    return "".join(
        f"{(paint[line.verdict] if colour else '{}').format(f'{line.verdict:<4}')}  {line.check:<{width}}  "
        f"{_one_line(line.message)}\n"
        for line in lines
    )


def worst(faults: Iterable[Fault]) -> Verdict:
    """Judge faults as rounds do: what makes them incomplete fails."""
    return Verdict.FAIL if any(fault.incomplete for fault in faults) else Verdict.WARN


def advised(fault: Fault) -> str:
    """Say what is wrong, and what to do."""
    remedy = _REMEDIES.get(fault.reason)
    return f"{fault.message}: {remedy}" if remedy else fault.message


def count(number: int, what: str) -> str:
    """Write a number of things: 1 pod, 2 pods."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _one_line(text: str) -> str:
    """Keep a message on its line, whatever servers and files put into it."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
