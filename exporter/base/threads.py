"""
Work in a thread whose caller may be cancelled.

What comes in: a function that blocks. What goes out: its result.

The rule: a thread cannot be cancelled. So that nothing of it goes on behind its caller's back, a caller that is
cancelled first waits for its end.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(work: Callable[[], T]) -> T:
    """Do it in a thread, and return its result. Raises what it raises; CancelledError only after its end."""
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise
