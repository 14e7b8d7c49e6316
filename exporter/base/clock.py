"""The clock: the one place where the daemon asks for the time. Everywhere below, time is an argument."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The third interface to the world, next to devices and host; tests replace it."""

    def time(self) -> float:
        """Unix time in seconds; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never fall."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        ...


class SystemClock:
    """The machine's clocks."""

    def time(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        await asyncio.sleep(seconds)
