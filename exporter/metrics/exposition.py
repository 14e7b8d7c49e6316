"""
The metrics page for scrapers.

What comes in: `Latest`, the clock, and the request's two headers. What goes out: bytes and headers of the answer.

The rule:
- A page is rendered at most once per round and format. One rendering serves every scraper of that round.
- A format whose next scrape is near is rendered right after the round, one slice of samples at a time. A scrape waits
  for one slice at most (a microsecond per sample, compressed). Until the new page is complete, the old one is served.
- A snapshot older than three intervals is withdrawn, because old values look like steady ones. The daemon's own series
  stay, so that the gap is visible, and so do the counters of use over time.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as TEXT
from prometheus_client.core import Metric
from prometheus_client.exposition import gzip_accepted
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS

from exporter.metrics import SUBJECTS, integrals, rounds
from exporter.metrics.family import Families
from exporter.metrics.scrapes import Scrapes
from exporter.metrics.text import EOF, PageText
from exporter.model import Snapshot
from exporter.rounds.latest import Latest, Reload, Tally

STALE_AFTER = 3
"""A snapshot older than so many intervals is withdrawn."""

AHEAD = 1.5
"""Intervals for which a page is rendered ahead: until the page of the next round is ready."""

PAUSE = 0.001
"""Seconds between two slices: a scrape in between needs several turns of the event loop."""

SLICE = 2000
"""Samples that are rendered between two turns of the event loop: 1 to 2 ms."""

COMPRESSION = 1
"""gzip level. Level 6 takes three times as long and saves an eighth."""
GZIP = 16 + zlib.MAX_WBITS
"""The form that zlib writes: gzip, with no time in its header."""
MEMORY = 6
"""zlib's memLevel. Its tables take 32 kB, which fits into a cache. The usual 8 takes 128 kB, and saves nothing."""


@dataclass(frozen=True, slots=True)
class Page:
    """Body and headers of the answer to a scrape."""

    body: bytes
    headers: Mapping[str, str]


Collect = Callable[[Snapshot], Families]
"""A function that makes families of a snapshot."""
Format = tuple[str, bool]
"""Content type, and whether compressed."""


