"""
What reads a daemon all day: scrapers, the JSON API, people's browsers.

What comes in: an address. What goes out: how far the daemon is, by the newest page. The rule: one scraper keeps its
connection, all others connect anew for each request, because a forgotten connection is a forgotten descriptor.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

EVERY_S = 0.3
"""15 s of a day that is played in half an hour."""
MOST_FAILED = 20
"""Requests that may fail in a day: a connection may be closed at the moment of its next request."""
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
ACCEPTED = ({"Accept": OPENMETRICS}, {"Accept": "text/plain"}, {"Accept": OPENMETRICS, "Accept-Encoding": "identity"})
PATHS = (
    "/api/v1/snapshot",
    "/",
    "/api/v1/decisions",
    "/healthz",
    "/api/v1/preview",
    "/readyz",
    "/api/v1/explain?namespace=team-a&pod=nobody",
    "/nothing-is-here",
)


class Visitor:
    """Reads all pages, again and again; `round`, `evictions` and `breakers` are what the last page of metrics said."""

    def __init__(self, url: str) -> None:
        self.round = 0
        self.evictions = 0
        self.mode = ""
        self.breakers: set[str] = set()
        self.answers = 0
        self.failed = 0
        self._url = url
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Read until cancelled."""
        scraper = aiohttp.ClientSession(self._url)
        others = aiohttp.ClientSession(self._url, connector=aiohttp.TCPConnector(force_close=True))
        async with scraper, others:
            for headers, path in zip(itertools.cycle(ACCEPTED), itertools.cycle(PATHS), strict=False):
                began = time.monotonic()
                try:
                    async with scraper.get("/metrics", headers=headers) as answer:
                        self._take(await answer.text())
                    async with others.get(path) as answer:
                        await answer.read()
                except (aiohttp.ClientError, TimeoutError):
                    self.failed += 1
                    if self.failed > MOST_FAILED:
                        raise
                else:
                    self.answers += 2
                await asyncio.sleep(max(0.0, began + EVERY_S - time.monotonic()))

    async def after(self, rounds: int) -> None:
        """Wait until so many rounds have passed."""
        await self.reaches(self.round + rounds)

    async def reaches(self, round_: int) -> None:
        """Wait for a round."""
        while self.round < round_:
            await self.changes()

    async def changes(self) -> None:
        """Wait for the next page of metrics."""
        await self._changed.wait()

    async def until(self, condition: Callable[[], Awaitable[bool]], rounds: int) -> bool:
        """Ask at each page until the condition holds, for so many rounds at most; tell whether it does."""
        last = self.round + rounds
        while not (holds := await condition()) and self.round < last:
            await self.changes()
        return holds

    async def snapshot(self) -> dict[str, Any]:
        """Read the latest snapshot."""
        async with aiohttp.ClientSession(self._url) as session, session.get("/api/v1/snapshot") as answer:
            found: dict[str, Any] = json.loads(await answer.text())
            return found

    def _take(self, page: str) -> None:
        self.round = int(sum(value for _, value in samples(page, "rounds_total")))
        evictions = sum(value for _, value in samples(page, "action_duration_seconds_count"))
        self.evictions = max(self.evictions, int(evictions))
        self.mode = next((label(text, "mode") for text, on in samples(page, "enforcement_mode") if on), "")
        self.breakers |= {label(text, "breaker") for text, on in samples(page, "breaker_open") if on}
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def samples(page: str, name: str) -> list[tuple[str, float]]:
    """Read the samples of one name: labels and value. A parser of whole pages would cost a third of a core."""
    found = re.findall(rf"^gpusteward_{name}\{{(.*)\}} (\S+)", page, re.MULTILINE)
    return [(labels, float(value)) for labels, value in found]


def label(labels: str, name: str) -> str:
    """Read one label."""
    found = re.search(rf'\b{name}="([^"]*)"', labels)
    return found[1] if found else ""
