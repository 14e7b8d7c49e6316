"""
Requests to the running daemon to close a breaker.

What comes in: the journal's path, a breaker's name, and the name of the person. What goes out: a file beside the
journal, which the daemon removes when it closes the breaker.

The rule: only a user that could write the journal may ask; files of others are refused. A request waits for the daemon
that acts, so a restart does not lose it. A repeated request counts once.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from enforcer.journal import trusted_files
from enforcer.policy.vocabulary import Breaker

LONGEST = 200
"""The most characters of a person's name, which is only shown."""


def folder(journal: Path) -> Path:
    """Return the folder of the requests."""
    return journal.with_name(f"{journal.name}.close")


def ask(journal: Path, breaker: Breaker, by: str) -> Path:
    """Ask the daemon to close a breaker; returns the file, which the daemon then removes. Raises OSError."""
    place = folder(journal)
    trusted_files.folder(journal.parent)
    trusted_files.folder(place)
    descriptor, draft = tempfile.mkstemp(prefix=".", dir=place)  # 0600, and whole when it gets its name
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(by[:LONGEST])
    return Path(draft).replace(place / breaker)


def take(journal: Path) -> Iterator[tuple[Breaker, str]]:
    """Remove each request, and yield its breaker and the person's name. One that is unreadable or not ours stays."""
    for breaker in Breaker:
        path = folder(journal) / breaker
        with suppress(OSError):
            descriptor = trusted_files.opened(path, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                by = file.read(4 * LONGEST).decode("utf-8", "replace")
            path.unlink()
            yield breaker, "".join(letter for letter in by if letter.isprintable())[:LONGEST]
