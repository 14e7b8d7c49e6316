"""
Requests to the running daemon to close a breaker.

What comes in: the journal's path, a breaker's name, and the name of the person. What goes out: a file beside the
journal, which the daemon removes when it closes the breaker.

The rule: **a request counts while its person waits for the answer, and for a minute at most.** Otherwise a daemon that
starts days later would close a breaker that opened for another cause. Only a user that could write the journal may ask;
files of others are refused. A repeated request counts once.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from enforcer.journal import trusted_files
from enforcer.policy.vocabulary import Breaker

log = structlog.get_logger()

LONGEST = 200
"""The most characters of a person's name, which is only shown."""
EXPIRES = 60.0
"""Seconds after which a request is ignored: its person was killed, or withdrew it in vain."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was made: its file, and the file's identity, because a later request takes the same name."""

    path: Path
    identity: os.stat_result

    @property
    def waits(self) -> bool:
        """Tell whether no daemon has taken it, or a later one for the same breaker."""
        return self.path.exists()

    def withdraw(self) -> bool:
        """Take it back; False: the daemon has taken it, or a later one replaced it. Raises OSError."""
        with _alone(self.path.parent):
            with suppress(FileNotFoundError):
                if os.path.samestat(self.path.lstat(), self.identity):
                    self.path.unlink()
                    return True
            return False


def folder(journal: Path) -> Path:
    """Return the folder of the requests."""
    return journal.with_name(f"{journal.name}.close")


def ask(journal: Path, breaker: Breaker, by: str) -> Request:
    """Ask the daemon to close a breaker. Raises OSError."""
    place = folder(journal)
    trusted_files.folder(journal.parent)
    trusted_files.folder(place)
    descriptor, draft = tempfile.mkstemp(prefix=".", dir=place)  # 0600, and whole when it gets its name
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(by[:LONGEST])
        identity = os.fstat(descriptor)
    with _alone(place):
        return Request(Path(draft).replace(place / breaker), identity)


def take(journal: Path, now: float) -> Iterator[tuple[Breaker, str]]:
    """
    Remove each request, and yield its breaker and the person's name; one that has expired at Unix time `now` is logged.

    One that is unreadable or not ours stays.
    """
    place = folder(journal)
    with suppress(OSError):
        trusted_files.checked(place)
        with _alone(place, wait=False):
            taken = [(breaker, *request) for breaker in Breaker if (request := _taken(place / breaker)) is not None]
        for breaker, by, made in taken:
            if abs(now - made) <= EXPIRES:  # one of tomorrow was made before the clock was set back
                yield breaker, by
            else:
                log.warning(
                    "enforcer.close_request_expired", breaker=breaker.value, by=by, age_seconds=round(now - made, 1)
                )


def _taken(path: Path) -> tuple[str, float] | None:
    """Remove a request, and return the person's name and the Unix time at which it was made; None where none is."""
    with suppress(OSError):
        descriptor = trusted_files.opened(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            by = file.read(4 * LONGEST).decode("utf-8", "replace")
            made = os.fstat(descriptor).st_mtime
        path.unlink()
        return "".join(letter for letter in by if letter.isprintable())[:LONGEST], made
    return None


@contextmanager
def _alone(place: Path, *, wait: bool = True) -> Iterator[None]:
    """
    Keep all others out of the folder: a request is withdrawn by its own person, and only before it is taken.

    Raises OSError; BlockingIOError where another process is in it, and `wait` is False.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
