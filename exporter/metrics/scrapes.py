"""
When scrapes come.

What comes in: the time and the format of each scrape, in monotonic seconds. What goes out: when the next one is
expected, in which formats a page is wanted soon, and how long a round waits for a scrape.

The rule: one scraper, or two that take turns, come at a fixed interval. A wrong guess costs little: a page that is
rendered in vain, or on demand, or a round that begins up to 25 ms later.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Generic, TypeVar

REMEMBERED = 3
"""Times of scrapes per format: enough for two scrapers that take turns."""
ASKED_WITHIN = 120.0
"""Seconds without a scrape after which a scraper is forgotten: two scrapes of the usual minute."""

BEFORE = 0.02
"""
Seconds before an expected scrape in which no round begins.

A round of 64 processes and its page keep Python busy for 6 ms. A scrape in that time took 4 to 5 ms instead of 1.5.
With 2,048 processes a round takes 25 ms, in parts, and a scrape waits for one part at most.
"""
SPAN = 0.9
"""
Seconds that the remembered scrapes of a format must span, if a round is to wait for the next one.

A tenant that scrapes every 25 ms could otherwise choose the moments of all rounds, and hold little memory then.
"""
AFTER = 0.005
"""Seconds after the expected time in which a scrape may still come: the clocks of scrapers are a few ms off."""

Format = TypeVar("Format")


class Scrapes(Generic[Format]):
    """Remembers the last scrapes of each format."""

    def __init__(self) -> None:
        self._times: dict[Format, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def came(self, asked: Format, now: float) -> None:
        """Remember a scrape."""
        self._times[asked].append(now)

    def wanted(self, now: float, within: float) -> list[Format]:
        """Return the formats whose next scrape is overdue, or expected within so many seconds."""
        expected = {asked: _next(times, now) for asked, times in self._times.items()}
        return [asked for asked, at in expected.items() if at is not None and at <= now + within]

    def wait(self, now: float) -> float:
        """Return the seconds for which a round should wait for an expected scrape, at most 25 ms and mostly 0."""
        expected = (_next(times, now) for times in self._times.values() if times[-1] - times[0] >= SPAN)
        rests = (at + AFTER - now for at in expected if at is not None)
        return max((rest for rest in rests if 0 < rest <= BEFORE + AFTER), default=0.0)


def _next(times: Sequence[float], now: float) -> float | None:
    """
    Return when the next scrape is expected; None without a regular scraper.

    It comes after the last gap but one: the gaps of two scrapers alternate, and those of one are the same. A
    look with a browser makes the next two guesses wrong.
    """
    if len(times) < 2 or now - times[-1] > ASKED_WITHIN:  # noqa: PLR2004  (a gap has two ends)
        return None
    earlier, later = list(times)[:2]
    return times[-1] + later - earlier
