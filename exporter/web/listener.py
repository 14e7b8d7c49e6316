"""
One address that is served: its socket, who is let in, and how requests are read.

What comes in: an application and an open socket. What goes out: answers, for the time of an `async with`.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Container
from types import TracebackType
from typing import Any, Self

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError

from exporter.web import bounds
from exporter.web.connection import Connection
from exporter.web.connections import Entrance

SHUTDOWN = 0.2
"""
Seconds that answers in flight are given when the daemon ends. They come from memory, within milliseconds.

The daemon has a second for its end, and the driver needs some of it.
"""

log = structlog.get_logger()


class Listener:
    """
    Serves an application on a socket, and closes the socket at the end.

    `most`: other than the usual connections. `known`: peers whose connections are spared.
    """

    def __init__(
        self,
        app: web.Application,
        opened: socket.socket,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        *,
        most: int | None = None,
        known: Container[str] = (),
    ) -> None:
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            handler_cancellation=True,  # a closed connection takes no answer
            shutdown_timeout=SHUTDOWN / 2,  # aiohttp waits twice: for the answer, and for what follows it
        )
        self._socket = opened
        bound = (lambda _: (most, most)) if most else _usual
        self._entrance = Entrance(opened, self._connection, tls, most=bound, known=known)
        self._letting_in: asyncio.Task[None] | None = None
        self._connection_settings: dict[str, Any] = {
            "access_log": None,
            "logger": _logger(),
            "keepalive_timeout": bounds.IDLE,
            "lingering_time": bounds.LINGER,
            "max_line_size": bounds.LINE,
            "max_field_size": bounds.FIELD,
            "max_headers": bounds.HEADERS,
            "read_bufsize": bounds.REQUESTS,
            "auto_decompress": False,
        }

    @property
    def port(self) -> int:
        """The port that the socket really has."""
        return int(self._socket.getsockname()[1])

    def connections(self) -> list[web.RequestHandler]:
        """List the connections that are past their handshake."""
        return self._runner.server.connections if self._runner.server else []

    async def run(self) -> None:
        """Wait for ever. Raises what ended the letting in of connections."""
        assert self._letting_in is not None, "not entered yet"  # noqa: S101
        await asyncio.shield(self._letting_in)

    def _connection(self) -> Connection:
        server = self._runner.server
        assert server is not None  # noqa: S101  (it is set up before connections are let in)
        return Connection(server, loop=asyncio.get_running_loop(), **self._connection_settings)

    async def __aenter__(self) -> Self:
        try:
            await self._runner.setup()
        except BaseException:
            self._socket.close()
            raise
        self._letting_in = asyncio.create_task(self._entrance.run(), name="letting in")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._letting_in is not None:
            self._letting_in.cancel()
            await asyncio.wait([self._letting_in])
        self._socket.close()
        await self._runner.cleanup()
        self._entrance.close()


def _usual(tls: bool) -> tuple[int, int]:  # noqa: FBT001  (the one argument)
    most = bounds.TLS_CONNECTIONS if tls else bounds.CONNECTIONS
    return most, int(most * bounds.OF_A_PEER)


class _Told(logging.Handler):
    """What aiohttp logs, in our words: a bug of ours is an error, what a client sent that is no HTTP is not."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            log.debug("web.no_http", reason=error.message)
        else:
            log.error("web.failed", reason=record.getMessage(), exc_info=error)


def _logger() -> logging.Logger:
    logger = logging.Logger("exporter.web")  # noqa: LOG001  (ours alone: the process-wide one is not ours)
    logger.addHandler(_Told())
    return logger
