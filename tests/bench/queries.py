"""
What boards, rules and alerts, `report` and `advise` cost a Prometheus with a large fleet: CPU seconds of each.

In: `python -m bench.queries`, the number of nodes. Out: tables for docs/fleets.md.
Law: a query is sent as Grafana sends it, to Prometheus itself, whose own CPU time is read before and after. The least
of three counts, because the machine may be shared. Wall time is not used.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alerts import written
from bench.fleet import DAY, END, WEEK, labels, make
from bench.usage import cpu_seconds, memory
from grafana.catalogue import BOARDS
from grafana.documents import document
from prometheus.expanding import ALL, Window, expanded
from prometheus.scraping import Prometheus, serving


def server(data: Path) -> int:
    """The process of the Prometheus that serves a folder: ours, found by its own arguments."""
    for found in Path("/proc").iterdir():
        if found.name.isdigit():
            try:
                words = (found / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if f"--storage.tsdb.path={data}" in words:
                return int(found.name)
    raise LookupError(data)


def cost(prometheus: Prometheus, pid: int, query: str, window: Window | None, step: int = 60) -> float:
    """CPU seconds of a query: the least of three."""
    path, when = "query", {"time": str(END)}
    if window is not None:
        path, when = "query_range", {"start": str(window.start), "end": str(window.end), "step": str(step)}
    found = []
    for _ in range(3):
        before = cpu_seconds(pid)
        prometheus.get(f"/api/v1/{path}", query=query, **when)
        found.append(cpu_seconds(pid) - before)
    return min(found)


def measured(prometheus: Prometheus, pid: int, span: int) -> Iterator[tuple[str, str, float]]:
    """Each query of each board over this time: board, panel, CPU seconds."""
    window = Window(END - span, END)
    for board in BOARDS:
        found = document(board)
        variables = [one for one in found["templating"]["list"] if one["type"] == "query"]
        first = {**labels("container", 0, 0), "cluster": ""}
        choice: dict[str, Any] = {one["name"]: ALL if one["multi"] else first[one["name"]] for one in variables}
        for panel in found["panels"]:
            points = replace(window, points=panel.get("maxDataPoints") or window.points)
            step = points.step(panel.get("interval", ""))
            for target in panel.get("targets", ()):
                query = expanded(target["expr"], choice, variables, window, step)
                yield (
                    board.place.uid,
                    panel["title"],
                    cost(prometheus, pid, query, None if target["instant"] else window, step),
                )


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command cost: CPU seconds of Prometheus and of the command, their memory in MB of 2^20."""

    prometheus: float
    command: float
    prometheus_peak: float
    command_peak: float


def asked(prometheus: Prometheus, pid: int, *words: str) -> Asked:
    """Run `gpusteward report` or `advise` about the last 24 hours."""
    before = cpu_seconds(pid)
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins anew
    until = datetime.fromtimestamp(END, UTC).isoformat()
    program = Path(sys.executable).parent / "gpusteward"
    command: list[str | Path] = [
        program,
        words[0],
        "--prometheus",
        prometheus.url,
        "--since=24h",
        f"--until={until}",
        *words[1:],
    ]
    with tempfile.TemporaryFile() as out:
        running = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(running.pid, 0)
    assert status == 0, command
    own = used.ru_utime + used.ru_stime
    return Asked(cpu_seconds(pid) - before, own, memory(pid).peak, used.ru_maxrss / 1024)


def main() -> None:
    """Make the fleet, measure, print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--data", type=Path, help="a folder that an earlier run wrote")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        data = given.data or make(given.nodes, Path(name))
        flags = ("--query.max-samples=200000000", "--query.timeout=10m")
        with serving(data, Path(name), *flags) as running:
            pid = server(data)
            for span, said in ((DAY, "24 hours"), (WEEK, "7 days")):
                print(f"\n| board, {said} | queries | slowest, CPU s | panel |\n|---|---|---|---|")
                rows = list(measured(running, pid, span))
                for board in BOARDS:
                    own = [(seconds, panel) for uid, panel, seconds in rows if uid == board.place.uid]
                    title, (seconds, panel) = board.place.title.removeprefix("gpusteward / "), max(own)
                    print(f"| {title} | {len(own)} | {seconds:.2f} | {panel} |")
                for uid, panel, seconds in sorted(rows, key=lambda row: -row[2])[:12]:
                    print(f"slow: {uid} {panel} {seconds:.2f}", file=sys.stderr)
            print("\n| rule or alert | CPU s |\n|---|---|")
            found = [(cost(running, pid, rule.expression, None), rule.name) for rule in written.rules()]
            for seconds, rule in sorted(found, reverse=True)[:8]:
                print(f"| `{rule}` | {seconds:.2f} |")
            print(f"\nall {len(found)} rules and alerts: {sum(seconds for seconds, _ in found):.2f} CPU s")
            print("\n| command, 24 hours | CPU s of Prometheus | of the command | MB of Prometheus | of the command |")
            print("|---|---|---|---|---|")
            for words in (("report",), ("report", "--by=workload", "--json"), ("advise", "--min-days=1")):
                one = asked(running, pid, *words)
                print(
                    f"| `gpusteward {' '.join(words)}` | {one.prometheus:.1f} | {one.command:.1f} "
                    f"| {one.prometheus_peak:.0f} | {one.command_peak:.0f} |"
                )


if __name__ == "__main__":
    main()
