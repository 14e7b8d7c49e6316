"""A Kubernetes API client for tests: paths, JSON, and errors that carry the server's status.

In: credentials. Out: decoded JSON, as the API documents it. Law: it hides nothing and retries nothing.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import urllib.request
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiohttp

from cluster.certificates import Pair, trusting
from cluster.connecting import Connector
from patience import PATIENCE

T = TypeVar("T")
Object = dict[str, Any]

PATCHES: Final = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The identity of a client to an API server: by certificate, by bearer token, or none."""

    server: str
    authority: Path
    certificate: Pair | None = None
    token: str | None = None

    def with_token(self, token: str) -> Credentials:
        return replace(self, certificate=None, token=token)

    def ssl_context(self) -> ssl.SSLContext:
        context = trusting(self.authority)
        if self.certificate:
            context.load_cert_chain(self.certificate.certificate, self.certificate.key)
        return context

    def kubeconfig(self, file: Path) -> Path:
        """Write a kubeconfig (JSON, which is YAML too)."""
        user: Object = {"token": self.token} if self.token else {}
        if self.certificate:
            user = {"client-certificate": str(self.certificate.certificate), "client-key": str(self.certificate.key)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "bed", "cluster": {"server": self.server, "certificate-authority": str(self.authority)}}
            ],
            "users": [{"name": "bed", "user": user}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "bed"}}],
            "current-context": "bed",
        }
        file.touch(mode=0o600)
        file.write_text(json.dumps(content, indent=1))
        return file

    def get(self, path: str) -> Object:
        """One blocking GET, for those who start the bed. Raises OSError."""
        request = urllib.request.Request(self.server + path)
        with urllib.request.urlopen(request, context=self.ssl_context(), timeout=5) as answer:
            body = answer.read()
        found: Object = json.loads(body) if body.startswith(b"{") else {"text": body.decode()}
        return found


class ApiError(Exception):
    """The server refused: HTTP `status`, and `reason` and `message` of its Status object."""

    def __init__(self, status: int, body: Object) -> None:
        self.status = status
        self.reason = str(body.get("reason", ""))
        self.message = str(body.get("message", ""))
        self.body = body
        super().__init__(f"{status} {self.reason}: {self.message}")


class Api:
    """An async client; `async with Api(credentials) as api`. Paths are those of the API reference."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self.credentials.token}"} if self.credentials.token else {}
        connector = Connector(self.credentials.ssl_context(), limit=100)
        self._session = aiohttp.ClientSession(self.credentials.server, connector=connector, headers=headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, **query: str | int) -> Object:
        return await self._ask("GET", path, query=query)

    async def create(self, path: str, body: Object) -> Object:
        return await self._ask("POST", path, body=body)

    async def replace(self, path: str, body: Object) -> Object:
        return await self._ask("PUT", path, body=body)

    async def patch(self, path: str, body: Any, kind: str = "merge", **query: str | int) -> Object:
        return await self._ask("PATCH", path, body=body, query=query, content_type=PATCHES[kind])

    async def delete(self, path: str, **options: Any) -> Object:
        return await self._ask("DELETE", path, body={"kind": "DeleteOptions", "apiVersion": "v1", **options})

    @asynccontextmanager
    async def watch(self, path: str, **query: str | int) -> AsyncIterator[AsyncIterator[tuple[str, Object]]]:
        """(type, object) of each event, until the server ends the stream.

        async with api.watch("/api/v1/pods", resourceVersion=version) as events:
            async for kind, found in events: ...
        """
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(path, params={"watch": "1", **query}, timeout=timeout) as answer:
            if answer.status >= 400:
                raise ApiError(answer.status, await answer.json())
            yield _events(answer.content)

    async def evict(self, namespace: str, pod: str, **options: Any) -> Object:
        """Ask the Eviction API for one pod. 201 when granted; ApiError 429 when a PodDisruptionBudget forbids it."""
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        if options:
            body["deleteOptions"] = options
        return await self.create(f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)

    async def token(self, namespace: str, account: str) -> Credentials:
        """Credentials of a ServiceAccount, by a TokenRequest."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = await self.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body)
        return self.credentials.with_token(answer["status"]["token"])

    async def ready_pod(self, namespace: str, name: str) -> Object:
        """The pod, once it is Ready. Raises TimeoutError after a minute."""

        async def ready() -> Object | None:
            found = await self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
            conditions = {c["type"]: c["status"] for c in found["status"].get("conditions", [])}
            return found if conditions.get("Ready") == "True" else None

        return await until(ready, f"pod {namespace}/{name} to be ready")

    async def missing(self, path: str) -> bool:
        """Whether the object is gone."""
        try:
            await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return True
            raise
        return False

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: dict[str, str | int] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        headers = {"Content-Type": content_type} if body is not None else {}
        data = json.dumps(body) if body is not None else None
        async with self._session.request(method, path, params=query, data=data, headers=headers) as answer:
            text = await answer.text()
            found: Object = json.loads(text) if text.startswith("{") else {"message": text}
            if answer.status >= 400:
                raise ApiError(answer.status, found)
            return found


async def _events(lines: AsyncIterable[bytes]) -> AsyncIterator[tuple[str, Object]]:
    async for line in lines:
        event = json.loads(line)
        yield event["type"], event["object"]


async def until(condition: Callable[[], Awaitable[T | None]], what: str, within: float = PATIENCE) -> T:
    """
    Ask until the answer is true, and return it. Raises TimeoutError with what was awaited, and the last answer.

    What takes long is asked for less often, and after a long question there is a pause: an emulated node that was asked
    again at once had little time left for what was awaited.
    """
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        answer = await condition()
        if answer:
            return answer
        now = time.monotonic()
        if now > began + within:
            raise TimeoutError(f"after {within:.0f} s not yet: {what} (last answer: {answer!r})")
        await asyncio.sleep(max(0.1, min((now - began) / 20, 1.0), min(2 * (now - asked), 5.0)))