class Exposition:
    """Renders the latest snapshot, and keeps the pages of its round and the times of scrapes."""

    def __init__(
        self,
        latest: Latest,
        *,
        node: str,
        version: str,
        revision: str = "unknown",
        more: Collect = lambda _: iter(()),
        process: Callable[[], Iterator[Metric]] = lambda: iter(()),
        exported: bool = False,
    ) -> None:
        """Make one; with `exported` the labels of workloads have their other names, `EXPORTED`."""
        self._latest = latest
        self._more = more
        self._node = node
        self._version = version
        self._revision = revision
        self._process = process
        self._exported = exported
        self._rendered: _Moment | None = None
        self._pages: dict[Format, Page] = {}
        self.scrapes = Scrapes[Format]()
        self._considered: int | None = None
        """The last round that `prepare` rendered; None before its first call. It will render a newer round soon."""

    def page(self, *, now: float, interval: float, accept: str = "", accept_encoding: str = "") -> Page:
        """
        Answer a scrape.

        Args:
            now: `time.monotonic()`.
            interval: seconds between two full rounds.
            accept: the header. If it names OpenMetrics, the page is OpenMetrics 1.0.0, else the text format 0.0.4.
            accept_encoding: the header. The page is compressed if it names gzip.

        """
        wanted = (OPENMETRICS if "application/openmetrics-text" in accept else TEXT, gzip_accepted(accept_encoding))
        self.scrapes.came(wanted, now)
        moment = self._moment(now, interval)
        if moment != self._rendered and not (self._about_to_render(moment) and self._still_good(wanted, now, interval)):
            self._rendered, self._pages = moment, {}
        if wanted not in self._pages:
            body = _Body(wanted)
            for part in self._slices(moment, wanted[0]):
                if part is not None:
                    body.add(part)
            self._pages[wanted] = body.page()
        return self._pages[wanted]

    async def prepare(self, *, now: float, interval: float) -> None:
        """Render the page in each format that a scraper will want before the next round; yield to the event loop."""
        moment = self._moment(now, interval)
        wanted = self.scrapes.wanted(now, AHEAD * interval)
        bodies = {asked: _Body(asked) for asked in wanted}
        try:
            for number, content_type in enumerate({content_type for content_type, _ in wanted}):
                if number:
                    await asyncio.sleep(PAUSE)
                for part in self._slices(moment, content_type):
                    if part is None:
                        await asyncio.sleep(PAUSE)
                        continue
                    for asked, body in bodies.items():
                        if asked[0] == content_type:
                            body.add(part)
            pages = {asked: body.page() for asked, body in bodies.items()}
        finally:
            self._considered = moment.round
        # A scrape may have got the page of a newer round meanwhile. After it an older page would let counters fall.
        if self._rendered is None or self._rendered.round <= moment.round:
            self._rendered, self._pages = moment, pages

    def _about_to_render(self, moment: "_Moment") -> bool:
        return self._considered is not None and moment.round > self._considered

    def _moment(self, now: float, interval: float) -> "_Moment":
        latest = self._latest
        snapshot = latest.snapshot
        fresh = snapshot is not None and now - snapshot.monotonic <= STALE_AFTER * interval
        return _Moment(snapshot, latest.tally, latest.reload, fresh)

    def _still_good(self, wanted: Format, now: float, interval: float) -> bool:
        before = self._rendered.snapshot if self._rendered else None
        return wanted in self._pages and before is not None and now - before.monotonic <= STALE_AFTER * interval

    def _slices(self, moment: "_Moment", content_type: str) -> Iterator[bytes | None]:
        """
        Render a family at a time, and no more than `SLICE` samples. All together are the page of prometheus_client.

        None stands for a pause: after each `SLICE` samples, where a collector pauses, and before a family with more of
        them. A small page has none, because a pause costs 0.1 to 0.5 ms itself.
        """
        openmetrics = content_type == OPENMETRICS
        text = PageText(openmetrics=openmetrics, exported=self._exported)
        filled = 0
        for metric in self._families(moment):
            if metric is None or len(metric.samples) > SLICE:  # to collect 2,000 samples takes 1 ms by itself
                yield None
                filled = 0
            if metric is None:
                continue
            first, end = 0, len(metric.samples)
            while first < end:
                last = min(end, first + SLICE - filled)
                yield text.part(metric, first, last)
                first, filled = last, filled + last - first
                if filled == SLICE:
                    yield None
                    filled = 0
        if openmetrics:
            yield EOF.encode()

    def _families(self, moment: "_Moment") -> Families:
        snapshot = moment.snapshot
        if snapshot is not None and moment.fresh:
            for _, _, collect in SUBJECTS:
                yield from collect(snapshot)
            yield from self._more(snapshot)
        if snapshot is not None:
            yield from integrals.collect(snapshot)
        yield from rounds.collect(
            snapshot, moment.tally, moment.reload, node=self._node, version=self._version, revision=self._revision
        )
        yield from self._process()


class _Body:
    """The body of a page. Parts are compressed as they come: the text of 1,000 pods is 3 MB in one piece."""

    def __init__(self, wanted: Format) -> None:
        self._content_type, compressed = wanted
        self._packing = zlib.compressobj(COMPRESSION, zlib.DEFLATED, GZIP, MEMORY) if compressed else None
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        self._parts.append(self._packing.compress(part) if self._packing else part)

    def page(self) -> Page:
        headers = {"Content-Type": self._content_type, "Vary": "Accept, Accept-Encoding"}
        if self._packing:
            self._parts.append(self._packing.flush())
            headers["Content-Encoding"] = "gzip"
        return Page(b"".join(self._parts), headers)


class _Moment(NamedTuple):
    """
    What a page is made of.

    A tuple, because it is compared with that of the last page at each scrape: what is the same object is not looked
    into.
    """

    snapshot: Snapshot | None
    tally: Tally
    reload: Reload | None
    fresh: bool

    @property
    def round(self) -> int:
        """The number of the snapshot's round; 0 before the first."""
        return self.snapshot.round if self.snapshot else 0
