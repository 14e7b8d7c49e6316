"""
The page of the real daemon in each format, and with each rule for names, that a version of Prometheus can ask for.

In: settings of a scrape job. Out: what the daemon answered to the headers that Prometheus really sent, and what
Prometheus took over. Law: the names of all series are the same, whatever was asked for.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from daemon.running import Daemon
from patience import PATIENCE
from prometheus.scraping import scraping, version
from scraped import families

pytestmark = pytest.mark.prometheus

TEXT, OPENMETRICS = "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0"
SETTINGS: Mapping[str, tuple[tuple[int, int], Mapping[str, object], str]] = {
    "as it comes": ((2, 0), {}, OPENMETRICS),
    "text": ((2, 49), {"scrape_protocols": ["PrometheusText0.0.4"]}, TEXT),
    "openmetrics": ((2, 49), {"scrape_protocols": ["OpenMetricsText1.0.0"]}, OPENMETRICS),
    "protobuf first": ((2, 49), {"scrape_protocols": ["PrometheusProto", "PrometheusText0.0.4"]}, TEXT),
    "text 1.0": ((3, 0), {"scrape_protocols": ["PrometheusText1.0.0"]}, TEXT),
    "native histograms": ((3, 8), {"scrape_native_histograms": True}, OPENMETRICS),
    "legacy names": ((3, 0), {"metric_name_validation_scheme": "legacy"}, OPENMETRICS),
    "utf-8 names": ((3, 4), {"metric_name_escaping_scheme": "allow-utf-8"}, OPENMETRICS),
    "underscores": ((3, 4), {"metric_name_escaping_scheme": "underscores"}, OPENMETRICS),
    "dots": ((3, 4), {"metric_name_escaping_scheme": "dots"}, OPENMETRICS),
    "values": ((3, 4), {"metric_name_escaping_scheme": "values"}, OPENMETRICS),
}
"""What is set, since which version that is possible, and the format of the answer."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """The daemon on a simulated node."""
    with Daemon("--devices=simulated", "--log.format=json") as running:
        running.snapshot()
        yield running


@contextmanager
def overheard(daemon: Daemon) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Pass a scraper's requests on to the daemon: an address, and the pairs of Accept and Content-Type so far."""
    heard: list[tuple[str, str]] = []

    class Between(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urllib.request.Request(daemon.url + self.path, headers={"Accept": self.headers["Accept"]})
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                body, kind = answer.read(), answer.headers["Content-Type"]
            heard.append((self.headers["Accept"], kind))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Between) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", heard
        server.shutdown()


@pytest.mark.parametrize("name", [name for name, (since, _, _) in SETTINGS.items() if since <= version()])
def test_all_names_arrive_whatever_is_asked_for(daemon: Daemon, tmp_path: Path, name: str) -> None:
    """Each series of the page has its own name in Prometheus, and the target is up."""
    _, settings, expected = SETTINGS[name]
    with overheard(daemon) as (address, heard), scraping(address, tmp_path, settings) as prometheus:
        prometheus.query("scrape_samples_scraped > 0")
        (target,) = prometheus.get("/api/v1/targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        taken = {one for one in prometheus.get("/api/v1/label/__name__/values") if one.startswith("gpusteward_")}
    accept, kind = heard[-1]
    assert kind == f"{expected}; charset=utf-8", accept
    _, page = daemon.get("/metrics", {"Accept": accept})
    assert taken == {
        sample.name for family in families(page) for sample in family.samples if sample.name.startswith("gpusteward_")
    }
    assert len(taken) > 40
