"""
A process that stands still.

What comes in: its number. What goes out: a moment in which none of its threads runs. Law: `kill(2)` returns before the
threads of another process have stopped; until then one of them may still answer.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import PATIENCE

STILL = frozenset("TtZX")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, and let it go on in the end. Raises TimeoutError where it does not stop."""
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _still(pid):
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {pid} does not stop within {PATIENCE} s")
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _still(pid: int) -> bool:
    try:
        texts = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread ended just now
    return all(text.rpartition(")")[2].split()[0] in STILL for text in texts)
