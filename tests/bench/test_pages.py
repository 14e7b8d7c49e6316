"""`bench.pages` reads what is in memory, and brings nothing into it."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess

import pytest

from bench.pages import PAGE, batches, in_use, resident, touch

COUNT = 3000


def test_pages_in_memory_are_read_and_others_stay_out() -> None:
    """Of memory whose every second page was written, these pages are found and read. No more are in memory then."""
    with mmap.mmap(-1, COUNT * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapped:
        mapped.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(0, COUNT, 2):
            mapped[page * PAGE] = 1
        handle = ctypes.c_char.from_buffer(mapped)
        first = ctypes.addressof(handle)
        del handle  # a mapping that is exported cannot be closed

        def found() -> list[int]:
            return [address for address in resident(os.getpid()) if first <= address < first + COUNT * PAGE]

        ours = found()
        assert ours == [first + page * PAGE for page in range(0, COUNT, 2)]
        assert touch(os.getpid(), batches(ours)) == len(ours)
        assert found() == ours


def test_a_helper_that_reads_nothing_is_an_error() -> None:
    """Figures that name the helper are not printed without it: it ends if it reads no page, and its end is an error."""
    with pytest.raises(OSError, match="process_vm_readv"):
        touch(os.getpid(), batches([0]))
    with pytest.raises(ChildProcessError, match="ended with -9"), in_use(os.getpid()) as helper:
        end(helper)


def end(helper: subprocess.Popen[bytes]) -> None:
    """Kill it, and wait for its end."""
    helper.kill()
    helper.wait()
