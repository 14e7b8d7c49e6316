"""
Reads what advice needs from a Prometheus.

What comes in: the Prometheus, a window, what is wanted. What goes out: one `Seen` per workload and container.

The rule: percentiles are those of single days, because percentiles of parts cannot be added up. Clusters that
look like one are refused, as a report refuses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from exporter.advise.grouping import Seen, Wanted, grouped
from exporter.advise.notes import Notes, PodName
from exporter.advise.questions import overridden, owners, plain, questions
from exporter.history.cutting import cut
from exporter.history.owners import Owners, filled
from exporter.history.prometheus import History, HistoryError
from exporter.history.windows import Window
from exporter.report.copies import refuse_mixed

LATE = 120.0
"""Seconds before a part in which an action may have been that Prometheus saw in this part only."""


async def read(history: History, window: Window, wanted: Sequence[Wanted]) -> list[Seen]:
    """
    Ask about the containers of a namespace or workload, or all.

    `wanted` is what a name may mean, the first that there is counts. Raises HistoryError, AskError.
    """
    namespaces = {one.namespace for one in wanted if one.namespace is not None}
    days = list(window.parts())
    count = len(questions(frozenset(), namespaces))
    history.expect((count + 2) * len(days))
    parts = [part for number, day in enumerate(days) for part in await _parts(history, number, day)]
    history.expect(count * (len(parts) - len(days)))
    notes = Notes()
    for part, notes.workloads in zip(parts, filled([part.owners for part in parts]), strict=True):
        notes.only, notes.but, notes.doubtful = part.only, part.but, part.owners.changed()
        notes.since = part.window.start - LATE if part.window.start > window.start else 0.0
        for query, enter in questions(part.renamed, namespaces, {pod.name for pod in part.only}):
            async for _, rows in history.over(query, part.window):
                for row in rows:
                    notes.enter(enter, plain(row.labels, part.renamed), row.value, part.number)
    for one in wanted:
        if found := grouped(notes, one):
            return found
    raise _nothing(wanted[0])


@dataclass(frozen=True, slots=True)
class _Part:
    """A day, or a part of one; it is asked about `only` these pods, if any, or about all `but` these."""

    number: int
    window: Window
    renamed: frozenset[str]
    owners: Owners[tuple[str, str], PodName]
    only: frozenset[PodName] = frozenset()
    but: frozenset[PodName] = frozenset()


async def _parts(history: History, number: int, day: Window) -> list[_Part]:
    """Return a day; pods whose workload changes have shorter parts. Percentiles of the others are of the whole day."""
    await refuse_mixed(history, day)
    renamed = await overridden(history, day)
    ask = partial(owners, history, renamed=renamed)
    found = await ask(day)
    changed = frozenset(found.changed())
    whole = _Part(number, day, renamed, found, but=changed)
    if not changed:
        return [whole]
    return [whole, *(_Part(number, one, renamed, its, only=changed) for one, its in await cut(day, ask))]


def _nothing(wanted: Wanted) -> HistoryError:
    if wanted.workload is None:
        what = "this Prometheus has no containers on GPUs in this time"
        cause = "no daemon was scraped, or the namespace has no pod on a GPU"
        return HistoryError(what, cause=cause, fix="check the name, and set --since to a time that it keeps")
    name = "/".join(part for part in wanted if part is not None)
    return HistoryError(
        f"this Prometheus has no containers on GPUs of {name} in this time",
        cause="no workload of this name has a pod on a GPU",
        fix="gpusteward advise without a name prints all of them; set --since to a time that it keeps",
    )
