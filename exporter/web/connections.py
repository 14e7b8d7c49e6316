"""
Accepts connections, and closes the oldest ones.

What comes in: a listening socket, the TLS settings in force, and the peers that were answered before. What goes out:
connections, each with a handler.

The rule: strangers never hold the open files and the memory that the rounds need, and never keep a probe out. So the
number of connections is bounded, silent ones and unfinished handshakes counted. A new one is always let in, and
`peers` says which one goes.

asyncio's own accept loop has no bound, and reports a lack of open files with a hundred tracebacks (Python 3.11).
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Container
from dataclasses import dataclass

import structlog

from exporter.web import bounds
from exporter.web.peers import gives_way, peer_of

PAUSE = 1.0
"""Seconds until the next attempt if the process has no open file left."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Entered:
    peer: str
    end: Callable[[], object]
    shaking: bool = False


class Entrance:
    """
    Accepts connections and counts them. `tls` returns the TLS settings for a new one; None is plain HTTP.

    `most` says how many there may be, with TLS or without, and how many of one peer. The caller closes the listening
    socket.
    """

    def __init__(
        self,
        listening: socket.socket,
        handler: Callable[[], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext | None],
        *,
        most: Callable[[bool], tuple[int, int]],
        known: Container[str] = (),
    ) -> None:
        self._listening = listening
        self._handler = handler
        self._tls = tls
        self._most = most
        self._known = known
        self._entered: dict[socket.socket, _Entered] = {}

    async def run(self) -> None:
        """Accept connections until cancelled. Open connections stay open then."""
        async with asyncio.TaskGroup() as entering:
            while True:
                connection, peer = await self._next()
                tls = self._tls()
                self._make_room(peer, shaking=tls is not None)
                task = entering.create_task(self._enter(connection, tls), name="entering")
                self._entered[connection] = _Entered(peer, task.cancel, shaking=tls is not None)
                await asyncio.sleep(0)  # what is there at once is let in one by one, so that no flood holds the loop

    def close(self) -> None:
        """End all connections at once, also those whose client takes no answer."""
        self._forget_closed()
        for entered in self._entered.values():
            entered.end()
        self._entered.clear()

    def _forget_closed(self) -> None:
        # asyncio raises AttributeError when a transport is aborted that has flushed its last bytes and closed.
        self._entered = {
            connection: entered for connection, entered in self._entered.items() if connection.fileno() >= 0
        }

    def _make_room(self, newcomer: str, *, shaking: bool) -> None:
        self._forget_closed()
        if shaking:
            hands = {socket: entered.peer for socket, entered in self._entered.items() if entered.shaking}
            self._let_go(hands, newcomer, bounds.HANDSHAKES, bounds.HANDSHAKES)
        peers = {socket: entered.peer for socket, entered in self._entered.items()}
        self._let_go(peers, newcomer, *self._most(shaking))

    def _let_go(self, peers: dict[socket.socket, str], newcomer: str, most: int, of_a_peer: int) -> None:
        # Several go where TLS was switched on, which allows fewer.
        while (gone := gives_way(peers, newcomer, most=most, of_a_peer=of_a_peer, known=self._known)) is not None:
            del peers[gone]
            self._entered.pop(gone).end()

    async def _enter(self, connection: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop, end = asyncio.get_running_loop(), bounds.HANDSHAKE if tls else None
        try:
            transport, _ = await loop.connect_accepted_socket(
                self._handler, connection, ssl=tls, ssl_handshake_timeout=end, ssl_shutdown_timeout=end
            )
        except OSError as error:  # the client has left, or does not speak TLS
            log.debug("web.no_handshake", reason=str(error))
            # Error and traceback hold one another, and some 300 kB of the handshake, until Python looks for cycles.
            error.__traceback__ = None
            return
        if (entered := self._entered.get(connection)) is not None:
            entered.end, entered.shaking = transport.abort, False

    async def _next(self) -> tuple[socket.socket, str]:
        loop, reported = asyncio.get_running_loop(), False
        while True:
            try:
                connection, address = await loop.sock_accept(self._listening)
            except ConnectionAbortedError:  # it came and went
                continue
            except OSError as error:
                if not reported:
                    reason = (error.strerror or str(error)).lower()
                    log.error("web.accept_failed", reason=reason, fix="raise the limit of open files (ulimit -n)")  # noqa: TRY400
                reported = True
                await asyncio.sleep(PAUSE)
            else:
                return connection, peer_of(address[0])
