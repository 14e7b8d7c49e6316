"""
Decides which requests are answered.

What comes in: the protection in force, and requests. What goes out: a refusal, or None for a request that may pass.

The rule: the probes need no authentication. A peer is known once it got an answer that needs what the port demands; so
where it demands nothing, the first ones are.
"""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import web

from exporter.web.basic_auth import BasicAuth, BusyError
from exporter.web.config import Security
from exporter.web.peers import Known, peer_of
from exporter.web.responses import refusal

PROBES = frozenset({"/healthz", "/readyz"})


@dataclass(slots=True)
class Gate:
    """The protection in force; replaced as a whole when its files change."""

    security: Security = field(default_factory=Security)
    auth: BasicAuth = field(default_factory=lambda: BasicAuth({}))
    known: Known = field(default_factory=Known)

    def exchange(self, security: Security) -> None:
        """Replace the protection. Remembered logins are dropped if the users change, and peers if anything does."""
        if security != self.security:
            self.known.forget()
        if security.users != self.security.users:
            self.auth = BasicAuth(security.users)
        self.security = security

    async def refuses(self, request: web.Request) -> web.Response | None:
        """Return the refusal of a request; None if it may pass."""
        if request.path in PROBES:
            return None
        # Certificates first: their check is cheap, and a client without one must not occupy the hashing of passwords.
        if self.security.certificates and not request.get_extra_info("peercert"):
            return refusal(401, "client certificate needed")
        if self.security.allowed_sans and not self.security.allowed_sans & _client_names(request):
            return refusal(403, "the client certificate carries none of the names that are let in")
        return await self._refuses_login(request) if self.security.users else None

    def answered(self, request: web.Request, status: int) -> None:
        """Learn from an answer whose connections are spared in a flood."""
        proven = request.path not in PROBES or not (self.security.users or self.security.certificates)
        if status == HTTPStatus.OK and proven:
            self.known.answered(_peer(request), asyncio.get_running_loop().time())

    async def _refuses_login(self, request: web.Request) -> web.Response | None:
        try:
            user = await self.auth.user(request.headers.get("Authorization"), _peer(request))
        except BusyError:
            return refusal(503, "too many logins are being checked", {"Retry-After": "2"})
        if user is not None:
            return None
        return refusal(
            401, "name and password needed", {"WWW-Authenticate": 'Basic realm="gpusteward", charset="UTF-8"'}
        )


def _peer(request: web.Request) -> str:
    return peer_of(request.remote) if request.remote else ""


def _client_names(request: web.Request) -> frozenset[str]:
    certificate = request.get_extra_info("peercert") or {}
    return frozenset(name for _, name in certificate.get("subjectAltName", ()))
