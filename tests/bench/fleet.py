"""
A large fleet as a Prometheus remembers it: series of nodes with four GPUs and four containers each.

In: the number of nodes. Out: a folder of blocks.
Law: what daemons export is there for 24 hours, each minute. What boards draw of the recorded series is there for a
week, each five minutes. Prometheus makes the samples itself: promtool evaluates rules that multiply one seed sample of
each series.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from alerts import written
from prometheus.recorded import DEEP
from prometheus.scraping import program, serving

END = 1_700_006_400 + 7 * 86_400
DAY, WEEK = 86_400, 7 * 86_400
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
    "gpusteward_configured_mode": "node",
    "gpusteward_enforcement_mode": "node",
    "gpusteward_config_last_reload_successful": "node",
    "gpusteward_config_last_reload_success_timestamp_seconds": "node",
    "gpusteward_pid_domain_proven": "node",
    "gpusteward_budget_remaining": "scope",
    "gpusteward_gpu_processes": "attribution",
    "gpusteward_device_info": "device",
    "gpusteward_device_containers": "device",
    "gpusteward_device_pods": "device",
    "gpusteward_gpu_power_watts": "gpu",
    "gpusteward_gpu_temperature_celsius": "gpu",
    "gpusteward_gpu_throttled": "throttle",
}
COUNTERS = {
    "gpusteward_container_allocated_seconds_total": "allocation",
    "gpusteward_container_sm_seconds_total": "container",
    "gpusteward_container_memory_byte_seconds_total": "container",
    "gpusteward_container_over_limit_seconds_total": "container",
    "gpusteward_device_memory_byte_seconds_total": "part",
    "gpusteward_device_observed_seconds_total": "device",
    "gpusteward_device_unknown_seconds_total": "device",
    "gpusteward_rounds_total": "node",
    "gpusteward_round_failures_total": "node",
    "gpusteward_round_duration_seconds_bucket": "duration",
    "gpusteward_gpu_xid_errors_total": "gpu",
    "gpusteward_gpu_pcie_replays_total": "gpu",
    "gpusteward_gpu_energy_joules_total": "gpu",
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
    "node:gpusteward_round_duration_seconds:p99": "node",
}
"""What boards sum up or draw of what alerts/usage.yaml records; the rest of it is there for the last 20 minutes."""
SEVERAL = {
    "part": ("part", ("containers", "free", "reserved", "ghost", "unattributed")),
    "scope": ("scope", ("node", "namespace")),
    "attribution": ("attribution", ("container", "inherited", "host", "ghost", "unreadable", "ambiguous")),
    "throttle": ("reason", ("sw_power_cap", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown")),
    "duration": ("le", ("0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "1.0", "5.0", "+Inf")),
}
"""Families with several series for each node or GPU, and the label that tells them apart."""
OF_A_NODE = ("node", "workload", "scope", "attribution", "duration")
VALUES = {
    "memory_byte_seconds": 40.0 * GIB,
    "observed_seconds": 1.0,
    "unknown_seconds": 0.0,
    "breaker_open": 0.0,
    "throttled": 0.0,
    "failures": 0.0,
    "xid_errors": 0.0,
    "pcie_replays": 0.0,
    "reload_success_timestamp": END - WEEK,
    "bytes": 40.0 * GIB,
    "ratio": 0.5,
    "seconds": 0.7,
}
UP = "gpusteward_snapshot_timestamp_seconds"
RELOADED = "gpusteward_config_last_reload_success_timestamp_seconds"
ALIKE = ("gpusteward_gpu_memory_total_bytes", "gpusteward_device_memory_total_bytes", RELOADED, *COUNTERS)
"""The same for each device; the others differ from container to container."""


def labels(of: str, node: int, number: int) -> dict[str, str]:
    """The labels of one series."""
    name = f"gpu-node-{node:04d}"
    if of in OF_A_NODE and of != "workload":
        return {"node": name}
    uuid = {"node": name, "uuid": f"GPU-{node:04d}-{number}"}
    gpu = {**uuid, "gpu": str(number)}
    if of in ("gpu", "device", "part", "throttle"):
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
    """One sample of each series, at the beginning. The parts of a device add up to its memory, times the time."""
    for name, of in {**RAW, **COUNTERS, **RECORDED}.items():
        value = next((value for unit, value in VALUES.items() if unit in name), 1.0)
        for node in range(nodes):
            for number in range(1 if of in OF_A_NODE else PER_NODE):
                share = 0.2 + (7 * node + number) % 8 / 10
                size = value if value == 1.0 or name in ALIKE else value * share
                label, parts = SEVERAL.get(of, ("", ("",)))
                for part in parts:
                    named = {**labels(of, node, number), **({label: part} if label else {})}
                    told = ",".join(f'{key}="{text}"' for key, text in named.items())
                    yield f"seed:{name}{{{told}}} {size / (len(parts) if label == 'part' else 1):g} {END - WEEK}\n"
    yield "# EOF\n"


def rules(names: Mapping[str, str], folder: Path, interval: str) -> Path:
    """Rules that make the series of their seeds."""
    wave = "(1 + 0.1 * scalar(sin(vector(time() / 5000))))"
    made = []
    for name in names:
        seed = f"last_over_time(seed:{name}[8d])"
        grows = f"{seed} * (time() - {END - WEEK})"
        moves = name.endswith(("_used_bytes", "_ratio", "ratio", "rate5m", "used:bytes"))
        if name == UP:
            seed = f"{seed} * 0 + time()"
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
    parts = (({**RAW, **COUNTERS}, DAY, "1m"), (RECORDED, WEEK, "5m"))
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
    for number in range(DEEP):
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
