"""
`make bench`: what a round and a scrape cost. Figures, never a verdict.

In: sizes such as `16x128`, or nothing for all. With `--realtime` (root) the daemon and its scraper go before all other
work on the machine, so that this work is not in the figures. Out: a table in Markdown on standard output;
docs/performance.md keeps one with the machine it came from.
Law: CPU time is the process's own; the fake driver's share is in it.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.node import Size, running
from bench.peers import environment
from bench.usage import cpu_seconds
from daemon.running import Daemon
from driver.build import build
from exporter.host.remembered import YOUNG

SIZES = (Size(8, 8), Size(8, 32), Size(16, 128))
ROUNDS = 20
SCRAPES = 400


@dataclass(frozen=True, slots=True)
class Figures:
    """Milliseconds, but for `rss_mb` and `page_kb`."""

    cpu_round: float
    round_mean: float
    cpu_scraped: float
    scrape_p50: float
    scrape_p99: float
    rss_mb: float
    page_kb: float


def rounds(daemon: Daemon, count: int) -> tuple[float, float]:
    """Let `count` rounds pass; CPU milliseconds a round and their mean duration."""

    def now() -> tuple[int, float]:
        return daemon.snapshot()["tally"]["rounds"], cpu_seconds(daemon.process.pid)

    first, durations = now(), []
    while (last := now())[0] - first[0] < count:
        durations.append(daemon.snapshot()["duration_seconds"])
        time.sleep(1)
    return 1000 * (last[1] - first[1]) / (last[0] - first[0]), 1000 * statistics.mean(durations)


def scrapes(daemon: Daemon, count: int) -> tuple[list[float], int]:
    """Scrape on one connection as Prometheus does, 20 times a second; milliseconds each, and the page's size."""
    host = daemon.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host)
    accept = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}
    took, size = [], 0
    for _ in range(count):
        began = time.perf_counter()
        connection.request("GET", "/metrics", headers=accept)
        size = len(connection.getresponse().read())
        took.append(1000 * (time.perf_counter() - began))
        time.sleep(0.05)
    connection.close()
    return sorted(took), size


def scraped_rounds(daemon: Daemon, count: int) -> float:
    """Let rounds pass with one scrape each, far more often than in practice; CPU milliseconds per round."""
    first, began = int(daemon.snapshot()["tally"]["rounds"]), cpu_seconds(daemon.process.pid)
    for _ in range(count):
        daemon.get("/metrics", {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "identity"})
        time.sleep(1)
    return 1000 * (cpu_seconds(daemon.process.pid) - began) / (int(daemon.snapshot()["tally"]["rounds"]) - first)


def measure(size: Size, library: Path, *, realtime: bool = False) -> Figures:
    """Run a daemon at 1 Hz on a node of this size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ExitStack() as stack:
            node, names = stack.enter_context(running(size, folder, library))
            if realtime:  # a process that is started inherits it
                stack.callback(os.sched_setscheduler, 0, os.SCHED_OTHER, os.sched_param(0))
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            daemon = stack.enter_context(
                Daemon(
                    "--devices=nvml",
                    "--sampling.interval=1s",
                    f"--names.file={names}",
                    "--node.host-root=/",
                    "--log.format=json",
                    env=environment(node),
                )
            )
            snapshot = daemon.until(lambda s: s if s["round"] > 2 else None, "warm rounds")
            assert snapshot["complete"] and snapshot["processes"]["container"] == size.gpus * size.processes, snapshot
            time.sleep(YOUNG)  # a young process is read as a whole in each round
            # A page is rendered ahead while a client scrapes: the first figure is the round alone.
            cpu_round, duration = rounds(daemon, ROUNDS)
            took, page = scrapes(daemon, SCRAPES)
            cpu_scraped = scraped_rounds(daemon, ROUNDS)
            status = Path(f"/proc/{daemon.process.pid}/status").read_text()
            rss = int(status.split("VmRSS:")[1].split()[0]) / 1024
            return Figures(
                cpu_round,
                duration,
                cpu_scraped,
                statistics.median(took),
                took[int(len(took) * 0.99)],
                rss,
                page / 1024,
            )


def main() -> int:
    """Measure each size and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("sizes", nargs="*", help="GPUs x processes on each, such as 16x128")
    parser.add_argument("--realtime", action="store_true", help="let the daemon go before other work (root)")
    chosen = parser.parse_args()
    sizes = [Size(*map(int, size.split("x"))) for size in chosen.sizes] or SIZES
    library = build(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusteward")
    print(
        "| GPUs x processes | CPU a round | share of a core at 1 Hz | round | with a page rendered each round | "
        "scrape p50 | scrape p99 | RSS | page, compressed |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for size in sizes:
        f = measure(size, library, realtime=chosen.realtime)
        print(
            f"| {size} | {f.cpu_round:.1f} ms | {f.cpu_round / 10:.1f} % | {f.round_mean:.1f} ms | "
            f"{f.cpu_scraped:.1f} ms | {f.scrape_p50:.1f} ms | {f.scrape_p99:.1f} ms | {f.rss_mb:.0f} MB | "
            f"{f.page_kb:.0f} kB |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
