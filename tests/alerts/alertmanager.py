"""
A real Alertmanager that runs the example config, and the channel that its messages go to.

In: the example, for either names of labels. Out: what people would have read. Law: the example runs as it is, but for
addresses and waiting times.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from alerts.written import ROOT
from cluster.processes import Processes, free_port
from exporter.metrics.labels import EXPORTED
from patience import PATIENCE
from prometheus.scraping import program

T = TypeVar("T")

FOLDERS = {"plain": ROOT / "alerts" / "alertmanager", "exported": ROOT / "alerts" / "exported" / "alertmanager"}
"""The example, by the names of labels that it is for."""
DAEMON = {"namespace": "gpusteward", "pod": "gpusteward-x7k2p", "container": "gpusteward"}
"""What a Prometheus that overrides labels writes on each series, and so on each alert."""


def relabelled(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of an alert as such a Prometheus sends it."""
    return {**{EXPORTED.get(name, name): text for name, text in labels.items()}, **DAEMON}


@dataclass(slots=True)
class Alertmanager:
    """A running Alertmanager, and the messages that it has sent, oldest first."""

    url: str
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    names: str = "plain"
    """Of labels: `plain` or `exported`."""

    def ready(self) -> bool:
        """Whether it takes alerts."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def post(self, *alerts: Mapping[str, Any]) -> None:
        """Send alerts as Prometheus does."""
        told = relabelled if self.names == "exported" else dict
        body = json.dumps([{**one, "labels": told(one["labels"])} for one in alerts]).encode()
        request = urllib.request.Request(f"{self.url}/api/v2/alerts", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=5).close()

    def alerts(self) -> list[Mapping[str, Any]]:
        """All that it has, with what mutes them."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=5) as answer:
            return list(json.load(answer))

    def inhibited(self) -> set[tuple[str, str]]:
        """Name and severity of those that are silent because of others."""
        found = (one for one in self.alerts() if one["status"]["inhibitedBy"])
        return {(one["labels"]["alertname"], one["labels"]["severity"]) for one in found}

    def said(self, channel: str) -> list[Mapping[str, Any]]:
        """What one channel has got."""
        return [one["attachments"][0] for one in list(self.messages) if one["channel"] == channel]


def until(condition: Callable[[], T | None], what: str, within: float = PATIENCE) -> T:
    """Poll until the condition gives something true."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {within} s for {what}"
        time.sleep(0.05)
    return found


@contextmanager
def running(folder: Path, names: str = "plain") -> Iterator[Alertmanager]:
    """Run the example for these names of labels; it sends to us what it would send to Slack, without waiting."""
    messages: list[Mapping[str, Any]] = []

    class Slack(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            pass

    slack = ThreadingHTTPServer(("127.0.0.1", 0), Slack)
    threading.Thread(target=slack.serve_forever, daemon=True).start()
    try:
        with running_config(folder, _here(folder, slack.server_port, FOLDERS[names])) as found:
            found.messages, found.names = messages, names
            yield found
    finally:
        slack.shutdown()
        slack.server_close()


@contextmanager
def running_config(folder: Path, config: Path) -> Iterator[Alertmanager]:
    """Run a config as it is."""
    command = program("prometheus-alertmanager")
    found = Alertmanager(f"http://127.0.0.1:{(port := free_port())}")
    processes = Processes(folder, uuid4().hex)
    try:
        processes.start(
            "alertmanager",
            [
                command,
                f"--config.file={config}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            found.ready,
        )
        yield found
    finally:
        processes.stop()


def _here(folder: Path, port: int, example: Path) -> Path:
    """The example with our addresses in it, and without its waits."""
    text = (example / "alertmanager.yaml").read_text()
    for old, new in {
        "slack_api_url_file: /etc/alertmanager/secrets/slack-url": f"slack_api_url: http://127.0.0.1:{port}/",
        "/etc/alertmanager/gpusteward.tmpl": str(example / "gpusteward.tmpl"),
        "group_wait: 30s": "group_wait: 500ms",
        "group_interval: 5m": "group_interval: 500ms",
    }.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "alertmanager.yaml"
    path.write_text(text)
    return path
