"""The source of names as a whole, against a small server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from exporter.base.clock import SystemClock
from exporter.kube.client import Client
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.inventory import KubeInventory
from exporter.kube.watching import Patience
from exporter.kube.workloads import Workload
from exporter.model import Container, ContainerId, Inventory, PodUid
from sources.kube_api import event, kubeconfig, listing, pod, refusal, serving, until

Object = dict[str, Any]
A, B = ContainerId("a" * 64), ContainerId("b" * 64)
UID = PodUid("2c48913c-b29f-11e7-9350-020968147796")
OWNED = {
    "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": True}
    ]
}


def running(id_: str) -> Object:
    return {"containerStatuses": [{"name": "main", "containerID": f"containerd://{id_}"}]}


class Api:
    """A server with one pod and its ReplicaSet; it can go away."""

    def __init__(self) -> None:
        self.away = False
        self.without_rights = False
        self.owners = asyncio.Event()
        self.list = listing(pod("web-0", UID, metadata=OWNED, status=running(A)))
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.away:
            return refusal(503, "ServiceUnavailable")
        if self.without_rights:
            return refusal(403, "Forbidden")
        if "replicasets" in request.path:
            await self.owners.wait()
            owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
            return web.json_response({"metadata": {"name": "web-1", "uid": "r", "ownerReferences": [owner]}})
        if "watch" not in request.query:
            return web.Response(body=self.list)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        while (line := await self.lines.get()) is not None:
            await response.write(line + b"\n")
        return response


class Ticking(SystemClock):
    """Waits of seconds take milliseconds; it can be set forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 1000)


@asynccontextmanager
async def naming(
    api: Api, folder: Path, *, log_links: Path | None = None, clock: SystemClock | None = None
) -> AsyncIterator[KubeInventory]:
    async with serving(api.answer) as server:
        credentials = from_kubeconfig(kubeconfig(folder / "config", server.url))
        client = Client(credentials, clock=SystemClock(), deadline=5.0)
        source = KubeInventory(
            client,
            "n1",
            clock=clock or Ticking(),
            random=Random(1),
            log_links=log_links,
            patience=Patience(watch=(60, 60)),
        )
        task = asyncio.create_task(source.run())
        try:
            yield source
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()
            api.lines.put_nowait(None)


async def named(source: KubeInventory, condition: Callable[[Inventory], object]) -> Inventory:
    """Wait for an inventory of which this is true."""
    return await until(lambda: found if condition(found := source.inventory()) else None)


def link(folder: Path, id_: str, number: int = 0, uid: str = UID, name: str = "web-0") -> None:
    (folder / f"{name}_ns_main-{id_}.log").symlink_to(f"/var/log/pods/ns_{name}_{uid}/main/{number}.log")


async def test_a_pod_is_named_at_once_and_its_workload_when_it_is_known(tmp_path: Path) -> None:
    """Names wait for no owner: the pod is there while its ReplicaSet is still being asked for."""
    api = Api()
    async with naming(api, tmp_path) as source:
        found = await named(source, lambda found: found.live)
        assert (found.pods[UID].name, found.pods[UID].workload) == ("web-0", "")
        assert found.containers == (Container(UID, "main", A),)
        assert found.faults == ()
        api.owners.set()
        found = await named(source, lambda found: found.pods[UID].workload)
        assert (found.pods[UID].workload_kind, found.pods[UID].workload) == ("Deployment", "web")
        assert source.living == frozenset({("ns", "web-0")})


