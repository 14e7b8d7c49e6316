"""A proxy before the API server that has accidents when a test asks for them.

In: where the server is, and accidents. Out: a port with the server's own certificates; what came through.
Law: a request without an accident goes through unchanged, a watch as it comes. An accident befalls one request, the
next of its kind, and in a known order: before the server heard of it, or after it did it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakSet

import aiohttp
from aiohttp import web

from cluster.certificates import Authority, trusting
from cluster.client import Credentials
from cluster.connecting import Connector, Listening, all_closed

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


@dataclass(frozen=True, slots=True)
class Passing:
    """A request on its way. `forward` has the server answer it."""

    request: web.BaseRequest
    forward: Callable[[], Awaitable[web.Response]]

    def cut(self) -> web.Response:
        """Close the connection without a word."""
        assert self.request.transport is not None
        self.request.transport.abort()
        return web.Response()


Accident: TypeAlias = Callable[[Passing], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong answer.

    forward: the server gets the request, and answers, before it goes wrong; else it never hears of it.
    status:  the answer to be given instead, with `text` as text/plain and `headers`; None: the connection is cut.
    """

    forward: bool
    status: int | None = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, passing: Passing) -> web.StreamResponse:
        if self.forward:
            await passing.forward()
        if self.status is None:
            return passing.cut()
        return web.Response(status=self.status, text=self.text, headers=self.headers)


class Hold:
    """Holds a request until `opened` is set: before the server hears of it, or (`after`) its answer.

    A hold that is never opened lets nothing through, also after its client went away.
    """

    def __init__(self, *, after: bool) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self._after = after

    async def __call__(self, passing: Passing) -> web.StreamResponse:
        answer = await passing.forward() if self._after else None
        self.reached.set()
        await self.opened.wait()
        return answer or await passing.forward()


class Look(Hold):
    """
    Holds what a last look asks for, pod and namespace, which come at the same time and in either order.

    One of them alone cannot be held: answers that come a second apart are no look. Reached when both are held.
    """

    def __init__(self, begun: Callable[[], bool], *, after: bool) -> None:
        super().__init__(after=after)
        self.begun = begun
        self._held: set[str] = set()

    async def __call__(self, passing: Passing) -> web.StreamResponse:
        answer = await passing.forward() if self._after else None
        self._held.add(passing.request.path.split("/")[-2])
        if self._held >= {"pods", "namespaces"}:
            self.reached.set()
        await self.opened.wait()
        return answer or await passing.forward()


class Proxy:
    """A proxy that runs.

    faults:    what befalls the next evictions, one each.
    look:      what is read while an action has begun.
    telling:   every write of an Event.
    before:    what each request waits for first; it is given the path.
    hearing:   set while watches are passed on; without it they stay open and say nothing.
    posts:     the evictions that came, as (path, Audit-ID).
    forwarded: how many of them the server answered.
    """

    def __init__(self, to: str, session: aiohttp.ClientSession, tls: ssl.SSLContext, address: str) -> None:
        self.address, self.port = address, 0
        self.faults: list[Accident] = []
        self.look: Look | None = None
        self.telling: Accident | None = None
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.hearing = asyncio.Event()
        self.hearing.set()
        self.posts: list[tuple[str, str]] = []
        self.forwarded = 0
        self._to, self._session, self._tls = to, session, tls
        self._accepted: WeakSet[socket.socket] = WeakSet()
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)

    async def start(self) -> None:
        await self._runner.setup()
        await self.listen()

    async def stop(self) -> None:
        await self._listening.no_more()
        await self._runner.cleanup()
        await all_closed(self._accepted)

    async def listen(self) -> None:
        """Take connections, on the same port as before."""
        self._listening = Listening(self.address, self.port, self._accepted)
        self._site = web.SockSite(self._runner, self._listening, ssl_context=self._tls)
        await self._site.start()
        self.port = self._runner.addresses[0][1]

    async def shut(self) -> None:
        """Take no more connections; those that there are stay."""
        await self._listening.no_more()
        await self._site.stop()

    async def leave(self) -> None:
        """Be away, as a server that crashed: every connection is cut, and none is taken until `listen`."""
        await self.shut()
        for connection in self._runner.server.connections if self._runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if self.before is not None:
            await self.before(request.path)
        if request.query.get("watch") == "true":
            return await self._watch(request)

        async def forward() -> web.Response:
            async with self._asked(request, body) as answer:
                self.forwarded += request.path.endswith("/eviction")
                return web.Response(status=answer.status, body=await answer.read(), headers=_kept(answer.headers))

        passing = Passing(request, forward)
        accident = self._accident(request)
        try:
            return await (accident(passing) if accident else forward())
        except aiohttp.ClientError:  # the server is away
            return passing.cut()

    def _accident(self, request: web.BaseRequest) -> Accident | None:
        if request.path.endswith("/eviction"):
            self.posts.append((request.path, request.headers.get("Audit-ID", "")))
            return self.faults.pop(0) if self.faults else None
        if "/events" in request.path and request.method != "GET":
            return self.telling
        return self.look if self.look is not None and request.method == "GET" and self.look.begun() else None

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        try:
            async with self._asked(request, b"") as answer:
                response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await self.hearing.wait()
                    await response.write(chunk)
                await response.write_eof()
        except (aiohttp.ClientError, ConnectionError):  # either end hung up; so does the other
            if request.transport is not None:
                request.transport.abort()
        return response

    def _asked(self, request: web.BaseRequest, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        timeout = aiohttp.ClientTimeout(total=None)
        url = f"{self._to}{request.path_qs}"
        return self._session.request(request.method, url, headers=_kept(request.headers), data=body, timeout=timeout)


@asynccontextmanager
async def proxied(to: Credentials, authority: Authority, address: str = "127.0.0.1") -> AsyncIterator[Proxy]:
    """Listen on a port of its own, and pass on what comes with the credentials that it carries."""
    pair = authority.issue("proxy", "kube-apiserver", hosts=[address])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    connector = Connector(trusting(to.authority), limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        proxy = Proxy(to.server, session, tls, address)
        await proxy.start()
        try:
            yield proxy
        finally:
            await proxy.stop()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}
