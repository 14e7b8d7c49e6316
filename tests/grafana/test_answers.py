"""Each query of the boards, asked of a real Prometheus that scrapes three nodes which have everything at once."""

from __future__ import annotations

import re
import threading
import time
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from golden.nodes import page
from grafana.catalogue import BOARDS
from grafana.documents import Board, document
from grafana.panels import Panel
from grafana.places import CLUSTER
from patience import PATIENCE
from prometheus.expanding import texts
from prometheus.recorded import at_once
from prometheus.scraping import Prometheus, scraping

pytestmark = pytest.mark.prometheus

Answer = list[dict[str, Any]]
Choice = dict[str, str]

IN_A_MIG_INSTANCE_ONLY = {"gpu_instance"}
"""Elsewhere that label is empty, which is as good as not there."""


class _Scraped(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module", params=["", "east"], ids=["one cluster", "the cluster east"])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus with our rules that has seen the nodes three times; several clusters have a label: `east`."""
    _Scraped.body = page()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Scraped)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    relabelled = [{"target_label": "cluster", "replacement": request.param}] if request.param else []
    folder = tmp_path_factory.mktemp("prometheus")
    recording = {"rule_files": [str(at_once(folder))]}
    try:
        with scraping(
            f"127.0.0.1:{server.server_port}", folder, {"metric_relabel_configs": relabelled}, recording
        ) as running:
            deadline = time.monotonic() + PATIENCE
            while not ask(running, "count_over_time(workload:gpusteward_gpu_idle:rate5m[1m]) >= 3"):
                assert time.monotonic() < deadline, running.get("/api/v1/targets")
                time.sleep(0.1)
            yield running
    finally:
        server.shutdown()
        server.server_close()


def ask(prometheus: Prometheus, expression: str) -> Answer:
    """Ask once: no answer is an answer."""
    try:
        result: Answer = prometheus.get("/api/v1/query", query=expression)["result"]
    except urllib.error.HTTPError as error:
        pytest.fail(f"{expression}\n{error.read().decode()}")
    return result


def filled(expression: str, choice: Choice) -> str:
    """Put in the variables, as Grafana does."""
    for name, value in {"__rate_interval": "1m", "__range": "1m", **choice}.items():
        expression = re.sub(rf"\${name}\b", value, expression)
    assert "$" not in expression, expression
    return expression


def choices(prometheus: Prometheus, variables: list[dict[str, Any]], so_far: Choice) -> Iterator[Choice]:
    """Yield what can be chosen from the menus: each single value; of those that take several, all and the first."""
    if not variables:
        yield so_far
        return
    one, *others = variables
    query = filled(one["query"]["query"], so_far)
    if one.get("regex"):
        values = list(texts(prometheus, one["regex"], query, time.time()))
    else:
        (metric,) = re.findall(r"label_values\((.*), \w+\)", query)
        series = ask(prometheus, f"count by ({one['name']}) ({metric})")
        values = sorted(found["metric"].get(one["name"], "") for found in series)
    assert values and (one["name"] == "cluster" or all(values)), query
    for value in [".*", values[0]] if one["multi"] else values:
        yield from choices(prometheus, others, {**so_far, one["name"]: value})


def answers(prometheus: Prometheus, expression: str, chosen: list[Choice]) -> Answer:
    """All answers to an expression, whatever is chosen; the choices that make no difference are asked for once."""
    return [one for asked in {filled(expression, choice) for choice in chosen} for one in ask(prometheus, asked)]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)
def test_each_query_is_answered(asked: Prometheus, board: Board) -> None:
    """
    Prometheus takes each query, and has an answer for some choice.

    Each label of a legend and each label column of a table is in that answer. Where Grafana merges several columns into
    rows, each series has all of the row's labels. Otherwise a pod's value would stand beside its containers, too.
    """
    found = document(board)
    chosen = list(choices(asked, found["templating"]["list"][1:], {}))
    assert len(chosen) > 1
    rows = {panel.title: set(panel.row) for panel in board.panels if isinstance(panel, Panel)}
    for panel in found["panels"]:
        columns: set[str] = set()
        for target in panel.get("targets", ()):
            got = answers(asked, target["expr"], chosen)
            assert got, (panel["title"], target["expr"])
            labels = {label for one in got for label in one["metric"]}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels | IN_A_MIG_INSTANCE_ONLY
            columns |= labels
            if panel["type"] == "table" and len(panel["targets"]) > 1:
                assert all(set(one["metric"]) == rows[panel["title"]] for one in got), panel["title"]
        if panel["type"] == "table":
            assert columns - IN_A_MIG_INSTANCE_ONLY == rows[panel["title"]] - IN_A_MIG_INSTANCE_ONLY, panel["title"]
    for annotation in found["annotations"]["list"]:
        got = answers(asked, annotation["expr"], chosen)
        assert got and all(annotation["tagKeys"] in one["metric"] for one in got), annotation["name"]


def shown(prometheus: Prometheus, title: str, number: int = 0, node: str = ".*") -> dict[frozenset[Any], float]:
    """What a panel of the cluster's board shows: values by labels."""
    (board,) = (board for board in BOARDS if board.place == CLUSTER)
    panels = [panel for panel in document(board)["panels"] if panel["type"] != "row"]
    panel = next(panel for panel in panels if panel["title"] == title)
    cluster = ask(prometheus, "gpusteward_build_info")[0]["metric"].get("cluster", "")
    answer = ask(prometheus, filled(panel["targets"][number]["expr"], {"cluster": cluster, "node": node}))
    return {frozenset(one["metric"].items()): float(one["value"][1]) for one in answer}


def test_who_is_over_and_who_is_idle(asked: Prometheus) -> None:
    """
    A container, pod or claim over its limit counts. A container without a process is idle, unless its GPU is silent.

    A limit holder that has GPU 0 of two vendors counts for each of them.
    """
    everything: frozenset[Any] = frozenset()
    assert shown(asked, "Over limit now") == {everything: 5}
    assert shown(asked, "Over limit now", node="gpu-node-2") == {everything: 3}
    assert shown(asked, "Over limit now", node="gpu-node-1") == {everything: 0}
    assert shown(asked, "Idle allocations") == {everything: 3}
    assert shown(asked, "Idle allocations", node="gpu-node-2") == {everything: 1}
    assert shown(asked, "Idle allocations", node="gpu-node-1") == {everything: 0}
    assert shown(asked, "Over limit now", node="gpu-node-9") == {}
    assert shown(asked, "GPUs that do not answer") == {everything: 2}
    assert shown(asked, "Used") == {everything: (2 * (60 + 12 + 9 + 9) + 48 + 160) * 2**30}


def test_a_gpu_that_does_not_answer_is_not_free(asked: Prometheus) -> None:
    """It counts as a GPU, and no pod can be given it. In these seconds nothing is allocated."""
    everything: frozenset[Any] = frozenset()
    assert shown(asked, "GPUs", node="gpu-node-1") == {everything: 5}
    assert shown(asked, "Free GPUs", node="gpu-node-1") == {everything: 4}


def test_the_share_is_of_those_who_declared(asked: Prometheus) -> None:
    """A namespace's percentage compares declared limits with their own use: a pod's limit with its containers' sum."""
    share = {dict(labels)["namespace"]: value for labels, value in shown(asked, "Namespaces", 2, "gpu-node-1").items()}
    assert share == {"team-a": 35 / 52, "team-b": 20 / 24, "team-c": (8 + 4) / (40 + 6)}
