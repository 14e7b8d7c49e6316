"""
Connections to a bed's API server, or to a proxy before it, that are all closed at the end of its client or server.

In: what to trust, or where to listen. Out: a connector for an aiohttp session, a listening socket. Law: no socket
outlives them. aiohttp waits for connections at rest only. One that was left in its midst, or was too old, waits for the
other side's answer to TLS's farewell. A server's may still shake hands. A loop that ends meanwhile leaves its socket
behind.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import aiohttp

from patience import PATIENCE


async def all_closed(sockets: Iterable[socket.socket]) -> None:
    """Hang up, and wait until asyncio has closed each of them."""
    kept = list(sockets)
    for one in kept:
        with suppress(OSError):  # it is closed, or was never connected
            one.shutdown(socket.SHUT_RDWR)
    async with asyncio.timeout(PATIENCE):
        while any(one.fileno() >= 0 for one in kept):
            await asyncio.sleep(0)


class Connector(aiohttp.TCPConnector):
    """A connector for `aiohttp.ClientSession(connector=…)`, which closes it."""

    def __init__(self, tls: ssl.SSLContext, **given: Any) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()
        super().__init__(ssl=tls, socket_factory=self._made, **given)

    def _made(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    async def close(self, *, abort_ssl: bool = False) -> None:
        await super().close(abort_ssl=abort_ssl)
        await all_closed(self._sockets)


class Listening(socket.socket):
    """A socket that listens, for `web.SockSite`. `accepted` gets each connection that it takes."""

    def __init__(self, address: str, port: int, accepted: WeakSet[socket.socket]) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self._accepted = accepted
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind((address, port))

    def accept(self) -> tuple[socket.socket, Any]:
        connection, peer = super().accept()
        self._accepted.add(connection)
        return connection, peer

    async def no_more(self) -> None:
        """
        Accept nothing from now on. To be awaited before the server is closed.

        asyncio loses a connection that it accepted in the step in which it closes the server (`Server._attach`).
        """
        if self.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self)
        for _ in range(3):
            await asyncio.sleep(0)
