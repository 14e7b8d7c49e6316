"""
Where the HTTP face listens, with or without TLS.

What comes in: the answers, an address, perhaps a web config. What goes out: a server for the time of an `async with`.
"""

import asyncio
import errno
import logging
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError

from exporter.base.problem import Problem
from exporter.config import ConfigError
from exporter.config.reload import POLL, settled
from exporter.config.values import ListenAddress
from exporter.web.app import Answers, application
from exporter.web.config import contents, load_security
from exporter.web.connections import IDLE, Entrance
from exporter.web.gate import Gate

BACKLOG = 128
SHUTDOWN = 0.2
"""
Seconds that answers in flight are given when the daemon ends. They come from memory, within milliseconds, to clients
that take them; the daemon has a second for its end, and the driver needs some of it.
"""

log = structlog.get_logger()


class WebError(Problem):
    """The server cannot listen; the message says what to do. The daemon ends with exit code 1 at start."""


class Server:
    """
    Listens from `async with` on, and ends with it. Raises WebError or ConfigError on entering.

    When certificates are exchanged, new connections get the new ones, and those that stand keep theirs.
    """

    def __init__(
        self, answers: Answers, address: ListenAddress, config_file: Path | None = None, *, poll: float = POLL
    ) -> None:
        self._answers = answers
        self._address = address
        self._config_file = config_file
        self._poll = poll
        self._gate = Gate()
        self._runner = web.AppRunner(
            application(answers, self._gate),
            access_log=None,
            logger=_logger(),
            handle_signals=False,
            keepalive_timeout=IDLE,
            shutdown_timeout=SHUTDOWN / 2,  # aiohttp waits twice: for the answer, and for what follows it
        )
        self._socket: socket.socket | None = None
        self._entrance: Entrance | None = None
        self._letting_in: asyncio.Task[None] | None = None
        self._seen: tuple[bytes | str, ...] = ()
        self.fault: str | None = None
        """Why the web config in the file is not the one in force; None while it is."""

    @property
    def url(self) -> str:
        """Where the server is found, with the port that it really has."""
        assert self._socket is not None, "not entered yet"  # noqa: S101
        host, port = self._address.host or "localhost", self._socket.getsockname()[1]
        scheme = "https" if self._gate.security.tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    async def __aenter__(self) -> Self:
        if self._config_file is not None:
            self._seen = contents(self._config_file)
        security = load_security(self._config_file)
        self._socket = listen(self._address)
        self._gate.exchange(security)
        try:
            await self._runner.setup()
            assert self._runner.server is not None  # noqa: S101  (it is set up)
            self._entrance = Entrance(self._socket, self._runner.server, lambda: self._gate.security.tls)
            self._letting_in = asyncio.create_task(self._entrance.run(), name="letting in")
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._letting_in is not None:
            self._letting_in.cancel()
            await asyncio.wait([self._letting_in])
        if self._socket is not None:
            self._socket.close()
        await self._runner.cleanup()
        if self._entrance is not None:
            self._entrance.close()

    async def watch(self) -> None:
        """
        Apply changes of the web config and its certificates, for ever. Wrong settings stay out, and are reported.

        Raises what ended the letting in of connections: a server that lets no connection in must not look alive.
        """
        assert self._letting_in is not None, "not entered yet"  # noqa: S101
        await asyncio.gather(asyncio.shield(self._letting_in), self._watch_config())

    async def _watch_config(self) -> None:
        path = self._config_file
        if path is None:
            return
        async for content in settled(lambda: contents(path), self._poll):
            if content == self._seen:
                continue
            self._seen = content
            try:
                self._gate.exchange(await asyncio.to_thread(load_security, path))
            except ConfigError as error:
                self.fault = str(error)
                log.error("web.config_refused", reason=self.fault, effect="the last valid web config stays in force")  # noqa: TRY400
            else:
                self.fault = None
                log.info("web.config_applied", file=str(path))


def listen(address: ListenAddress) -> socket.socket:
    """Open the listening socket; without a host, or with `::`, on IPv6 and IPv4 together. Raises WebError."""
    everywhere = address.host in {"", "::"}
    try:
        if everywhere and socket.has_dualstack_ipv6():
            try:
                return _listening("::", address.port, dual=True)
            except OSError as error:
                if address.host or error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise  # else IPv6 is switched off on this node
        return _listening(address.host, address.port)
    except OSError as error:
        raise WebError(
            f"cannot listen on {address}", cause=(error.strerror or str(error)).lower(), fix=_fix(error)
        ) from error


def _listening(host: str, port: int, *, dual: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    opened.setblocking(False)
    return opened


def _fix(error: OSError) -> str:
    where = "set web.listen_address (--web.listen-address) to"
    match error.errno:
        case errno.EADDRINUSE:
            return f"end the process that uses the port (perhaps another gpusteward), or {where} a free port"
        case errno.EACCES:
            return f"{where} a port above 1023, or grant the capability NET_BIND_SERVICE"
        case _:
            return f"{where} an address of this machine, or to :9478 for all addresses"


class _Told(logging.Handler):
    """What aiohttp logs, in our words: a bug of ours is an error, what somebody sent that is no HTTP is not."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            log.debug("web.no_http", reason=error.message)
        else:
            log.error("web.failed", reason=record.getMessage(), exc_info=error)


def _logger() -> logging.Logger:
    logger = logging.Logger("exporter.web")  # noqa: LOG001  (ours alone: the process-wide one is somebody else's)
    logger.addHandler(_Told())
    return logger
