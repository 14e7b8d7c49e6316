"""docs/policy.md says all the words of the policy, and its numbers."""

import re
from pathlib import Path

import pytest

from default_rules import default_rules
from enforcer.policy.evidence import Phase
from enforcer.policy.rules import COVERAGE, ROUNDS
from enforcer.policy.vocabulary import REASONS_OF, Breaker, Kind, Mode, Reason, State
from policy.scenes import GIB, UNHURRIED, Actor, Play

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, list[str]]:
    """Read the tables below a heading: first cell, without its code marks, to the others."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in found}


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_its_meaning_and_its_remedy(reason: Reason) -> None:
    """Whoever meets a word of refusal finds what it means, and what to do about it."""
    meaning, remedy = rows("Reasons")[reason]
    assert meaning
    assert remedy


def test_each_reason_is_listed_under_its_kind() -> None:
    """An operator sees whose doing it is that a pod above its limit is held."""
    table = rows("Kinds of reasons")
    assert set(table) == set(Kind)
    listed = {kind: re.findall(r"`([a-z_]+)`", cells[1]) for kind, cells in table.items()}
    assert listed == {kind: list(reasons) for kind, reasons in REASONS_OF.items()}


def test_the_page_has_no_words_of_its_own() -> None:
    """Reasons, states, modes and breakers stand in their tables, each once, and no others."""
    assert set(rows("Reasons")) == set(Reason)
    assert set(rows("States")) == set(State)
    assert set(rows("Modes")) == set(Mode)
    assert set(rows("Breakers")) == set(Breaker)
    words = re.findall(r"^\| `([a-z_]+)` \|", PAGE.split("\n## Reasons\n")[1].split("\n## ")[0], re.MULTILINE)
    assert len(words) == len(set(words))


def test_the_numbers_of_the_page_are_those_of_the_rules() -> None:
    """The defaults that the page tells are the defaults."""
    rules = default_rules()
    assert (rules.interval, rules.warn_after, rules.grace, ROUNDS, COVERAGE) == (5, 15, 120, 3, 0.9)
    assert (rules.tolerance.ratio, rules.tolerance.bytes, rules.hold_off, rules.spacing) == (0.02, 256 * 2**20, 300, 60)
    budgets = rules.budgets
    found = [(one.most, one.window) for one in (budgets.node, budgets.namespace, budgets.workload)]
    assert found == [(3, 600), (2, 600), (3, 86400)]
    for said in (
        "a round each 5 s, `warn_after: 15s`, `grace: 120s`",
        "2 % or 256 MiB",
        "at most the last 133 s",
        "node 3 in 10 min, namespace 2 in 10 min, workload 3 in 24 h",
        "for `hold_off` (5 min)",
    ):
        assert said in PAGE


def test_minute_by_minute() -> None:
    """The timetable of the page is what happens: `over` at 0:00, told at 0:15, acted on at 2:15."""
    play = Play(UNHURRIED)
    greedy, neighbour = Actor("greedy-0", 70 * GIB, limit=8 * GIB), Actor("meek-0", GIB, limit=40 * GIB)
    states = []
    for _ in range(28):
        play.step(greedy, neighbour)
        states.append(play.standing(greedy))
    at = {state: states.index(state) * 5 for state in dict.fromkeys(states) if state is not None}
    assert at == {State.OVER: 0, State.GRACE: 15, State.ACTING: 135}
    assert [f"| {minute}:{second:02} |" in PAGE for minute, second in ((0, 0), (0, 15), (2, 15))] == [True] * 3
    assert {one.phase for one in play.history.evidence.values()} == {Phase.DUE, Phase.OK}
