"""
Figures over time.

What comes in: a time in seconds, never read from a clock. What goes out: a value, always the same for the same time.

The rule: no state. Noise is a hash of its purpose and time. Sums over time are calculated, not accumulated. So a reader
may ask for any time in any order, and gets the same node.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from math import inf
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Curve:
    """
    Straight lines between (seconds, value) points; the first point is at 0 s.

    Before the first and after the last point the value is constant. With a `period`, in seconds, the curve repeats.
    """

    points: tuple[tuple[float, float], ...]
    period: float | None = None

    def at(self, time: float) -> float:
        """Return the value at `time`."""
        return self._once_at(time % self.period if self.period else time)

    def integral(self, time: float) -> float:
        """Return the area below the curve from 0 to `time`; below zero for a negative time."""
        if not self.period:
            return self._once_integral(time)
        rounds, rest = divmod(time, self.period)
        return rounds * self._once_integral(self.period) + self._once_integral(rest)

    def _once_at(self, time: float) -> float:
        after = bisect_right(self.points, (time, inf))
        if after in {0, len(self.points)}:
            return self.points[max(0, after - 1)][1]
        (t0, v0), (t1, v1) = self.points[after - 1 : after + 1]
        return v0 + (v1 - v0) * (time - t0) / (t1 - t0)

    def _once_integral(self, time: float) -> float:
        if time <= 0:
            return time * self.points[0][1]
        last = self.points[-1][1]
        area = 0.0
        for (t0, v0), (t1, _) in pairwise((*self.points, (inf, last))):
            if time > t0:
                end = min(time, t1)
                area += (end - t0) * (v0 + self._once_at(end)) / 2
        return area


def curve(figure: float | Curve) -> Curve:
    """Return a curve; a number becomes a constant one."""
    return figure if isinstance(figure, Curve) else Curve(((0, figure),))


def noise(*what: object) -> float:
    """Return a number from 0 to below 1 that only depends on `what`."""
    return int.from_bytes(_digest(8, what)) / 2**64


@lru_cache(maxsize=1024)  # about thirty names, each requested a hundred times per round
def made_uuid(*what: object) -> str:
    """Return a version 4 UUID that only depends on `what`."""
    return str(UUID(bytes=_digest(16, what), version=4))


@lru_cache(maxsize=1024)
def made_hex(*what: object) -> str:
    """Return 64 hex characters, the length of a container's id, that only depend on `what`."""
    return _digest(32, what).hex()


def _digest(size: int, what: tuple[object, ...]) -> bytes:
    return blake2b(repr(what).encode(), digest_size=size, person=b"gpusteward").digest()
