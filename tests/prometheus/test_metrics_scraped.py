"""The golden page and the real daemon, judged by Prometheus's own tools and by a real Prometheus that scrapes them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from daemon.running import Daemon
from golden.everything import golden_page
from prometheus.scraping import Prometheus, program, scraping

pytestmark = pytest.mark.prometheus


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


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Start a Prometheus that scrapes the golden page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Scraped)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        with scraping(f"127.0.0.1:{server.server_port}", tmp_path_factory.mktemp("prometheus")) as running:
            yield running
    finally:
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


def test_the_real_daemon_is_scraped_without_loss(tmp_path: Path) -> None:
    """
    Prometheus takes over each sample of the running daemon, in its own format, with the names of the workloads.

    The accounts close, now and over time.
    """
    with (
        Daemon("--devices=simulated", "--log.format=json", "--sampling.interval=200ms") as daemon,
        scraping(daemon.url.removeprefix("http://"), tmp_path) as running,
    ):
        shown = daemon.snapshot()["containers"]
        found = running.query("gpusteward_container_memory_used_bytes")
        names = {(labels["namespace"], labels["pod"], labels["container"]) for labels in map(dict, found)}
        assert names == {(c["namespace"], c["pod"], c["container"]) for c in shown}
        assert not any(key.startswith("exported_") for labels in found for key, _ in labels)
        for labels in running.query("gpusteward_device_memory_used_bytes"):
            assert not {"namespace", "pod", "container"} & set(dict(labels)), labels
        closing = running.query(
            "gpusteward_device_memory_used_bytes - gpusteward_device_memory_attributed_bytes"
            " - gpusteward_device_memory_ghost_bytes - gpusteward_device_memory_host_bytes"
            " - gpusteward_device_memory_unattributed_bytes"
        )
        assert set(closing.values()) == {"0"} and len(closing) == len(daemon.snapshot()["devices"])
        summed = running.query(
            "sum without (part) (gpusteward_device_memory_byte_seconds_total)"
            " / (gpusteward_device_memory_total_bytes * (gpusteward_device_observed_seconds_total > 0))"
        )
        assert len(summed) == len(closing) and {round(float(ratio), 9) for ratio in summed.values()} == {1}
        handed = running.query("gpusteward_container_allocated_seconds_total")
        assert len(handed) == len(running.query("gpusteward_container_allocated_replicas"))
        page = tmp_path / "page.txt"
        page.write_text(daemon.get("/metrics")[1])
        with page.open("rb") as text:
            command = [program("promtool"), "check", "metrics"]
            checked = subprocess.run(command, stdin=text, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
