"""
The page that scrapers get.

What comes in: `Latest`, the clock, and the request's two headers. What goes out: bytes and headers of the answer.

The law: a page is rendered at most once a round and format; one rendering serves every scraper of that round. Formats
that are about to be scraped are rendered right after the round, some samples at a time, so that a scrape never waits
for more than these (some 12 microseconds a sample); until the new page is whole, the one before is served. A snapshot
older than three intervals is withdrawn, because a frozen value looks like a quiet one; the daemon's own series stay, so
that the gap can be seen.
"""

import asyncio
import gzip
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as TEXT
from prometheus_client import generate_latest as generate_text
from prometheus_client.core import Metric
from prometheus_client.exposition import gzip_accepted
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from exporter.metrics import SUBJECTS, rounds
from exporter.metrics.family import Families
from exporter.model import Snapshot
from exporter.rounds.latest import Latest, Reload, Tally

STALE_AFTER = 3
"""Intervals after which a snapshot is withdrawn."""

ASKED_WITHIN = 120.0
"""Seconds after which a scraper that does not come back is forgotten: two scrapes of the usual minute."""
REMEMBERED = 4
"""Scrapes of a format from whose times the next one is expected; two Prometheis that take turns need more than two."""

PAUSE = 0.001
"""Seconds between two slices: a scrape that comes meanwhile needs several turns of the loop."""

SLICE = 100
"""Samples that are rendered between two turns of the loop: 1 to 2 ms."""

