"""
The answers of the API: JSON, also when they are errors.

What comes in: bytes, or a message. What goes out: responses.

The rule: a long answer is sent in parts, and no part before the one before was taken. So clients that take nothing all
wait for the same bytes, and none has a copy.
"""

from collections.abc import Mapping
from types import MappingProxyType

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from exporter.api.document import encoded
from exporter.web import bounds

JSON = "application/json; charset=utf-8"


class Shared(Payload):
    """Bytes that many answers share."""

    def __init__(self, pieces: tuple[bytes, ...]) -> None:
        super().__init__(pieces)
        self._pieces = pieces
        self._size = sum(map(len, pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the whole as text."""
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send it, as fast as it is taken."""
        for piece in self._pieces:
            view = memoryview(piece)
            for first in range(0, len(view), bounds.PART):
                await writer.write(view[first : first + bounds.PART])
                await writer.drain()


def shared(*pieces: bytes, headers: Mapping[str, str] = MappingProxyType({"Content-Type": JSON})) -> web.Response:
    """Answer with bytes that other answers use, too. `headers` name their type."""
    # One part never waits: as plain bytes it takes aiohttp fewer steps.
    short = len(pieces) == 1 and len(pieces[0]) <= bounds.PART
    return web.Response(body=pieces[0] if short else Shared(pieces), headers=headers)


def json_response(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Make a response of encoded JSON."""
    return web.Response(status=status, body=body, content_type="application/json", charset="utf-8", headers=headers)


def refusal(status: int, message: str, headers: dict[str, str] | None = None, **more: object) -> web.Response:
    """Make an error response of the API: `{"error": "one sentence"}`, perhaps with more keys."""
    return json_response(encoded({"error": message, **more}), status, headers)
