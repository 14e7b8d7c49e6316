"""
The boards by the rules of Grafana's maintainers: dashboard-linter itself, built from Go modules.

What it says of a board with a slip is tried, too, for each of its rules that we do not exclude.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import build
from cluster.fixtures import require
from grafana.catalogue import BOARDS
from grafana.documents import Board, document
from grafana.places import ENFORCEMENT

pytestmark = pytest.mark.boards

Document = dict[str, Any]

LINT = Path(__file__).parents[2] / "grafana" / ".lint"


@pytest.fixture(scope="module")
def linter() -> Path:
    """The program, built once."""
    require([problem] if not build.assets("dashboard-linter") and (problem := build.go_problem()) else [])
    return build.program("dashboard-linter")


@pytest.fixture(scope="module")
def rules(linter: Path) -> dict[str, str]:
    """Its rules: what the report says that each checks, and its name."""
    said = subprocess.run([linter, "rules"], capture_output=True, text=True, check=True).stdout
    return {checks: name for name, checks in re.findall(r"\* `([\w-]+)` - (.*)", said)}


def broken(linter: Path, rules: dict[str, str], board: Document, folder: Path, config: Path = LINT) -> set[str]:
    """The rules that a board does not keep; warnings count. The exit status says the same."""
    file = folder / "board.json"
    file.write_text(json.dumps(board))
    command: list[str | Path] = [linter, "lint", "--strict", f"--config={config}", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found, rule = set(), ""
    for line in done.stdout.splitlines():
        if line in rules:
            rule = rules[line]
        elif "Dashboard '" in line:
            found.add(rule)
    assert set(done.stdout.splitlines()) >= set(rules), "each rule was tried"
    assert bool(done.returncode) == bool(found), done.stdout + done.stderr
    return found


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)
def test_each_rule_is_kept(linter: Path, rules: dict[str, str], board: Board, tmp_path: Path) -> None:
    """Of a board nothing is to be said, neither an error nor a warning, but for what `.lint` excludes."""
    assert broken(linter, rules, document(board), tmp_path) == set()


def test_what_is_excluded_has_a_reason_and_is_needed(linter: Path, rules: dict[str, str], tmp_path: Path) -> None:
    """Without `.lint` exactly the excluded rules are broken: none is excluded that could hold."""
    exclusions = yaml.safe_load(LINT.read_text())["exclusions"]
    assert all(set(one) == {"reason"} and one["reason"] for one in exclusions.values())
    for board in BOARDS:
        assert broken(linter, rules, document(board), tmp_path, tmp_path / "none") == set(exclusions)


def _panel(kind: str, **changed: Any) -> Callable[[Document], Any]:
    return lambda board: next(one for one in board["panels"] if one["type"] == kind).update(changed)


def _variable(number: int, **changed: Any) -> Callable[[Document], Any]:
    return lambda board: board["templating"]["list"][number].update(changed)


def _asks(expression: str) -> Callable[[Document], Any]:
    return lambda board: next(one for one in board["panels"] if one["type"] == "timeseries")["targets"][0].update(
        expr=expression
    )


SLIPS: dict[str, Callable[[Document], Any]] = {
    "template-datasource-rule": _variable(0, name="prom"),
    "template-label-promql-rule": _variable(1, query={"query": "label_names_of(gpusteward_build_info)"}),
    "template-on-time-change-reload-rule": _variable(1, refresh=1),
    "panel-datasource-rule": _panel("timeseries", datasource={"type": "prometheus", "uid": "P1809F7CD0C75ACF3"}),
    "panel-title-description-rule": _panel("stat", description=""),
    "panel-units-rule": _panel("timeseries", fieldConfig={"defaults": {"unit": "bytez"}, "overrides": []}),
    "panel-no-targets-rule": _panel("stat", targets=None),
    "target-promql-rule": _asks("sum(gpusteward_build_info"),
    "target-rate-interval-rule": _asks("rate(gpusteward_rounds_total[5m])"),
    "target-counter-agg-rule": _asks("gpusteward_rounds_total"),
    "uneditable-dashboard": lambda board: board.update(editable=True),
}


@pytest.mark.parametrize("rule", SLIPS)
def test_a_slip_is_noticed(linter: Path, rules: dict[str, str], rule: str, tmp_path: Path) -> None:
    """The linter finds a board that breaks one rule: it looks at the board, and `.lint` does not keep it from that."""
    (board,) = (document(board) for board in BOARDS if board.place == ENFORCEMENT)
    SLIPS[rule](board)
    assert rule in broken(linter, rules, board, tmp_path)


def test_the_rules_are_these(rules: dict[str, str]) -> None:
    """Each rule is either shown to notice, or excluded, or about Loki, which no board asks."""
    excluded = set(yaml.safe_load(LINT.read_text())["exclusions"])
    assert set(rules.values()) == {*SLIPS, *excluded, "target-logql-rule", "target-logql-auto-rule"}
