"""
Objects that are read by name, one by one, and kept as long as they are wanted.

What comes in: which ones are wanted, and how to ask for one. What goes out: the answers as last known.

The rule: nothing is listed or watched, only what is wanted is asked for, and never all of it by a thousand nodes at
once. Silence keeps an answer for as long as the caller allows; that an object is not there (404) ends it at once.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

import structlog

from exporter.base.clock import Clock
from exporter.kube.errors import KubeError
from exporter.model import Fault

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

FRESH = 60.0
"""Seconds between two questions about one object."""
AGAIN = 10.0
"""Seconds until what was not answered is asked for again."""
LOOK = 1.0
"""Seconds between two looks at what is wanted; a look at 100 pods takes some 20 µs."""
SETTLES = 10.0
"""Seconds for which an API server that has just started may refuse (403) what it grants: it reads its roles first."""


@dataclass(slots=True)
class _Entry(Generic[V]):
    """What is known of one object; `because` is why it is wanted: when that changes, it is asked for anew."""

    because: object
    due: float
    read_at: float | None = None
    value: V | None = None
    refused_since: float | None = None
    refused: KubeError | None = None
    asked: bool = False


class Kept(Generic[K, V]):
    """
    Reads and remembers; one task calls `run` or `look`, all may read.

    Args:
        what: for the log.
        wanted: the names that are wanted now, each with a reason to ask anew when it changes.
        ask: asks for one; raises KubeError.
        clock: for all times.
        random: spreads the questions.
        lasts: seconds for which an answer counts when no other comes.
        pause: seconds until an answer is asked for again.

    """

    def __init__(
        self,
        what: str,
        wanted: Callable[[], Mapping[K, object]],
        ask: Callable[[K], Awaitable[V]],
        *,
        clock: Clock,
        random: Random,
        lasts: float = float("inf"),
        pause: Callable[[V], float] = lambda _: FRESH,
    ) -> None:
        self._what = what
        self._wanted = wanted
        self._ask = ask
        self._clock = clock
        self._random = random
        self._lasts = lasts
        self._pause = pause
        self._entries: dict[K, _Entry[V]] = {}
        self._silent_until = 0.0

    @property
    def values(self) -> dict[K, V]:
        """What is known, without what is too old to count."""
        since = self._clock.monotonic() - self._lasts
        return {
            name: entry.value
            for name, entry in self._entries.items()
            if entry.value is not None and entry.read_at is not None and entry.read_at >= since
        }

    def forbidden(self, reason: str, consequence: str) -> tuple[Fault, ...]:
        """Report that the API server does not let us read (403), for longer than a server takes to start."""
        now = self._clock.monotonic()
        for entry in self._entries.values():
            if entry.refused_since is not None and now - entry.refused_since >= SETTLES:
                return (Fault("api", reason, f"{entry.refused}; {consequence}", incomplete=False),)
        return ()

    def asked(self, name: K) -> bool:
        """Say whether there was any answer about an object that is wanted, be it that it cannot be read."""
        return name in self._entries and self._entries[name].asked

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK)

    async def look(self) -> bool:
        """Ask for what is due, and forget what is not wanted any more; returns whether an answer came."""
        wanted = self._wanted()
        for name in self._entries.keys() - wanted.keys():
            del self._entries[name]
        came = False
        for name, because in wanted.items():
            now = self._clock.monotonic()
            if now < self._silent_until:
                break
            entry = self._entries.setdefault(name, _Entry(because, now))
            if now < entry.due and entry.because == because:
                continue
            entry.because = because
            try:
                entry.value = await self._ask(name)
            except KubeError as error:
                self._missed(name, entry, error)
            else:
                came = True
                entry.read_at = self._clock.monotonic()
                entry.refused_since = entry.refused = None
                entry.due = entry.read_at + self._about(self._pause(entry.value))
            entry.asked = True
        return came

    def _missed(self, name: K, entry: _Entry[V], error: KubeError) -> None:
        now = self._clock.monotonic()
        pause = FRESH if error.status == 404 else AGAIN  # noqa: PLR2004
        entry.due = now + max(error.retry_after or 0.0, self._about(pause))
        if error.status == 403:  # noqa: PLR2004  (this one; another namespace may be granted)
            if entry.refused_since is None:
                entry.refused_since = now
                log.warning("kube.refused", kind=self._what, name=str(name), message=error.message)
            elif now - entry.refused_since >= SETTLES:
                entry.due = now + self._about(FRESH)
            entry.refused = error
            return
        entry.refused_since = entry.refused = None
        if error.status == 404:  # noqa: PLR2004
            entry.value = None
        elif error.status in (401, 429) or error.status >= 500 or (not error.status and error.reason != "Invalid"):  # noqa: PLR2004
            # No server answers, or it does not know us: the others would fare no better. The pods' watch says why.
            self._silent_until = entry.due

    def _about(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.75, 1.25)
