"""The golden page, judged by Prometheus's own tools and by a real Prometheus that scrapes it as our monitors do."""

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cluster.processes import Processes, free_port
from golden.everything import golden_page

pytestmark = pytest.mark.prometheus

CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: gpusteward
  honor_labels: true
  static_configs:
  - targets: ["127.0.0.1:{port}"]
    labels: {{namespace: gpusteward, pod: gpusteward-x7k2p, container: exporter}}
"""
"""What an operator makes of a PodMonitor with honorLabels: the daemon's own pod as target labels."""


def program(name: str) -> str:
    """Find a program of Debian's package `prometheus`; without it, skip on a laptop and fail in CI."""
    if (path := shutil.which(name)) is None:
        why = f"{name} is missing (apt-get install prometheus)"
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    return path


class _Scraped(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = golden_page(accept := self.headers.get("Accept", ""))
        self.send_response(200)
        wanted = "application/openmetrics-text; version=1.0.0" if "openmetrics" in accept else "text/plain"
        self.send_header("Content-Type", f"{wanted}; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Prometheus:
    """A running Prometheus, asked over its API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=5) as answer:
            return json.load(answer)["data"]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> dict[frozenset[tuple[str, str]], str]:
        """Ask until there is an answer: the labels of each series, without name and target, to its value."""
        deadline = time.monotonic() + 20
        while not (result := self.get("/api/v1/query", query=expression)["result"]):
            assert time.monotonic() < deadline, f"no answer to {expression}: {self.get('/api/v1/targets')}"
            time.sleep(0.1)
        hidden = {"__name__", "job", "instance"}
        return {
            frozenset((k, v) for k, v in series["metric"].items() if k not in hidden): series["value"][1]
            for series in result
        }


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Start a Prometheus that scrapes the golden page once a second."""
    folder = tmp_path_factory.mktemp("prometheus")
    command = program("prometheus")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Scraped)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(port=server.server_port))
    running = Prometheus(f"http://127.0.0.1:{(port := free_port())}")
    processes = Processes(folder, uuid4().hex)
    try:
        processes.start(
            "prometheus",
            [
                command,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            running.ready,
        )
        yield running
    finally:
        processes.stop()
        server.shutdown()
        server.server_close()


def test_promtool_finds_nothing(tmp_path: Path) -> None:
    """Names, types, units and help are as Prometheus's conventions want them."""
    page = tmp_path / "metrics.txt"
    page.write_bytes(golden_page())
    with page.open("rb") as text:
        result = subprocess.run([program("promtool"), "check", "metrics"], stdin=text, capture_output=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, b"")


def test_no_sample_is_lost(prometheus: Prometheus) -> None:
    """Prometheus takes over each sample of the page: none is refused, none is a duplicate."""
    samples = [line for line in golden_page().decode().splitlines() if not line.startswith("#")]
    assert list(prometheus.query("scrape_samples_scraped").values()) == [str(len(samples))]
    (target,) = prometheus.get("/api/v1/targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")


def test_the_workload_is_not_renamed(prometheus: Prometheus) -> None:
    """A container's series keep the namespace, pod and container of the workload, and get no `exported_…`."""
    found = prometheus.query('gpusteward_container_memory_used_bytes{namespace="team-a"}')
    assert {frozenset(dict(labels).items()) for labels in found} == {
        frozenset(
            {
                "namespace": "team-a",
                "pod": "trainer-0",
                "container": "main",
                "node": "gpu-node-1",
                "gpu": "0",
                "uuid": "GPU-00000000-1111-2222-3333-444444444444",
            }.items()
        )
    }
    assert list(found.values()) == [str(35 * 2**30)]


@pytest.mark.parametrize("name", ["gpu_up", "device_memory_used_bytes", "rounds_total", "build_info", "source_up"])
def test_the_daemons_own_pod_is_stamped_on_nothing(prometheus: Prometheus, name: str) -> None:
    """Series without a workload have no namespace, pod or container at all, although the target has all three."""
    for labels in prometheus.query(f"gpusteward_{name}"):
        assert not {"namespace", "pod", "container"} & set(dict(labels)), labels
        assert dict(labels)["node"] == "gpu-node-1"


def test_a_pods_info_joins_its_containers(prometheus: Prometheus) -> None:
    """The join that dashboards make finds exactly one pod, also for two generations of one name."""
    found = prometheus.query(
        "sum by (workload, queue) (gpusteward_container_memory_used_bytes"
        " * on (namespace, pod) group_left (workload, queue) gpusteward_pod_info)"
    )
    assert found[frozenset({("workload", "trainer"), ("queue", "research")})] == str(35 * 2**30)
