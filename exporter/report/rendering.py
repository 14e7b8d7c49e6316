"""
The report as text for a terminal.

What comes in: a report and its window. What goes out: text.

The rule: printed shares add up to exactly 100.0 %, by the largest remainders. A figure that is unknown is a dash. Names
from Kubernetes and from files are printable ASCII.
"""

from collections.abc import Iterable, Sequence

from exporter.history.windows import Window, length
from exporter.report.documents import GIB_HOURS, HOURS, rest
from exporter.report.notes import moment
from exporter.report.summary import UNANSWERED, Group, Report
from exporter.top.figures import UNKNOWN, clean

ALLOCATED, TOTAL = "allocated", "total"

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
    time = f"from {moment(window.start)} to {moment(window.end)} ({length(window.seconds)})"
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
    head = [report.by.upper(), *(["CAPACITY"] if by_device else []), "GPU-HOURS", "USED", "IDLE", "UNKNOWN"]
    head += ["GiB-HOURS", "DECLARED", "UNUSED"]
    if report.priced:
        head += [_cost(report), "OF IT IDLE"]
    rows = [tuple(head)]
    rows += [_row(clean(group.name), group, report, by_device=by_device) for group in report.groups]
    rows.append(_row(ALLOCATED, report.total, report, by_device=by_device))
    others = [(name, amount, cost) for name, amount, cost in rest(report) if amount]
    for name, amount, cost in (*others, (TOTAL, report.whole, report.whole_cost)):
        cells = [name, *([""] if by_device else []), _amount(amount / HOURS)]
        cells += [""] * (len(head) - len(cells))
        if report.priced and cost is not None:
            cells[-2] = f"{cost:,.2f}"
        rows.append(tuple(cells))
    yield "GPU-hours; a MIG instance counts by its share of the GPU's memory"
    yield from columns(rows, left=(0,))
    yield f"{ALLOCATED} = the rows above it = used + idle + unknown; {TOTAL} = {ALLOCATED} + the rows below it"


def _row(name: str, group: Group, report: Report, *, by_device: bool) -> tuple[str, ...]:
    cells = [name, *([_amount(group.capacity / HOURS)] if by_device else [])]
    cells += [_amount(part / HOURS) for part in (group.allocated, group.used, group.idle, group.unmeasured)]
    cells += [
        _amount(group.memory / GIB_HOURS),
        _amount(group.declared / GIB_HOURS) if group.declared else UNKNOWN,
        UNKNOWN if group.unused_share is None else f"{group.unused_share:.0%}",
    ]
    if report.priced:
        cells += [f"{group.cost:,.2f}", f"{group.idle_cost:,.2f}"]
    return tuple(cells)


def _cost(report: Report) -> str:
    return f"COST {clean(report.currency)}".strip()


def _idle(report: Report, most: int) -> Iterable[str]:
    head = ("IDLE ALLOCATIONS", "CONTAINER", "MODEL", "ALLOCATED", "IDLE", "SHARE")
    rows = [(*head, _cost(report)) if report.priced else head]
    for one in report.idle[:most]:
        cluster = f"{one.cluster}/" if report.clusters else ""
        owner = clean(cluster + "/".join(filter(None, (one.namespace, *one.workload))))
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


def columns(rows: Sequence[Sequence[str]], left: Sequence[int]) -> Iterable[str]:
    """Yield the rows in columns of equal width; `left` are those of names."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells)
