"""
What the scenario book expects of the policy, for docs/systems.md.

What comes in: the files of `tests/systems`. What goes out: for each system and each of its modes, what `mode: enforce`
does about a pod above its limit, in words.

The rule: the tests play the same files, so the page cannot say what no test checks. Only verdicts of the role `above`
are read here; `tests/systems/book.py` checks the rest of a file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enforcer.policy.vocabulary import Kind, Reason
from exporter.base.quantities import parse_duration
from exporter.base.text_files import plain

BOOK = Path(__file__).parents[1] / "tests" / "systems"
NOT_YET = "†"
"""Marks a result that the next version of the policy brings."""
MINUTE = 60

_KINDS = {
    Kind.CHOSEN: "chosen by an operator, or by the declaration itself",
    Kind.WAITING: "ends by itself",
    Kind.UNKNOWN: "unknown to the daemon",
    Kind.EVADED: "evaded by the pod",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What happens to a pod above its limit in one mode of a system.

    Attributes:
        mode: empty where the system has one.
        action: what is done, and after how long; empty where nothing is.
        reason: why nothing is done, and `kind` whose doing that is; empty where something is done.

    """

    mode: str
    action: str = ""
    reason: str = ""
    kind: str = ""

    @property
    def words(self) -> str:
        """The outcome in a table's cell."""
        return self.action or f"nothing: {self.reason}"


Results = Mapping[str, tuple[Outcome, ...]]
"""System to its outcomes, one for each mode."""


def results(folder: Path = BOOK) -> Results:
    """Read the book."""
    files = (plain(file.read_bytes()) for file in sorted(folder.glob("*.yaml")))
    return {file["system"]: tuple(_outcomes(file["scenes"])) for file in files}


def under_enforce(outcomes: tuple[Outcome, ...]) -> str:
    """Say in a table's cell what `mode: enforce` does; a mode is named where the modes differ."""
    if len({outcome.words for outcome in outcomes}) == 1:
        return outcomes[0].words
    return "; ".join(f"{outcome.mode}: {outcome.words}" if outcome.mode else outcome.words for outcome in outcomes)


def _outcomes(scenes: list[dict[str, Any]]) -> Iterator[Outcome]:
    for scene in scenes:
        mode = scene.get("mode", "")
        above = [row for row in scene["expect"]["verdicts"] if row["role"] == "above"]
        if not above:
            yield Outcome(mode, reason=scene["without"]["above"], kind=_KINDS[Kind.CHOSEN])
            continue
        yield _outcome(mode, above[0])


def _outcome(mode: str, row: dict[str, Any]) -> Outcome:
    later = f" {NOT_YET}" if row.get("needs") else ""
    if acts := row.get("acts"):
        return Outcome(mode, f"`{acts['action']}` after {_duration(parse_duration(acts['after']))}{later}")
    if held := row.get("held"):
        words = {reason.value: reason.words for reason in Reason}.get(held["reason"], "")
        reason = f"`{held['reason']}`" + (f", {words}" if words else "")
        return Outcome(mode, reason=reason + later, kind=_KINDS[Kind(held["kind"])])
    return Outcome(mode, reason=f"there is no limit{later}", kind=_KINDS[Kind.CHOSEN])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), MINUTE)
    return " ".join([*([f"{minutes} min"] if minutes else []), *([f"{rest} s"] if rest or not minutes else [])])
