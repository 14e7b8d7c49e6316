"""Owners walked up, against answers as the API server gives them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from exporter.base.clock import SystemClock
from exporter.kube.client import METADATA_ONLY, Client
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.workloads import HIGHEST, REFUSED_FOR, Link, Workload, Workloads, top
from exporter.objects.metadata import OwnerReference
from sources.kube_api import Server, kubeconfig, refusal, serving

Object = dict[str, Any]
UNDECODABLE = 200
"""Among refusals: an answer that is none."""


def ref(kind: str, name: str, uid: str = "", *, api: str = "apps/v1") -> OwnerReference:
    return OwnerReference(api_version=api, kind=kind, name=name, uid=uid or f"uid-{name}", controller=True)


class Owners:
    """A server of owners by path; what stands in `refusals` is refused."""

    def __init__(self, **owners: OwnerReference | None) -> None:
        self.above = owners
        self.refusals: dict[str, int] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if self.refusals.get(name) == UNDECODABLE:
            return web.Response(body=b"{")
        if name in self.refusals:
            return refusal(self.refusals[name], "Refused")
        if name not in self.above:
            return refusal(404, "NotFound")
        owner = self.above[name]
        metadata: Object = {"name": name, "uid": f"uid-{name}"}
        if owner is not None:
            one = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
            metadata["ownerReferences"] = [{**one, "uid": "no", "kind": "Other"}, {**one, "controller": True}]
        return web.json_response({"metadata": metadata})


class Later(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@asynccontextmanager
async def asking(
    owners: Owners, folder: Path, clock: SystemClock | None = None
) -> AsyncIterator[tuple[Workloads, Server]]:
    async with serving(owners.answer) as server:
        credentials = from_kubeconfig(kubeconfig(folder / "config", server.url))
        client = Client(credentials, clock=SystemClock(), deadline=2.0)
        yield Workloads(client, clock=clock or SystemClock(), apart=0.0), server
        await client.close()


REPLICA_SET = ref("ReplicaSet", "web-5d4f")
DEPLOYMENT = ref("Deployment", "web")
JOB = ref("Job", "train-1", api="batch/v1")


@pytest.mark.parametrize(
    ("controller", "owners", "found"),
    [
        (REPLICA_SET, {"web-5d4f": DEPLOYMENT}, Workload("Deployment", "web")),
        (REPLICA_SET, {"web-5d4f": ref("Rollout", "web", api="argoproj.io/v1alpha1")}, Workload("Rollout", "web")),
        (REPLICA_SET, {"web-5d4f": None}, Workload("ReplicaSet", "web-5d4f")),
        (JOB, {"train-1": ref("CronJob", "train", api="batch/v1")}, Workload("CronJob", "train")),
        (JOB, {"train-1": None}, Workload("Job", "train-1")),
        (JOB, {"train-1": ref("JobSet", "set", api="jobset.x-k8s.io/v1alpha2")}, Workload("JobSet", "set")),
        (ref("StatefulSet", "nb"), {"nb": ref("Notebook", "nb", api="kubeflow.org/v1")}, Workload("Notebook", "nb")),
        (ref("StatefulSet", "db"), {"db": None}, Workload("StatefulSet", "db")),
    ],
)
async def test_the_top_controller_is_found(
    tmp_path: Path, controller: OwnerReference, owners: dict[str, OwnerReference | None], found: Workload
) -> None:
    """Through what may be read, up to the top, whatever kind that is; and one question for each owner."""
    async with asking(Owners(**owners), tmp_path) as (workloads, server):
        assert workloads.of(controller) is None, "not guessed before it is known"
        assert await workloads.learn([("ns", controller)] * 3)
        assert workloads.of(controller) == found
        assert len(server.seen) == 1
        assert server.seen[0].headers["Accept"] == METADATA_ONLY


@pytest.mark.parametrize(
    "controller",
    [
        ref("DaemonSet", "agent"),
        ref("Notebook", "nb", api="kubeflow.org/v1"),
        ref("PyTorchJob", "llm", api="kubeflow.org/v1"),
        ref("PyTorchTrainingJob", "llm", api="example.com/v1"),
        ref("Node", "n1", api="v1"),
        ref("ReplicaSet", "lookalike", api="example.com/v1"),
    ],
)
async def test_of_a_custom_kind_the_reference_is_the_answer(tmp_path: Path, controller: OwnerReference) -> None:
    """What no right is asked for is not read: the pod's own reference says kind and name, at once."""
    async with asking(Owners(), tmp_path) as (workloads, server):
        assert workloads.of(controller) == Workload(controller.kind, controller.name)
        assert await workloads.learn([("ns", controller)])
        assert server.seen == []


