"""
The HTTP routes: metrics, probes, the JSON documents, the node page.

What comes in: `Latest`, and requests. What goes out: answers from memory; no request touches the driver, the kubelet or
the API server.

The rule: `/healthz` fails only if a restart would help, because the sampler has stopped; it does not depend on the
driver. `/readyz` succeeds once there is something to scrape (`readiness`). Neither needs authentication.

Requests are answered one by one, and between two of them everything else that waits for the event loop goes on. So a
flood of requests delays a step of a round, or of a look before an action, by one answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from exporter.api import schema
from exporter.api.document import Json, encoded, head, joined, tail
from exporter.api.explanation import PodNotHereError, explanation, gpu_users
from exporter.api.near import Names
from exporter.base.clock import Clock
from exporter.limits import Resolution
from exporter.metrics.exposition import Exposition
from exporter.model import PodUid, Snapshot
from exporter.rounds.judge import Judge
from exporter.rounds.latest import Latest
from exporter.rounds.readiness import waits_for
from exporter.web.gate import Gate
from exporter.web.page import node_page
from exporter.web.per_round import PerRound
from exporter.web.responses import json_response, refusal, shared

NO_ROUND = "no round has ended yet"
STUCK_AFTER = 30.0
"""Least seconds without a beat before `/healthz` fails; kubelets probe every ten."""

SERVER = "gpusteward"
"""Replaces the versions of Python and aiohttp. A request that is not HTTP still gets them, from aiohttp itself."""

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "deny",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Answers:
    """
    The handlers, and their sources.

    Attributes:
        interval: returns the present seconds between two full rounds.
        api: False leaves metrics and probes only.
        started: `clock.monotonic()` when the daemon started, because the first round may take a while.
        resolution: returns the resolution of a pod's limits; None for a pod that was not resolved.
        judge: the enforcer; None without one.

    """

    latest: Latest
    exposition: Exposition
    interval: Callable[[], float]
    clock: Clock
    program: str
    started: float
    api: bool = True
    resolution: Callable[[PodUid], Resolution | None] = lambda _uid: None
    judge: Judge | None = None
    documents: PerRound = field(default_factory=PerRound)

    def routes(self) -> list[web.RouteDef]:
        """List what there is; HEAD comes with each GET."""
        always = [web.get("/metrics", self.metrics), *self.probes()]
        api = [
            web.get("/api/v1/snapshot", self.snapshot),
            web.get("/api/v1/explain", self.explain),
            web.get("/", self.page),
        ]
        judged = [web.get("/api/v1/decisions", self.decisions), web.get("/api/v1/preview", self.preview)]
        return [*always, *api, *(judged if self.judge else ())] if self.api else always

    def probes(self) -> list[web.RouteDef]:
        """List what the kubelet asks."""
        return [web.get("/healthz", self.health), web.get("/readyz", self.readiness)]

    async def metrics(self, request: web.Request) -> web.Response:
        """Serve the metrics page."""
        page = self.exposition.page(
            now=self.clock.monotonic(),
            interval=self.interval(),
            accept=request.headers.get("Accept", ""),
            accept_encoding=request.headers.get("Accept-Encoding", ""),
        )
        return shared(page.body, headers=page.headers)

    async def health(self, _request: web.Request) -> web.Response:
        """Answer 200 while the sampler runs, also if its rounds fail; else 503."""
        still = self.clock.monotonic() - (self.started if self.latest.beat is None else self.latest.beat)
        if still > max(3 * self.interval(), STUCK_AFTER):
            return web.Response(status=503, text=f"the round scheduler has not moved for {still:.0f} s\n")
        return web.Response(text="ok\n")

    async def readiness(self, _request: web.Request) -> web.Response:
        """Answer 200 once there is something to scrape; before that 503 with the reasons, without names or secrets."""
        if self.latest.ready:
            return web.Response(text="ok\n")
        snapshot = self.latest.snapshot
        if snapshot is None:
            return web.Response(status=503, text=f"{NO_ROUND}\n")
        return web.Response(status=503, text=f"not ready yet: {', '.join(waits_for(snapshot))}\n")

    async def snapshot(self, _request: web.Request) -> web.Response:
        """Serve the latest snapshot as JSON."""
        if (latest := self.latest.snapshot) is None:
            return refusal(503, NO_ROUND)
        basis = self.judge.told if self.judge else None
        return self._document(latest, "snapshot", lambda: self._snapshot(latest), basis)

    async def explain(self, request: web.Request) -> web.Response:
        """Serve the sources of one pod's limits, and its present usage, as JSON."""
        namespace, pod = request.query.get("namespace", ""), request.query.get("pod", "")
        if not namespace or not pod:
            return refusal(400, "name a pod: /api/v1/explain?namespace=NAMESPACE&pod=POD")
        if (latest := self.latest.snapshot) is None:
            return refusal(503, NO_ROUND)
        policy, actions = (self.judge.standings, self.judge.actions) if self.judge else (None, None)

        def users() -> Names:
            return self.documents.get(latest, "users", lambda: gpu_users(latest))

        try:
            described = explanation(
                latest,
                namespace,
                pod,
                begin=self._head(latest),
                resolution=self.resolution,
                policy=policy,
                actions=actions,
                users=users,
            )
        except PodNotHereError as error:
            return refusal(404, str(error), near=error.near, actions=error.actions)
        return json_response(encoded(described))

    async def decisions(self, _request: web.Request) -> web.Response:
        """Serve the latest actions and refusals as JSON."""
        return self._judged("decisions", self.judge.decisions if self.judge else lambda: None)

    async def preview(self, _request: web.Request) -> web.Response:
        """Serve what enforcing would do right now, as JSON."""
        return self._judged("preview", self.judge.preview if self.judge else lambda: None)

    def _judged(self, name: str, describe: Callable[[], Json | None]) -> web.Response:
        latest = self.latest.snapshot
        if latest is None or self.judge is None or self.judge.told is None:
            return refusal(503, NO_ROUND)
        # What would be done is looked up once a round, because that takes longest; what was done, after each change.
        basis = None if name == "preview" else self.judge.told
        return self._document(latest, name, lambda: encoded(describe()), basis)

    def _snapshot(self, latest: Snapshot) -> bytes:
        policy = self.judge.summary() if self.judge else None
        return tail(latest, self.latest.tally, policy)

    def _document(self, latest: Snapshot, name: str, make: Callable[[], bytes], basis: object = None) -> web.Response:
        """Answer with a document of the round behind a head of its own, because the age in it grows."""
        rest = self.documents.get(latest, name, make, basis)
        return shared(*joined(self._head(latest), rest))

    def _head(self, latest: Snapshot) -> schema.Head:
        age = max(0.0, self.clock.monotonic() - latest.monotonic)
        return head(latest, age=age, interval=self.interval(), program=self.program)

    async def page(self, _request: web.Request) -> web.Response:
        """Serve the node page, with its own Content-Security-Policy."""
        page = node_page()
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": page.policy}
        return shared(page.body, headers=headers)


def application(routes: list[web.RouteDef], gate: Gate) -> web.Application:
    """Put routes behind the gate."""
    turn = asyncio.Lock()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        await turn.acquire()
        # The lock is released in the next step of the event loop. Released at once, it would let all requests that
        # wait be answered in this step.
        asyncio.get_running_loop().call_soon(turn.release)
        if (refused := await gate.refuses(request)) is not None:
            return refused
        try:
            response = await handler(request)
        except web.HTTPException as error:
            if not request.path.startswith("/api/"):
                raise
            allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
            return refusal(error.status, error.reason.lower(), allowed)
        gate.answered(request, response.status)
        return response

    async def prepare(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = SERVER
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.update(gate.security.headers)

    app = web.Application(middlewares=[guard])
    app.add_routes(routes)
    app.on_response_prepare.append(prepare)
    return app
