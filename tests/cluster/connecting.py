"""
Connections to a bed's API server that are all closed when their session is.

In: what to trust. Out: a connector for an aiohttp session. Law: no socket outlives it. aiohttp waits for connections at
rest only. One that was left in its midst, or was too old, waits for the server's answer to TLS's farewell. A loop that
ends meanwhile leaves its socket behind.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import aiohttp

from patience import PATIENCE


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

    async def _all_closed(self) -> None:
        for one in self._sockets:
            with suppress(OSError):  # it is closed, or was never connected
                one.shutdown(socket.SHUT_RDWR)
        async with asyncio.timeout(PATIENCE):
            while any(one.fileno() >= 0 for one in self._sockets):
                await asyncio.sleep(0)

    async def close(self, *, abort_ssl: bool = False) -> None:
        await super().close(abort_ssl=abort_ssl)
        await self._all_closed()
