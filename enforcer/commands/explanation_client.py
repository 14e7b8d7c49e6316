"""
The daemon on a node, asked for one pod's explanation.

What comes in: where the daemon listens, and whose pod. What goes out: its document, or `AskError` with one sentence.

The rule: that of `exporter.api.client`. A pod that the node does not have differs from a daemon that explains nothing.
"""

import asyncio
from typing import Any

import msgspec

from exporter.api.client import GARBLED, OK, AskError, Daemon, asked, refused, stranger

ABSENT = 404


class _Explained(msgspec.Struct, frozen=True):
    """What each document of an explanation has; the rest is passed on as it is."""

    version: int
    program: str
    text: str


class _NotHere(msgspec.Struct, frozen=True):
    """The answer about a pod that is not on the node; `near` comes with no other error."""

    error: str
    near: list[str]


async def explained(daemon: Daemon, namespace: str, pod: str) -> tuple[str, dict[str, Any]]:
    """Ask for the explanation of a pod: the text for people, and the document without it. Raises AskError."""
    status, body = await asked(daemon, "/api/v1/explain", {"namespace": namespace, "pod": pod})
    if status == OK:
        try:
            text = msgspec.json.decode(body, type=_Explained).text
            document: dict[str, Any] = msgspec.json.decode(body)
        except GARBLED as error:
            raise stranger(daemon, "answers something else than an explanation") from error
        del document["text"]
        return text, document
    if status == ABSENT and (why := _not_here(body)):
        raise AskError(f"{why}; the daemon at {daemon.url} knows the pods of its own node")
    raise refused(daemon, status, body, "explains nothing")


def ask(daemon: Daemon, namespace: str, pod: str) -> tuple[str, dict[str, Any]]:
    """Do as `explained`, without an event loop of the caller's. Raises AskError."""
    return asyncio.run(explained(daemon, namespace, pod))


def _not_here(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_NotHere).error
    except GARBLED:
        return ""
