"""
Fills a ledger from a Prometheus.

What comes in: the Prometheus and a window. What goes out: a `Ledger`.

The rule: each part of the window is asked for itself. Names that may change (model, workload) are joined here, because
a label that changes within a part breaks a join in PromQL. A series that is there twice counts once, or is refused.
"""

from collections.abc import Iterable, Sequence

from exporter.history.prometheus import History, HistoryError
from exporter.history.windows import DAY, Window
from exporter.report.ledger import Ledger, Node, Part
from exporter.report.questions import COPY_LABELS, UP, Question, models, scrapes, sizes, sums

SEARCH = 4 * 3600
"""Seconds between two looks for the first sample."""
TWICE = 1.5
"""A node with so many times the samples of one copy has two; two daemons in turn overlap for minutes only."""
OVERLAP = 1800.0
"""Seconds with two copies in a part of a day, above which they are told apart."""
_NAMED = 5


async def parts_of(history: History, window: Window) -> list[Window]:
    """Cut a window into parts, without the time before the first sample. Raises HistoryError, AskError."""
    parts = list(window.parts())
    if len(parts) == 1:
        return parts
    history.expect(1)
    first = float("inf")
    query = f"min_over_time((min(timestamp({UP})))[RANGE:{SEARCH}s])"
    async for _, rows in history.over(query, window):
        first = min([first, *(row.value for row in rows)])
    found = [part for part in parts if part.end > first - DAY]
    return found or parts[-1:]


async def models_of(history: History, parts: Sequence[Window]) -> set[str]:
    """Return the models of all GPUs. Raises HistoryError, AskError."""
    history.expect(len(parts))
    ledger = Ledger()
    for window in parts:
        await _ask(history, [models()], window, ledger, Part(window.start, window.end))
    return set(ledger.models.values())


async def read(history: History, parts: Sequence[Window]) -> Ledger:
    """Ask everything about the parts of a window. Raises HistoryError, AskError."""
    history.expect(len(parts) * len((*sizes(), *scrapes(), *sums(copied=False))))
    ledger = Ledger(days=[Part(window.start, window.end) for window in parts])
    for part, window in zip(ledger.days, parts, strict=True):
        await _ask(history, sizes(), window, ledger, part)
    for part, window in zip(ledger.days, parts, strict=True):
        await _ask(history, scrapes(), window, ledger, part)
        copied = _copies(part)
        if (twice := _inseparable(part)) is not None:
            raise await _refusal(history, twice, window)
        ledger.copies |= copied
        await _ask(history, sums(copied=bool(copied)), window, ledger, part)
        part.allotted.clear()
        part.metered.clear()
    if not ledger.spans:
        raise _nothing()
    if not any((*ledger.observed.values(), *ledger.unanswered.values())):
        raise HistoryError(
            "this time has fewer than two samples of gpusteward's counters",
            cause="it is shorter than two scrapes, or the daemons began at its end",
            fix="set --since to a longer time, such as 1h",
        )
    return ledger


async def prefix_of(history: History, window: Window) -> str:
    """Return what precedes the labels of workloads there (`metrics.workload_labels`), by the last pods that it has."""
    exported = 'label_replace(last_over_time(gpusteward_pod_info[RANGE]), "exported", "yes", "exported_pod", ".+")'
    for part in reversed(list(window.parts())):
        history.expect(1)
        found = [
            row.labels.get("exported")
            async for _, rows in history.over(f"count by (exported) ({exported})", part)
            for row in rows
        ]
        if found:
            return "exported_" if any(found) else ""
    return ""


async def _ask(history: History, questions: Iterable[Question], window: Window, ledger: Ledger, part: Part) -> None:
    for question in questions:
        async for _, rows in history.over(question.query, window):
            for row in rows:
                question.enter(ledger, part, row.labels, row.value)


def _copies(part: Part) -> set[str]:
    """Return the labels of series that are there at the same time for one node, written as NAME=VALUE."""
    found = set()
    for node, copies in part.scraped.items():
        alive = part.alive.get(node, 0.0)
        if sum(copies.values()) - alive > min(OVERLAP, (TWICE - 1) * alive):
            for index, name in enumerate(COPY_LABELS):
                values = {copy[index] for copy in copies}
                found |= {f"{name}={value}" for value in values if len(values) > 1}
    return found


def _inseparable(part: Part) -> Node | None:
    """Return a node whose copies of series have the same labels but for those of a target."""
    for node, copies in part.scraped.items():
        if max(copies.values()) > TWICE * part.alive.get(node, float("inf")):
            return node
    return None


async def _refusal(history: History, node: Node, part: Window) -> HistoryError:
    history.expect(1)
    rows = [
        row.labels
        async for _, rows in history.over(f"last_over_time({UP}[RANGE])", part)
        for row in rows
        if (row.labels.get("cluster", ""), row.labels.get("node", "")) == node
    ]
    names = sorted({name for labels in rows for name in labels} - {"__name__"})
    told = [
        f"{name}={', '.join(values[:_NAMED])}"
        for name in names
        if len(values := sorted({labels.get(name, "") or "(none)" for labels in rows})) > 1
    ]
    return HistoryError(
        f"node {node.name}: its series are there more than once at the same time",
        cause=f"two jobs scrape the daemon, two servers are asked as one, or two nodes have this name and no label "
        f"cluster; they differ by {'; '.join(told)}",
        fix="remove one of the jobs, ask one server, or let it leave out copies (Thanos: --query.replica-label)",
    )


def _nothing() -> HistoryError:
    return HistoryError(
        "this Prometheus has no series of gpusteward in this time",
        cause="it scrapes no daemon, keeps a shorter time, or another Prometheus does",
        fix=f"ask it for {UP}, and set --since to a time that it keeps",
    )
