"""
Basic authentication with bcrypt.

What comes in: users with their hashes, and an Authorization header. What goes out: who it is, or None.

The law: an answer takes as long for a name that nobody has as for a wrong password, guessing never occupies more than
one core, and the event loop never hashes.
"""

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Mapping

REMEMBERED = 100
"""Correct logins to remember. bcrypt of cost 10 takes some 70 ms, which is too much for each scrape."""


class BasicAuth:
    """
    Knows the users, and remembers the last correct logins as salted hashes.

    Wrong passwords are not remembered: guesses would push the scrapers' logins out.
    """

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users
        # the slowest user is checked for names that nobody has
        self._decoy = max(users.values(), key=lambda hashed: hashed.split(b"$")[2], default=b"")
        self._salt = os.urandom(16)
        self._correct: dict[bytes, None] = {}
        self._one_at_a_time = asyncio.Lock()

    async def user(self, header: str | None) -> str | None:
        """Say who sent this Authorization header; None when it is missing or wrong."""
        credentials = parse(header)
        if credentials is None:
            return None
        name, password = credentials
        hashed = self._users.get(name)
        seen = hashlib.blake2b(repr(credentials).encode(), key=self._salt).digest()
        if hashed is not None and seen in self._correct:
            return name
        async with self._one_at_a_time:
            matches = await asyncio.to_thread(_matches, password, hashed or self._decoy)
        if hashed is None or not matches:
            return None
        while len(self._correct) >= REMEMBERED:
            del self._correct[next(iter(self._correct))]
        self._correct[seen] = None
        return name


def parse(header: str | None) -> tuple[str, bytes] | None:
    """Split `Basic base64(name:password)`; None for everything else."""
    scheme, _, token = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(token.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt  # noqa: PLC0415  (an extra; web_config refused to load without it)

    try:
        return bcrypt.checkpw(password, hashed)
    except ValueError:  # longer than bcrypt's 72 bytes, or with a NUL byte
        return False
