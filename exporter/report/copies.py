"""
Series that are there more than once.

What comes in: how long each node was scraped, by the labels that tell copies apart. What goes out: the labels of copies
that count once, nodes of two clusters that have one name, or a refusal.

The rule: copies that can be told apart count once. What cannot be told apart is refused, because it would count twice.
"""

from collections import defaultdict
from collections.abc import Iterable

from exporter.history.prometheus import History, HistoryError
from exporter.history.windows import Window
from exporter.report.entering import COPY_LABELS
from exporter.report.ledger import Ledger, Part
from exporter.report.names import Node
from exporter.report.questions import UP, Question, devices, scrapes

TWICE = 1.5
"""A node with so many times the samples of one copy has two; two daemons in turn overlap for minutes only."""
OVERLAP = 1800.0
"""Seconds with two copies in a part of a day, above which they are told apart."""
LABEL = "give each cluster a label `cluster` (external_labels of its Prometheus, or relabelling)"
_NAMED = 5


async def found(history: History, window: Window, part: Part, ledger: Ledger) -> bool:
    """Note the copies of a part, and return whether there are some. Raises HistoryError for those that are refused."""
    twice = {node: copies for node in part.scraped if (copies := _copies(part, node))}
    if (node := _inseparable(part)) is not None:
        raise await _refusal(history, node, window)
    if not twice:
        return False
    history.expect(1)
    await ask(history, [devices()], window, ledger, part)
    sources: dict[Node, list[int]] = defaultdict(list)
    for gpu, its in part.sources.items():
        sources[gpu.node].append(len(its))
    for node, labels in twice.items():
        if max(sources.get(node, [0])) == 1:
            ledger.namesakes[node] = labels
        else:
            ledger.copies |= labels
    return True


async def refuse_mixed(history: History, window: Window) -> None:
    """Refuse a part in which workloads of two nodes or clusters cannot be told apart. Raises HistoryError."""
    several = f"count by (cluster, node) (last_over_time({UP}[RANGE])) > 1"
    if not [row async for _, rows in history.over(several, window) for row in rows]:
        return
    history.expect(len(scrapes()))
    ledger, part = Ledger(), Part(window.start, window.end)
    await ask(history, scrapes(), window, ledger, part)
    await found(history, window, part, ledger)
    for node, labels in ledger.namesakes.items():
        raise HistoryError(
            f"node {node.name}: two nodes have this name, and no label `cluster`",
            cause=f"the workloads of two clusters are one here; they differ by {', '.join(sorted(labels))}",
            fix=LABEL,
        )


async def ask(history: History, questions: Iterable[Question], window: Window, ledger: Ledger, part: Part) -> None:
    """Ask questions about a part, and enter the answers. Raises HistoryError, AskError."""
    for question in questions:
        async for _, rows in history.over(question.query, window):
            for row in rows:
                question.enter(ledger, part, row.labels, row.value)


def _copies(part: Part, node: Node) -> set[str]:
    """Return the labels of series that are there at the same time for a node, written as NAME=VALUE."""
    copies, alive = part.scraped[node], part.alive.get(node, 0.0)
    if sum(copies.values()) - alive <= min(OVERLAP, (TWICE - 1) * alive):
        return set()
    values = {name: {copy[index] for copy in copies} for index, name in enumerate(COPY_LABELS)}
    return {f"{name}={value}" for name, several in values.items() if len(several) > 1 for value in several}


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
        fix="remove one of the jobs, ask one server, or let it leave out copies (Thanos: --query.replica-label). "
        f"Of several clusters, {LABEL}",
    )
