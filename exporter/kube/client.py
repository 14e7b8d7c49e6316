"""
The only place that speaks HTTP to Kubernetes.

What comes in: the source of the credentials, paths and queries of the API reference. What goes out: the server's bytes,
for others to decode; or a `KubeError` for any failure.

The rule: it reads. No method can change anything in the cluster: the one POST asks for our rights, and the server
stores nothing of it. Credentials are read again once a minute, and at once when the server refuses them, so that a
rotated token costs nothing.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
import structlog

from exporter.base.clock import Clock
from exporter.base.secrets import hidden, without
from exporter.kube.credentials import Access, Credentials
from exporter.kube.errors import INVALID, SILENT, UNREACHABLE, KubeError, UnsentError, decoded, status_error

log = structlog.get_logger()

USER_AGENT = "gpusteward"
JSON: Mapping[str, str] = {"Accept": "application/json"}
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""The media type for the metadata alone: the server leaves out the rest, and the same right is enough."""
REQUEST = 10.0
"""Seconds for one request."""
RENEWAL = 60.0
"""Seconds between two readings of the credentials. The kubelet writes a new token when 80 % of its hour are over."""
RENEWAL_AGAIN = 5.0
"""... when they could not be read: a file may be empty because it is being written."""
LONGEST_LINE = 16 * 2**20
"""Bytes of one watch event. etcd accepts objects of up to 1.5 MB; aiohttp's own line reader gives up at 128 kB."""
LONGEST_REFUSAL = 64 * 2**10
BEFORE_SENDING = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)
"""Errors before a request is sent: no address, no connection, no trust, a proxy that does not work."""
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Request:
    """A request; our identity is added to the headers."""

    path: str
    query: Mapping[str, str]
    limits: aiohttp.ClientTimeout
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    body: Mapping[str, object] | None = None


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool


class _Review(msgspec.Struct, frozen=True):
    """The answer to a SelfSubjectAccessReview."""

    status: _Verdict


_REVIEW = msgspec.json.Decoder(_Review)


