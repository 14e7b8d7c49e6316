"""
The metrics page for scrapers.

What comes in: `Latest`, the clock, and the request's two headers. What goes out: bytes and headers of the answer.

The rule:
- A page is rendered at most once per round and format. One rendering serves every scraper of that round.
- A format whose next scrape is near is rendered right after the round, one slice of samples at a time. A scrape waits
  for one slice at most (about 12 microseconds per sample). Until the new page is complete, the old one is served.
- A snapshot older than three intervals is withdrawn, because old values look like steady ones. The daemon's own series
  stay, so that the gap is visible, and so do the counters of use over time.
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

from exporter.metrics import SUBJECTS, integrals, rounds
from exporter.metrics.family import Families
from exporter.metrics.labels import EXPORTED
from exporter.model import Snapshot
from exporter.rounds.latest import Latest, Reload, Tally

STALE_AFTER = 3
"""A snapshot older than so many intervals is withdrawn."""

ASKED_WITHIN = 120.0
"""Seconds without a scrape after which a scraper is forgotten: two scrapes of the usual minute."""
REMEMBERED = 4
"""Times of scrapes per format, to predict the next one; two Prometheus servers in turn need more than two."""

PAUSE = 0.001
"""Seconds between two slices: a scrape in between needs several turns of the event loop."""

SLICE = 100
"""Samples that are rendered between two turns of the event loop: 1 to 2 ms."""

COMPRESSION = 1
"""gzip level. Level 6 takes three times as long and saves an eighth."""


@dataclass(frozen=True, slots=True)
class Page:
    """Body and headers of the answer to a scrape."""

    body: bytes
    headers: Mapping[str, str]


Collect = Callable[[Snapshot], Families]
"""A function that makes families of a snapshot."""
Format = tuple[str, bool]
"""Content type, and whether compressed."""

EOF = b"# EOF\n"

RENDER_OPENMETRICS: Callable[["_One"], bytes] = partial(generate_openmetrics, escaping=ALLOWUTF8)
"""gpusteward's names need no escaping. This mode checks each name once, not each character: 9 ms per page, not 12."""


class Exposition:
    """Renders the latest snapshot, and keeps the pages of its round. This cache is its only state."""

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
        self._rendered: _Facts | None = None
        self._pages: dict[Format, Page] = {}
        self._asked: dict[Format, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
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
        self._asked[wanted].append(now)
        facts = self._facts(now, interval)
        if facts != self._rendered and not (self._about_to_render(facts) and self._still_good(wanted, now, interval)):
            self._rendered, self._pages = facts, {}
        if wanted not in self._pages:
            plain = b"".join(_slices(facts, wanted[0]))
            self._pages[wanted] = _finished(plain, wanted)
        return self._pages[wanted]

    async def prepare(self, *, now: float, interval: float) -> None:
        """Render the page in each format that a scraper will want before the next round; yield to the event loop."""
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
                # zlib releases the interpreter's lock: a page of 45 kB takes 3 ms, but no time of the event loop.
                pages[asked] = await asyncio.to_thread(_finished, plain[asked[0]], asked)
        finally:
            self._considered = facts.round
        # A scrape may have got the page of a newer round meanwhile. After it an older page would let counters fall.
        if self._rendered is None or self._rendered.round <= facts.round:
            self._rendered, self._pages = facts, pages

    def _about_to_render(self, facts: "_Facts") -> bool:
        return self._considered is not None and facts.round > self._considered

    def _facts(self, now: float, interval: float) -> "_Facts":
        snapshot = self._latest.snapshot
        fresh = snapshot is not None and now - snapshot.monotonic <= STALE_AFTER * interval
        return _Facts(
            snapshot=snapshot,
            tally=self._latest.tally,
            reload=self._latest.reload,
            fresh=fresh,
            node=self._node,
            version=self._version,
            revision=self._revision,
            more=self._more,
            process=self._process,
            exported=self._exported,
        )

    def _still_good(self, wanted: Format, now: float, interval: float) -> bool:
        before = self._rendered.snapshot if self._rendered else None
        return wanted in self._pages and before is not None and now - before.monotonic <= STALE_AFTER * interval


def _due(times: Sequence[float], now: float, interval: float) -> bool:
    """
    Return whether a scrape is expected before the page of the next round is ready.

    Scrapers come at a fixed interval; the shortest of the last gaps is taken for it. A wrong guess costs one page that
    is rendered in vain, or on demand.
    """
    if len(times) < 2 or now - times[-1] > ASKED_WITHIN:  # noqa: PLR2004  (a gap has two ends)
        return False
    rhythm = min(later - earlier for earlier, later in pairwise(times))
    return times[-1] + rhythm <= now + 1.5 * interval


def _slices(facts: "_Facts", content_type: str) -> Iterator[bytes]:
    """
    Render at most `SLICE` samples at a time. Together the slices are the page that prometheus_client renders at once.

    A slice is empty where a collector pauses, and before a family with more than `SLICE` samples.
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


def _renamed(metric: Metric) -> Metric:
    """Give the labels of workloads their other names; the labels themselves are shared, and stay."""
    metric.samples = [
        sample._replace(labels={EXPORTED.get(name, name): value for name, value in sample.labels.items()})
        for sample in metric.samples
    ]
    return metric


def _without_head(lines: bytes) -> bytes:
    """Remove the head of a family (# HELP, # TYPE, # UNIT): it stands once on a page."""
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
    """One family in the shape of a registry, which prometheus_client renders."""

    metric: Metric

    def collect(self) -> Iterator[Metric]:
        """Yield the one family."""
        yield self.metric


@dataclass(frozen=True, slots=True)
class _Facts:
    """All inputs of a page."""

    snapshot: Snapshot | None
    tally: Tally
    reload: Reload | None
    fresh: bool
    node: str
    version: str
    revision: str
    more: Collect
    process: Callable[[], Iterator[Metric]]
    exported: bool

    @property
    def round(self) -> int:
        """The number of the snapshot's round; 0 before the first."""
        return self.snapshot.round if self.snapshot else 0

    def collect(self) -> Families:
        """Yield the families that have a sample, and None where a collector pauses."""
        for metric in self._families():
            if metric is None or metric.samples:
                yield _renamed(metric) if metric and self.exported else metric

    def _families(self) -> Families:
        if self.snapshot is not None and self.fresh:
            for _, _, collect in SUBJECTS:
                yield from collect(self.snapshot)
            yield from self.more(self.snapshot)
        if self.snapshot is not None:
            yield from integrals.collect(self.snapshot)
        yield from rounds.collect(
            self.snapshot, self.tally, self.reload, node=self.node, version=self.version, revision=self.revision
        )
        yield from self.process()
