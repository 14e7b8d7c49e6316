"""A real Prometheus that scrapes the daemon over TLS with a client certificate, and one that has none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.running import Daemon
from patience import PATIENCE
from prometheus.scraping import Prometheus, scraping
from serving.certificates import Authority

pytestmark = pytest.mark.prometheus

WEB = """
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_ca_file: ca.pem
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [prometheus.example]
"""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Certificates of one authority, and the daemon's web config beside them."""
    (tmp_path / "web-config.yml").write_text(WEB)
    return Authority(tmp_path)


@pytest.fixture
def daemon(authority: Authority) -> Iterator[Daemon]:
    """The daemon on a simulated node, open to those with a certificate alone."""
    flags = ("--devices=simulated", "--log.format=json", f"--web.config.file={authority.folder / 'web-config.yml'}")
    with Daemon(*flags) as running:
        yield running


def tried(prometheus: Prometheus) -> dict[str, Any]:
    """The one target, once it was scraped or could not be."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = prometheus.get("/api/v1/targets")["activeTargets"]
        if found and found[0]["health"] != "unknown":
            return dict(found[0])
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_with_a_client_certificate_it_scrapes(authority: Authority, daemon: Daemon, tmp_path: Path) -> None:
    """Both sides show a certificate, and the workloads' series are there under their own names."""
    folder = authority.folder
    tls = {"ca_file": f"{folder}/ca.pem", "cert_file": f"{folder}/client.pem", "key_file": f"{folder}/client.key"}
    with scraping(daemon.url.removeprefix("https://"), tmp_path, {"scheme": "https", "tls_config": tls}) as prometheus:
        found = prometheus.query("gpusteward_container_memory_used_bytes")
        assert found and not any("exported_pod" in dict(labels) for labels in found)
        assert (tried(prometheus)["health"], tried(prometheus)["lastError"]) == ("up", "")


@pytest.mark.parametrize("what", ["no certificate", "plain HTTP"])
def test_without_it_there_is_nothing(authority: Authority, daemon: Daemon, tmp_path: Path, what: str) -> None:
    """A scraper without a certificate of the authority, or without TLS, gets no line of the page."""
    tls = {"scheme": "https", "tls_config": {"ca_file": f"{authority.folder}/ca.pem"}}
    more = tls if what == "no certificate" else {}
    with scraping(daemon.url.removeprefix("https://"), tmp_path, more) as prometheus:
        target = tried(prometheus)
        assert target["health"] == "down" and target["lastError"]
        assert prometheus.query("up").popitem()[1] == "0"
        assert prometheus.get("/api/v1/query", query="gpusteward_build_info")["result"] == []
