"""
Tell whether a daemon stays flat over a day.

What comes in: readings. What goes out: one row per quantity, with its growth, the growth that is allowed, and why. The
rows also come as a table in Markdown, and each finding as a sentence.

The rule: the median of the last quarter is compared with that of the second. The first quarter is left out, because
caches fill in it. A day in which nothing happened proves nothing, and fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from day.readings import MIB, Reading

FEWEST = 8
"""Readings of a quarter, so that one moment makes no median."""
PER_ACTION = 2048
"""Bytes: an eviction has four records, 1.5 kB in all (docs/performance-enforcement.md)."""
JOURNAL = 2 * (4 * MIB)
"""Bytes: the journal is rewritten at 4 MiB, and its predecessor is kept."""

POOL = 2
"""Threads: asyncio's pool starts one when all others are at work, so the last ones may come late in the day."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A quantity that stays flat. `allowed`: how much it may grow between two quarters, from readings of both."""

    name: str
    of: Callable[[Reading], float]
    allowed: Callable[[float], float]
    reason: str


BOUNDS = (
    Bound("RSS", lambda one: one.rss, lambda _: 3 * MIB, "the allocator keeps freed memory in pieces"),
    Bound("anonymous memory", lambda one: one.anonymous, lambda _: 3 * MIB, "as above"),
    Bound("open descriptors", lambda one: one.descriptors, lambda _: 1, "a scrape may be under way"),
    Bound("threads", lambda one: one.threads, lambda _: POOL, "the event loop's pool grows to cores + 4"),
    Bound(
        "journal",
        lambda one: one.journal,
        lambda evictions: min(JOURNAL, PER_ACTION * evictions),
        "four records per eviction, at most 4 MiB and one predecessor",
    ),
    Bound(
        "other saved files",
        lambda one: one.saved,
        lambda _: 64 << 10,
        "they hold pods of the last five minutes, 150 to 750 bytes each",
    ),
)
"""`allowed` takes the evictions between the two quarters."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one quantity did."""

    bound: Bound
    second: float
    last: float
    most: float
    allowed: float

    @property
    def growth(self) -> float:
        """How much more there is in the last quarter."""
        return self.last - self.second

    @property
    def flat(self) -> bool:
        """Whether that is allowed."""
        return self.growth <= self.allowed


def quarters(day: Sequence[Reading]) -> list[list[Reading]]:
    """Cut a day into four parts of as many rounds each. Raises ValueError for a day that is too short."""
    first, last = (day[0].round, day[-1].round) if day else (0, 0)
    parts: list[list[Reading]] = [[], [], [], []]
    for reading in day:
        part = 4 * (reading.round - first) // (last - first) if last > first else 0
        parts[min(part, 3)].append(reading)
    if min(map(len, parts)) < FEWEST:
        raise ValueError(f"too few readings: {[len(part) for part in parts]}, {FEWEST} needed in each quarter")
    return parts


def rows(day: Sequence[Reading]) -> list[Row]:
    """Compare the last quarter with the second. Raises ValueError for a day that is too short."""
    _, second, _, last = quarters(day)
    evictions = median(one.evictions for one in last) - median(one.evictions for one in second)
    return [
        Row(
            bound,
            median(map(bound.of, second)),
            median(map(bound.of, last)),
            max(map(bound.of, day)),
            bound.allowed(evictions),
        )
        for bound in BOUNDS
    ]


def findings(day: Sequence[Reading]) -> Iterator[str]:
    """Name what grew, and each quarter in which nothing happened. Raises ValueError for a day that is too short."""
    parts = quarters(day)
    for number, (before, after) in enumerate(pairwise([parts[0][0], *(part[-1] for part in parts)]), 1):
        for what, count in (("pod began", after.pods - before.pods), ("eviction", after.evictions - before.evictions)):
            if not count:
                yield f"quarter {number}: no {what}"
    for row in rows(day):
        if not row.flat:
            yield f"{row.bound.name}: {row.second:.0f} to {row.last:.0f}, {row.allowed:.0f} more allowed"


def table(day: Sequence[Reading]) -> Iterator[str]:
    """Make the lines of the table."""
    yield "| | second quarter | last quarter | most | growth | allowed | because |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows(day):
        show = _count if row.most < MIB // 64 else _size
        figures = (row.second, row.last, row.most, row.growth, row.allowed)
        yield f"| {row.bound.name} | {' | '.join(map(show, figures))} | {row.bound.reason} |"


def _count(figure: float) -> str:
    return f"{figure:.0f}"


def _size(size: float) -> str:
    return f"{size / MIB:.2f} MiB"
