"""
The Kubernetes client that can also change objects.

What comes in: paths of the API reference, objects. What goes out: the server's answer, or a `KubeError`. It is an
`UnsentError` if the request was certainly never sent.

The rule: each change of the cluster passes through this client, and the exporter does not import it. A change is sent
once. Neither this client nor its library repeats a change that may have been made, but only one that the server refused
with 401. Neither follows a redirect. The answer to a change can be lost, so the caller must expect that it was made.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from exporter.kube.client import JSON, Client, Request

MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Posted:
    """The server's answer to a create: the HTTP status and the body."""

    status: int
    body: bytes


class Writer(Client):
    """A `Client` that can create and patch; one connection serves both halves of the daemon."""

    _follows = False  # API servers send no redirects. aiohttp would repeat the change, or take a page for a success.

    async def create(
        self,
        path: str,
        thing: Mapping[str, object],
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Posted:
        """POST an object to a collection or sub-resource. Raises KubeError."""
        request = Request(path, query or {}, self._limits, "POST", {**JSON, **(headers or {})}, thing)
        return Posted(*await self._exchange(request))

    async def patch(self, path: str, change: Mapping[str, object]) -> bytes:
        """Merge `change` into the object at `path` (RFC 7386). Raises KubeError."""
        headers = {**JSON, "Content-Type": MERGE_PATCH}
        return await self._read(Request(path, {}, self._limits, "PATCH", headers, change))

    @property
    def _limits(self) -> aiohttp.ClientTimeout:
        # Half of the time is for the connection: so a failed connection can be told from an answer that does not come.
        return aiohttp.ClientTimeout(total=self._deadline, sock_connect=self._deadline / 2)