COMPRESSION = 1
"""Level 6 takes three times as long for an eighth less."""


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a scrape."""

    body: bytes
    headers: Mapping[str, str]


Collect = Callable[[Snapshot], Families]
"""Makes families of a snapshot."""
Format = tuple[str, bool]
"""Content type, and whether compressed."""

EOF = b"# EOF\n"

RENDER_OPENMETRICS: Callable[["_One"], bytes] = partial(generate_openmetrics, escaping=ALLOWUTF8)
"""Our names need no escaping; this kind of it looks at names once, not at each character: 9 ms a page, not 12."""


class Exposition:
    """Renders the latest snapshot, and keeps the pages of its round. Pure but for this cache."""

    def __init__(self, latest: Latest, *, node: str, version: str, more: Collect = lambda _: iter(())) -> None:
        self._latest = latest
        self._more = more
        self._node = node
        self._version = version
        self._rendered: _Facts | None = None
        self._pages: dict[Format, Page] = {}
        self._asked: dict[Format, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        self._considered: int | None = None
        """The round that `prepare` looked at last; None while nobody calls it. A newer one is about to be rendered."""

    def page(self, *, now: float, interval: float, accept: str = "", accept_encoding: str = "") -> Page:
        """
        Answer a scrape.

        Args:
            now: `time.monotonic()`.
            interval: seconds between two full rounds.
            accept: the header. Who names OpenMetrics gets its version 1.0.0, everybody else the text format 0.0.4.
            accept_encoding: the header. The page is compressed if it names gzip.

        """
        wanted = (OPENMETRICS if "application/openmetrics-text" in accept else TEXT, gzip_accepted(accept_encoding))
        self._asked[wanted].append(now)
        facts = self._facts(now, interval)
        if facts != self._rendered and not (self._about_to_render(facts) and self._still_good(wanted, now, interval)):
            self._rendered, self._pages = facts, {}
        if wanted not in self._pages:
            plain = b"".join(_slices(facts, wanted[0]))
            self._pages[wanted] = _finished(plain, wanted)
        return self._pages[wanted]

    async def prepare(self, *, now: float, interval: float) -> None:
        """Render the page in each format that will be asked for before the next round, and let others run meanwhile."""
        facts = self._facts(now, interval)
        wanted = [asked for asked, times in self._asked.items() if _due(times, now, interval)]
        pages, plain = {}, {}
        try:
            for content_type in {content_type for content_type, _ in wanted}:
                parts = []
                for part in _slices(facts, content_type):
                    parts.append(part)
                    await asyncio.sleep(PAUSE)
                plain[content_type] = b"".join(parts)
            for asked in wanted:
                # zlib lets go of the interpreter's lock: 45 kB of a page take 3 ms, and no time of the event loop.
                pages[asked] = await asyncio.to_thread(_finished, plain[asked[0]], asked)
        finally:
            self._considered = facts.snapshot.round if facts.snapshot else 0
        self._rendered, self._pages = facts, pages

    def _about_to_render(self, facts: "_Facts") -> bool:
        return self._considered is not None and facts.snapshot is not None and facts.snapshot.round > self._considered

    def _facts(self, now: float, interval: float) -> "_Facts":
        snapshot = self._latest.snapshot
        fresh = snapshot is not None and now - snapshot.monotonic <= STALE_AFTER * interval
        return _Facts(snapshot, self._latest.tally, self._latest.reload, fresh, self._node, self._version, self._more)

    def _still_good(self, wanted: Format, now: float, interval: float) -> bool:
        before = self._rendered.snapshot if self._rendered else None
        return wanted in self._pages and before is not None and now - before.monotonic <= STALE_AFTER * interval


def _due(times: Sequence[float], now: float, interval: float) -> bool:
    """
    Say whether a scrape is to be expected before the page of the next round is there.

    Scrapers come at a fixed rhythm, of which the shortest of the last gaps is taken. Who is wrong about that renders a
    page in vain, or on demand.
    """
    if len(times) < 2 or now - times[-1] > ASKED_WITHIN:  # noqa: PLR2004  (a gap has two ends)
        return False
    rhythm = min(later - earlier for earlier, later in pairwise(times))
    return times[-1] + rhythm <= now + 1.5 * interval


def _slices(facts: "_Facts", content_type: str) -> Iterator[bytes]:
    """
    Render at most `SLICE` samples at a time; together they are what prometheus_client makes of all at once.

    Where a collector rests, and before a family with more samples, comes an empty slice.
    """
    render, end = (RENDER_OPENMETRICS, EOF) if content_type == OPENMETRICS else (generate_text, b"")
    for metric in facts.collect():
        if metric is None:
            yield b""
            continue
        if len(metric.samples) > SLICE:
            yield b""  # to collect 500 samples takes 1 to 2 ms by itself
        for first in range(0, len(metric.samples), SLICE):
            part = copy(metric)
            part.samples = metric.samples[first : first + SLICE]
            lines = render(_One(part)).removesuffix(end)
            yield lines if first == 0 else _without_head(lines)
    yield end


def _without_head(lines: bytes) -> bytes:
    """Take off the lines that begin a family (# HELP, # TYPE, # UNIT): they stand once on a page."""
    while lines.startswith(b"#"):
        lines = lines.partition(b"\n")[2]
    return lines


def _finished(plain: bytes, wanted: Format) -> Page:
    content_type, compressed = wanted
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if not compressed:
        return Page(plain, headers)
    return Page(gzip.compress(plain, COMPRESSION, mtime=0), {**headers, "Content-Encoding": "gzip"})


@dataclass(frozen=True, slots=True)
class _One:
    """One family; to prometheus_client, a registry."""

    metric: Metric

    def collect(self) -> Iterator[Metric]:
        """Yield it."""
        yield self.metric


@dataclass(frozen=True, slots=True)
class _Facts:
    """All that a page depends on."""

    snapshot: Snapshot | None
    tally: Tally
    reload: Reload | None
    fresh: bool
    node: str
    version: str
    more: Collect

    def collect(self) -> Families:
        """Yield what can be said: families without a sample are left out."""
        for metric in self._families():
            if metric is None or metric.samples:
                yield metric

    def _families(self) -> Families:
        if self.snapshot is not None and self.fresh:
            for _, _, collect in SUBJECTS:
                yield from collect(self.snapshot)
            yield from self.more(self.snapshot)
        yield from rounds.collect(self.snapshot, self.tally, self.reload, node=self.node, version=self.version)
