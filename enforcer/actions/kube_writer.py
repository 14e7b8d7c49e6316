"""
The client that may also change things.

What comes in: paths of the API reference, objects. What goes out: the server's answer, or a `KubeError`, which is an
`UnsentError` when the request certainly never left.

The law: whatever changes the cluster passes through here, and nothing of the exporter imports it. A change is sent
once: neither this client nor the library under it repeats what may have been done, only what the server refused with
401, and none of them follows a redirect. The answer to a change can be lost, so whoever asks for one has to bear that
it was made.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from kubernetes.aio.client.configuration import Configuration

from exporter.kube.client import JSON, Client, Request
from exporter.kube.errors import UNREACHABLE, KubeError

MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Posted:
    """What the server said to what was created: HTTP's status and the body."""

    status: int
    body: bytes


class Writer(Client):
    """A `Client` that can create and patch; one connection serves both halves of the daemon."""

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
        # Half of the time for the connection: one that cannot be had is then told from an answer that does not come.
        return aiohttp.ClientTimeout(total=self._deadline, sock_connect=self._deadline / 2)

    async def _read_credentials(self) -> Configuration:
        fresh = await super()._read_credentials()
        staying = aiohttp.TraceConfig()
        staying.on_request_redirect.append(_stay)
        fresh.trace_configs = [staying]
        return fresh


async def _stay(_: object, __: object, redirected: aiohttp.TraceRequestRedirectParams) -> None:
    """Follow no redirect: API servers send none, and aiohttp would send the change again, or take a page for a yes."""
    answer = redirected.response
    answer.close()
    raise KubeError(UNREACHABLE, "Redirected", f"{answer.url}: {answer.status} to another place")
