"""Promises of exporter/kube/own_node.py: the own node, asked seldom and never in step with all others."""

import asyncio
import json
from pathlib import Path
from random import Random

import pytest
from aiohttp import web

from exporter.base.clock import SystemClock
from exporter.kube.client import Client
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.own_node import FRESH, OwnNode
from sources.kube_api import kubeconfig, refusal, serving

NODE = {"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.sharing-strategy": "mps"}}, "status": {}}
GPU = {"uuid": {"string": "GPU-1"}, "productName": {"string": "x"}}


def slices(device: dict[str, object]) -> dict[str, object]:
    """A list of one slice of the own node."""
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": [device]}
    return {"items": [{"metadata": {"name": "s"}, "spec": spec}]}


class Waits(SystemClock):
    """A clock that notes its waits, and cancels the task at the fourth one."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if len(self.waits) == 4:
            raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("version", "device"),
    [
        ("v1", {"name": "gpu-0", "attributes": GPU}),
        ("v1beta2", {"name": "gpu-0", "attributes": {"gpu.nvidia.com/uuid": GPU["uuid"]}}),
        ("v1beta1", {"name": "gpu-0", "basic": {"attributes": GPU}}),
    ],
)
async def test_claimed_devices_are_known_by_their_slices(
    tmp_path: Path, version: str, device: dict[str, object]
) -> None:
    """Each version of the API that a cluster may have shows the UUID behind (driver, pool, device)."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/nodes/n1":
            return web.json_response(NODE)
        if request.path == f"/apis/resource.k8s.io/{version}/resourceslices":
            assert request.query["fieldSelector"] == "spec.nodeName=n1"
            return web.json_response(slices(device))
        return refusal(404, "NotFound")

    async with serving(answer) as server:
        client = Client(from_kubeconfig(kubeconfig(tmp_path / "config", server.url)), clock=SystemClock())
        node = OwnNode(client, "n1", clock=SystemClock(), random=Random(1), has_claims=lambda: True)
        await node.look()
        await client.close()
    assert node.uuids == {("gpu.nvidia.com", "n1", "gpu-0"): "GPU-1"}
    assert node.labels == {"nvidia.com/gpu.sharing-strategy": "mps"}


async def test_nobody_asks_for_slices_without_claims(tmp_path: Path) -> None:
    """A node without DRA costs the API server one request a minute, and needs no right for slices."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(NODE)

    async with serving(answer) as server:
        client = Client(from_kubeconfig(kubeconfig(tmp_path / "config", server.url)), clock=SystemClock())
        await OwnNode(client, "n1", clock=SystemClock(), random=Random(1), has_claims=lambda: False).look()
        await client.close()
        assert [seen.path for seen in server.seen] == ["/api/v1/nodes/n1"]


async def test_looks_are_spread_and_a_servers_wish_is_heard(tmp_path: Path) -> None:
    """A thousand nodes do not ask in the same second; what was read stays while the server is away."""
    answers = [web.Response(body=json.dumps(NODE)), refusal(500, "x"), refusal(429, "TooManyRequests")]
    answers[2].headers["Retry-After"] = "33"
    answers.append(web.Response(body=json.dumps(NODE)))

    async def answer(request: web.Request) -> web.StreamResponse:
        return answers.pop(0)

    clock = Waits()
    async with serving(answer) as server:
        client = Client(from_kubeconfig(kubeconfig(tmp_path / "config", server.url)), clock=SystemClock())
        node = OwnNode(client, "n1", clock=clock, random=Random(1), has_claims=lambda: False)
        with pytest.raises(asyncio.CancelledError):
            await node.run()
        await client.close()
    calm, away, asked, again = clock.waits
    assert 0.75 * FRESH <= calm <= 1.25 * FRESH and 0.75 * FRESH <= again <= 1.25 * FRESH and calm != again
    assert away < FRESH / 4
    assert asked == 33.0
    assert node.labels, "what was read stayed"
