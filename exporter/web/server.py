"""
The HTTP server: its addresses, with or without TLS.

What comes in: the answers, one or two addresses, perhaps a web config. What goes out: a server for the time of an
`async with`.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from exporter.config import ConfigError
from exporter.config.reload import POLL, settled
from exporter.config.values import ListenAddress
from exporter.web import bounds
from exporter.web.app import Answers, application
from exporter.web.config import contents, load_security
from exporter.web.gate import Gate
from exporter.web.listener import Listener
from exporter.web.listening import listen

log = structlog.get_logger()


class Server:
    """
    Listens within an `async with`. Raises WebError or ConfigError on entering.

    When certificates are exchanged, new connections get the new ones, and those that stand keep theirs. The kubelet has
    no certificate: where one is required, it asks the probes at `probe_address`, which is plain HTTP.
    """

    def __init__(
        self,
        answers: Answers,
        address: ListenAddress,
        config_file: Path | None = None,
        probe_address: ListenAddress | None = None,
        *,
        poll: float = POLL,
    ) -> None:
        self._answers = answers
        self._address = address
        self._config_file = config_file
        self._probe_address = probe_address
        self._poll = poll
        self._gate = Gate()
        self._listeners: list[Listener] = []
        self._entered = AsyncExitStack()
        self._seen: tuple[bytes | str, ...] = ()
        self.fault: str | None = None
        """Why the web config in the file is not in force; None if it is."""

    @property
    def url(self) -> str:
        """Where the server is found, with the port that it really has."""
        return self._url(self._address, self._listeners[0], "https" if self._gate.security.tls else "http")

    @property
    def probe_url(self) -> str:
        """Where the probes are found; the same as `url` without an address of their own."""
        if self._probe_address is None:
            return self.url
        return self._url(self._probe_address, self._listeners[1], "http")

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The one of all answers, and perhaps the one of the probes."""
        return tuple(self._listeners)

    @staticmethod
    def _url(address: ListenAddress, listener: Listener, scheme: str) -> str:
        host = address.host or "localhost"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.port}"

    async def __aenter__(self) -> Self:
        if self._config_file is not None:
            self._seen = contents(self._config_file)
        self._gate.exchange(load_security(self._config_file))
        async with AsyncExitStack() as entering:
            opened = listen(self._address)
            app = application(self._answers.routes(), self._gate)
            main = Listener(app, opened, lambda: self._gate.security.tls, known=self._gate.known)
            self._listeners.append(await entering.enter_async_context(main))
            if self._probe_address is not None:
                opened = listen(self._probe_address, "web.probe_address")
                app = application(self._answers.probes(), Gate())
                probes = Listener(app, opened, most=bounds.PROBE_CONNECTIONS)
                self._listeners.append(await entering.enter_async_context(probes))
            self._entered = entering.pop_all()
        self._warn()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._entered.aclose()

    async def watch(self) -> None:
        """
        Apply changes of the web config and its certificates, until cancelled. Wrong settings are refused and reported.

        Raises the error that ended the accept loop: a server that accepts no connections must not look alive.
        """
        await asyncio.gather(*(listener.run() for listener in self._listeners), self._watch_config())

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
                self._warn()

    def _warn(self) -> None:
        if self._gate.security.certificates and self._probe_address is None:
            log.warning(
                "web.probes_need_a_certificate",
                reason="the web config requires client certificates, and the kubelet has none",
                fix='set web.probe_address, for instance to ":9479", and let the probes ask it',
            )
