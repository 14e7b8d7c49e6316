"""
One connection: aiohttp's, with bounds on what its client may send, and on the time that it may take for an answer.

What comes in: bytes of a stranger. What goes out: requests, and answers.

aiohttp bounds a line, a header and the number of headers and of queued requests; their product is 32 MB a connection.
So the bytes between two answers are bounded, too. A usual client sends one request, and waits.
"""

import asyncio

from aiohttp import web

from exporter.web import bounds

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Connection(web.RequestHandler):
    """Serves the requests of one client, one after the other."""

    __slots__ = ("_answering", "_unanswered")

    _unanswered: int
    _answering: bool

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; copy little of an answer ahead of the client."""
        self._unanswered, self._answering = 0, False
        if isinstance(transport, asyncio.WriteTransport):
            transport.set_write_buffer_limits(high=bounds.UNSENT)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless there are more than any usual request has."""
        self._unanswered += len(data)
        if self._unanswered <= bounds.REQUESTS:
            super().data_received(data)
        elif self.transport is not None:
            if not self._answering:  # a refusal in the middle of an answer would be read as a part of it
                self.transport.write(TOO_LARGE)
            self.force_close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer; end the connection if the client does not take it in time."""
        self._answering = True
        # aiohttp forgets the transport of a connection that it closes, also while a client takes none of its bytes.
        late = asyncio.get_running_loop().call_later(bounds.TAKE, _abort, self.transport)
        try:
            ended = await super().finish_response(request, resp, start_time)
        finally:
            late.cancel()
        self._unanswered, self._answering = 0, False
        return ended


def _abort(transport: asyncio.Transport | None) -> None:
    # asyncio raises AttributeError when a transport is aborted that has flushed its last bytes and closed.
    if transport is not None and transport.get_extra_info("socket").fileno() >= 0:
        transport.abort()