async def test_a_pod_with_a_workload_is_one_object_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds compare pods at once by that. A new label or workload makes another one; at its end none is kept."""
    api, clock = Api(), Ticking()
    api.owners.set()
    async with naming(api, tmp_path, clock=clock) as source:
        found = await named(source, lambda found: found.live and found.pods[UID].workload)
        assert source.inventory().pods[UID] is found.pods[UID]
        labelled = pod("web-0", UID, version="11", metadata=OWNED | {"labels": {"team": "a"}}, status=running(A))
        api.lines.put_nowait(event("MODIFIED", labelled))
        found = await named(source, lambda found: found.pods[UID].labels)
        assert (found.pods[UID].labels, found.pods[UID].workload) == ({"team": "a"}, "web")
        api.lines.put_nowait(event("DELETED", labelled))
        found = await named(source, lambda found: found.pods[UID].terminating)
        assert found.pods[UID].workload == "web"
        monkeypatch.setattr(source._workloads, "of", lambda _: Workload("Deployment", "other"))
        assert source.inventory().pods[UID].workload == "other"
        clock.ahead = 3600
        assert (source.inventory().pods, source._made) == ({}, {})


async def test_before_the_first_answer_nothing_is_known(tmp_path: Path) -> None:
    """A source without a first answer knows no pods, and the round is not complete."""
    client = Client(from_kubeconfig(str(tmp_path / "missing")), clock=SystemClock())
    found = KubeInventory(client, "n1", clock=SystemClock(), random=Random(1)).inventory()
    assert (found.known, found.live, [fault.reason for fault in found.faults]) == (False, False, ["api_pending"])
    assert found.faults[0].incomplete


async def test_names_stay_while_the_api_server_is_away(tmp_path: Path) -> None:
    """Away: the last view stays, not live; a fault says so, and the round is complete. Back: live by itself."""
    api = Api()
    api.owners.set()
    async with naming(api, tmp_path) as source:
        before = await named(source, lambda found: found.live and found.pods[UID].workload)
        api.away = True
        api.lines.put_nowait(None)
        away = await named(source, lambda found: not found.live)
        assert (away.pods, away.containers, away.known) == (before.pods, before.containers, True)
        assert [(fault.source, fault.reason, fault.incomplete) for fault in away.faults] == [("api", "api_away", False)]
        assert "503 ServiceUnavailable" in away.faults[0].message
        assert source.living is None, "who is gone cannot be said"
        api.away = False
        back = await named(source, lambda found: found.live)
        assert back == before


async def test_a_restart_while_the_api_server_is_away_keeps_the_names(tmp_path: Path) -> None:
    """The daemon starts, the API server is away, the log links are there: names without workload, not live, known."""
    api = Api()
    api.away = True
    link(tmp_path, A)
    async with naming(api, tmp_path, log_links=tmp_path) as source:
        found = await named(source, lambda found: found.known)
        assert (found.pods[UID].namespace, found.pods[UID].name, found.pods[UID].workload) == ("ns", "web-0", "")
        assert found.containers == (Container(UID, "main", A),)
        found = await named(source, lambda found: found.faults[0].reason == "api_away")
        assert (found.live, found.faults[0].incomplete) == (False, False)
        api.away = False
        api.owners.set()
        found = await named(source, lambda found: found.live and found.pods[UID].workload)
        assert found.pods[UID].workload == "web"


async def test_what_comes_while_the_api_server_is_away_is_named_too(tmp_path: Path) -> None:
    """A container that restarts and a pod that starts meanwhile are found in the log links."""
    api = Api()
    async with naming(api, tmp_path, log_links=tmp_path) as source:
        await named(source, lambda found: found.live)
        api.away = True
        api.lines.put_nowait(None)
        await named(source, lambda found: not found.live)
        link(tmp_path, A)
        link(tmp_path, B, number=1)
        other = UID.replace("2", "3")
        link(tmp_path, "c" * 64, uid=other, name="new-0")
        found = await named(source, lambda found: other in found.pods)
        assert [container.id for container in found.containers if container.pod_uid == UID] == [A, B]
        assert found.pods[PodUid(other)].name == "new-0"


async def test_without_rights_the_fault_says_which(tmp_path: Path) -> None:
    """403: the fault says in one sentence what to do, and no pod has a name."""
    api = Api()
    api.without_rights = True
    async with naming(api, tmp_path) as source:
        found = await named(source, lambda found: found.faults and found.faults[0].reason == "api_forbidden")
        assert "pods list, watch" in found.faults[0].message
        assert found.faults[0].incomplete


async def test_a_server_that_has_just_started_is_not_without_rights(tmp_path: Path) -> None:
    """It answers before it has read its roles: for ten seconds a 403 after an outage is the outage, then a refusal."""
    api = Api()
    clock = Ticking()
    async with naming(api, tmp_path, clock=clock) as source:
        await named(source, lambda found: found.live)
        api.away = True
        api.lines.put_nowait(None)
        await named(source, lambda found: not found.live)
        api.away, api.without_rights = False, True
        found = await named(source, lambda found: "403" in found.faults[0].message)
        assert found.faults[0].reason == "api_away" and "read its roles" in found.faults[0].message
        clock.ahead = 11.0
        assert source.inventory().faults[0].reason == "api_forbidden"
        api.without_rights = False
        await named(source, lambda found: found.live)
        api.without_rights = True
        api.lines.put_nowait(None)
        found = await named(source, lambda found: not found.live)
        assert found.faults[0].reason == "api_forbidden", "nothing was away: a right was taken"


async def test_a_deleted_pod_keeps_its_names_and_frees_its_devices(tmp_path: Path) -> None:
    """After a forced deletion the pod is still named (terminating), and what it was handed is free."""
    api = Api()
    async with naming(api, tmp_path) as source:
        await named(source, lambda found: found.live)
        api.lines.put_nowait(event("DELETED", pod("web-0", UID, version="11", status=running(A))))
        found = await named(source, lambda found: found.pods[UID].terminating)
        assert found.containers == (Container(UID, "main", A),)
        assert source.finished == {("ns", "web-0")}
        assert (source.living, dict(source.pods)) == (frozenset(), {})


async def test_a_broken_pod_is_told(tmp_path: Path) -> None:
    """A pod that cannot be decoded is a fault with its name; the others are there, and the round is complete."""
    api = Api()
    api.list = listing(pod("web-0", UID), pod("bad", "uid-2", spec={"containers": 7}))
    async with naming(api, tmp_path) as source:
        found = await named(source, lambda found: found.live)
        assert set(found.pods) == {UID}
        assert [(fault.reason, fault.subject, fault.incomplete) for fault in found.faults] == [
            ("pod_undecodable", "ns/bad", False)
        ]
