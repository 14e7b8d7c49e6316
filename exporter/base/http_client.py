"""
One HTTP request to another program, and its failures in plain words.

What comes in: an address, a path, and the kind of program that should listen there. What goes out: status and body, or
an error with its cause and its fix.

The rule: one request, with a bound on time and size, and no redirect followed: any server may answer at this address.
Name, password and token go to the host of the URL alone, past the proxies of the environment, and are never shown.
"""

import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import aiohttp

from exporter.base.printable import printable
from exporter.base.problem import Problem

OK = 200


class UrlError(Problem):
    """The URL cannot be requested. The message leaves out any part that may be a password."""


class AskError(Problem):
    """The program gave no usable answer; the message says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Kind:
    """
    The kind of program that is asked.

    Attributes:
        name: of the program, such as `gpusteward`.
        noun: for one of them, such as `daemon`.
        address: what to set to which address, for the line `fix:`.
        reach: what to do if nothing listens there, for the line `fix:`.
        deadline: seconds for the whole request.
        longest: bytes of an answer, at most.
    """

    name: str
    noun: str
    address: str
    reach: str
    deadline: float
    longest: int


@dataclass(frozen=True, slots=True)
class Server:
    """
    The address of a program.

    Attributes:
        url: without name and password, without a slash at its end.
        login: the value of the header `Authorization`; empty without name and password.
    """

    url: str
    login: str = field(default="", repr=False)


def server_at(text: str, kind: Kind) -> Server:
    """Read a URL such as `https://name:password@host:9090/path`. Raises UrlError."""
    encode = "in a name or password write / as %2F, : as %3A, @ as %40, ? as %3F, # as %23"
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError as error:
        fix = encode if "@" in text else kind.address
        raise UrlError("the URL has no valid host and port", fix=fix) from error
    if "@" in url.path + url.query + url.fragment:
        raise UrlError("the URL has an @ behind its host", fix=encode)
    if url.scheme not in {"http", "https"} or not host or not text.isprintable() or " " in text:
        raise UrlError(f"this is no URL of a {kind.noun}", fix=kind.address)
    if url.query or url.fragment:
        raise UrlError("the URL has a query (?) or a fragment (#)", fix=kind.address)
    where = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    login = f"{unquote(url.username or '')}:{unquote(url.password or '')}" if "@" in url.netloc else ""
    token = base64.b64encode(login.encode(errors="replace")).decode()
    return Server(f"{url.scheme}://{where}{url.path.rstrip('/')}", f"Basic {token}" if login else "")


async def asked(server: Server, kind: Kind, path: str, query: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Send one GET; return status and body. Raises AskError, which names network errors in plain words."""
    headers = {"Authorization": server.login} if server.login else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=kind.deadline), trust_env=False) as session,
            session.get(
                f"{server.url}{path}", params=query, headers=headers, allow_redirects=False, ssl=_trust(server)
            ) as answer,
        ):
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part
                if len(body) > kind.longest:
                    raise stranger(server, kind, f"answers with more than {kind.longest} bytes")
            return answer.status, bytes(body)
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        raise AskError(
            f"{server.url}: its certificate is not trusted",
            cause=why,
            fix="set the variable SSL_CERT_FILE to the file of the certificate authority",
        ) from error
    except aiohttp.ClientConnectorSSLError as error:
        raise AskError(f"{server.url}: no TLS there: {_reason(error.os_error)}", fix="try http:// instead") from error
    except aiohttp.ClientConnectorError as error:
        raise AskError(
            f"{server.url}: {_reason(error.os_error)}",
            cause=f"no {kind.name} listens at this address, or a network policy blocks it",
            fix=kind.reach,
        ) from error
    except TimeoutError as error:
        fix = f"check that {kind.name} is running and reachable"
        raise AskError(f"{server.url} did not answer within {kind.deadline:.0f} s", fix=fix) from error
    except aiohttp.InvalidURL as error:
        raise AskError(f"{server.url} is no address", fix=kind.address) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        fix = f"check that a {kind.name} listens there"
        raise AskError(
            f"{server.url} gives no HTTP answer",
            cause=_shown(str(error)) or "the connection was closed",
            fix=fix if server.url.startswith("https") else f"try https://, or {fix}",
        ) from error


def stranger(server: Server, kind: Kind, what: str) -> AskError:
    """Make the error that says that another program answers there."""
    return AskError(f"{server.url} {what}", cause=f"this is not the address of a {kind.name}", fix=kind.address)


def _trust(server: Server) -> ssl.SSLContext | bool:
    """Trust the system's authorities, or those of SSL_CERT_FILE, as Go's programs do, with every version of Python."""
    if not server.url.startswith("https:"):
        return True
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # from 3.13 on, it demands an Authority Key Identifier
    return context


def _reason(error: OSError) -> str:
    """Name the error as the system or OpenSSL does, in lower case. Failed name lookups have negative error numbers."""
    if isinstance(error, ssl.SSLError):
        return _shown((error.reason or str(error)).replace("_", " ").lower())
    text = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return _shown(text.lower())


def _shown(text: str) -> str:
    return printable(text[:200])
