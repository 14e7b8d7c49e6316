"""The board Efficiency and `gpusteward report` about the same week: rules, board and command on a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from grafana.documents import document
from grafana.efficiency import BOARD
from prometheus.expanding import ALL, Window, expanded
from prometheus.recorded import record
from prometheus.scraping import Prometheus, serving
from report import week
from report.test_report import Asking

pytestmark = pytest.mark.prometheus

WINDOW = Window(week.START, week.END)
CLOSE = 0.02
"""Of a figure: both extrapolate, the rules over five minutes, the report over a day."""
COLUMNS = {
    "Allocated": "allocated_gpu_hours",
    "Used": "used_gpu_hours",
    "Idle": "idle_gpu_hours",
    "Unknown": "unmeasured_gpu_hours",
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The week, scraped each minute, with what the rules recorded of it."""
    folder = tmp_path_factory.mktemp("week")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(week, "STEP", 60)
        data = week.blocks(folder)
    record(data, folder, week.START, week.END)
    with serving(data, folder) as running:
        yield running


def columns(prometheus: Prometheus, title: str) -> dict[str, dict[str, float]]:
    """A table of the board: its columns, with the value of each row by the row's label."""
    board = document(BOARD)
    variables = [one for one in board["templating"]["list"] if one["type"] == "query"]
    choice: Any = {one["name"]: ALL if one["multi"] else "" for one in variables}
    (panel,) = (one for one in board["panels"] if one["title"] == title)
    names = panel["transformations"][1]["options"]["renameByName"]
    found: dict[str, dict[str, float]] = {}
    for target in panel["targets"]:
        query = expanded(target["expr"], choice, variables, WINDOW, WINDOW.step())
        rows = prometheus.get("/api/v1/query", query=query, time=str(week.END))["result"]
        column = {"".join(one["metric"].values()): float(one["value"][1]) for one in rows}
        found[names[f"Value #{target['refId']}"]] = column
    return found


@pytest.mark.parametrize("by", ["namespace", "model"])
def test_the_board_shows_what_the_report_says(prometheus: Prometheus, by: str) -> None:
    """Each row, within 2 %; what the report has no hours of is empty or 0 on the board."""
    board = columns(prometheus, f"By {by}")
    report = {row[by]: row for row in Asking(prometheus.url).json("--by", by)["rows"]}
    seen = {name for column in board.values() for name in column}
    assert seen == {"team-a", "team-b"} if by == "namespace" else {"NVIDIA H100", "NVIDIA A100"}
    for title, key in COLUMNS.items():
        for name in seen:
            shown = board[title].get(name, 0.0)
            assert shown == pytest.approx(report[name][key], rel=CLOSE, abs=0.2), (title, name)
    if by == "namespace":
        assert board["Declared memory not needed"].keys() == seen
        for name, share in board["Declared memory not needed"].items():
            assert share == pytest.approx(report[name]["unused_share"], abs=CLOSE)
