"""
A daemon, asked again and again.

What comes in: a question, and somebody to show each answer to. What goes out: calls of `show`, until cancelled.

The law: a daemon that does not answer is waited for; what it said last stays, and says how old it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import monotonic

from exporter.api.client import AskError
from exporter.api.schema import Document
from exporter.top.table import Table, table, waiting

PAUSE = 5.0
"""Seconds between two questions to a daemon that has never said how long its interval is; the default one."""
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds, where nobody asked for others: what answers there may write any interval."""


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What is known of the daemon.

    Attributes:
        body: the last answer as it came, and `document` as it was read; None before the first.
        at: monotonic seconds at which it came.
        trouble: why no newer one came; empty while all is well.

    """

    body: bytes = b""
    document: Document | None = None
    at: float = 0.0
    trouble: str = ""

    def table(self, now: float) -> Table:
        """Make the table as of `now`, in monotonic seconds."""
        if self.document is None:
            return waiting(self.trouble)
        return table(self.document, waited=now - self.at, trouble=self.trouble)


async def watch(
    ask: Callable[[], Awaitable[tuple[bytes, Document]]],
    show: Callable[[Seen], None],
    *,
    every: float | None = None,
    beat: float | None = None,
) -> None:
    """
    Ask each `every` seconds (None: each interval of the daemon), and show what came.

    With `beat`, show what is known each so many seconds as well, while an answer is waited for, too: it grows older.
    """
    seen = Seen()
    while True:
        asking = asyncio.ensure_future(ask())
        try:
            while not (await asyncio.wait({asking}, timeout=beat))[0]:
                show(seen)
        finally:
            asking.cancel()
        try:
            body, document = asking.result()
            seen = Seen(body, document, monotonic())
        except AskError as error:
            seen = replace(seen, trouble=error.reason)
        show(seen)
        until = monotonic() + (every if every is not None else pause(seen.document))
        while (left := until - monotonic()) > 0:
            await asyncio.sleep(left if beat is None else min(left, beat))
            if beat is not None:
                show(seen)


def pause(document: Document | None) -> float:
    """Say how many seconds pass before there may be news; `document` is the last one, if there was any."""
    return PAUSE if document is None else min(max(SHORTEST_PAUSE, document.interval_seconds), LONGEST_PAUSE)
