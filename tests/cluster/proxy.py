"""A proxy before the API server that has accidents when it is told to.

In: where the server is, and faults. Out: a port with the server's own certificates; what came through.
Law: what is not told to go wrong goes through unchanged. A fault strikes once, the next eviction, and in a known order:
before the server heard of it, or after it did it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from cluster.certificates import Authority
from cluster.client import Credentials
from sources.kube_api import serving

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "content-encoding"})


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to the next eviction.

    forward  the server gets it, and answers, before it goes wrong; else it never hears of it
    status   the answer to be given instead, with `text` as text/plain and `headers`; None: the connection is cut
    """

    forward: bool
    status: int | None = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Proxy:
    """A proxy that runs. `posts` are the evictions that came, as (path, Audit-ID)."""

    port: int = 0
    faults: list[Fault] = field(default_factory=list)
    posts: list[tuple[str, str]] = field(default_factory=list)
    forwarded: int = 0


@asynccontextmanager
async def proxied(to: Credentials, authority: Authority) -> AsyncIterator[Proxy]:
    """Listen on a port of its own, and pass on what comes with the credentials that it carries."""
    proxy = Proxy()
    pair = authority.issue("proxy", "kube-apiserver", hosts=["127.0.0.1"])
    serving_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving_tls.load_cert_chain(pair.certificate, pair.key)
    trust = ssl.create_default_context(cafile=str(to.authority))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), auto_decompress=False) as session:

        async def forward(request: web.Request, body: bytes) -> web.Response:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
            url = f"{to.server}{request.path_qs}"
            async with session.request(request.method, url, headers=headers, data=body) as answer:
                passed = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
                proxy.forwarded += request.path.endswith("/eviction")
                return web.Response(status=answer.status, body=await answer.read(), headers=passed)

        async def answer(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            if not request.path.endswith("/eviction"):
                return await forward(request, body)
            proxy.posts.append((request.path, request.headers.get("Audit-ID", "")))
            fault = proxy.faults.pop(0) if proxy.faults else None
            if fault is None or fault.forward:
                response = await forward(request, body)
                if fault is None:
                    return response
            if fault.status is None:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return web.Response(status=fault.status, text=fault.text, headers=fault.headers)

        async with serving(answer, context=serving_tls) as server:
            proxy.port = int(server.url.rpartition(":")[2])
            yield proxy
    await asyncio.sleep(0)  # aiohttp closes its TLS connections in the loop's next turn
