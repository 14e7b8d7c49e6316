"""The clock: the one place where the daemon asks for the time, and an argument everywhere below."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The third seam, next to devices and host: tests step it."""

    def time(self) -> float:
        """Unix time in seconds; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clock."""

    def time(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait, and let others run."""
        await asyncio.sleep(seconds)
