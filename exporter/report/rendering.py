"""
The report as text, CSV or JSON.

What comes in: a report and its window. What goes out: text.

The rule: printed shares add up to exactly 100.0 %, by the largest remainders. A figure that is unknown is a dash. Names
from Kubernetes are printable ASCII in text; CSV and JSON have them as they are.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from exporter.history.windows import Window
from exporter.report.summary import NOT_ALLOCATED, UNANSWERED, Group, Report
from exporter.top.figures import UNKNOWN, clean, span

GIB_HOURS = 2**30 * 3600
HOURS = 3600
UNKNOWN_TIME = "(unknown)"
TOTAL = "total"

EXPLAINED = {
    "containers": "held by containers",
    "free": "idle: free memory",
    "reserved": "kept by the driver and firmware",
    "ghost": "of dead processes",
    "host": "of processes outside of containers",
    "unattributed": "of no known process",
    "unknown": "read, but its parts are unknown",
    UNANSWERED: "unknown: the driver gave no answer",
    "no samples": "unknown: the daemon was not scraped",
}
"""What each part of the memory is, in the order of the report."""


def as_text(report: Report, window: Window, most: int) -> str:
    """Write the report for a terminal, with the `most` worst idle allocations."""
    time = f"from {_time(window.start)} to {_time(window.end)} ({span(window.seconds)})"
    lines = [
        f"GPU use {time}: {_plural(report.gpus, 'GPU')} on {_plural(report.nodes, 'node')}",
        "",
        *_memory(report),
        "",
        *_groups(report),
    ]
    if report.idle:
        lines += ["", *_idle(report, most)]
    lines += [f"note: {clean(note)}" for note in report.notes]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _memory(report: Report) -> Iterable[str]:
    rows = [("MEMORY", "GiB-HOURS", "SHARE", "")]
    shares = percentages(list(report.memory.values()))
    rows += [
        (part, _amount(size / GIB_HOURS), share, EXPLAINED[part])
        for (part, size), share in zip(report.memory.items(), shares, strict=True)
        if size or part in ("containers", "free")
    ]
    rows.append((TOTAL, _amount(sum(report.memory.values()) / GIB_HOURS), "100.0%", "capacity x time"))
    return columns(rows, left=(0, 3))


def _groups(report: Report) -> Iterable[str]:
    by_device = any(group.capacity for group in report.groups)
    head = [report.by.upper(), *(["GPU-HOURS"] if by_device else []), "ALLOCATED", "USED", "IDLE", "UNKNOWN"]
    head += ["GiB-HOURS", "DECLARED", "UNUSED"]
    if report.priced:
        head += [f"COST {report.currency}".strip(), "OF IT IDLE"]
    rows = [tuple(head)]
    for group in (*report.groups, report.total):
        name = TOTAL if group is report.total else clean(group.name)
        cells = [name, *([_amount(group.capacity / HOURS)] if by_device else [])]
        cells += [_amount(part / HOURS) for part in (group.allocated, group.used, group.idle, group.unmeasured)]
        cells += [
            _amount(group.memory / GIB_HOURS),
            _amount(group.declared / GIB_HOURS) if group.declared else UNKNOWN,
            UNKNOWN if group.unused_share is None else f"{group.unused_share:.0%}",
        ]
        if report.priced:
            cells += [f"{group.cost:,.2f}", f"{group.idle_cost:,.2f}"]
        if group is report.total:
            rows += _rest(report, len(cells), by_device=by_device)
        rows.append(tuple(cells))
    yield "GPU-hours; a MIG instance counts by its share of the GPU's memory"
    yield from columns(rows, left=(0,))
    whole = report.total.allocated + report.not_allocated + report.unknown
    sums = f"allocated + {NOT_ALLOCATED} + {UNKNOWN_TIME} = {_amount(whole / HOURS)} GPU-hours"
    yield f"{sums}; allocated = used + idle + unknown"


def _rest(report: Report, cells: int, *, by_device: bool) -> Iterable[tuple[str, ...]]:
    """Yield the rows of what no container had."""
    for name, amount, cost in (
        (NOT_ALLOCATED, report.not_allocated, report.not_allocated_cost),
        (UNKNOWN_TIME, report.unknown, None),
    ):
        if amount:
            row = [name, *([""] if by_device else []), _amount(amount / HOURS)]
            row += [""] * (cells - len(row))
            if report.priced and cost is not None:
                row[-2] = f"{cost:,.2f}"
            yield tuple(row)


def _idle(report: Report, most: int) -> Iterable[str]:
    head = ("IDLE ALLOCATIONS", "CONTAINER", "MODEL", "ALLOCATED", "IDLE", "SHARE")
    rows = [(*head, f"COST {report.currency}".strip()) if report.priced else head]
    for one in report.idle[:most]:
        owner = clean(f"{one.namespace}/{one.workload.kind}/{one.workload.name}")
        cells = (
            owner,
            clean(one.container),
            clean(one.model),
            _amount(one.allocated / HOURS),
            _amount(one.idle / HOURS),
        )
        share = f"{one.idle / one.allocated:.0%}"
        rows.append((*cells, share, f"{one.cost:,.2f}") if report.priced else (*cells, share))
    yield from columns(rows, left=(0, 1, 2))
    if (more := len(report.idle) - most) > 0:
        yield f"and {more} more: --top {len(report.idle)}"


def as_csv(report: Report) -> str:
    """Write the rows by group, with the rows of what no container had; figures in hours, not rounded."""
    text = io.StringIO()
    fields = (
        report.by.value, "gpu_hours", "allocated_gpu_hours", "used_gpu_hours", "idle_gpu_hours", "unmeasured_gpu_hours",
        "memory_gib_hours", "declared_gib_hours", "unused_share", "cost", "idle_cost", "currency",
    )  # fmt: skip
    writer = csv.writer(text)
    writer.writerow(fields)
    for name, row in _named(report):
        written = {"currency": report.currency, **row}
        writer.writerow([name, *("" if (one := written.get(key)) is None else one for key in fields[1:])])
    return text.getvalue()


def as_json(report: Report, window: Window) -> str:
    """Write all of it; figures in hours, not rounded."""
    whole = sum(report.memory.values())
    document: dict[str, Any] = {
        "since": _time(window.start),
        "until": _time(window.end),
        "gpus": report.gpus,
        "nodes": report.nodes,
        "currency": report.currency or None,
        "memory": [
            {"part": part, "gib_hours": size / GIB_HOURS, "share": size / whole if whole else None}
            for part, size in report.memory.items()
        ],
        "by": report.by.value,
        "rows": [{report.by.value: name, **row} for name, row in _named(report)],
        "idle": [
            {
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
    cost = report.not_allocated_cost if report.priced else None
    yield NOT_ALLOCATED, {"gpu_hours": report.not_allocated / HOURS, "cost": cost}
    yield UNKNOWN_TIME, {"gpu_hours": report.unknown / HOURS}
    yield TOTAL, _figures(report.total, report)


def _figures(group: Group, report: Report) -> dict[str, float | None]:
    return {
        "gpu_hours": group.capacity / HOURS if group.capacity else None,
        "allocated_gpu_hours": group.allocated / HOURS,
        "used_gpu_hours": group.used / HOURS,
        "idle_gpu_hours": group.idle / HOURS,
        "unmeasured_gpu_hours": group.unmeasured / HOURS,
        "memory_gib_hours": group.memory / GIB_HOURS,
        "declared_gib_hours": group.declared / GIB_HOURS if group.declared else None,
        "unused_share": group.unused_share,
        "cost": group.cost if report.priced else None,
        "idle_cost": group.idle_cost if report.priced else None,
    }


def percentages(amounts: Sequence[float]) -> list[str]:
    """Write shares in tenths of a percent that add up to exactly 100.0, if there is any amount."""
    whole = sum(amounts)
    if whole <= 0:
        return [UNKNOWN] * len(amounts)
    exact = [1000 * amount / whole for amount in amounts]
    tenths = [int(one) for one in exact]
    by_rest = sorted(range(len(exact)), key=lambda index: tenths[index] - exact[index])
    for index in by_rest[: 1000 - sum(tenths)]:
        tenths[index] += 1
    return [f"{one / 10:.1f}%" for one in tenths]


def _amount(hours: float) -> str:
    return f"{hours:,.1f}" if hours < 1000 else f"{hours:,.0f}"  # noqa: PLR2004


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(round(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def columns(rows: Sequence[Sequence[str]], left: Sequence[int]) -> Iterable[str]:
    """Yield the rows in columns of equal width; `left` are those of names."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells)
