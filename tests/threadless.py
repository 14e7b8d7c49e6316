"""
What the program gives to a thread, done at once by the test's own thread.

What comes in: nothing. What goes out: a context in which `asyncio.to_thread` starts no thread.

The rule: only for plays of many rounds in which no thread is what the test is about. To wake a thread costs more than
what a round reads.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

Done = TypeVar("Done")


@contextmanager
def at_once() -> Iterator[None]:
    """Let no work go to a thread."""
    with patch.object(asyncio, "to_thread", _work):
        yield


async def _work(work: Callable[..., Done], *words: Any, **named: Any) -> Done:
    return work(*words, **named)
