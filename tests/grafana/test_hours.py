"""
Each query of the boards over four hours of three nodes: growth, a restart, a gap, an eviction and its successor. One
node has the GPUs of two vendors, which are both GPU 0.

The hours are written into Prometheus's own database (prometheus.backfilled). Queries are expanded as Grafana does it
(prometheus.expanding), and asked over the whole range; those of tables and single values at its end, too.
"""

from __future__ import annotations

import re
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from builders import GIB, gpu_uuid
from golden import mixed
from golden.mixed import AMD, HOLDS, LEAVES, NVIDIA
from grafana.catalogue import BOARDS
from grafana.documents import Board, document
from prometheus.backfilled import END, EVICTED, GAP, RESTART, START, SUCCESSOR, blocks
from prometheus.expanding import ALL, Choice, Window, choices, expanded, texts
from prometheus.scraping import Prometheus, serving

pytestmark = pytest.mark.prometheus

Answer = list[dict[str, Any]]
WINDOW = Window(START, END)

IN_A_MIG_INSTANCE_ONLY = {"gpu_instance"}
"""Elsewhere that label is empty, which is as good as not there."""

JOULES = 987_654_321.5
"""What GPU 0 of the golden page uses between two steps of these hours (backfilled.STEP)."""

MEMORY = "Memory by pod, GPU ${uuid:text}"
"""The panel that is there once for each GPU."""

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus that has the four hours, and scrapes no target."""
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
    """Only the menu of clusters is empty, because that label is not set here; with each choice some panel has data."""
    asked = Asked(hours, board)
    assert len(asked.choices) > 1
    step = WINDOW.step()
    targets = [target["expr"] for panel in asked.found["panels"] for target in panel.get("targets", ())]
    for choice in asked.choices:
        assert {name for name, value in choice.items() if not value} == {"cluster"}
        asks = (expanded(each, choice, asked.variables, WINDOW, step) for each in targets)
        assert any(over(hours, each, step) for each in asks), choice


@each_board
def test_no_series_is_of_two_gpus_and_each_has_a_name_of_its_own(hours: Prometheus, board: Board) -> None:
    """
    Whatever is chosen: what has the number of a GPU has its UUID, too, and a legend tells apart all series of a node.

    Two vendors' drivers both count from 0: by the number alone their GPUs would be one, with the sum of their energy
    and the higher one of their temperatures.
    """
    asked = Asked(hours, board)
    for panel in asked.found["panels"]:
        for target in panel.get("targets", ()):
            step = WINDOW.step(panel.get("interval", ""))
            for expression in asked.expressions(target["expr"], step):
                got = at_the_end(hours, expression) if target["instant"] else over(hours, expression, step)
                assert all("uuid" in one["metric"] for one in got if "gpu" in one["metric"]), expression
                if panel["type"] != "table" and "{{" in target["legendFormat"]:
                    names = [(one["metric"].get("node"), legend(target, one)) for one in got]
                    assert len(names) == len(set(names)), (panel["title"], names)


def legend(target: dict[str, Any], one: dict[str, Any]) -> str:
    """The name of a series."""
    return re.sub(r"\{\{(\w+)\}\}", lambda label: one["metric"].get(label[1], ""), target["legendFormat"]).strip()


def series(hours: Prometheus, board_uid: str, title: str, number: int = 0, **chosen: str) -> Answer:
    """What one query of a panel shows, over the range or, where the panel is of one moment, at its end; with names."""
    (board,) = (board for board in BOARDS if board.place.uid == board_uid)
    asked = Asked(hours, board)
    (panel,) = (one for one in asked.found["panels"] if one["title"] == title and one["type"] != "row")
    choice: Choice = {one["name"]: chosen.get(one["name"], ALL if one["multi"] else "") for one in asked.variables}
    step, target = WINDOW.step(panel.get("interval", "")), panel["targets"][number]
    expression = expanded(target["expr"], choice, asked.variables, WINDOW, step)
    answer = at_the_end(hours, expression) if target["instant"] else over(hours, expression, step)
    return [{**one, "name": legend(target, one)} for one in answer]


def last(answer: Answer) -> dict[str, float]:
    """The last value of each series, by its name."""
    return {one["name"]: float((one.get("value") or one["values"][-1])[1]) for one in answer}


def minutes(one: dict[str, Any]) -> dict[int, float]:
    """A series as minutes since the beginning, to values."""
    return {(int(at) - START) // 60: float(value) for at, value in one["values"]}


def test_a_gap_is_a_gap(hours: Prometheus) -> None:
    """While a node is not heard of, no line is drawn for it: Prometheus forgets after five minutes."""
    (of_gpu,) = series(hours, "gpusteward-node", MEMORY, 4, node=GAP[0], uuid=gpu_uuid(0))
    points = minutes(of_gpu)
    silent = range(GAP[1].start + 5, GAP[1].stop)
    assert not points.keys() & set(silent)
    assert {GAP[1].start - 1, GAP[1].stop} <= points.keys()


def test_a_restart_costs_no_counter_its_line(hours: Prometheus) -> None:
    """Energy falls to 0 when the daemon starts anew; what was used in each step is neither negative nor a leap."""
    lines = {one["metric"]["gpu"]: minutes(one) for one in series(hours, "gpusteward-node", "Energy", node=RESTART[0])}
    used = lines["0"]
    assert all(0 <= value < 3 * JOULES for value in used.values()), max(used.values()) / JOULES
    for times in (range(RESTART[1]), range(RESTART[1] + 10, 240)):
        assert max(value for minute, value in used.items() if minute in times) > 0.5 * JOULES


def test_an_eviction_and_its_successor(hours: Prometheus) -> None:
    """The evicted pod's line ends, that of the pod created instead begins: two names, one after the other."""
    lines = {
        one["metric"]["pod"]: minutes(one)
        for one in series(hours, "gpusteward-node", MEMORY, node=EVICTED[0], uuid=gpu_uuid(0))
    }
    last, first = max(lines[EVICTED[1]]), min(lines[SUCCESSOR[0]])
    assert EVICTED[2] - 1 <= last <= EVICTED[2] + 5 and first == SUCCESSOR[1]


