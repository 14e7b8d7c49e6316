"""Work in a thread whose caller is cancelled."""

import asyncio
import threading

import pytest

from exporter.base.threads import to_its_end


async def test_a_cancelled_caller_waits_for_the_end() -> None:
    """It ends after the thread, and as cancelled, whatever the thread raises."""
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()
        raise OSError("the disk is full")

    caller = asyncio.create_task(to_its_end(work))
    await asyncio.to_thread(begun.wait)
    caller.cancel()
    try:
        await asyncio.wait([caller], timeout=0.05)
        assert not caller.done()
    finally:
        go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_caller_that_waits_gets_the_result_or_the_error() -> None:
    """As with `asyncio.to_thread`."""
    assert await to_its_end(lambda: 42) == 42
    with pytest.raises(ValueError, match="invalid literal"):
        await to_its_end(lambda: int("x"))
