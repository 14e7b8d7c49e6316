"""The board Efficiency and `gpusteward report` about the same week: rules, board and command on a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
EDGE = 0.05
"""Of idle and used hours of bursts of an hour: one average of five minutes in an hour may contain both."""
BURSTS = tuple(
    replace(
        device,
        boxes=tuple(replace(box, hourly=True, sm=0.75) if box.workload == "train" else box for box in device.boxes),
    )
    for device in week.DEVICES
)
"""`train` is allocated one GPU. It uses one and a half in every other hour, and none between: half of it idles."""
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
        data = week.blocks(folder, week.samples(BURSTS))
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


def names(by: str, row: dict[str, Any]) -> str:
    """The labels of a row of the board, one after the other in the order of the alphabet, from a row of the report."""
    if by != "workload":
        return str(row[by])
    namespace, _, rest = row["workload"].partition("/")
    kind, _, workload = rest.partition("/")
    return f"{namespace}{workload}{kind}"


ROWS = {
    "namespace": {"team-a", "team-b"},
    "model": {"NVIDIA H100", "NVIDIA A100"},
    # Where the use of the SMs is unknown, nothing is known to idle.
    "workload": {"team-atrainJob", "team-bnotebookJob", "team-asmallJob"},
}


@pytest.mark.parametrize("by", ROWS)
def test_the_board_shows_what_the_report_says(prometheus: Prometheus, by: str) -> None:
    """Each row, with bursts, too; what the report has no hours of is empty or 0 on the board."""
    board = columns(prometheus, f"By {by}")
    report = {names(by, row): row for row in Asking(prometheus.url).json("--by", by)["rows"]}
    seen = set(board["Idle"])
    assert seen == ROWS[by]
    # Workloads of unknown use only are not among those that idle most.
    titles = COLUMNS.keys() - ({"Unknown"} if by == "workload" else set())
    for title in titles:
        key = COLUMNS[title]
        for name in seen:
            shown = board[title].get(name, 0.0)
            assert shown == pytest.approx(report[name][key], rel=EDGE, abs=0.2), (title, name)
            if title in ("Allocated", "Unknown"):
                assert shown == pytest.approx(report[name][key], rel=CLOSE, abs=0.2), (title, name)
        assert board[title].keys() <= seen
    if by != "model":
        limited = {name for name in seen if report[name]["unused_share"] is not None}
        assert board["Declared memory not needed"].keys() == limited
        for name, share in board["Declared memory not needed"].items():
            assert share == pytest.approx(report[name]["unused_share"], abs=CLOSE)


def test_bursts_do_not_make_up_for_idle_time(prometheus: Prometheus) -> None:
    """A week of `train`: 168 hours allocated, 84 of them idle."""
    assert columns(prometheus, "By workload")["Idle"]["team-atrainJob"] == pytest.approx(84, rel=EDGE)


def test_each_pod_that_idles_is_listed(prometheus: Prometheus) -> None:
    """By container, as many hours as their workloads have."""
    containers = columns(prometheus, "Idle GPU-hours by container")["Idle"]
    workloads = columns(prometheus, "By workload")["Idle"]
    assert sum(containers.values()) == pytest.approx(sum(workloads.values()), rel=CLOSE)
    assert len(containers) == len(ROWS["workload"])
