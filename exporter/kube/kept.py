"""
Objects that are read by name, one by one, and kept as long as they are wanted.

What comes in: the wanted names, and a function that reads one object. What goes out: the last known answers.

The rule: nothing is listed or watched. Only wanted objects are read, and never by a thousand nodes at the same moment.
Without a new answer, the last one counts for as long as the caller permits. A 404 ends it at once.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

import structlog

from exporter.base.clock import Clock
from exporter.kube.errors import INVALID, KubeError
from exporter.model import Fault

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

FRESH = 60.0
"""Seconds between two requests for one object."""
AGAIN = 10.0
"""Seconds until a failed request is repeated."""
LOOK = 1.0
"""Seconds between two checks of the wanted names; a check of 100 pods takes some 20 µs."""
SETTLES = 10.0
"""Seconds for which a restarted API server may refuse (403) requests that it grants: it reads its roles first."""


@dataclass(slots=True)
class _Entry(Generic[V]):
    """
    The last answer about one object; `because` is the reason why it is wanted.

    When that changes, it is read again.
    """

    because: object
    due: float
    read_at: float | None = None
    value: V | None = None
    refused_since: float | None = None
    refused: KubeError | None = None
    asked: bool = False


class Kept(Generic[K, V]):
    """
    Reads and keeps objects; one task calls `run` or `look`, any code may read `values`.

    Args:
        what: the kind of object, for the log.
        wanted: the names that are wanted now, each with a reason; a new reason leads to a new request.
        ask: reads one object; raises KubeError.
        clock: for all times.
        random: spreads the requests.
        lasts: seconds for which an answer counts without a newer one.
        pause: seconds until an answer is read again.

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
        """The known answers, without those that are too old."""
        since = self._clock.monotonic() - self._lasts
        return {
            name: entry.value
            for name, entry in self._entries.items()
            if entry.value is not None and entry.read_at is not None and entry.read_at >= since
        }

    def forbidden(self, reason: str, consequence: str) -> tuple[Fault, ...]:
        """Report that the API server refuses the reading (403), for longer than a server takes to start."""
        now = self._clock.monotonic()
        for entry in self._entries.values():
            if entry.refused_since is not None and now - entry.refused_since >= SETTLES:
                return (Fault("api", reason, f"{entry.refused}; {consequence}", incomplete=False),)
        return ()

    def asked(self, name: K) -> bool:
        """Say whether there was any answer about a wanted object, even a refusal."""
        return name in self._entries and self._entries[name].asked

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK)

    async def look(self) -> bool:
        """Read the objects that are due, and forget unwanted ones; return whether an answer came."""
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
        if error.status == 403:  # noqa: PLR2004  (only this object; another namespace may be permitted)
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
        elif error.status in (401, 429) or error.status >= 500 or (not error.status and error.reason != INVALID):  # noqa: PLR2004
            # No server answers, or it does not know us: other requests would fail, too. The pods' watch reports it.
            self._silent_until = entry.due

    def _about(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.75, 1.25)
