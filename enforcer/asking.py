"""
The daemon on a node, asked for one pod's explanation over HTTP.

What comes in: where the daemon listens, and whose pod. What goes out: its document, or `AskError` with one sentence.

The law: whatever answers there, it is asked once, to a bound of time and size, and followed nowhere. Name and password
go to the host of the URL alone, past the proxies of the environment, and are never shown.
"""

import asyncio
import base64
import os
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec

from exporter.limits.decoding import shown

DEADLINE = 10.0
"""Seconds for all of it; the daemon answers from memory."""
LONGEST = 16 << 20
"""Bytes of an answer."""


class UrlError(ValueError):
    """The URL is none that can be asked; the message does not show what may be a password in it."""


class AskError(Exception):
    """The daemon did not explain; the message says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """
    Where a daemon listens.

    Attributes:
        url: without name and password, without a slash at its end.
        login: name and password, as the header wants them; empty without.

    """

    url: str
    login: str = field(default="", repr=False)


class _Explained(msgspec.Struct, frozen=True):
    """What each document of an explanation has; the rest is passed on as it is."""

    version: int
    program: str
    text: str


class _Refused(msgspec.Struct, frozen=True):
    """An error of the daemon's API; `near` comes with those about pods."""

    error: str
    near: list[str] | None = None


def daemon_at(text: str) -> Daemon:
    """Read a URL such as `https://name:password@node-1:9478`. Raises UrlError."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError as error:
        raise UrlError("no URL: its host or its port is malformed") from error
    if url.scheme not in {"http", "https"} or not host or not text.isprintable() or " " in text:
        raise UrlError("expected a URL such as http://node-1:9478 or https://NAME:PASSWORD@node-1:9478")
    if url.query or url.fragment:
        raise UrlError("expected where the daemon listens, without a query (?) or a fragment (#)")
    where = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    login = f"{unquote(url.username or '')}:{unquote(url.password or '')}" if "@" in url.netloc else ""
    token = base64.b64encode(login.encode(errors="replace")).decode()
    return Daemon(f"{url.scheme}://{where}{url.path.rstrip('/')}", f"Basic {token}" if login else "")


async def explained(daemon: Daemon, namespace: str, pod: str) -> tuple[str, dict[str, Any]]:
    """Ask for the explanation of a pod: the text for people, and the document without it. Raises AskError."""
    status, body = await _asked(daemon, {"namespace": namespace, "pod": pod})
    if status == 200:  # noqa: PLR2004
        try:
            text = msgspec.json.decode(body, type=_Explained).text
            document: dict[str, Any] = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _stranger(daemon, "answers something else than an explanation") from error
        del document["text"]
        return text, document
    raise _refused(daemon, status, body)


def _refused(daemon: Daemon, status: int, body: bytes) -> AskError:
    """Say what an answer other than an explanation means."""
    try:
        told = msgspec.json.decode(body, type=_Refused)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = None
    match status:
        case 401 if daemon.login:
            return AskError(f"{daemon.url} does not accept this name and password")
        case 401:
            return AskError(
                f"{daemon.url} wants a name and a password: put them into the URL, "
                "https://NAME:PASSWORD@HOST:PORT, best in the variable GPUSTEWARD_URL"
            )
        case 404 if told is not None and told.near is not None:
            return AskError(f"{told.error}; the daemon at {daemon.url} knows the pods of its own node")
        case 404 if told is not None:
            return AskError(f"{daemon.url} explains nothing: web.api is false there, or it is an older gpusteward")
        case _ if told is not None:
            return AskError(f"{daemon.url}: {told.error}")
        case _ if 300 <= status < 400:  # noqa: PLR2004
            return _stranger(daemon, "sends elsewhere; name with --url where")
        case _:
            return _stranger(daemon, f"answers with status {status}")


def _stranger(daemon: Daemon, what: str) -> AskError:
    return AskError(f"{daemon.url} {what}: this is not a gpusteward, or not its address")


async def _asked(daemon: Daemon, query: dict[str, str]) -> tuple[int, bytes]:
    """Ask once; names the errors of the network in words for people."""
    headers = {"Authorization": daemon.login} if daemon.login else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE), trust_env=False) as session,
            session.get(f"{daemon.url}/api/v1/explain", params=query, headers=headers, allow_redirects=False) as answer,
        ):
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part
                if len(body) > LONGEST:
                    raise _stranger(daemon, f"answers with more than {LONGEST} bytes")
            return answer.status, bytes(body)
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        raise AskError(
            f"{daemon.url}: its certificate is not trusted: {why} (SSL_CERT_FILE=FILE names the authority)"
        ) from error
    except aiohttp.ClientConnectorSSLError as error:
        raise AskError(f"{daemon.url}: no TLS can be had there: {_reason(error.os_error)}; is it http?") from error
    except aiohttp.ClientConnectorError as error:
        raise AskError(
            f"{daemon.url}: {_reason(error.os_error)}; no gpusteward listens there, or --url must say where"
        ) from error
    except TimeoutError as error:
        raise AskError(f"{daemon.url} did not answer within {DEADLINE:.0f} s") from error
    except aiohttp.InvalidURL as error:
        raise AskError(f"{daemon.url} is no address") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        wants_tls = "" if daemon.url.startswith("https") else "; is it https?"
        raise AskError(f"{daemon.url} gives no HTTP answer: {shown(str(error)) or 'it hangs up'}{wants_tls}") from error


def _reason(error: OSError) -> str:
    """Say it as the system or OpenSSL does, in lower case; names that cannot be resolved have negative numbers."""
    if isinstance(error, ssl.SSLError):
        return shown((error.reason or str(error)).replace("_", " ").lower())
    text = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return shown(text.lower())


def ask(daemon: Daemon, namespace: str, pod: str) -> tuple[str, dict[str, Any]]:
    """Do as `explained`, without an event loop of the caller's. Raises AskError."""
    return asyncio.run(explained(daemon, namespace, pod))