def test_two_gpus_of_one_number_are_two(hours: Prometheus) -> None:
    """Each has its line, named by its vendor, with its own figure: no maximum of the two, and no sum."""

    def lines(title: str) -> dict[str, float]:
        return last(series(hours, "gpusteward-node", title, node=mixed.NODE))

    assert lines("Power") == {"GPU 0 nvidia": 512, "GPU 0 amd": 256}
    assert lines("Temperature") == {"GPU 0 nvidia": 61, "GPU 0 amd": 43}
    assert lines("Throttled").keys() == {"GPU 0 nvidia: sw_power_cap", "GPU 0 amd: sw_power_cap"}
    energy, errors = lines("Energy"), lines("ECC errors")
    assert energy["GPU 0 nvidia"] == pytest.approx(4 * energy["GPU 0 amd"]) != 0
    assert errors["GPU 0 nvidia corrected"] == pytest.approx(0.4 * errors["GPU 0 amd corrected"]) != 0


def test_a_number_that_is_one_gpus_alone_is_its_name(hours: Prometheus) -> None:
    """Where one vendor's driver counts, its name is nowhere."""
    assert last(series(hours, "gpusteward-node", "Power", node=RESTART[0])).keys() == {"GPU 0", "GPU 1"}


def test_a_row_of_the_board_is_one_gpu(hours: Prometheus) -> None:
    """The menu has each GPU of a node under the name that its lines have; what is chosen there is one GPU's alone."""
    (board,) = (board for board in BOARDS if board.place.uid == "gpusteward-node")
    *before, menu = Asked(hours, board).variables
    names = {}
    for node in (RESTART[0], mixed.NODE):
        choice: Choice = {"cluster": "", "node": node}
        query = expanded(menu["query"]["query"], choice, before, WINDOW, WINDOW.step())
        names[node] = texts(hours, menu["regex"], query, END)
    assert names[mixed.NODE] == {AMD.uuid: "0 amd", NVIDIA.uuid: "0 nvidia"}
    assert names[RESTART[0]] == {gpu_uuid(number): str(number) for number in range(5)}, "a silent one, too"
    for gpu in (NVIDIA, AMD):
        assert (memory := gpu.memory) is not None
        chosen = {"node": mixed.NODE, "uuid": gpu.uuid}
        pods, used, capacity = (last(series(hours, "gpusteward-node", MEMORY, at, **chosen)) for at in (0, 4, 5))
        assert pods["team-h/both-0"] == HOLDS[gpu.vendor]
        assert (used, capacity) == ({"used, says the device": memory.used}, {"capacity": memory.total})


def test_each_leaf_device_is_one_row(hours: Prometheus) -> None:
    """Two GPUs of one number that are shared in different ways: a row each, and no query that fails."""
    rows = series(hours, "gpusteward-node", "Devices", node=mixed.NODE)
    used = {one["metric"]["uuid"]: float(one["value"][1]) for one in rows}
    assert used == {NVIDIA.uuid: 48 * GIB, AMD.uuid: 160 * GIB}
    shared = {tuple(one["metric"][label] for label in ("uuid", "gpu", "sharing", "replicas")) for one in rows}
    assert shared == {(NVIDIA.uuid, "0", "time-slicing", "4"), (AMD.uuid, "0", "none", "1")}


def test_what_a_pod_holds_of_two_gpus_is_no_sum(hours: Prometheus) -> None:
    """On the pod's board and in the tables of its namespace: two GPUs of one number, two figures, two limits."""

    def lines(title: str, number: int = 0) -> dict[str, float]:
        return last(series(hours, "gpusteward-pod", title, number, namespace="team-h", pod="both-0"))

    assert lines("Memory", 0) == {f"main GPU 0 {vendor}  used": held for vendor, held in HOLDS.items()}
    assert lines("Memory", 1) == {f"main GPU 0 {vendor}  limit": held / 2 for vendor, held in HOLDS.items()}
    assert lines("State") == {"main GPU 0 nvidia": 1, "main GPU 0 amd": 2}
    for title, held in (("GPU memory quota", HOLDS), ("Shared claims", mixed.CLAIMED)):
        rows = series(hours, "gpusteward-namespace", title, namespace="team-h")
        of_one = [one for one in rows if one["metric"].get("pod", "both-0") == "both-0"]
        assert {one["metric"]["uuid"]: float(one["value"][1]) for one in of_one} == {
            LEAVES[vendor].uuid: size for vendor, size in held.items()
        }
