"""
Reads what advice needs from a Prometheus.

What comes in: the Prometheus, a window, what is wanted. What goes out: one `Seen` per workload and container.

The rule: percentiles are those of single days, because percentiles of parts cannot be added up.
"""

from exporter.advise.grouping import Seen, Wanted, grouped
from exporter.advise.notes import Notes
from exporter.advise.questions import overridden, plain, questions
from exporter.history.prometheus import History, HistoryError
from exporter.history.windows import Window


async def read(history: History, window: Window, wanted: Wanted) -> list[Seen]:
    """Ask about the containers of a namespace or workload, or all. Raises HistoryError, AskError."""
    parts = list(window.parts())
    history.expect((len(questions(frozenset(), None)) + 1) * len(parts))
    notes = Notes()
    for number, part in enumerate(parts):
        renamed = await overridden(history, part)
        asked = questions(renamed, wanted.namespace)
        for query, enter in asked:
            async for _, rows in history.over(query, part):
                for row in rows:
                    enter(notes, plain(row.labels, renamed), row.value, number)
    found = grouped(notes, wanted)
    if not found:
        raise _nothing(wanted)
    return found


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
