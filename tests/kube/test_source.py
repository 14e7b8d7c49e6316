"""Kubernetes as one source: what the parts say together, against a small server."""

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from exporter.base.clock import SystemClock
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.source import KubernetesSource
from exporter.model import PodUid
from sources.kube_api import kubeconfig, listing, pod, refusal, serving, until

Object = dict[str, Any]
CLAIMING: Object = {
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}],
    "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}],
}
RESULT = {"request": "r", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
CLAIM = {
    "metadata": {"name": "shared", "namespace": "team"},
    "status": {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [{"resource": "pods"}]},
}
SLICE = {
    "spec": {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "n1"},
        "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-1"}}}],
    }
}


class Hurried(SystemClock):
    """Waits of seconds take a tenth of that."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


class Api:
    """A server with a pod that has a claim, one that has none, and one that is finished."""

    def __init__(self) -> None:
        self.claim = asyncio.Event()
        self.pods = listing(
            pod("claiming", "u-1", namespace="team", spec=CLAIMING),
            pod("plain", "u-2", namespace="other"),
            pod("over", "u-3", namespace="past", status={"phase": "Succeeded"}),
        )

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/api/v1/pods" and "watch" in request.query:
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            await asyncio.Event().wait()
        if path == "/api/v1/pods":
            return web.Response(body=self.pods)
        if path == "/api/v1/nodes/n1":
            return web.json_response({"metadata": {"name": "n1"}})
        if path == "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/shared":
            await self.claim.wait()
            return web.Response(body=json.dumps(CLAIM))
        if path == "/apis/resource.k8s.io/v1/resourceslices":
            return web.json_response({"items": [SLICE] if self.claim.is_set() else []})
        if path.startswith("/api/v1/namespaces/"):
            return web.json_response({"metadata": {"labels": {"of": path.rpartition("/")[2]}}})
        return refusal(404, "NotFound")


async def test_the_parts_make_one_inventory(tmp_path: Path) -> None:
    """
    Pods, namespaces and claims come together; a pod declares nothing before its claims were asked for.

    Until then its other declarations would count alone. The device of a claim is known as soon as the claim is, not
    with the next look at the node. The namespace of a finished pod is not asked for.
    """
    api = Api()
    async with serving(api.answer) as server:
        credentials = from_kubeconfig(kubeconfig(tmp_path / "config", server.url))
        source = KubernetesSource(credentials, "n1", clock=Hurried(), socket=tmp_path / "no.sock")
        task = asyncio.create_task(source.run())
        try:
            found = await until(
                lambda: found if (found := source.inventory(())).declared and found.namespaces else None
            )
            assert set(found.declared) == {PodUid("u-2")} and set(found.pods) == {"u-1", "u-2", "u-3"}
            assert not found.claims
            api.claim.set()
            found = await until(
                lambda: found if (found := source.inventory(())).claims and found.claims[0].devices[0].uuid else None
            )
            assert set(found.declared) == {PodUid("u-1"), PodUid("u-2")}
            assert [(one.namespace, one.name, one.devices[0].uuid) for one in found.claims] == [
                ("team", "shared", "GPU-1")
            ]
            found = await until(lambda: found if len((found := source.inventory(())).namespaces) == 2 else None)
            assert found.namespaces == {"team": {"of": "team"}, "other": {"of": "other"}}
            assert not [fault for fault in found.faults if fault.source == "api"]
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    lists = [seen.path for seen in server.seen if seen.path.endswith("resourceclaims")]
    assert lists == [], "claims are read by name"


async def test_only_namespaces_of_pods_with_limits_are_asked_for(tmp_path: Path) -> None:
    """
    Where limits are known, no other namespaces are asked for. A namespace that was asked for once stays known.

    On a node most pods are agents that declare nothing: ten namespaces a minute and node were 170 requests a second of
    a thousand nodes. A round in which a limit cannot be placed must not make the consent of its namespace unknown.
    """
    api, limited = Api(), {PodUid("u-2")}
    async with serving(api.answer) as server:
        credentials = from_kubeconfig(kubeconfig(tmp_path / "config", server.url))
        socket = tmp_path / "no.sock"
        source = KubernetesSource(credentials, "n1", clock=Hurried(), socket=socket, limited=lambda: limited)
        task = asyncio.create_task(source.run())
        try:
            await until(lambda: source.inventory(()).namespaces)
            limited.clear()
            limited.add(PodUid("u-1"))
            await until(lambda: len(source.inventory(()).namespaces) == 2)
            assert source.inventory(()).namespaces == {"other": {"of": "other"}, "team": {"of": "team"}}
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    asked = [seen.path for seen in server.seen if seen.path in ("/api/v1/namespaces/other", "/api/v1/namespaces/team")]
    assert asked == ["/api/v1/namespaces/other", "/api/v1/namespaces/team"], "the limited one first, each once"
