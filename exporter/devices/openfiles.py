"""
What a process has open, as far as procfs tells it and a tenant lets it.

What comes in: the folder of a process in a mounted procfs. What goes out: names of descriptors, what they lead to, and
beginnings of texts.

The law: whom a tenant chose may not look like nothing. A process is gone when the kernel says so (ENOENT, ESRCH), and
any other error is the caller's: who cannot be read is not known to hold nothing.
"""

import errno
import os
import time
from collections.abc import Callable

GONE = (FileNotFoundError, ProcessLookupError)
TOO_LONG = "?"
"""In place of a path of more than 4096 bytes (PATH_MAX), which the kernel does not print."""
_ENDED = frozenset({"Z", "X"})


def head(path: str, most: int) -> bytes:
    """Read the first `most` bytes of a file; raises OSError."""
    with open(path, "rb") as file:  # noqa: PTH123  (a Path costs more than the read)
        return file.read(most)


def listed(folder: str) -> tuple[str, list[str]]:
    """
    List the descriptors of a process, with the folder in which they are: the process's own, or a thread's.

    `/proc/<pid>/fd` is the first thread's alone. That one may end (`syscall(SYS_exit)`, `pthread_exit`) and the others
    go on: then one of them is asked. Raises OSError: BlockingIOError when they end under our eyes and others begin.
    """
    names = os.listdir(f"{folder}/fd")  # noqa: PTH208  (names are enough)
    if names or _state(folder) not in _ENDED:
        return folder, names
    vanished = False
    for number in os.listdir(f"{folder}/task"):  # noqa: PTH208
        thread = f"{folder}/task/{number}"
        try:
            names = os.listdir(f"{thread}/fd")  # noqa: PTH208
            if names or _state(thread) not in _ENDED:
                return thread, names
        except GONE:
            vanished = True
    if vanished and len(os.listdir(f"{folder}/task")) > 1:  # noqa: PTH208
        raise BlockingIOError(errno.EAGAIN, "its threads come and go", folder)
    return folder, []


def target(link: str) -> str:
    """Name what a descriptor leads to: a path, `TOO_LONG`, or what is no file (`socket:[7]`). Raises OSError."""
    try:
        return os.readlink(link)  # noqa: PTH115
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return TOO_LONG
        raise


def paced(
    beat: Callable[[str], None], seconds: float, clock: Callable[[], float] = time.thread_time
) -> Callable[[str], None]:
    """
    Make a beat that raises TimeoutError, an OSError, as soon as these seconds are over.

    By default they are the processor's: what a tenant makes the kernel print takes these, and a node that is busy, or a
    daemon that is throttled, leaves nobody out. What waits has the deadline of its thread.
    """
    end = clock() + seconds

    def step(call: str) -> None:
        if clock() > end:
            raise TimeoutError(errno.ETIMEDOUT, "there is too much to look at", call)
        beat(call)

    return step


def _state(folder: str) -> str:
    return head(f"{folder}/stat", 4096).rpartition(b") ")[2][:1].decode("ascii", "replace")
