"""
Reads the policy's verdicts in the scenario book, for docs/systems.md.

What comes in: the files of `tests/systems`. What goes out: for each system and each of its modes, what `mode: enforce`
does about a pod over its limit, as text.

The rule: the tests play the same files, so a test checks each statement of the page. Only verdicts of the role `above`
are read here; `tests/systems/book.py` checks the rest of a file.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enforcer.policy.vocabulary import Reason
from exporter.base.quantities import parse_duration
from exporter.base.text_files import plain

BOOK = Path(__file__).parents[1] / "tests" / "systems"
NOT_YET = "†"
"""Marks a result that the next version of the policy brings."""
MINUTE = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What happens to a pod over its limit in one mode of a system.

    Attributes:
        mode: empty where the system has one mode, and for its usual one.
        action: the action, and after how long; empty where none is taken.
        reason: why no action is taken; empty where one is.
        kind: of the reason; empty where no pod can be over a limit.
        enforced_by: the part that enforces the pod's limit elsewhere.

    """

    mode: str
    action: str = ""
    reason: str = ""
    kind: str = ""
    enforced_by: str = ""


Results = Mapping[str, tuple[Outcome, ...]]
"""System to its outcomes, one for each mode."""


def results(folder: Path = BOOK) -> Results:
    """Read the book."""
    files = (plain(file.read_bytes()) for file in sorted(folder.glob("*.yaml")))
    return {file["system"]: tuple(_outcomes(file["scenes"])) for file in files}


def under_enforce(outcomes: Iterable[Outcome], nothing: str) -> str:
    """
    Write a table's cell: what `mode: enforce` does; modes are named where they differ.

    `nothing` stands for all reasons to do nothing: they have a table of their own.
    """
    modes: dict[str, list[str]] = {}
    for outcome in outcomes:
        modes.setdefault(outcome.action or nothing, []).append(outcome.mode)
    if len(modes) == 1:
        return next(iter(modes))
    return "; ".join(f"{words} ({', '.join(named_modes(named))})" for words, named in modes.items())


def named_modes(modes: Iterable[str]) -> list[str]:
    """Name the modes of a system that has several; the one without a name is `usual`."""
    return [mode or "usual" for mode in modes]


def _outcomes(scenes: list[dict[str, Any]]) -> Iterator[Outcome]:
    for scene in scenes:
        mode, expect = scene.get("mode", ""), scene["expect"]
        above = next((row for row in expect["verdicts"] if row["role"] == "above"), None)
        if above is None:
            yield Outcome(mode, reason=scene["without"]["above"])
            continue
        limits = [row for row in expect.get("limits", ()) if row["pod"] == above["pod"]]
        yield _outcome(mode, above, limits[0]["enforced_by"] if limits else "")


def _outcome(mode: str, row: dict[str, Any], enforced_by: str) -> Outcome:
    later = f" {NOT_YET}" if row.get("needs") else ""
    if acts := row.get("acts"):
        return Outcome(mode, f"`{acts['action']}` after {_duration(parse_duration(acts['after']))}{later}")
    held = row["held"]
    words = {reason.value: reason.words for reason in Reason}.get(held["reason"], "")
    reason = f"`{held['reason']}`" + (f": {words}" if words else "")
    return Outcome(mode, reason=reason + later, kind=held["kind"], enforced_by=enforced_by)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), MINUTE)
    return " ".join([*([f"{minutes} min"] if minutes else []), *([f"{rest} s"] if rest or not minutes else [])])
