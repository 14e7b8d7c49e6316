"""
What boards, rules and alerts cost a Prometheus with a large fleet: CPU seconds of each query.

In: `python -m bench.queries`, the number of nodes. Out: two tables for docs/fleets.md.
Law: a query is sent as Grafana sends it, to Prometheus itself, whose own CPU time is read before and after. The least
of three counts, because the machine may be shared. Wall time is not used.

Each node has four GPUs and four containers. What boards draw over time is there for 24 hours, each minute. What is
recorded each five minutes is there for a week, and all else for the last 20 minutes. Prometheus makes the samples
itself: promtool evaluates rules that multiply one seed sample of each series.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from alerts import written
from grafana.catalogue import BOARDS
from grafana.documents import document
from prometheus.expanding import ALL, Window, expanded
from prometheus.scraping import Prometheus, program, serving

END = 1_700_006_400 + 7 * 86_400
DAY, WEEK, PRESENT = 86_400, 7 * 86_400, 1_200
GIB = 2**30
PER_NODE = 4

RAW = {
    "gpusteward_container_memory_used_bytes": "container",
    "gpusteward_container_memory_limit_bytes": "container",
    "gpusteward_container_sm_utilization_ratio": "container",
    "gpusteward_container_memory_peak_bytes": "container",
    "gpusteward_container_memory_ceiling_bytes": "container",
    "gpusteward_container_processes": "container",
    "gpusteward_container_compute_limit_ratio": "container",
    "gpusteward_container_allocated_replicas": "allocation",
    "gpusteward_container_limit_info": "limit",
    "gpusteward_container_state": "state",
    "gpusteward_device_memory_used_bytes": "device",
    "gpusteward_device_memory_declared_bytes": "device",
    "gpusteward_device_memory_total_bytes": "device",
    "gpusteward_device_memory_reserved_bytes": "device",
    "gpusteward_device_memory_free_bytes": "device",
    "gpusteward_device_memory_ghost_bytes": "device",
    "gpusteward_device_memory_unattributed_bytes": "device",
    "gpusteward_device_utilization_ratio": "device",
    "gpusteward_gpu_memory_total_bytes": "gpu",
    "gpusteward_gpu_up": "gpu",
    "gpusteward_gpu_info": "model",
    "gpusteward_pod_info": "pod",
    "gpusteward_build_info": "node",
    "gpusteward_snapshot_timestamp_seconds": "node",
    "gpusteward_source_up": "node",
    "gpusteward_breaker_open": "node",
}
COUNTERS = {
    "gpusteward_container_allocated_seconds_total": "allocation",
    "gpusteward_container_sm_seconds_total": "container",
    "gpusteward_container_memory_byte_seconds_total": "container",
    "gpusteward_container_over_limit_seconds_total": "container",
    "gpusteward_device_memory_byte_seconds_total": "part",
    "gpusteward_device_observed_seconds_total": "device",
    "gpusteward_device_unknown_seconds_total": "device",
}
RECORDED = {
    "container:gpusteward_gpu_allocated:rate5m": "share",
    "container:gpusteward_gpu_used:rate5m": "share",
    "container:gpusteward_gpu_idle:rate5m": "share",
    "workload:gpusteward_gpu_allocated:rate5m": "workload",
    "workload:gpusteward_gpu_used:rate5m": "workload",
    "workload:gpusteward_gpu_idle:rate5m": "workload",
    "workload:gpusteward_memory_declared:bytes": "workload",
    "workload:gpusteward_memory_declared_used:bytes": "workload",
    "node:gpusteward_device_utilization:ratio": "node",
}
"""What boards sum up or draw of what alerts/usage.yaml records; the rest of it is there for the last 20 minutes."""
PARTS = ("containers", "free", "reserved", "ghost", "unattributed")
VALUES = {"bytes": 40.0 * GIB, "ratio": 0.5, "seconds": 0.7, "replicas": 1.0}


def labels(of: str, node: int, number: int) -> dict[str, str]:
    """The labels of one series."""
    name = f"gpu-node-{node:04d}"
    if of == "node":
        return {"node": name}
    uuid = {"node": name, "uuid": f"GPU-{node:04d}-{number}"}
    gpu = {**uuid, "gpu": str(number)}
    if of in ("gpu", "device"):
        return gpu
    model = {"model": f"NVIDIA {'ABHL'[node % 4]}100"}
    if of == "model":
        return {**gpu, **model, "mig": "false", "vendor": "nvidia", "driver_version": "580.95.05", "pci_bus_id": "0"}
    pod = {"namespace": f"team-{node % 50:02d}", "pod": f"train-{node:04d}-{number}"}
    if of == "pod":
        return {
            "node": name,
            **pod,
            "workload_kind": "Job",
            "workload": f"train-{node // 8}",
            "pod_uid": f"{node}-{number}",
        }
    if of == "workload":
        return {"namespace": pod["namespace"], "workload_kind": "Job", "workload": f"train-{node // 8}", **model}
    container = {**pod, "container": "main"}
    if of == "share":
        return {**uuid, **container, **model}
    more = {
        "container": {},
        "allocation": {"resource": "nvidia.com/gpu"},
        "limit": {"system": "hami-nvidia", "source": "resource", "scope": "container", "enforced_by": "hook"},
        "state": {"state": "ok"},
    }
    return {**gpu, **container, **more[of]}


def seeds(nodes: int) -> Iterator[str]:
    """One sample of each series, at the beginning."""
    for name, of in {**OVER_TIME, **NOW, **COUNTERS, **RECORDED}.items():
        unit = next((unit for unit in VALUES if unit in name), "")
        for node in range(nodes):
            for number in range(1 if of in ("node", "workload") else PER_NODE):
                told = ",".join(f'{key}="{text}"' for key, text in labels(of, node, number).items())
                share = 0.2 + (7 * node + number) % 8 / 10
                yield f"seed:{name}{{{told}}} {VALUES.get(unit, 1.0) * (share if unit else 1):g} {END - WEEK}\n"
    yield "# EOF\n"


def rules(names: Mapping[str, str], folder: Path, interval: str) -> Path:
    """Rules that make the series of their seeds."""
    wave = "(1 + 0.1 * scalar(sin(vector(time() / 5000))))"
    made = []
    for name in names:
        seed = f"last_over_time(seed:{name}[8d])"
        grows = f"{seed} * (time() - {END - WEEK})"
        moves = name.endswith(("_used_bytes", "_ratio", "ratio", "rate5m", "used:bytes"))
        made.append({"record": name, "expr": grows if name in COUNTERS else f"{seed} * {wave}" if moves else seed})
    path = folder / "made.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "made", "interval": interval, "rules": made}]}))
    return path


def make(nodes: int, folder: Path) -> Path:
    """Write the blocks of the fleet."""
    source, data = folder / "seeds.om", folder / "data"
    with source.open("w") as file:
        file.writelines(seeds(nodes))
    _promtool("openmetrics", str(source), str(data))
    parts = (({**OVER_TIME}, DAY, "1m"), ({**NOW, **COUNTERS}, PRESENT, "1m"), (RECORDED, WEEK, "5m"))
    with serving(data, folder, "--query.max-samples=200000000", "--query.timeout=10m") as running:
        for number, (names, span, interval) in enumerate(parts):
            path, made = rules(names, folder, interval), folder / f"made-{number}"
            began = time.monotonic()
            _promtool(
                "rules",
                f"--start={END - span}",
                f"--end={END}",
                f"--url={running.url}",
                f"--output-dir={made}",
                str(path),
            )
            print(f"{len(names)} families in {time.monotonic() - began:.0f} s", file=sys.stderr)
    for number in range(len(parts)):
        for block in (folder / f"made-{number}").iterdir():
            block.rename(data / block.name)
    # What the rules of alerts/ record, now: their own expressions, of what they record from one another.
    for number in range(3):
        with serving(data, folder) as running:
            made = folder / f"recorded-{number}"
            present = (f"--start={END - 600}", f"--end={END}", "--eval-interval=60s")
            _promtool("rules", *present, f"--url={running.url}", f"--output-dir={made}", *map(str, written.RULES))
        for block in made.iterdir():
            block.rename(data / block.name)
    return data


def _promtool(*words: str) -> None:
    command = [program("promtool"), "tsdb", "create-blocks-from", "--max-block-duration=162h", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "level=error" not in done.stderr, (done.stdout + done.stderr)[-2000:]


def cpu(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
        before = cpu(pid)
        prometheus.get(f"/api/v1/{path}", query=query, **when)
        found.append(cpu(pid) - before)
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


if __name__ == "__main__":
    main()
