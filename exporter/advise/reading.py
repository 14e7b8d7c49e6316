"""
Reads what advice needs from a Prometheus.

What comes in: the Prometheus, a window, what is wanted. What goes out: one `Seen` per workload and container.

The rule: percentiles are those of single days, because percentiles of parts cannot be added up. Clusters that
look like one are refused, as a report refuses them.
"""

from collections.abc import Sequence
from functools import partial

from exporter.advise.grouping import Seen, Wanted, grouped
from exporter.advise.notes import Notes
from exporter.advise.questions import overridden, owners, plain, questions
from exporter.history.cutting import cut
from exporter.history.owners import filled
from exporter.history.prometheus import History, HistoryError
from exporter.history.windows import Window
from exporter.report.copies import refuse_mixed
from exporter.report.questions import scrapes

LATE = 120.0
"""Seconds before a part in which an action may have been that Prometheus saw in this part only."""


async def read(history: History, window: Window, wanted: Sequence[Wanted]) -> list[Seen]:
    """
    Ask about the containers of a namespace or workload, or all.

    `wanted` is what a name may mean, the first that there is counts. Raises HistoryError, AskError.
    """
    namespaces = {one.namespace for one in wanted if one.namespace is not None}
    count = len(questions(frozenset(), namespaces))
    parts = list(window.parts())
    history.expect((count + 1 + len(scrapes())) * len(parts))
    pieces = []
    for number, part in enumerate(parts):
        await refuse_mixed(history, part)
        renamed = await overridden(history, part)
        known = await cut(part, partial(owners, history, renamed=renamed))
        pieces += [(number, renamed, piece, its) for piece, its in known]
    history.expect(count * (len(pieces) - len(parts)))
    notes = Notes()
    workloads = filled([its for *_, its in pieces])
    for (number, renamed, piece, its), notes.workloads in zip(pieces, workloads, strict=True):
        notes.doubtful = its.changed()
        for query, enter in questions(renamed, namespaces):
            async for _, rows in history.over(query, piece):
                for row in rows:
                    notes.enter(enter, plain(row.labels, renamed), row.value, number)
        notes.since = piece.end - LATE
    for one in wanted:
        if found := grouped(notes, one):
            return found
    raise _nothing(wanted[0])


def _nothing(wanted: Wanted) -> HistoryError:
    if wanted.workload is None:
        what = "this Prometheus has no containers on GPUs in this time"
        cause = "no daemon was scraped, or the namespace has no pod on a GPU"
        return HistoryError(what, cause=cause, fix="check the name, and set --since to a time that it keeps")
    name = "/".join(part for part in wanted if part is not None)
    return HistoryError(
        f"this Prometheus has no containers on GPUs of {name} in this time",
        cause="no workload of this name has a pod on a GPU",
        fix=f"gpusteward advise {wanted.namespace} prints the names; set --since to a time that it keeps",
    )
