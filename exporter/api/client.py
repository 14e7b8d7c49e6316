"""
The HTTP client for our own JSON documents: asks the daemon of a node.

What comes in: the daemon's address, and a path. What goes out: status and body, or `AskError` with one sentence.

The rule: one request, with a bound on time and size, and no redirect followed: any server may answer at this address.
Name and password go to the host of the URL alone, past the proxies of the environment, and are never shown.
"""

import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec

from exporter.base.problem import Problem
from exporter.limits.decoding import shown

DEADLINE = 10.0
"""Seconds for the whole request; the daemon answers from memory."""
LONGEST = 16 << 20
"""Bytes of an answer, at most."""
OK = 200
GARBLED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of reading JSON that may come from another program."""
_URL = "set --url to the address of a daemon, such as http://node-1:9478 or https://NAME:PASSWORD@node-1:9478"


class UrlError(Problem):
    """The URL cannot be requested. The message leaves out any part that may be a password."""


class AskError(Problem):
    """The daemon gave no usable answer; the message says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """
    The address of a daemon.

    Attributes:
        url: without name and password, without a slash at its end.
        login: the value of the header `Authorization`; empty without name and password.
    """

    url: str
    login: str = field(default="", repr=False)


class _Refused(msgspec.Struct, frozen=True):
    """An error of the daemon's API."""

    error: str


def daemon_at(text: str) -> Daemon:
    """Read a URL such as `https://name:password@node-1:9478`. Raises UrlError."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError as error:
        raise UrlError("the URL has no valid host and port", fix=_URL) from error
    if url.scheme not in {"http", "https"} or not host or not text.isprintable() or " " in text:
        raise UrlError("this is no URL of a daemon", fix=_URL)
    if url.query or url.fragment:
        raise UrlError("the URL has a query (?) or a fragment (#)", fix=_URL)
    where = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    login = f"{unquote(url.username or '')}:{unquote(url.password or '')}" if "@" in url.netloc else ""
    token = base64.b64encode(login.encode(errors="replace")).decode()
    return Daemon(f"{url.scheme}://{where}{url.path.rstrip('/')}", f"Basic {token}" if login else "")


async def asked(daemon: Daemon, path: str, query: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Send one request; return status and body. Raises AskError, which names network errors in plain words."""
    headers = {"Authorization": daemon.login} if daemon.login else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE), trust_env=False) as session,
            session.get(
                f"{daemon.url}{path}", params=query, headers=headers, allow_redirects=False, ssl=_trust(daemon)
            ) as answer,
        ):
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part
                if len(body) > LONGEST:
                    raise stranger(daemon, f"answers with more than {LONGEST} bytes")
            return answer.status, bytes(body)
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        raise AskError(
            f"{daemon.url}: its certificate is not trusted",
            cause=why,
            fix="set the variable SSL_CERT_FILE to the file of the certificate authority",
        ) from error
    except aiohttp.ClientConnectorSSLError as error:
        raise AskError(f"{daemon.url}: no TLS there: {_reason(error.os_error)}", fix="try http:// instead") from error
    except aiohttp.ClientConnectorError as error:
        raise AskError(
            f"{daemon.url}: {_reason(error.os_error)}",
            cause="no gpusteward listens at this address, or a network policy blocks it",
            fix="run this command in the daemon's pod, or set --url to the address of a daemon",
        ) from error
    except TimeoutError as error:
        raise AskError(
            f"{daemon.url} did not answer within {DEADLINE:.0f} s", fix="check that the daemon is running and reachable"
        ) from error
    except aiohttp.InvalidURL as error:
        raise AskError(f"{daemon.url} is no address", fix=_URL) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        fix = "check that a gpusteward listens there"
        raise AskError(
            f"{daemon.url} gives no HTTP answer",
            cause=shown(str(error)) or "the connection was closed",
            fix=fix if daemon.url.startswith("https") else f"try https://, or {fix}",
        ) from error


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
    return AskError(f"{daemon.url} {what}", cause="this is not the address of a gpusteward", fix=_URL)


def _trust(daemon: Daemon) -> ssl.SSLContext | bool:
    """Trust the system's authorities, or those of SSL_CERT_FILE, as Go's programs do, with every version of Python."""
    if not daemon.url.startswith("https:"):
        return True
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # from 3.13 on, it demands an Authority Key Identifier
    return context


def _reason(error: OSError) -> str:
    """Name the error as the system or OpenSSL does, in lower case. Failed name lookups have negative error numbers."""
    if isinstance(error, ssl.SSLError):
        return shown((error.reason or str(error)).replace("_", " ").lower())
    text = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return shown(text.lower())
