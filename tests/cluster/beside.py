"""
Something that serves while a test waits: on an event loop of its own.

In: how to make an async context manager. Out: a context manager that has entered it in a thread. Law: a server of the
kubelet must not share a loop with a test. The test may block the loop while it waits for what the kubelet does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def beside(make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Enter what `make` makes in a thread, and leave it there in the end."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="beside")
    thread.start()
    try:
        serving = make()
        value = asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result()
        try:
            yield value
        finally:
            asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
