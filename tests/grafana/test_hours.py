"""
Each query of the boards over four hours of two nodes: growth, a restart, a gap, an eviction and its successor.

The hours are written into Prometheus's own database (prometheus.backfilled); queries are expanded as Grafana does it
(prometheus.expanding), and asked over the whole range, those of tables and single values at its end, too.
"""

from __future__ import annotations

import re
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from grafana.catalogue import BOARDS
from grafana.documents import Board, document
from prometheus.backfilled import END, EVICTED, GAP, RESTART, START, SUCCESSOR, blocks
from prometheus.expanding import ALL, Choice, Window, choices, expanded
from prometheus.scraping import Prometheus, serving

pytestmark = pytest.mark.prometheus

Answer = list[dict[str, Any]]
WINDOW = Window(START, END)

IN_A_MIG_INSTANCE_ONLY = {"gpu_instance"}
"""Elsewhere that label is empty, which is as good as not there."""

JOULES = 987_654_321.5
"""What GPU 0 of the golden page uses in ten minutes of these hours."""

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus that has the four hours, and scrapes nobody."""
    folder = tmp_path_factory.mktemp("hours")
    with serving(blocks(folder), folder) as running:
        yield running


def over(prometheus: Prometheus, expression: str, step: int) -> Answer:
    """Ask for the whole range."""
    return _asked(prometheus, "query_range", expression, start=str(START), end=str(END), step=str(step))


def at_the_end(prometheus: Prometheus, expression: str) -> Answer:
    """Ask for the last moment of the range."""
    return _asked(prometheus, "query", expression, time=str(END))


def _asked(prometheus: Prometheus, path: str, expression: str, **when: str) -> Answer:
    try:
        found: Answer = prometheus.get(f"/api/v1/{path}", query=expression, **when)["result"]
    except urllib.error.HTTPError as error:
        pytest.fail(f"{expression}\n{error.read().decode()}")
    return found


class Asked:
    """A board, all that can be chosen on it, and the answers to its queries."""

    def __init__(self, prometheus: Prometheus, board: Board) -> None:
        self.prometheus = prometheus
        self.found = document(board)
        self.variables = [one for one in self.found["templating"]["list"] if one["type"] == "query"]
        self.choices = list(choices(prometheus, self.found, WINDOW))

    def expressions(self, expression: str, step: int) -> set[str]:
        """What Grafana sends, whatever is chosen; choices that make no difference count once."""
        return {expanded(expression, one, self.variables, WINDOW, step) for one in self.choices}

    def over(self, expression: str, least: str = "") -> Answer:
        """All answers over the range."""
        step = WINDOW.step(least)
        return [one for each in self.expressions(expression, step) for one in over(self.prometheus, each, step)]

    def at_the_end(self, expression: str) -> Answer:
        """All answers at its last moment."""
        return [
            one for each in self.expressions(expression, WINDOW.step()) for one in at_the_end(self.prometheus, each)
        ]


@each_board
def test_each_query_has_data_over_the_hours(hours: Prometheus, board: Board) -> None:
    """
    Whatever is chosen, Prometheus takes each query; for some choice there is data, with each label of the legend.

    No panel is excepted: the hours have one of everything. What shows one moment has data at the last one, too.
    """
    asked = Asked(hours, board)
    for panel in asked.found["panels"]:
        for target in panel.get("targets", ()):
            got = asked.over(target["expr"], panel.get("interval", ""))
            assert got, (panel["title"], target["expr"])
            labels = {label for one in got for label in one["metric"]} | IN_A_MIG_INSTANCE_ONLY
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, panel["title"]
            assert not target["instant"] or asked.at_the_end(target["expr"]), (panel["title"], target["expr"])
    for annotation in asked.found["annotations"]["list"]:
        assert asked.over(annotation["expr"]), annotation["name"]


@each_board
def test_each_choice_leads_to_data(hours: Prometheus, board: Board) -> None:
    """No menu is empty but that of clusters, whose label nobody sets here; with each choice some panel has data."""
    asked = Asked(hours, board)
    assert len(asked.choices) > 1
    step = WINDOW.step()
    targets = [target["expr"] for panel in asked.found["panels"] for target in panel.get("targets", ())]
    for choice in asked.choices:
        assert {name for name, value in choice.items() if not value} == {"cluster"}
        asks = (expanded(each, choice, asked.variables, WINDOW, step) for each in targets)
        assert any(over(hours, each, step) for each in asks), choice


def series(hours: Prometheus, board_uid: str, title: str, number: int = 0, **chosen: str) -> Answer:
    """What one query of a panel shows over the range."""
    (board,) = (board for board in BOARDS if board.place.uid == board_uid)
    asked = Asked(hours, board)
    (panel,) = (one for one in asked.found["panels"] if one["title"] == title and one["type"] == "timeseries")
    choice: Choice = {one["name"]: chosen.get(one["name"], ALL if one["multi"] else "") for one in asked.variables}
    step = WINDOW.step(panel.get("interval", ""))
    return over(hours, expanded(panel["targets"][number]["expr"], choice, asked.variables, WINDOW, step), step)


def minutes(one: dict[str, Any]) -> dict[int, float]:
    """A series as minutes since the beginning, to values."""
    return {(int(at) - START) // 60: float(value) for at, value in one["values"]}


def test_a_gap_is_a_gap(hours: Prometheus) -> None:
    """While a node is not heard of, no line is drawn for it: Prometheus forgets after five minutes."""
    (of_gpu,) = series(hours, "gpusteward-node", "Memory by pod, GPU $gpu", 4, node=GAP[0], gpu="0")
    points = minutes(of_gpu)
    silent = range(GAP[1].start + 5, GAP[1].stop)
    assert not points.keys() & set(silent)
    assert {GAP[1].start - 1, GAP[1].stop} <= points.keys()


def test_a_restart_costs_no_counter_its_line(hours: Prometheus) -> None:
    """Energy falls to 0 when the daemon starts anew; what was used in each step is neither negative nor a leap."""
    lines = {one["metric"]["gpu"]: minutes(one) for one in series(hours, "gpusteward-node", "Energy", node=RESTART[0])}
    used = lines["0"]
    assert all(0 <= value < 2 * JOULES for value in used.values())
    for times in (range(RESTART[1]), range(RESTART[1] + 10, 240)):
        assert max(value for minute, value in used.items() if minute in times) > 0.5 * JOULES


def test_an_eviction_and_its_successor(hours: Prometheus) -> None:
    """The evicted pod's line ends, that of the pod created instead begins: two names, one after the other."""
    lines = {
        one["metric"]["pod"]: minutes(one)
        for one in series(hours, "gpusteward-node", "Memory by pod, GPU $gpu", node=EVICTED[0], gpu="0")
    }
    last, first = max(lines[EVICTED[1]]), min(lines[SUCCESSOR[0]])
    assert EVICTED[2] - 1 <= last <= EVICTED[2] + 5 and first == SUCCESSOR[1]
