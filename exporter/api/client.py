"""
The client for our own JSON documents: asks the daemon of a node.

What comes in: the daemon's address, and a path. What goes out: status and body, or `AskError` with one sentence.

The rule: an answer is read as ours, or explained: an error of the daemon's API, or another program at this address.
"""

from collections.abc import Mapping

import msgspec

from exporter.base import http_client
from exporter.base.http_client import OK, AskError, Kind, Server, UrlError, server_at

GARBLED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of reading JSON that may come from another program."""
DAEMON = Kind(
    name="gpusteward",
    noun="daemon",
    address="set --url to the address of a daemon, such as http://node-1:9478 or https://NAME:PASSWORD@node-1:9478",
    reach="run this command in the daemon's pod, or set --url to the address of a daemon",
    deadline=10.0,  # the daemon answers from memory
    longest=16 << 20,
)
Daemon = Server


class _Refused(msgspec.Struct, frozen=True):
    """An error of the daemon's API."""

    error: str


def daemon_at(text: str) -> Daemon:
    """Read a URL such as `https://name:password@node-1:9478`. Raises UrlError."""
    return server_at(text, DAEMON)


async def asked(daemon: Daemon, path: str, query: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Send one request; return status and body. Raises AskError, which names network errors in plain words."""
    return await http_client.asked(daemon, DAEMON, path, query)


def refused(daemon: Daemon, status: int, body: bytes, lacking: str) -> AskError:
    """Explain a status other than 200; `lacking`: how a daemon without this document is described ("shows nothing")."""
    try:
        answer = msgspec.json.decode(body, type=_Refused)
    except GARBLED:
        answer = None
    match status:
        case 401 if daemon.login:
            return AskError(
                f"{daemon.url} does not accept this name and password", fix="use a name and password of its web config"
            )
        case 401:
            return AskError(
                f"{daemon.url} needs a name and a password",
                fix="set the variable GPUSTEWARD_URL to https://NAME:PASSWORD@HOST:PORT",
            )
        case 404 if answer is not None:
            return AskError(
                f"{daemon.url} {lacking}",
                cause="web.api is false there, or it is an older gpusteward",
                fix="set web.api to true in its config, or upgrade it",
            )
        case _ if answer is not None:
            fix = "try again in some seconds, then read the daemon's log"
            return AskError(f"{daemon.url}: {answer.error}", fix=fix)
        case _ if 300 <= status < 400:  # noqa: PLR2004
            return stranger(daemon, "redirects to another address")
        case _:
            return stranger(daemon, f"answers with status {status}")


def stranger(daemon: Daemon, what: str) -> AskError:
    """Make the error that says that another program answers there."""
    return http_client.stranger(daemon, DAEMON, what)


__all__ = ["DAEMON", "GARBLED", "OK", "AskError", "Daemon", "UrlError", "asked", "daemon_at", "refused", "stranger"]