async def test_a_pod_of_its_own_has_no_workload(tmp_path: Path) -> None:
    """Without a controller there is none."""
    async with asking(Owners(), tmp_path) as (workloads, _):
        assert workloads.of(None) is None


async def test_an_owner_that_is_gone_is_the_answer_itself(tmp_path: Path) -> None:
    """404: the nearest owner that is known by name."""
    async with asking(Owners(), tmp_path) as (workloads, _):
        assert await workloads.learn([("ns", REPLICA_SET)])
        assert workloads.of(REPLICA_SET) == Workload("ReplicaSet", "web-5d4f")


async def test_an_owner_of_the_same_name_is_another(tmp_path: Path) -> None:
    """A ReplicaSet that was made anew under the name does not lend the pod its Deployment."""
    async with asking(Owners(**{"web-5d4f": DEPLOYMENT}), tmp_path) as (workloads, _):
        old = ref("ReplicaSet", "web-5d4f", "uid-of-old")
        assert await workloads.learn([("ns", old)])
        assert workloads.of(old) == Workload("ReplicaSet", "web-5d4f")


@pytest.mark.parametrize("status", [403, 400, 414, 431])
async def test_what_is_refused_is_asked_for_again_later(tmp_path: Path, status: int) -> None:
    """
    The nearest owner counts for now. Once the right is granted, the name is corrected ten minutes later.

    An answer that the server always refuses is not waited for: else pods with such an owner would never have a name.
    """
    owners, clock = Owners(**{"web-5d4f": DEPLOYMENT}), Later()
    owners.refusals["web-5d4f"] = status
    async with asking(owners, tmp_path, clock) as (workloads, server):
        for _ in range(3):
            assert await workloads.learn([("ns", REPLICA_SET)])
        assert workloads.of(REPLICA_SET) == Workload("ReplicaSet", "web-5d4f")
        assert len(server.seen) == 1
        owners.refusals.clear()
        clock.ahead = REFUSED_FOR + 1
        assert workloads.of(REPLICA_SET) == Workload("ReplicaSet", "web-5d4f"), "it stays until it is known better"
        assert await workloads.learn([("ns", REPLICA_SET)])
        assert workloads.of(REPLICA_SET) == Workload("Deployment", "web")


@pytest.mark.parametrize("status", [500, 429, UNDECODABLE])
async def test_one_owner_that_fails_keeps_nobody_else(tmp_path: Path, status: int) -> None:
    """A server error about one is left for the next call; the others are learned now."""
    owners = Owners(**{"web-5d4f": DEPLOYMENT, "train-1": None})
    owners.refusals["web-5d4f"] = status
    async with asking(owners, tmp_path) as (workloads, _):
        assert not await workloads.learn([("ns", REPLICA_SET), ("ns", JOB)])
        assert (workloads.of(REPLICA_SET), workloads.of(JOB)) == (None, Workload("Job", "train-1"))
        owners.refusals.clear()
        assert await workloads.learn([("ns", REPLICA_SET), ("ns", JOB)])
        assert workloads.of(REPLICA_SET) == Workload("Deployment", "web")


@pytest.mark.parametrize("name", ["../../../../api/v1/secrets", "..", "a/b", "A", "", "x?watch=1", "ü", "a" * 254])
async def test_a_name_that_is_none_is_not_asked_for(tmp_path: Path, name: str) -> None:
    """The server checks no owner reference: a name that could mean another path is taken as it is, and not followed."""
    hostile = ref("ReplicaSet", name, "uid")
    async with asking(Owners(), tmp_path) as (workloads, server):
        assert await workloads.learn([("ns", hostile)])
        assert workloads.of(hostile) == Workload("ReplicaSet", name)
        assert server.seen == []


def test_a_ring_of_owners_ends() -> None:
    """Two owners that own each other cost a few steps."""
    one, two = ref("ReplicaSet", "one"), ref("ReplicaSet", "two")
    links = {one.uid: Link(two), two.uid: Link(one)}
    assert top(one, links, 0.0) == Workload("ReplicaSet", "one" if HIGHEST % 2 == 0 else "two")


def test_the_next_owner_to_ask_for_is_the_lowest_unknown() -> None:
    """The walk says where it stopped."""
    middle = ref("StatefulSet", "middle")
    assert top(JOB, {}, 0.0) == JOB
    assert top(JOB, {JOB.uid: Link(middle)}, 0.0) == middle
