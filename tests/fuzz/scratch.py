"""
What a target needs as long as its process lives: a folder in memory, and an event loop.

What comes in: nothing. What goes out: the same folder and loop at each call. Both are gone when the process ends.
"""

import asyncio
import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def folder() -> Path:
    """Make a folder; on Linux in memory, so that syncs cost nothing."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="gpusteward-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Make an event loop."""
    made = asyncio.new_event_loop()
    atexit.register(made.close)
    return made
