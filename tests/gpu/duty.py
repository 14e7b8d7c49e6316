"""
Duty cycles: how long to be busy, how long to rest, and what came of it.

What comes in: a share of time. What goes out: bursts, and the share that was really reached.

The law: pure. A late tenant starts the next burst at once and rests less. Lost bursts are not made up for, because that
would show as a peak.
"""

from __future__ import annotations

from dataclasses import dataclass

PERIOD_NS = 50_000_000
"""Nanoseconds from one burst to the next: short beside the driver's sampling (1/6 s), long beside a launch (10 us)."""


@dataclass(frozen=True, slots=True)
class Duty:
    """A share of time, 0 to 1, as bursts in periods."""

    share: float
    period_ns: int = PERIOD_NS

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"a share of time is between 0 and 1, not {self.share}")

    @property
    def burst_ns(self) -> int:
        """Nanoseconds to be busy in each period."""
        return round(self.share * self.period_ns)

    def rest_ns(self, passed_ns: int) -> int:
        """Nanoseconds to rest after a burst that began `passed_ns` ago."""
        return max(0, self.period_ns - passed_ns)


@dataclass(frozen=True, slots=True)
class Done:
    """What was done: nanoseconds that bursts took, and that all of it took."""

    busy_ns: int = 0
    all_ns: int = 0

    def with_burst(self, busy_ns: int, all_ns: int) -> Done:
        """Add a burst and the rest after it."""
        return Done(self.busy_ns + busy_ns, self.all_ns + all_ns)

    @property
    def share(self) -> float | None:
        """The share that was reached; None where no time has passed."""
        return self.busy_ns / self.all_ns if self.all_ns else None
