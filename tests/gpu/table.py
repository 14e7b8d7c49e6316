"""
What was found, as Markdown.

What comes in: rows. What goes out: text for a terminal and for docs/devices.md.

The law: a row says what was expected before it says what was measured. An answer of stand-ins is called fake in the
heading and in each row, so that a reader cannot take it for a GPU's answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a row says about what we expected."""

    AS_EXPECTED = "as expected"
    DIFFERS = "**differs**"
    FACT = "a fact"
    NOT_HERE = "not here"


@dataclass(frozen=True, slots=True)
class Row:
    """One finding."""

    what: str
    expected: str
    measured: str
    verdict: Verdict = Verdict.FACT


def within(what: str, expected: float, measured: float | None, tolerance: float, unit: str = "") -> Row:
    """Compare two figures. One that is not there differs: where none can be, say so in another row."""
    found = "none" if measured is None else f"{_figure(measured)}{unit}"
    good = measured is not None and abs(measured - expected) <= tolerance
    said = f"{_figure(expected)}{unit} ± {_figure(tolerance)}{unit}"
    return Row(what, said, found, Verdict.AS_EXPECTED if good else Verdict.DIFFERS)


def held(what: str, expected: str, measured: str, *, good: bool) -> Row:
    """Say whether what was expected holds."""
    return Row(what, expected, measured, Verdict.AS_EXPECTED if good else Verdict.DIFFERS)


def not_here(what: str, why: str) -> Row:
    """Say why something could not be tried on this machine."""
    return Row(what, "", why, Verdict.NOT_HERE)


def rendered(
    head: Sequence[tuple[str, str]], rows: Iterable[Row], costs: Sequence[Sequence[str]], *, fake: bool
) -> str:
    """
    Write the page.

    Args:
        head: what it was measured on.
        rows: what was found.
        costs: a table, its first line being the names of its columns; empty for none.
        fake: whether stand-ins played driver and CUDA.

    """
    mark = "FAKE, no GPU: " if fake else ""
    parts = [f"### {mark}measured on {dict(head).get('GPU', 'an unknown GPU')}\n"]
    if fake:
        parts.append("Driver and CUDA were stand-ins. This shows that the command runs to its end, and nothing else.\n")
    parts.append("\n".join(f"- {name}: {_cell(value)}" for name, value in head) + "\n")
    lines = [("what", "expected", "measured", "verdict")]
    lines += [(row.what, row.expected, row.measured, f"{'fake, ' if fake else ''}{row.verdict}") for row in rows]
    parts.append(_table(lines))
    if costs:
        parts.append(f"{mark}median microseconds of a call, by the number of processes on the GPU:\n")
        parts.append(_table(costs))
    return "\n".join(parts)


def mib(size: int | None) -> str:
    """Write bytes as whole MiB."""
    return "nothing" if size is None else f"{size / 2**20:.0f} MiB"


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *rest = lines
    ruled = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(map(_cell, cells))} |" for cells in ruled) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _figure(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
