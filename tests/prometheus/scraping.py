"""
A real Prometheus that scrapes as an operator's monitor does, and the tools of its package.

In: the address to scrape. Out: its answers. Law: without Debian's package, skip on a laptop and fail in CI.

GPUSTEWARD_PROMETHEUS=2.35 takes another version than Debian's, built from its Go module: `cluster/tools/prometheus-…`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cluster import build
from cluster.processes import Processes, free_port
from patience import PATIENCE

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
scrape_configs:
- job_name: gpusteward
  honor_labels: {honor}
{more}  static_configs:
  - targets: ["{address}"]
    labels: {{namespace: gpusteward, pod: gpusteward-x7k2p, container: exporter}}
"""
"""What an operator makes of a PodMonitor with honorLabels: the daemon's own pod as target labels."""


VERSION = os.environ.get("GPUSTEWARD_PROMETHEUS", "")
"""Of `prometheus` and `promtool`; empty for Debian's."""


def program(name: str) -> str:
    """Find a program of Debian's package, or of `VERSION`; without it, skip on a laptop and fail in CI."""
    if VERSION and name in ("prometheus", "promtool"):
        try:
            return str(build.of_module(f"prometheus-{VERSION}", name))
        except build.BuildError as error:
            why = str(error)
    elif path := shutil.which(name):
        return path
    else:
        why = f"{name} is missing (apt-get install prometheus)"
    if os.environ.get("CI") == "true":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


OVERLAPS = (2, 39)
"""Since this version Prometheus allows overlapping blocks by itself. Version 3 no longer has the flag."""


@cache
def version() -> tuple[int, int]:
    """Return the version of `prometheus`: `VERSION`, else what Debian's says of itself; without either (2, 0)."""
    said = VERSION or "2.0"
    if not VERSION and (path := shutil.which("prometheus")):
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    assert found, said
    return int(found[1]), int(found[2])


class Prometheus:
    """A running Prometheus, asked over its API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> dict[frozenset[tuple[str, str]], str]:
        """Ask until there is an answer: the labels of each series, without name and target, to its value."""
        deadline = time.monotonic() + PATIENCE
        while not (result := self.get("/api/v1/query", query=expression)["result"]):
            assert time.monotonic() < deadline, f"no answer to {expression}: {self.get('/api/v1/targets')}"
            time.sleep(0.1)
        hidden = {"__name__", "job", "instance"}
        return {
            frozenset((k, v) for k, v in series["metric"].items() if k not in hidden): series["value"][1]
            for series in result
        }


@contextmanager
def scraping(
    address: str,
    folder: Path,
    more: Mapping[str, Any] | None = None,
    beside: Mapping[str, Any] | None = None,
    *,
    honor: bool = True,
) -> Iterator[Prometheus]:
    """
    Run a Prometheus that scrapes `address` each second; `more` goes into its job, `beside` next to it.

    Without `honor` it writes the daemon's own namespace, pod and container over those of the workload.
    """
    lines = "".join(f"  {key}: {json.dumps(one)}\n" for key, one in (more or {}).items())
    others = "".join(f"{key}: {json.dumps(one)}\n" for key, one in (beside or {}).items())
    config = CONFIG.format(address=address, more=lines, honor=str(honor).lower())
    with running(config + others, folder, folder / "data") as one:
        yield one


@contextmanager
def serving(data: Path, folder: Path, *flags: str) -> Iterator[Prometheus]:
    """Run a Prometheus on what is in `data`; it scrapes no target."""
    with running("{}", folder, data, *flags) as one:
        yield one


@contextmanager
def running(config: str, folder: Path, data: Path, *flags: str) -> Iterator[Prometheus]:
    """Run a Prometheus of this config, with its series in `data`."""
    command = program("prometheus")
    file = folder / "prometheus.yml"
    file.write_text(config)
    one = Prometheus(f"http://127.0.0.1:{(port := free_port())}")
    processes = Processes(folder, uuid4().hex)
    try:
        processes.start(
            "prometheus",
            [
                command,
                f"--config.file={file}",
                f"--storage.tsdb.path={data}",
                f"--web.listen-address=127.0.0.1:{port}",
                *(["--storage.tsdb.allow-overlapping-blocks"] if version() < OVERLAPS else []),  # backfilled ones do
                *flags,
            ],
            one.ready,
        )
        yield one
    finally:
        processes.stop()
