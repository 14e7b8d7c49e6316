"""
A daemon's snapshot, asked for.

What comes in: where the daemon listens. What goes out: the document's bytes, and what was read of them, or `AskError`.
"""

from exporter.api.client import OK, Daemon, asked, refused, stranger
from exporter.top.document import Document, NotOursError, parse

PATH = "/api/v1/snapshot"


async def snapshot(daemon: Daemon) -> tuple[bytes, Document]:
    """Ask for the latest snapshot: as it came, and read. Raises AskError."""
    status, body = await asked(daemon, PATH)
    if status != OK:
        raise refused(daemon, status, body, "shows nothing")
    try:
        return body, parse(body)
    except NotOursError as error:
        raise stranger(daemon, f"answers {error}") from error
