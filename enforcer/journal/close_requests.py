"""
What a person asks of the running daemon: to close a breaker.

What comes in: the journal's path; a breaker's name and who asks. What goes out: a file beside the journal, which the
daemon takes away when it heeds it.

The rule: only a user that could write the journal may ask: files of others are refused. A request waits for the daemon
that acts, so a restart does not lose it; asking twice is asking once.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from enforcer.journal import trusted_files
from enforcer.policy.vocabulary import Breaker

LONGEST = 200
"""Characters of a name: it is for people."""


def folder(journal: Path) -> Path:
    """Name the folder in which the requests stand."""
    return journal.with_name(f"{journal.name}.close")


def ask(journal: Path, breaker: Breaker, by: str) -> Path:
    """Ask the daemon to close a breaker; returns the file, which is gone once it did. Raises OSError."""
    place = folder(journal)
    trusted_files.folder(journal.parent)
    trusted_files.folder(place)
    descriptor, draft = tempfile.mkstemp(prefix=".", dir=place)  # 0600, and whole when it gets its name
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(by[:LONGEST])
    return Path(draft).replace(place / breaker)


def take(journal: Path) -> Iterator[tuple[Breaker, str]]:
    """Take what is asked away, and tell it: breaker, and by whom. What cannot be read, or is not ours, stays."""
    for breaker in Breaker:
        path = folder(journal) / breaker
        with suppress(OSError):
            descriptor = trusted_files.opened(path, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                by = file.read(4 * LONGEST).decode("utf-8", "replace")
            path.unlink()
            yield breaker, "".join(letter for letter in by if letter.isprintable())[:LONGEST]
