"""
A real Prometheus that writes the daemon's namespace, pod and container over the workload's: do the rules answer right?

In: the golden page with both names of labels. Out: what our rules record, what fires, and what the boards ask. Law:
the answers are those of a Prometheus that honors the plain names, but for the names.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from exporter.metrics.labels import EXPORTED
from golden.everything import golden_page
from patience import PATIENCE
from prometheus.scraping import Prometheus, scraping

pytestmark = pytest.mark.prometheus

ROOT = Path(__file__).parents[2]
TARGET = {"namespace": "gpusteward", "pod": "gpusteward-x7k2p", "container": "exporter"}
"""What the scrape says of the daemon's own pod."""
PLAIN = {other: name for name, other in EXPORTED.items()}
CHOSEN = {"cluster": "", "node": "gpu-node-1", "uuid": ".*", "namespace": "team-a", "pod": "trainer-0"}
"""What is chosen on top of a board."""

Series = frozenset[tuple[str, str]]


@pytest.fixture(scope="module", params=["exported", "renamed"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Prometheus]]:
    """
    Run one that honors the plain labels, and one that overrides them, with the rules for each.

    The second reads a page with the other names (the option), or the plain ones, which it then renames itself.
    """
    with ExitStack() as stack:
        running = []
        for honor, exported, folder in (
            (True, False, "alerts"),
            (False, request.param == "exported", "alerts/exported"),
        ):
            address = stack.enter_context(serving(over_their_limits(golden_page(exported=exported))))
            rules = {"rule_files": [str(ROOT / folder / "*.yaml")]}
            place = tmp_path_factory.mktemp("prometheus")
            running.append(stack.enter_context(scraping(address, place, beside=rules, honor=honor)))
        for one in running:
            one.query("count_over_time(gpusteward_build_info[1m]) >= 3")
            one.query("count({__name__=~'subject:.+'})")
            one.query("count(ALERTS{alertname='GPUMemoryOverLimit'})")
        yield running


def over_their_limits(page: bytes) -> bytes:
    """Let each container of the page use twice as much."""
    used = re.compile(rb"^(gpusteward_container_memory_used_bytes{.*}) (\S+)$", re.MULTILINE)
    return used.sub(lambda line: b"%s %f" % (line[1], 2 * float(line[2])), page)


class _Serving:
    def __init__(self, body: bytes) -> None:
        class Scraped(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Scraped)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return f"127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


serving = _Serving

RECORDED_SELDOM = re.compile(r":rate5m|sum_over_time\(holder:")


def answer(prometheus: Prometheus, expression: str) -> list[Series]:
    """The series of an answer by the plain names, without the target's; each must be of one name alone."""
    found = []
    for one in prometheus.get("/api/v1/query", query=expression)["result"]:
        labels = {name: value for name, value in one["metric"].items() if name not in {"instance", "job"}}
        if any(name in labels for name in EXPORTED.values()) or labels.items() >= TARGET.items():
            labels = {name: value for name, value in labels.items() if TARGET.get(name) != value}
        found.append(frozenset((PLAIN.get(name, name), value) for name, value in labels.items()))
    assert len(set(found)) == len(found), expression
    return sorted(found, key=sorted)


def same(both: list[Prometheus], plain: str, other: str) -> list[Series]:
    """Ask both until they agree: their rounds are a second apart."""
    deadline = time.monotonic() + PATIENCE
    while (honoring := answer(both[0], plain)) != (overriding := answer(both[1], other)):
        assert time.monotonic() < deadline, (plain, other, honoring, overriding)
        time.sleep(0.2)
    return honoring


def test_the_plain_names_are_the_daemons_own(both: list[Prometheus]) -> None:
    """Such a Prometheus shows the daemon's pod for every workload by the plain names, with and without the option."""
    query = "count by (namespace, pod, container) (gpusteward_container_memory_used_bytes)"
    assert both[1].query(query).keys() == {frozenset(TARGET.items())}
    assert len(both[0].query(query)) > 3


def test_the_rules_record_the_same(both: list[Prometheus]) -> None:
    """Each limit holder has its limit, ceiling, usage and system, by the workload's names."""
    query = "{__name__=~'subject:.+'}"
    names = {dict(one)["__name__"] for one in same(both, query, query)}
    assert len(names) >= 3
    limit = 'subject:gpusteward_memory_limit:bytes{%s="team-a", %s="trainer-0", %s="main"}'
    assert len(same(both, limit % (*EXPORTED,), limit % (*EXPORTED.values(),))) == 1


def test_the_same_alerts_fire(both: list[Prometheus]) -> None:
    """Of each alert the same instances, with the pod that they are about."""
    alerts = same(both, "ALERTS", "ALERTS")
    of_pods = [one for one in map(dict, alerts) if "pod" in one]
    assert len({one["alertname"] for one in of_pods}) >= 2, alerts
    assert all(one["namespace"].startswith("team-") for one in of_pods)


@pytest.mark.parametrize("board", sorted(path.name for path in (ROOT / "grafana/dashboards").glob("*.json")))
def test_the_boards_show_the_same(both: list[Prometheus], board: str) -> None:
    """
    Each query of a board has the same series, by the workload's names.

    What is recorded each five minutes is not there after seconds; tests/grafana asks for it over hours.
    """
    folder = ROOT / "grafana" / "dashboards"
    asked = [queries(json.loads(path.read_text())) for path in (folder / board, folder / "exported" / board)]
    answered = [same(both, plain, other) for plain, other in zip(*asked, strict=True)]
    soon = [bool(found) for found, plain in zip(answered, asked[0], strict=True) if not RECORDED_SELDOM.search(plain)]
    assert len(answered) > 5 and sum(soon) >= len(soon) / 2


def queries(board: dict[str, object]) -> list[str]:
    """The queries of the panels, with what is chosen put in."""
    panels: list[dict[str, list[dict[str, str]]]] = board["panels"]  # type: ignore[assignment]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    put_in = {"__rate_interval": "10s", "__range": "10s", "__interval": "5s", **CHOSEN}
    return [re.sub(r"\$\{?(\w+)\}?", lambda one: put_in[one[1]], query) for query in found]
