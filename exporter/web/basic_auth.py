"""
Basic authentication with bcrypt.

What comes in: users with their hashes, and an Authorization header. What goes out: the user's name, or None.

The rule: an unknown name takes as long as a wrong password. Guesses never occupy more than
one core, and the event loop never hashes. Few logins wait for their hash; known logins do not wait at all.
"""

import asyncio
import base64
import binascii
import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from exporter.web import bounds

REMEMBERED = 100
"""Correct logins that are remembered. bcrypt of cost 10 takes about 70 ms, too much for each scrape."""


class BusyError(Exception):
    """Too many logins wait to be checked."""


class BasicAuth:
    """
    Checks logins, and remembers the last correct ones as salted hashes.

    Wrong passwords are not remembered, because guesses would displace the scrapers' logins.
    """

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users
        # an unknown name is checked against the user with the slowest hash
        self._decoy = max(users.values(), key=lambda hashed: hashed.split(b"$")[2], default=b"")
        self._salt = os.urandom(16)
        self._correct: dict[bytes, None] = {}
        self._waiting: Counter[str] = Counter()
        self._one_at_a_time = asyncio.Lock()
        # Cancelling ends no thread. So it is the one worker, and not the lock, that keeps a second core free.
        self._hashing = ThreadPoolExecutor(1, "hashing")

    async def user(self, header: str | None, peer: str = "") -> str | None:
        """
        Say who sent this Authorization header; None when it is missing or wrong.

        Raises BusyError when too many logins wait, of this peer or in all.
        """
        credentials = parse(header)
        if credentials is None:
            return None
        name, password = credentials
        hashed = self._users.get(name)
        seen = hashlib.blake2b(repr(credentials).encode(), key=self._salt).digest()
        if seen in self._correct:
            return name
        if self._waiting.total() >= bounds.LOGINS or self._waiting[peer] >= bounds.LOGINS_OF_A_PEER:
            raise BusyError
        self._waiting[peer] += 1
        try:
            async with self._one_at_a_time:
                if seen in self._correct:  # the same login came twice at once
                    return name
                loop = asyncio.get_running_loop()
                matches = await loop.run_in_executor(self._hashing, _matches, password, hashed or self._decoy)
        finally:
            self._waiting -= Counter((peer,))  # it drops what is zero: peers come and go
        if hashed is None or not matches:
            return None
        while len(self._correct) >= REMEMBERED:
            del self._correct[next(iter(self._correct))]
        self._correct[seen] = None
        return name


def parse(header: str | None) -> tuple[str, bytes] | None:
    """Split `Basic base64(name:password)`; None for any other header."""
    scheme, _, token = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(token.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt  # noqa: PLC0415  (an extra; without it the web config is refused)

    try:
        return bcrypt.checkpw(password, hashed)
    except ValueError:  # longer than bcrypt's 72 bytes, or with a NUL byte
        return False
