"""
What a reader of the report has to know beside its figures.

What comes in: a ledger, the models with a price, the window. What goes out: sentences.

The rule: what makes a figure smaller than a reader expects has a note. A report that needs none has none.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from exporter.history.windows import Window
from exporter.report.ledger import Ledger

GONE_AFTER = 900.0
"""Seconds without a sample at an end of the window after which there is a note."""
_NAMED = 5


def notes_of(ledger: Ledger, priced: Collection[str], window: Window) -> Iterable[str]:
    """Yield the notes."""
    first = min((span.first for span in ledger.spans.values()), default=window.start)
    if first - window.start > GONE_AFTER:
        yield f"the oldest sample is of {moment(first)}; nothing is known of the time before"
    if gone := sorted(_gone(ledger, window)):
        yield f"nodes without samples at the end, which count until their last one: {_some(gone)}"
    if any(place not in ledger.capacity for place in ledger.parts):
        yield "the size of a device is unknown; the device is left out"
    if ledger.copies:
        yield f"series are there more than once at the same time, and count once: {_some(sorted(ledger.copies))}"
    for node, labels in sorted(ledger.namesakes.items()):
        yield (
            f"two nodes are called {node.name}, with {_some(sorted(labels))}: both count, and are one here; "
            "give each cluster a label cluster (external_labels of its Prometheus, or relabelling)"
        )
    if ledger.podless:
        yield "some series have exported_namespace and no exported_pod: their label pod counts as the workload's"
    if any(holder.namespace and not holder.pod for holder in ledger.allocated):
        yield "some containers have no label pod: they are one row"
    yield from (f"price of {model}: no such model in this time" for model in priced if model not in ledger.models)


def _gone(ledger: Ledger, window: Window) -> Iterable[str]:
    """Yield the nodes that ended. One that goes on at once in another cluster has only another label."""
    many = len({node.cluster for node in ledger.spans}) > 1
    for node, span in ledger.spans.items():
        if window.end - span.last <= GONE_AFTER:
            continue
        if not any(
            other.name == node.name and other != node and abs(its.first - span.last) <= GONE_AFTER
            for other, its in ledger.spans.items()
        ):
            yield f"{node.cluster}/{node.name}" if many else node.name


def moment(seconds: float) -> str:
    """Write a Unix time in RFC 3339."""
    return datetime.fromtimestamp(round(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
