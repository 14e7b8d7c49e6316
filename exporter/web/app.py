"""
The HTTP face: metrics, probes, the JSON documents, the node page.

What comes in: `Latest`, and requests. What goes out: answers from memory; no request touches the driver, the kubelet or
the API server.

The law: `/healthz` asks whether a restart would help (does the round scheduler move?), never whether the driver
answers; `/readyz` asks whether there is something to scrape (`readiness`). Both stay open when authentication is on.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from aiohttp import web

from exporter.api import schema
from exporter.api.document import Json, encoded, head, render
from exporter.api.explanation import PodNotHereError, explanation
from exporter.base.clock import Clock
from exporter.limits import Resolution
from exporter.metrics.exposition import Exposition
from exporter.model import PodUid, Snapshot
from exporter.rounds.judge import Judge
from exporter.rounds.latest import Latest
from exporter.rounds.readiness import waits_for
from exporter.web.gate import Gate
from exporter.web.page import node_page
from exporter.web.responses import json_response, refusal

NO_ROUND = "no round has ended yet"
STUCK_AFTER = 30.0
"""Seconds without a beat, at least, before a restart is asked for; kubelets ask every ten."""

SERVER = "gpusteward"
"""Instead of the versions of Python and aiohttp; what is not HTTP still gets those, it reaches no code of ours."""

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
    The handlers, and what they answer from.

    Attributes:
        interval: says the seconds between two rounds that are in force now.
        api: False leaves metrics and probes only.
        started: `clock.monotonic()` when the daemon started: the first round may take a while.
        resolution: says how a pod's limits came about; None for a pod that was not resolved.
        judge: who decides; None where nobody does.

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

    def routes(self) -> list[web.RouteDef]:
        """List what there is; HEAD comes with each GET."""
        always = [
            web.get("/metrics", self.metrics),
            web.get("/healthz", self.health),
            web.get("/readyz", self.readiness),
        ]
        api = [
            web.get("/api/v1/snapshot", self.snapshot),
            web.get("/api/v1/explain", self.explain),
            web.get("/", self.page),
        ]
        judged = [web.get("/api/v1/decisions", self.decisions), web.get("/api/v1/preview", self.preview)]
        return [*always, *api, *(judged if self.judge else ())] if self.api else always

    async def metrics(self, request: web.Request) -> web.Response:
        """Serve the page for scrapers."""
        page = self.exposition.page(
            now=self.clock.monotonic(),
            interval=self.interval(),
            accept=request.headers.get("Accept", ""),
            accept_encoding=request.headers.get("Accept-Encoding", ""),
        )
        return web.Response(body=page.body, headers=page.headers)

    async def health(self, _request: web.Request) -> web.Response:
        """Say 200 while the round scheduler moves, whatever its rounds bring."""
        still = self.clock.monotonic() - (self.started if self.latest.beat is None else self.latest.beat)
        if still > max(3 * self.interval(), STUCK_AFTER):
            return web.Response(status=503, text=f"the round scheduler has not moved for {still:.0f} s\n")
        return web.Response(text="ok\n")

    async def readiness(self, _request: web.Request) -> web.Response:
        """Say 200 once there is something to scrape; before, why not, in words that may be shown to anybody."""
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
        policy = self.judge.summary() if self.judge else None
        return json_response(render(latest, self.latest.tally, self._head(latest), policy))

    async def explain(self, request: web.Request) -> web.Response:
        """Serve where the limits of one pod come from, and what it uses now, as JSON."""
        namespace, pod = request.query.get("namespace", ""), request.query.get("pod", "")
        if not namespace or not pod:
            return refusal(400, "name a pod: /api/v1/explain?namespace=NAMESPACE&pod=POD")
        if (latest := self.latest.snapshot) is None:
            return refusal(503, NO_ROUND)
        policy = self.judge.standings if self.judge else None
        try:
            described = explanation(
                latest, namespace, pod, begin=self._head(latest), resolution=self.resolution, policy=policy
            )
        except PodNotHereError as error:
            return refusal(404, str(error), near=error.near)
        return json_response(encoded(described))

    async def decisions(self, _request: web.Request) -> web.Response:
        """Serve the latest actions and refusals as JSON."""
        return self._judged(self.judge.decisions() if self.judge else None)

    async def preview(self, _request: web.Request) -> web.Response:
        """Serve what enforcing would do right now, as JSON."""
        return self._judged(self.judge.preview() if self.judge else None)

    def _judged(self, described: Json | None) -> web.Response:
        latest = self.latest.snapshot
        if latest is None or described is None:
            return refusal(503, NO_ROUND)
        return json_response(encoded({**msgspec.structs.asdict(self._head(latest)), **described}))

    def _head(self, latest: Snapshot) -> schema.Head:
        age = max(0.0, self.clock.monotonic() - latest.monotonic)
        return head(latest, age=age, interval=self.interval(), program=self.program)

    async def page(self, _request: web.Request) -> web.Response:
        """Serve the node page."""
        page = node_page()
        headers = {"Content-Security-Policy": page.policy}
        return web.Response(body=page.body, content_type="text/html", charset="utf-8", headers=headers)


def application(answers: Answers, gate: Gate) -> web.Application:
    """Put answers behind the gate."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (refused := await gate.refuses(request)) is not None:
            return refused
        try:
            return await handler(request)
        except web.HTTPException as error:
            if not request.path.startswith("/api/"):
                raise
            allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
            return refusal(error.status, error.reason.lower(), allowed)

    async def prepare(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = SERVER
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.update(gate.security.headers)

    app = web.Application(middlewares=[guard])
    app.add_routes(answers.routes())
    app.on_response_prepare.append(prepare)
    return app
