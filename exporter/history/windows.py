"""
Windows of time, and the parts in which Prometheus is asked about them.

What comes in: a window in Unix seconds, or as a user writes it. What goes out: parts that follow one another without
a gap.

The rule: no part is longer than a day, and none is halved below an hour because it is too large to be answered.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil

from exporter.base.quantities import QuantityError

DAY = 86_400.0
HOUR = 3_600.0
_UNITS = {"w": 7 * DAY, "d": DAY, "h": HOUR, "m": 60.0, "s": 1.0}
_DURATION = re.compile(r"(?:([0-9]{1,6})w)?(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")
LEAST = 600.0
"""Seconds of the shortest window: several scrapes, and two looks at what is read each five minutes."""
MOST = 1_500 * DAY
"""Seconds of the longest window: four years, of which each day is asked for itself."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time from `start` to `end`, in Unix seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start

    @property
    def range(self) -> str:
        """Its length as PromQL writes a range."""
        return f"{round(self.seconds * 1000)}ms"

    def parts(self, longest: float = DAY) -> Iterator["Window"]:
        """Cut it into equal parts of at most `longest` seconds."""
        count = max(1, ceil(self.seconds / longest))
        length = self.seconds / count
        for number in range(count):
            end = self.end if number == count - 1 else self.start + (number + 1) * length
            yield Window(self.start + number * length, end)

    def halves(self, least: float = HOUR) -> tuple["Window", "Window"] | None:
        """Cut it in two; None if the halves would be shorter than `least` seconds."""
        if self.seconds < 2 * least:
            return None
        middle = (self.start + self.end) / 2
        return Window(self.start, middle), Window(middle, self.end)


def window_of(since: str, until: str | None, now: float) -> Window:
    """Read a length such as "7d" or "1d12h", as Prometheus writes it, and an end in RFC 3339. Raises QuantityError."""
    match = _DURATION.fullmatch(since)
    seconds = (
        sum(int(count) * unit for count, unit in zip(match.groups(), _UNITS.values(), strict=True) if count)
        if match
        else 0.0
    )
    if seconds < LEAST:
        raise QuantityError(
            f'--since: {ascii(since)[:80]} is not a time of ten minutes or more: expected "12h", "7d" or "4w"'
        )
    if seconds > MOST:
        raise QuantityError(
            f"--since: {ascii(since)[:80]} is longer than {MOST / DAY:.0f}d; use --until for older times"
        )
    end = now if until is None else _moment(until)
    if end > now:
        raise QuantityError(f"--until: {ascii(until)[:80]} is in the future")
    end -= 0.001  # the points of a subquery are at whole seconds: none of them is at both ends
    return Window(end - seconds, end)


def length(seconds: float) -> str:
    """Write a length as it is read: "7d", "1d12h"."""
    left, text = round(seconds), ""
    for unit, size in _UNITS.items():
        if unit != "w" and left >= size:
            text, left = f"{text}{left // round(size)}{unit}", left % round(size)
    return text or "0s"


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise QuantityError(
            f'--until: {ascii(text)[:80]} is no time: expected "2026-11-01T00:00:00Z" or "2026-11-01T00:00:00+01:00"'
        ) from error
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
