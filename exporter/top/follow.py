"""
Fetches a daemon's snapshot repeatedly.

What comes in: a function that fetches, and one that shows. What goes out: calls of `show`, until cancelled.

The rule: if the daemon does not answer, its last answer stays on the screen with its age.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import monotonic

from exporter.api.client import AskError
from exporter.api.schema import Document
from exporter.top.table import Table, table, waiting

PAUSE = 5.0
"""Seconds between two requests before the first answer; the daemon's default interval."""
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Bounds in seconds, unless the user chose a pause: an answer may contain any interval."""


@dataclass(frozen=True, slots=True)
class Seen:
    """
    The last answer of the daemon.

    Attributes:
        body: the bytes of the last answer.
        document: the document in `body`; None before the first answer.
        at: monotonic seconds at which it came.
        trouble: why there is no newer answer; empty without a problem.

    """

    body: bytes = b""
    document: Document | None = None
    at: float = 0.0
    trouble: str = ""

    def table(self, now: float) -> Table:
        """Make the table for `now`, in monotonic seconds."""
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
    Fetch every `every` seconds (None: each interval of the daemon), and show the answer.

    With `beat`, show the last answer again every `beat` seconds, also during a request, because its age changes.
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
    """Return the seconds until the next request; `document` is the last one, or None."""
    return PAUSE if document is None else min(max(SHORTEST_PAUSE, document.interval_seconds), LONGEST_PAUSE)
