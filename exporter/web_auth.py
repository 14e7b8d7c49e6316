"""
Who is answered: basic authentication with bcrypt, and the names in client certificates.

What comes in: requests, and the protection in force. What goes out: nothing, or the refusal.

The law: an answer takes as long for a name that nobody has as for a wrong password, guessing never occupies more than
one core, and the event loop never hashes.
"""

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from exporter.web_config import Security

PROBES = frozenset({"/healthz", "/readyz"})
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


@dataclass(slots=True)
class Gate:
    """The protection in force; exchanged whole when its files change."""

    security: Security = field(default_factory=Security)
    auth: BasicAuth = field(default_factory=lambda: BasicAuth({}))

    def exchange(self, security: Security) -> None:
        """Put another protection in force. Logins are remembered only while the users stay the same."""
        if security.users != self.security.users:
            self.auth = BasicAuth(security.users)
        self.security = security

    async def refuses(self, request: web.Request) -> web.Response | None:
        """Say why a request is not answered; None lets it pass."""
        if request.path in PROBES:
            return None
        if self.security.users and await self.auth.user(request.headers.get("Authorization")) is None:
            return refusal(
                401, "name and password needed", {"WWW-Authenticate": 'Basic realm="gpusteward", charset="UTF-8"'}
            )
        if self.security.allowed_sans and not self.security.allowed_sans & _client_names(request):
            return refusal(403, "the client certificate carries none of the names that are let in")
        return None


def _client_names(request: web.Request) -> frozenset[str]:
    certificate = request.get_extra_info("peercert") or {}
    return frozenset(name for _, name in certificate.get("subjectAltName", ()))


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """Make an error of the API: `{"error": "one sentence"}`."""
    body = msgspec.json.encode({"error": message})
    return web.Response(status=status, body=body, content_type="application/json", charset="utf-8", headers=headers)