class Client:
    """Asks one API server, with a deadline for each request."""

    _follows: ClassVar[bool] = True
    """A request goes where a redirect sends it."""

    def __init__(self, credentials: Credentials, *, clock: Clock, deadline: float = REQUEST) -> None:
        self._credentials = credentials
        self._clock = clock
        self._deadline = deadline
        self._access = Access()
        self._session: aiohttp.ClientSession | None = None
        self._renew_at = 0.0
        self._unreadable = ""  # why the credentials could not be read last time
        self._renewing = asyncio.Lock()

    @property
    def server(self) -> str:
        """The URL of the server without name and password, once the credentials were read."""
        return hidden(self._access.server)

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = "application/json"
    ) -> bytes:
        """Read an object or a list. Raises KubeError."""
        limits = aiohttp.ClientTimeout(total=self._deadline)
        return await self._read(Request(path, query or {}, limits, headers={"Accept": accept}))

    async def may(
        self, verb: str, group: str, resource: str, name: str | None = None, namespace: str | None = None
    ) -> bool:
        """
        Ask whether we have a right, by a SelfSubjectAccessReview; without `namespace`, in all of them.

        A POST that changes nothing: the server answers it and stores nothing. Raises KubeError.
        """
        asked = {"verb": verb, "group": group, "resource": resource, "name": name, "namespace": namespace}
        spec = {"resourceAttributes": {key: value for key, value in asked.items() if value is not None}}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        limits = aiohttp.ClientTimeout(total=self._deadline)
        answer: _Review = decoded(_REVIEW, await self._read(Request(REVIEWS, {}, limits, "POST", body=review)))
        return answer.status.allowed

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, seconds: int, idle: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """
        Open a watch; inside, iterate over its lines, which end when the server ends them.

        `seconds` is the time after which the server ends it. A line must come within `idle` seconds; where
        anything changes, the server sends a bookmark about once a minute. Raises KubeError, also while iterating.
        """
        limits = aiohttp.ClientTimeout(total=seconds + idle, sock_connect=self._deadline, sock_read=idle)
        query = {**query, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        answer = await self._open(Request(path, query, limits))
        try:
            yield _lines(answer.content)
        finally:
            answer.close()

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _read(self, request: Request) -> bytes:
        return (await self._exchange(request))[1]

    async def _exchange(self, request: Request) -> tuple[int, bytes]:
        """Send a request; return HTTP's status and the body."""
        answer = await self._open(request)
        try:
            return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._renamed(error) from error
        finally:
            answer.release()

    async def _open(self, request: Request) -> aiohttp.ClientResponse:
        """Send a request, and return the answer as soon as its headers are here. The caller must release it."""
        try:
            async with asyncio.timeout(self._deadline):
                answer = await self._authorized(request)
                if answer.status < 300:  # noqa: PLR2004
                    return answer
                try:
                    raise await self._refusal(answer)
                finally:
                    answer.close()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RuntimeError) as error:
            # ValueError: an impossible URL or header. RuntimeError: another request closed the session meanwhile.
            if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
                await self.close()  # the authority may have been replaced: the next request reads it again
            raise self._renamed(error) from error

    async def _authorized(self, request: Request) -> aiohttp.ClientResponse:
        """Send; if the credentials are refused and new ones exist, send once more with those."""
        await self._renew()
        used = self._access.authorization
        answer = await self._send(request)
        if answer.status == 401:  # noqa: PLR2004
            self._renew_at = 0.0
            await self._renew()
            if self._access.authorization != used:
                answer.release()
                return await self._send(request)
        return answer

    async def _send(self, request: Request) -> aiohttp.ClientResponse:
        access = self._access
        if self._session is None:
            self._session = _session(access)
        headers, data = dict(request.headers), None
        if access.authorization:
            headers["Authorization"] = access.authorization
        if request.body is not None:
            headers.setdefault("Content-Type", "application/json")
            data = json.dumps(request.body).encode()
        query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
        return await self._session.request(
            request.method,
            f"{access.server}{request.path}{query}",
            headers=headers,
            data=data,
            timeout=request.limits,
            allow_redirects=self._follows,
            proxy=access.proxy,
            server_hostname=access.server_name,
        )

    async def _renew(self) -> None:
        """Read the credentials when they are due. If that fails, the last ones stay in use: the server decides."""
        async with self._renewing:
            now = self._clock.monotonic()
            if self._session is not None and now < self._renew_at:
                return
            pause, why = RENEWAL, ""
            try:
                self._access = await self._read_credentials()
            except KubeError as error:
                if self._session is None:
                    raise
                pause, why = RENEWAL_AGAIN, error.message
            if why and why != self._unreadable:
                log.warning("kube.credentials_unreadable", message=why, effect="the last credentials stay in use")
            self._unreadable = why
            self._renew_at = now + pause

    async def _read_credentials(self) -> Access:
        """Read all again. Raises KubeError, also if a token is missing that was there before: it is being written."""
        fresh = await self._credentials()
        # A line feed at the end of the file would make an invalid header.
        authorization = fresh.authorization.strip()
        empty = authorization and len(authorization.split()) < 2  # noqa: PLR2004  (the word Bearer)
        if empty or (self._access.authorization and not authorization):
            raise UnsentError(UNREACHABLE, "NotConfigured", "the token is empty")
        return replace(fresh, authorization=authorization)

    def _renamed(self, error: Exception) -> KubeError:
        server = self.server
        renamed = UnsentError if isinstance(error, BEFORE_SENDING) else KubeError
        if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
            return renamed(UNREACHABLE, "Untrusted", f"{server}: {error}")
        if isinstance(error, TimeoutError):
            return renamed(UNREACHABLE, "Timeout", f"{server} did not answer in time")
        return renamed(UNREACHABLE, "Unreachable", f"{server}: {error or type(error).__name__}")

    async def _refusal(self, answer: aiohttp.ClientResponse) -> KubeError:
        """Read a refusal. A proxy may send our request back, with the token in it."""
        if answer.status < 400:  # noqa: PLR2004
            return KubeError(UNREACHABLE, "Redirected", f"{answer.url}: {answer.status} to another place")
        body = b""
        async for chunk in answer.content.iter_any():
            body += chunk
            if len(body) > LONGEST_REFUSAL:
                break
        token = self._access.authorization.rpartition(" ")[2]
        written, reason = (without(text, token) for text in (body.decode(errors="replace"), str(answer.reason)))
        after = answer.headers.get("Retry-After", "")
        seconds = float(after) if after.isascii() and after.isdigit() else None
        text = written[:200].strip()
        otherwise = KubeError(answer.status, reason, text or "no explanation", seconds)
        return status_error(written.encode(), otherwise)


def segment(name: str) -> str:
    """Quote a name as one part of a path."""
    return quote(name, safe="")


def _session(access: Access) -> aiohttp.ClientSession:
    """Open a pool of connections, by way of the proxy in the environment if there is one. Raises OSError."""
    # Without TLS there is nothing to trust: to read the system's authorities takes 30 ms of CPU.
    plain = access.server.lower().startswith("http:")
    connector = aiohttp.TCPConnector(ssl=True if plain else access.tls())
    return aiohttp.ClientSession(connector=connector, trust_env=True, headers={"User-Agent": USER_AGENT})


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Cut the stream into lines. A part after the last line feed is incomplete, and is asked for again."""
    rest = bytearray()
    try:
        async for chunk in content.iter_any():
            rest += chunk
            if b"\n" in chunk:
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    yield bytes(line)
            if len(rest) > LONGEST_LINE:
                raise KubeError(UNREACHABLE, INVALID, f"a watch event is longer than {LONGEST_LINE} bytes")
    except TimeoutError as error:
        raise KubeError(UNREACHABLE, SILENT, "the watch says nothing any more, not even bookmarks") from error
    except (aiohttp.ClientError, OSError) as error:
        raise KubeError(UNREACHABLE, "Dropped", f"the watch broke off: {error or type(error).__name__}") from error
