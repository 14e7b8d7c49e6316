"""
Which requests are answered.

What comes in: the protection in force, and requests. What goes out: a refusal, or None for a request that may pass.

The rule: the probes stay open when authentication is on.
"""

from dataclasses import dataclass, field

from aiohttp import web

from exporter.web.basic_auth import BasicAuth
from exporter.web.config import Security
from exporter.web.responses import refusal

PROBES = frozenset({"/healthz", "/readyz"})


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
        """Return the answer to a request that is refused; None lets it pass."""
        if request.path in PROBES:
            return None
        # Certificates first: they cost nothing, and a client without one does not keep the hashing of passwords busy.
        if self.security.certificates and not request.get_extra_info("peercert"):
            return refusal(401, "client certificate needed")
        if self.security.allowed_sans and not self.security.allowed_sans & _client_names(request):
            return refusal(403, "the client certificate carries none of the names that are let in")
        if self.security.users and await self.auth.user(request.headers.get("Authorization")) is None:
            return refusal(
                401, "name and password needed", {"WWW-Authenticate": 'Basic realm="gpusteward", charset="UTF-8"'}
            )
        return None


def _client_names(request: web.Request) -> frozenset[str]:
    certificate = request.get_extra_info("peercert") or {}
    return frozenset(name for _, name in certificate.get("subjectAltName", ()))
