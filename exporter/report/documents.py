"""
The report as CSV and JSON.

What comes in: a report and its window. What goes out: text.

The rule: figures are in hours, and are not rounded; names are as they are. The rows add up: what no container was
allocated has rows of its own, and no row is a sum of others.
"""

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

from exporter.history.windows import Window
from exporter.report.notes import moment
from exporter.report.summary import NOT_ALLOCATED, TWICE, UNCOVERED, Group, Report

GIB_HOURS = 2**30 * 3600
HOURS = 3600
UNKNOWN_TIME = "(unknown)"


def rest(report: Report) -> Iterable[tuple[str, float, float | None]]:
    """Yield what makes the allocated time that of all GPUs: name, seconds, and cost unless it is unknown."""
    if report.twice:
        yield TWICE, -report.twice, -report.twice_cost
    yield NOT_ALLOCATED, report.not_allocated, report.not_allocated_cost
    yield UNCOVERED, report.uncovered, report.uncovered_cost
    yield UNKNOWN_TIME, report.unknown, None


def as_csv(report: Report) -> str:
    """Write the rows by group, and those of what no container was allocated. Columns but the capacity add up."""
    text = io.StringIO()
    fields = (
        report.by.value, "gpu_hours", "allocated_gpu_hours", "used_gpu_hours", "idle_gpu_hours", "unmeasured_gpu_hours",
        "memory_gib_hours", "declared_gib_hours", "unused_share", "cost", "idle_cost", "currency", "capacity_gpu_hours",
    )  # fmt: skip
    writer = csv.writer(text)
    writer.writerow(fields)
    for name, row in _named(report):
        written = {"currency": report.currency, **row}
        writer.writerow([name, *("" if (one := written.get(key)) is None else one for key in fields[1:])])
    return text.getvalue()


def as_json(report: Report, window: Window) -> str:
    """Write all of it; `total` has the sums of the rows."""
    whole = sum(report.memory.values())
    document: dict[str, Any] = {
        "since": moment(window.start),
        "until": moment(window.end),
        "gpus": report.gpus,
        "nodes": report.nodes,
        "currency": report.currency or None,
        "memory": [
            {"part": part, "gib_hours": size / GIB_HOURS, "share": size / whole if whole else None}
            for part, size in report.memory.items()
        ],
        "by": report.by.value,
        "rows": [{report.by.value: name, **row} for name, row in _named(report)],
        "total": {
            **_figures(report.total, report),
            "gpu_hours": report.whole / HOURS,
            "cost": report.whole_cost if report.priced else None,
        },
        "idle": [
            {
                "cluster": one.cluster or None,
                "namespace": one.namespace,
                "workload_kind": one.workload.kind,
                "workload": one.workload.name,
                "container": one.container,
                "model": one.model,
                "allocated_gpu_hours": one.allocated / HOURS,
                "idle_gpu_hours": one.idle / HOURS,
                "cost": one.cost if report.priced else None,
            }
            for one in report.idle
        ],
        "notes": list(report.notes),
    }
    return json.dumps(document, indent=2) + "\n"


def _named(report: Report) -> Iterable[tuple[str, dict[str, float | None]]]:
    yield from ((group.name, _figures(group, report)) for group in report.groups)
    for name, seconds, cost in rest(report):
        yield name, {"gpu_hours": seconds / HOURS, "cost": cost if report.priced else None}


def _figures(group: Group, report: Report) -> dict[str, float | None]:
    return {
        "gpu_hours": group.allocated / HOURS,
        "allocated_gpu_hours": group.allocated / HOURS,
        "used_gpu_hours": group.used / HOURS,
        "idle_gpu_hours": group.idle / HOURS,
        "unmeasured_gpu_hours": group.unmeasured / HOURS,
        "memory_gib_hours": group.memory / GIB_HOURS,
        "declared_gib_hours": group.declared / GIB_HOURS if group.declared else None,
        "unused_share": group.unused_share,
        "cost": group.cost if report.priced else None,
        "idle_cost": group.idle_cost if report.priced else None,
        "capacity_gpu_hours": group.capacity / HOURS if group.capacity else None,
    }
