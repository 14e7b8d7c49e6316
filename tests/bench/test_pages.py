"""`bench.pages` reads what is in memory, and brings nothing into it."""

from __future__ import annotations

import ctypes
import mmap
import os

from bench.pages import PAGE, batches, resident, touch
from bench.usage import memory

COUNT = 3000


def test_pages_in_memory_are_read_and_others_stay_out() -> None:
    """Of memory whose every second page was written, these pages are found and read; the rest takes no memory later."""
    with mmap.mmap(-1, COUNT * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory_of_ours:
        memory_of_ours.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(0, COUNT, 2):
            memory_of_ours[page * PAGE] = 1
        handle = ctypes.c_char.from_buffer(memory_of_ours)
        first = ctypes.addressof(handle)
        del handle
        pid, before = os.getpid(), memory(os.getpid()).rss
        ours = [address for address in resident(pid) if first <= address < first + COUNT * PAGE]
        assert ours == [first + page * PAGE for page in range(0, COUNT, 2)]
        assert touch(pid, batches(ours), ctypes.CDLL(None)) == len(ours)
        assert memory(pid).rss - before < 1
