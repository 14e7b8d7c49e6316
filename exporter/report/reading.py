"""
Fills a ledger from a Prometheus.

What comes in: the Prometheus and a window. What goes out: a `Ledger`.

The rule: each part of the window is asked for itself. Names that may change (model, workload) are those of the part, so
they are asked for first. A series that is there twice counts once, or is refused.
"""

from collections.abc import Sequence

from exporter.history.cutting import cut
from exporter.history.owners import Owners, filled
from exporter.history.prometheus import History, HistoryError
from exporter.history.windows import Window
from exporter.report.copies import ask, found
from exporter.report.ledger import Ledger, Part
from exporter.report.names import Gpu, Node, Pod
from exporter.report.questions import UP, gained_in_gaps, models, owners, scrapes, sizes, sums

SEARCHED = 16
"""Parts of the longest time that is searched for the first sample at once: servers limit the range of a query."""
FEW = 4
"""Pods whose workload changes on one day, above which the parts of the day are hours and no shorter."""


async def parts_of(history: History, window: Window) -> list[Window]:
    """
    Cut a window into parts, without those before the first sample. Raises HistoryError, AskError.

    Each question about a time without samples is followed by one about twice as much. A time with samples is searched
    anew, from its first part on.
    """
    parts, several = list(window.parts()), 1
    while parts:
        asked = Window(parts[0].start, parts[:several][-1].end)
        history.expect(1)
        if not [row async for _, rows in history.over(f"count(last_over_time({UP}[RANGE]))", asked) for row in rows]:
            parts, several = parts[several:], min(2 * several, SEARCHED)
        elif several == 1:
            return parts
        else:
            several = 1
    raise HistoryError(
        "this Prometheus has no series of gpusteward in this time",
        cause="it scrapes no daemon, keeps a shorter time, or another Prometheus does",
        fix=f"ask it for {UP}, and set --since to a time that it keeps",
    )


async def models_of(history: History, parts: Sequence[Window]) -> set[str]:
    """Return the models of all GPUs. Raises HistoryError, AskError."""
    history.expect(len(parts))
    ledger = Ledger(days=[Part(window.start, window.end) for window in parts])
    for part, window in zip(ledger.days, parts, strict=True):
        await ask(history, [models()], window, ledger, part)
    return {model for part in ledger.days for found in part.named.values() for model in found}


async def read(history: History, parts: Sequence[Window]) -> Ledger:
    """Ask everything about the parts of a window. Raises HistoryError, AskError."""
    ledger = Ledger()
    days = [day for window in parts for day in await _named(history, window, ledger)]
    ledger.days = [part for _, part in days]
    _fill(ledger.days)
    history.expect(len(days) * len((*sizes(), *scrapes(), *sums(copied=False))))
    for window, part in days:
        await ask(history, sizes(), window, ledger, part)
    for window, part in days:
        await ask(history, scrapes(), window, ledger, part)
        copied = await found(history, window, part, ledger)
        await ask(history, sums(copied=copied), window, ledger, part)
        if any(map(part.gap, part.seen)):
            history.expect(len(gained_in_gaps(copied=copied)))
            await ask(history, gained_in_gaps(copied=copied), window, ledger, part)
        part.allotted.clear()
        part.metered.clear()
    if not any((*ledger.observed.values(), *ledger.unanswered.values())):
        raise HistoryError(
            "this time has fewer than two samples of gpusteward's counters",
            cause="it is shorter than two scrapes, or the daemons began at its end",
            fix="set --since to a longer time, such as 1h",
        )
    return ledger


async def _named(history: History, window: Window, ledger: Ledger) -> list[tuple[Window, Part]]:
    """Ask for models and workloads, in shorter parts where the workload of a pod changes."""

    async def ask_owners(window: Window) -> Owners[Node, Pod]:
        history.expect(len(owners()))
        part = Part(window.start, window.end)
        await ask(history, owners(), window, ledger, part)
        return part.owners

    days = []
    for piece, known in await cut(window, ask_owners, FEW):
        part = Part(piece.start, piece.end, owners=known)
        history.expect(1)
        await ask(history, [models()], piece, ledger, part)
        days.append((piece, part))
    return days


def _fill(days: Sequence[Part]) -> None:
    """Choose the names of each part; a name that is missing in one is that of the part before, or of the one after."""
    for part, workloads in zip(days, filled([part.owners for part in days]), strict=True):
        part.workloads = workloads
    for order in (days, days[::-1]):
        last: dict[Gpu, str] = {}
        for part in order:
            part.models |= {gpu: max(found, key=lambda one: (found[one], one)) for gpu, found in part.named.items()}
            last |= part.models
            part.models = dict(last)
