"""The last look's answer of the API server: what is asked, and what follows from it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from enforcer.policy.last_look import Live
from enforcer.runtime import live_pod
from enforcer.runtime.live_pod import LivePods
from exporter.base.clock import SystemClock
from exporter.kube.client import Client
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.errors import KubeError
from journals import action
from sources.kube_api import Server, kubeconfig, pod, refusal, serving

ACTION = action(1)
PLACE = f"/api/v1/namespaces/{ACTION.namespace}"
LABELS = {"gpusteward.io/mode": "enforce"}


class World:
    """A pod and its namespace, as the server has them now; an error instead where there is a code."""

    def __init__(self) -> None:
        self.pod: dict[str, Any] = pod(ACTION.pod, ACTION.pod_uid, node="n1", namespace=ACTION.namespace)
        self.listed: list[dict[str, Any]] | None = []
        self.codes: dict[str, int] = {}
        self.held = ""
        self.opened = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == self.held:
            await self.opened.wait()
        if (code := self.codes.get(request.path)) is not None:
            return refusal(code, "NotFound" if code == 404 else "InternalError")
        if request.path == f"{PLACE}/pods":
            return web.json_response({"metadata": {}, "items": self.listed})
        found = {"metadata": {"labels": LABELS}} if request.path == PLACE else self.pod
        return web.json_response(found)


@asynccontextmanager
async def looking(folder: Path, world: World, *, listing: bool = False) -> AsyncIterator[tuple[LivePods, Server]]:
    async with serving(world.answer) as server:
        client = Client(from_kubeconfig(kubeconfig(folder / "config", server.url)), clock=SystemClock())
        try:
            yield LivePods(client, listing=listing), server
        finally:
            await client.close()


@pytest.mark.fault(18, 20)
async def test_the_server_itself_is_asked_and_no_memory_of_it(tmp_path: Path) -> None:
    """Pod and namespace are read by name, each time anew: a `resourceVersion` would allow an answer from a cache."""
    world = World()
    async with looking(tmp_path, world) as (asking, server):
        first = await asking(ACTION)
        world.pod = pod(ACTION.pod, "another", node="n2", namespace=ACTION.namespace)
        second = await asking(ACTION)
    assert first.pod is not None and second.pod is not None
    assert (first.pod.uid, first.node, second.pod.uid, second.node) == (ACTION.pod_uid, "n1", "another", "n2")
    assert first.labels == LABELS
    assert sorted(seen.path for seen in server.seen) == sorted([PLACE, f"{PLACE}/pods/{ACTION.pod}"] * 2)
    assert not any(seen.query for seen in server.seen)


async def test_who_may_only_list_lists_those_of_the_name(tmp_path: Path) -> None:
    """The same word with the right that observing has: a list of at most one, as fresh as the pod itself."""
    world = World()
    world.listed = [world.pod]
    async with looking(tmp_path, world, listing=True) as (asking, server):
        there = await asking(ACTION)
        world.listed = []
        gone = await asking(ACTION)
        world.listed = None
        empty = await asking(ACTION)
    assert there.pod is not None
    assert (there.pod.uid, there.node, there.labels) == (ACTION.pod_uid, "n1", LABELS)
    assert gone == empty == Live(None, (), "", LABELS)
    lists = [seen for seen in server.seen if seen.path == f"{PLACE}/pods"]
    assert [dict(seen.query) for seen in lists] == [{"fieldSelector": f"metadata.name={ACTION.pod}"}] * 3
    assert {seen.path for seen in server.seen} == {PLACE, f"{PLACE}/pods"}


@pytest.mark.fault(9)
async def test_a_pod_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    """404: there is no such pod. That is known, which is something else than an error."""
    world = World()
    world.codes[f"{PLACE}/pods/{ACTION.pod}"] = 404
    async with looking(tmp_path, world) as (asking, _):
        assert await asking(ACTION) == Live(None, (), "", LABELS)


@pytest.mark.fault(1)
@pytest.mark.parametrize(("path", "code"), [(f"{PLACE}/pods/{ACTION.pod}", 500), (PLACE, 500), (PLACE, 404)])
async def test_half_an_answer_is_none(tmp_path: Path, path: str, code: int) -> None:
    """If the pod or the namespace cannot be read, nothing is known: what is missing never counts as harmless."""
    world = World()
    world.codes[path] = code
    async with looking(tmp_path, world) as (asking, _):
        with pytest.raises(KubeError):
            await asking(ACTION)


@pytest.mark.fault(58)
@pytest.mark.parametrize("held", [f"{PLACE}/pods/{ACTION.pod}", PLACE])
async def test_one_answer_does_not_grow_old_while_the_other_is_waited_for(
    tmp_path: Path, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consent, or a pod, that was read `FRESH` before the other answer came is no look of this moment."""
    world = World()
    world.held = held
    async with looking(tmp_path, world) as (asking, _):
        with monkeypatch.context() as hurried:
            hurried.setattr(live_pod, "FRESH", 0.1)
            with pytest.raises(KubeError, match="of one another"):
                await asking(ACTION)
        world.opened.set()
        assert (await asking(ACTION)).labels == LABELS
