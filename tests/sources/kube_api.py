"""
A small HTTP server in the place of an API server: for what a real one does not do at will, and for looking at requests.

    async with serving(answer) as server:    # `answer` is a coroutine function from a request to a response
        server.url, server.seen              # where it is; each request's path, query and headers

What a real API server does is tried with a real one, in tests/cluster.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from patience import PATIENCE

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Object = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(slots=True)
class Server:
    """A server that runs."""

    url: str
    seen: list[Seen] = field(default_factory=list)


@asynccontextmanager
async def serving(answer: Answer, *, context: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Server]:
    """Serve on 127.0.0.1, with TLS when there is a context."""
    server = Server("")

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        server.seen.append(Seen(request.path, dict(request.query), dict(request.headers)))
        return await answer(request)  # type: ignore[arg-type]

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=context)
        await site.start()
        host, bound = runner.addresses[0][:2]
        server.url = f"{'https' if context else 'http'}://{host}:{bound}"
        yield server
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], T | None], within: float = PATIENCE) -> T:
    """Wait until the condition is true, and return what it gave."""
    deadline = time.monotonic() + within
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {within:.0f} s not yet; last answer: {found!r}")
        await asyncio.sleep(0.005)


def refusal(code: int, reason: str, *, causes: tuple[str, ...] = (), retry_after: int | None = None) -> web.Response:
    """Answer as the API server refuses, with a Status object."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.json_response(status(code, reason, causes=causes), status=code, headers=headers)


def status(code: int, reason: str, *, causes: tuple[str, ...] = ()) -> Object:
    """Make a Status object (meta/v1)."""
    details = {"causes": [{"reason": cause} for cause in causes]}
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no", "details": details}


def kubeconfig(file: Path, server: str, *, user: Object | None = None, authority: Path | None = None) -> str:
    """Write a kubeconfig (JSON, which is YAML too) and return its path."""
    cluster = {"server": server} | ({"certificate-authority": str(authority)} if authority else {})
    content = {
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": user or {}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    file.write_text(json.dumps(content))
    return str(file)


def pod(
    name: str = "p",
    uid: str = "uid-1",
    *,
    node: str = "n1",
    namespace: str = "ns",
    version: str = "1",
    metadata: Object | None = None,
    spec: Object | None = None,
    status: Object | None = None,
) -> Object:
    """Make a pod as the API writes it; the last three add to what stands here or replace it."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": version,
            "creationTimestamp": "2026-11-01T10:00:00Z",
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
            **(metadata or {}),
        },
        "spec": {"nodeName": node, "containers": [{"name": "main"}], **(spec or {})},
        "status": {"phase": "Running", **(status or {})},
    }


def listing(*pods: Object, version: str = "10") -> bytes:
    """Write a list of pods."""
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": list(pods)}
    return json.dumps(body).encode()


def event(kind: str, thing: Object) -> bytes:
    """Write a line of a watch, without its line feed."""
    return json.dumps({"type": kind, "object": thing}).encode()


def bookmark(version: str) -> bytes:
    """Write a bookmark."""
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})
