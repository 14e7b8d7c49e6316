"""
Four hours of three nodes, as blocks of Prometheus's own database.

In: the page of three nodes (golden.nodes). Out: a sample a minute, in a folder that
Prometheus serves.
Law: names, labels and types are the page's; what moves is listed here, and moves the same in each run.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from golden.nodes import page
from prometheus.recorded import record
from prometheus.scraping import program
from scraped import families

START = 1_700_006_400
"""A full two hours, as Prometheus cuts its blocks."""
MINUTES = 240
END = START + 60 * MINUTES

RESTART = ("gpu-node-1", 75)
"""The daemon starts anew: its counters begin at 0."""
GAP = ("gpu-node-2", range(110, 130))
"""The daemon answers no scrapes."""
EVICTED = ("gpu-node-2", "notebook-7c9", 150)
SUCCESSOR = ("notebook-8d1", 153)
"""What its controller creates instead, some minutes later."""
STEP = 5
"""A counter grows once in so many minutes: in each 10, with the sample at their start (Prometheus 2) or without (3)."""
USE = (
    "_byte_seconds_total",
    "_sm_seconds_total",
    "_allocated_seconds_total",
    "_observed_seconds_total",
    "_unknown_seconds_total",
)
"""Counters of use over time; the page has those of ten minutes."""
ACTED = (range(31, 46), range(151, 166))
"""An action is shown for 15 minutes."""
CALM = range(60)
"""Whatever state the policy has later, it is ok before."""
OPEN = range(60, 100)
"""The breaker that is open on the page."""

MOVING = ("_used_bytes", "_attributed_bytes", "_ghost_bytes", "_host_bytes", "_unattributed_bytes", "_watts")
"""What grows and falls, all alike."""

Labels = Mapping[str, str]
Series = tuple[str, tuple[tuple[str, str], ...]]
Points = list[tuple[int, float]]


def wave(minute: int) -> float:
    """0.5 to 1, up and down in two hours."""
    return 0.5 + abs((minute % 120) - 60) / 120


def value(name: str, kind: str, labels: Labels, base: float, minute: int) -> float:
    """What a sample of the page is at a minute."""
    node = labels["node"]
    if kind in ("counter", "histogram"):
        base *= STEP / 10 if name.endswith(USE) else 1
        began = RESTART[1] if node == RESTART[0] and minute >= RESTART[1] else None
        return base * ((minute - began) // STEP if began is not None else 1 + minute // STEP)
    if name == "gpusteward_snapshot_timestamp_seconds":
        return START + 60 * minute - 2
    if name == "gpusteward_last_action_timestamp_seconds":
        return START + 60 * (next(one.start for one in ACTED if minute in one) - 1)
    if name.endswith("_timestamp_seconds"):
        return float(START - 3600)
    if name == "gpusteward_breaker_open":
        return base if minute in OPEN else 0.0
    if name == "gpusteward_gpu_throttled":
        return base if minute // 20 % 2 else 0.0
    if name.endswith(MOVING) or (name.endswith("_ratio") and "limit" not in name):
        return base * wave(minute)
    return base


def named(name: str, labels: dict[str, str], minute: int) -> dict[str, str] | None:
    """The labels that a sample of the page has at a minute; None: it is not there."""
    if labels["node"] == GAP[0] and minute in GAP[1]:
        return None
    if name == "gpusteward_last_action_timestamp_seconds" and not any(minute in one for one in ACTED):
        return None
    if name == "gpusteward_container_state" and minute in CALM:
        labels = {**labels, "state": "ok"}
    node, pod, until = EVICTED
    if (labels["node"], labels.get("pod")) == (node, pod) and minute >= until and "last_action" not in name:
        if minute < SUCCESSOR[1]:
            return None
        return {**labels, "pod": SUCCESSOR[0], **({"pod_uid": "the-next"} if "pod_uid" in labels else {})}
    return labels


@cache
def history() -> Mapping[Series, Points]:
    """Each series with its samples: Unix time, value."""
    found: dict[Series, Points] = defaultdict(list)
    for family in families(page()):
        for sample in family.samples:
            for minute in range(MINUTES + 1):
                if (labels := named(sample.name, sample.labels, minute)) is not None:
                    now = value(sample.name, family.type, labels, sample.value, minute)
                    key = (sample.name, tuple((one, text) for one, text in labels.items() if text))
                    found[key].append((START + 60 * minute, now))
    return found


def openmetrics() -> Iterator[str]:
    """The lines of the file."""
    for (name, labels), points in history().items():
        told = ",".join(f"{label}={json.dumps(text, ensure_ascii=False)}" for label, text in labels)
        for at, now in points:
            yield f"{name}{{{told}}} {now!r} {at}\n"
    yield "# EOF\n"


def blocks(folder: Path) -> Path:
    """Write the hours as Prometheus keeps them, with what our rules record; for `--storage.tsdb.path`."""
    source, data = folder / "hours.om", folder / "data"
    with source.open("w", encoding="utf-8") as file:
        file.writelines(openmetrics())
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(source), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record(data, folder, START, END)
    return data
