"""
The initialisation of a library: once, and after a failure with growing pauses.

What comes in: the function that initialises it, and the exception of a failure. What goes out: the function's result.

The rule: until the next attempt is due, the last failure is raised again without an attempt.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

RETRY_FIRST = 1.0
RETRY_MOST = 60.0
"""Seconds between two attempts to initialise, doubled from the first value up to the last."""


class Opening(Generic[T]):
    """One user of a library. `start` initialises and raises `failure`; `monotonic` paces the attempts."""

    def __init__(self, start: Callable[[], T], failure: type[Exception], monotonic: Callable[[], float]) -> None:
        self._start = start
        self._failure = failure
        self._monotonic = monotonic
        self._opened: tuple[T, ...] = ()
        self._failed: Exception | None = None
        self._retry_at = 0.0
        self._delay = 0.0

    def open(self) -> T:
        """Initialise unless done. Raises `failure`; until the next attempt is due, the last one again."""
        if self._opened:
            return self._opened[0]
        if self._failed is not None and self._monotonic() < self._retry_at:
            raise self._failed.with_traceback(None)
        try:
            self._opened = (self._start(),)
        except self._failure as error:
            self._delay = longer(self._delay)
            self._failed, self._retry_at = error, self._monotonic() + self._delay
            raise
        self._failed, self._delay = None, 0.0
        return self._opened[0]

    def close(self) -> bool:
        """Forget the initialisation; return whether there was one."""
        was, self._opened = bool(self._opened), ()
        return was


def longer(delay: float) -> float:
    """Return the pause that follows one of `delay` seconds."""
    return min(max(2 * delay, RETRY_FIRST), RETRY_MOST)
