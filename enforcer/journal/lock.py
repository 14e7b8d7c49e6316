"""
One daemon acts on a node: who holds the lock.

What comes in: the path of a file beside the journal. What goes out: the lock, or None while another daemon has it.

The law: the kernel keeps the lock (`flock`) for as long as the holder lives, and not a moment longer: no age, no
process number and no file left behind decides. The file is never removed: two daemons could lock two of them.
What is written in it is for people.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from enforcer.journal import trusted_files

_MOST = 64


class LockError(Exception):
    """Whether another daemon holds the lock cannot be told: nobody may act."""


class Lock:
    """The lock, for life: `release` is for a daemon that ends, and else the kernel does it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def holds(self) -> bool:
        """
        Tell whether the file is still the one that others would lock.

        Who removes it gives the next daemon another one to lock: ask this before each action.
        """
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except OSError:
            return False

    def release(self) -> None:
        """Let go. Nothing may be asked of it afterwards."""
        os.close(self._descriptor)


def take(path: Path) -> Lock | None:
    """Take the lock at once; None while another process has it. Raises LockError."""
    try:
        trusted_files.folder(path.parent)
        lock = _locked(path)
    except OSError as error:
        raise LockError(f"{path}: {error.strerror or error}") from error
    if lock is not None and not lock.holds():
        lock.release()
        raise LockError(f"{path}: was exchanged while it was locked")
    return lock


def holder(path: Path) -> str:
    """Tell who wrote the file last, in words; empty when nobody can tell."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return text if text.isprintable() else ""


def _locked(path: Path) -> Lock | None:
    descriptor = trusted_files.opened(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    with contextlib.suppress(OSError):  # a full disk takes nothing from the lock
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"process %d\n" % os.getpid(), 0)
    return Lock(path, descriptor)
