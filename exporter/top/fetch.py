"""
Fetches and parses a daemon's snapshot.

What comes in: the daemon's address, or bytes. What goes out: the bytes, and the document in them, or `AskError`.
"""

import msgspec

from exporter.api.client import GARBLED, OK, Daemon, asked, refused, stranger
from exporter.api.schema import VERSION, Document, Whole

PATH = "/api/v1/snapshot"


class NotOursError(ValueError):
    """These bytes are no readable snapshot; the message continues a sentence after "answers"."""


class _AnyVersion(msgspec.Struct, frozen=True):
    version: Whole
    node: str


async def snapshot(daemon: Daemon) -> tuple[bytes, Document]:
    """Fetch the latest snapshot; return its bytes and the document. Raises AskError."""
    status, body = await asked(daemon, PATH)
    if status != OK:
        raise refused(daemon, status, body, "shows nothing")
    try:
        return body, parse(body)
    except NotOursError as error:
        raise stranger(daemon, f"answers {error}") from error


def parse(body: bytes) -> Document:
    """Read a document. Raises NotOursError."""
    try:
        version = msgspec.json.decode(body, type=_AnyVersion).version
        if version == VERSION:
            return msgspec.json.decode(body, type=Document)
    except GARBLED as error:
        raise NotOursError("something else than a snapshot") from error
    raise NotOursError(f"version {version} of the document, and this program reads {VERSION}")
