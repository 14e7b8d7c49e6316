"""
The lock by which one daemon per node may act.

What comes in: the path of a file beside the journal. What goes out: the lock, or None while another daemon has it.

The rule: the kernel keeps the lock (`flock`) exactly as long as its holder lives. No age, process number or left-over
file decides. The file is never removed, because two daemons could then lock two files. Its content is for people.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from enforcer.journal import trusted_files

_MOST = 64


class LockError(Exception):
    """It is unknown whether another daemon holds the lock, so this daemon must not act."""


class Lock:
    """The lock, for the life of the daemon. One that ends in order calls `release`; otherwise the kernel does it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def holds(self) -> bool:
        """
        Tell whether the file is still the one that other daemons would lock.

        Ask this before each action: if the file was removed, another daemon can lock a new one.
        """
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except OSError:
            return False

    def release(self) -> None:
        """Let go of the lock, which must not be used afterwards."""
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
        raise LockError(f"{path}: was replaced while it was locked")
    return lock


def holder(path: Path) -> str:
    """Return which process wrote the file last, as text; empty when unknown."""
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
    with contextlib.suppress(OSError):  # the lock holds on a full disk, too
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"process %d\n" % os.getpid(), 0)
    return Lock(path, descriptor)
