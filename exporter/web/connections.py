"""
Which connections are let in, and which have to go.

What comes in: a listening socket, and the TLS settings in force. What goes out: connections, each with a handler.

The law: strangers never hold the open files that the rounds need, and never keep a probe out. So there are `MOST`
connections and no more, silent ones and unfinished handshakes counted; a new one is always let in, and the oldest goes.

asyncio's own accepting knows no bound, and reports a lack of open files with a hundred tracebacks (Python 3.11).
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

import structlog

MOST = 100
"""Connections. Two scrapers, probes and some browsers need ten; 1024 open files are a usual limit for a process."""
IDLE = 75.0
"""Seconds that a connection may take to bring a whole request; the next one too, so more than a minute's scrapes."""
HANDSHAKE = 10.0
"""Seconds for the TLS handshake."""
PAUSE = 1.0
"""Seconds until the next attempt when the process has no open file left."""

log = structlog.get_logger()


class Entrance:
    """
    Lets connections in and counts them. `tls` says what is in force for a new one; None is plain HTTP.

    The listening socket stays its owner's.
    """

    def __init__(
        self,
        listening: socket.socket,
        handler: Callable[[], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._listening = listening
        self._handler = handler
        self._tls = tls
        self._ends: dict[socket.socket, Callable[[], object]] = {}

    async def run(self) -> None:
        """Let in, until cancelled. Connections that stand then stay."""
        async with asyncio.TaskGroup() as entering:
            while True:
                connection = await self._next()
                self._make_room()
                self._ends[connection] = entering.create_task(self._enter(connection), name="entering").cancel
                await asyncio.sleep(0)  # what is there at once is let in one by one, so that no flood holds the loop

    def close(self) -> None:
        """End all connections at once, also those with an answer that nobody takes."""
        for end in self._ends.values():
            end()
        self._ends.clear()

    def _make_room(self) -> None:
        self._ends = {connection: end for connection, end in self._ends.items() if connection.fileno() >= 0}
        while len(self._ends) >= MOST:
            oldest = next(iter(self._ends))
            self._ends.pop(oldest)()

    async def _enter(self, connection: socket.socket) -> None:
        loop, tls = asyncio.get_running_loop(), self._tls()
        try:
            transport, _ = await loop.connect_accepted_socket(
                self._handler, connection, ssl=tls, ssl_handshake_timeout=HANDSHAKE if tls else None
            )
        except OSError as error:  # it went, or what it spoke was no TLS
            log.debug("web.no_handshake", reason=str(error))
            return
        if connection in self._ends:
            self._ends[connection] = transport.abort

    async def _next(self) -> socket.socket:
        loop, reported = asyncio.get_running_loop(), False
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except ConnectionAbortedError:  # it came and went
                continue
            except OSError as error:
                if not reported:
                    reason = (error.strerror or str(error)).lower()
                    log.error("web.accept_failed", reason=reason, fix="raise the limit of open files (ulimit -n)")  # noqa: TRY400
                reported = True
                await asyncio.sleep(PAUSE)
            else:
                return connection
