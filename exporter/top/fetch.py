"""
A daemon's snapshot, asked for and read.

What comes in: where the daemon listens, or bytes. What goes out: the bytes, and the document that they are, or
`AskError`.
"""

import msgspec

from exporter.api.client import GARBLED, OK, Daemon, asked, refused, stranger
from exporter.api.schema import VERSION, Document, Whole

PATH = "/api/v1/snapshot"


class NotOursError(ValueError):
    """These bytes are no snapshot that can be read here; the message goes on from "answers"."""


class _AnyVersion(msgspec.Struct, frozen=True):
    version: Whole
    node: str


async def snapshot(daemon: Daemon) -> tuple[bytes, Document]:
    """Ask for the latest snapshot: as it came, and read. Raises AskError."""
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
