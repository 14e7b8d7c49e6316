"""Names from a real API server: list and watch with a ServiceAccount's token, owners, faults, what is large or odd."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import aiohttp
import pytest
from aiohttp import web

from cluster import requirements, simulated_nodes
from cluster.bed import Bed
from cluster.certificates import trusting
from cluster.client import Api, Object
from cluster.client import until as becomes
from cluster.connecting import Connector
from cluster.fixtures import fresh_namespace, require
from cluster.manifests import pod, pod_spec
from containers.cgroupfs import new_token
from exporter.base.clock import SystemClock
from exporter.kube.client import Client
from exporter.kube.credentials import in_cluster
from exporter.kube.errors import KubeError
from exporter.kube.inventory import KubeInventory
from exporter.kube.namespaces import Namespaces
from exporter.kube.pods import parse_event
from exporter.kube.watching import Patience
from exporter.model import ContainerId, Inventory, Pod, PodUid
from patience import PATIENCE
from sources.kube_api import refusal, serving, until

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

ACCOUNT = "reader"
RULES = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": ["get"]},
    {"apiGroups": ["apps"], "resources": ["replicasets", "statefulsets"], "verbs": ["get"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]},
)
"""The rights that names need, and no others."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"
STATUSES = {"containerStatuses": "main", "initContainerStatuses": "proxy"}
HURRIED = Patience(first=0.05, most=0.5, watch=(60, 60), idle=90.0)
A, B, C = (ContainerId(letter * 64) for letter in "abc")


class Later(SystemClock):
    """A clock that can be set forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Account:
    """A ServiceAccount with exactly these rights, and a folder like the one that the kubelet mounts into its pods."""

    def __init__(self, bed: Bed, api: Api, namespace: str, folder: Path) -> None:
        self.bed, self.api, self.namespace, self.folder = bed, api, namespace, folder
        self.role = f"{ACCOUNT}-{namespace}"
        folder.mkdir()
        (folder / "ca.crt").write_bytes(bed.control_plane.authority.certificate.read_bytes())

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{ACCOUNT}"

    async def make(self, *rules: Object) -> None:
        await self.make_account()
        await self.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": self.role}, "rules": list(rules)})
        binding = {
            "metadata": {"name": self.role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.role},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": self.namespace}],
        }
        await self.api.create(f"{RBAC}/clusterrolebindings", binding)
        await self.rotate()

    async def make_account(self) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        await self.api.create(path, {"metadata": {"name": ACCOUNT}})

    async def rotate(self) -> None:
        """Put a new token in the place of the old one, in one step, as the kubelet does."""
        token = (await self.api.token(self.namespace, ACCOUNT)).token
        assert token is not None
        (self.folder / "token.new").write_text(token)
        (self.folder / "token.new").rename(self.folder / "token")

    def client(self, *, port: int | None = None, clock: SystemClock | None = None) -> Client:
        address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}
        address["KUBERNETES_SERVICE_PORT"] = str(port or self.bed.control_plane.port)
        return Client(in_cluster(self.folder, address), clock=clock or SystemClock(), deadline=10.0)

    def requests(self) -> set[tuple[str, str, int]]:
        """Verb, resource and answer of all that was asked for with the token, from the audit log."""
        return {
            (event["verb"], event["objectRef"]["resource"], event["responseStatus"]["code"])
            for event in self.bed.control_plane.audit()
            if event["user"].get("username") == self.user
        }

    def lists(self) -> int:
        """Count the lists that were answered."""
        events = self.bed.control_plane.audit()
        mine = (event for event in events if event["user"].get("username") == self.user and event["verb"] == "list")
        return sum(event["responseStatus"]["code"] == 200 for event in mine)

    def credentials(self) -> list[str]:
        """Ids of the tokens that were shown, in the order of the audit log."""
        key = "authentication.kubernetes.io/credential-id"
        events = self.bed.control_plane.audit()
        shown = (event["user"]["extra"][key][0] for event in events if event["user"].get("username") == self.user)
        return list(dict.fromkeys(shown))


@pytest.fixture
async def account(api_server: Bed, server_api: Api, server_namespace: str, tmp_path: Path) -> AsyncIterator[Account]:
    made = Account(api_server, server_api, server_namespace, tmp_path / "serviceaccount")
    await made.make(*RULES)
    yield made
    await server_api.delete(f"{RBAC}/clusterrolebindings/{made.role}")
    await server_api.delete(f"{RBAC}/clusterroles/{made.role}")


@pytest.fixture
async def node(server_api: Api) -> AsyncIterator[str]:
    """A simulated node of its own."""
    (name,) = await simulated_nodes.add(server_api, 1, prefix=f"names-{new_token()}")
    yield name
    await simulated_nodes.remove(server_api, [name])


@asynccontextmanager
async def closing(client: Client) -> AsyncIterator[Client]:
    """A client that is closed whatever happens."""
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def naming(client: Client, node: str, *, patience: Patience = HURRIED) -> AsyncIterator[KubeInventory]:
    """The source of names, at work."""
    source = KubeInventory(client, node, clock=SystemClock(), random=Random(1), patience=patience, apart=0.0)
    task = asyncio.create_task(source.run())
    try:
        yield source
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


async def named(source: KubeInventory, condition: Callable[[Inventory], object]) -> Inventory:
    """Wait for an inventory of which this is true; the error of a wait in vain has what the source reports."""
    try:
        return await until(lambda: found if condition(found := source.inventory()) else None)
    except TimeoutError as error:
        found = source.inventory()
        error.add_note(
            f"live: {found.live}; faults: {found.faults}; pods: {sorted(p.name for p in found.pods.values())[:9]}"
        )
        raise


def told(found: Inventory) -> list[str]:
    return [fault.reason for fault in found.faults]


def pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


async def run_pod(api: Api, namespace: str, name: str, node: str, **metadata: object) -> PodUid:
    """A pod on a simulated node; its UID."""
    thing = pod(name, pod_spec() | {"nodeName": node})
    thing["metadata"] |= metadata
    return PodUid((await api.create(pods_of(namespace), thing))["metadata"]["uid"])


async def report(api: Api, namespace: str, name: str, id_: str, *, last: str | None = None) -> None:
    """Write the status that a kubelet would write."""
    container: Object = {
        "name": "main",
        "image": "x",
        "imageID": "x",
        "ready": True,
        "restartCount": 1 if last else 0,
        "containerID": f"containerd://{id_}",
        "state": {"running": {"startedAt": "2026-11-01T10:00:00Z"}},
    }
    if last:
        container["lastState"] = {"terminated": {"exitCode": 137, "containerID": f"containerd://{last}"}}
    status = {"phase": "Running", "containerStatuses": [container]}
    await api.patch(f"{pods_of(namespace)}/{name}/status", {"status": status})


def by_name(found: Inventory, name: str) -> list[Pod]:
    return [one for one in found.pods.values() if one.name == name]


async def test_pods_of_this_node_are_named_with_the_shipped_rights(
    account: Account, server_api: Api, server_namespace: str, node: str
) -> None:
    """With a ServiceAccount's token and no other rights: this node's pods are named, and no refusal is met."""
    (other,) = await simulated_nodes.add(server_api, 1, prefix=f"other-{new_token()}")
    try:
        listed = await run_pod(server_api, server_namespace, "listed", node)
        await run_pod(server_api, server_namespace, "elsewhere", other)
        await report(server_api, server_namespace, "listed", A)
        async with naming(account.client(), node) as source:
            found = await named(source, lambda found: found.live)
            assert {uid: one.name for uid, one in found.pods.items()} == {listed: "listed"}
            assert [(c.pod_uid, c.name, c.id) for c in found.containers] == [(listed, "main", A)]
            assert found.faults == ()
            labels = {"kueue.x-k8s.io/queue-name": "gold"}
            watched = await run_pod(server_api, server_namespace, "watched", node, labels=labels)
            await run_pod(server_api, server_namespace, "elsewhere-too", other)
            found = await named(source, lambda found: watched in found.pods)
            assert set(found.pods) == {listed, watched}
            assert found.pods[watched].queue == "gold"
            await report(server_api, server_namespace, "listed", B, last=A)
            await named(source, lambda found: [c.id for c in found.containers if c.pod_uid == listed] == [A, B])
    finally:
        await simulated_nodes.remove(server_api, [other])

    async def written() -> bool:  # a watch is in the log when it has ended
        return len(account.requests()) >= 2

    await becomes(written, "the audit log")
    assert account.requests() == {("list", "pods", 200), ("watch", "pods", 200)}


def owner(thing: Object, api: str, kind: str) -> Object:
    metadata = thing["metadata"]
    return {"apiVersion": api, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}


async def make_owners(api: Api, namespace: str) -> dict[str, Object]:
    """A ReplicaSet of a Deployment, a Job of a CronJob, a StatefulSet of a Notebook; by hand, as no controller runs."""
    apps, batch = f"/apis/apps/v1/namespaces/{namespace}", f"/apis/batch/v1/namespaces/{namespace}"
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod_spec()}
    selecting = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    once = {"template": {"spec": pod_spec(restart="Never")}}
    deployment = await api.create(f"{apps}/deployments", {"metadata": {"name": "web"}, "spec": selecting})
    replica_set = await api.create(
        f"{apps}/replicasets",
        {
            "metadata": {"name": "web-5d4f", "ownerReferences": [owner(deployment, "apps/v1", "Deployment")]},
            "spec": selecting,
        },
    )
    cron = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": once}}
    cron_job = await api.create(f"{batch}/cronjobs", {"metadata": {"name": "train"}, "spec": cron})
    job = await api.create(
        f"{batch}/jobs",
        {"metadata": {"name": "train-1", "ownerReferences": [owner(cron_job, "batch/v1", "CronJob")]}, "spec": once},
    )
    notebook = {"metadata": {"name": "nb", "uid": "00000000-0000-4000-8000-000000000001"}}
    stateful_set = await api.create(
        f"{apps}/statefulsets",
        {
            "metadata": {"name": "nb", "ownerReferences": [owner(notebook, "kubeflow.org/v1", "Notebook")]},
            "spec": {**selecting, "serviceName": "nb"},
        },
    )
    return {
        "web-5d4f-abcde": owner(replica_set, "apps/v1", "ReplicaSet"),
        "train-1-abcde": owner(job, "batch/v1", "Job"),
        "nb-0": owner(stateful_set, "apps/v1", "StatefulSet"),
        "llm-worker-0": owner(notebook, "example.com/v1", "PyTorchTrainingJob"),
    }


async def test_the_server_says_what_we_may(account: Account) -> None:
    """Asked for each right that names need, the server says yes to this role, and no to what is not in it."""
    async with closing(account.client()) as client:
        for rule in RULES:
            for group, resource, verb in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"]):
                assert await client.may(verb, group, resource), (verb, resource)
        assert not await client.may("delete", "", "pods")
        assert not await client.may("list", "", "secrets")


async def test_workloads_are_the_top_controllers(
    account: Account, server_api: Api, server_namespace: str, node: str
) -> None:
    """Deployment, CronJob and custom kinds are found through what the rights let us read, one get for each owner."""
    for name, reference in (await make_owners(server_api, server_namespace)).items():
        await run_pod(server_api, server_namespace, name, node, ownerReferences=[reference])
    await run_pod(server_api, server_namespace, "alone", node)
    async with naming(account.client(), node) as source:
        found = await named(source, lambda found: sum(one.workload != "" for one in found.pods.values()) == 4)
        assert {one.name: (one.workload_kind, one.workload) for one in found.pods.values()} == {
            "web-5d4f-abcde": ("Deployment", "web"),
            "train-1-abcde": ("CronJob", "train"),
            "nb-0": ("Notebook", "nb"),
            "llm-worker-0": ("PyTorchTrainingJob", "nb"),
            "alone": ("", ""),
        }

    async def written() -> bool:
        return len(account.requests()) >= 5

    await becomes(written, "the audit log")
    assert account.requests() == {
        ("list", "pods", 200),
        ("watch", "pods", 200),
        ("get", "replicasets", 200),
        ("get", "jobs", 200),
        ("get", "statefulsets", 200),
    }


async def test_without_the_right_to_read_owners_the_nearest_is_named(
    account: Account, server_api: Api, server_namespace: str, node: str
) -> None:
    """A role without replicasets: pods are named all the same, and the ReplicaSet is the workload."""
    references = await make_owners(server_api, server_namespace)
    reference = references["web-5d4f-abcde"]
    await run_pod(server_api, server_namespace, "web-5d4f-abcde", node, ownerReferences=[reference])
    await server_api.patch(f"{RBAC}/clusterroles/{account.role}", {"rules": [RULES[0]]})
    client = account.client()
    path = f"/apis/apps/v1/namespaces/{server_namespace}/replicasets/web-5d4f"

    async def revoked() -> bool:  # the authorizer learns of it by a watch
        try:
            await client.get(path)
        except KubeError as error:
            return error.status == 403
        return False

    await becomes(revoked, "the role to lose its right")
    async with naming(client, node) as source:
        found = await named(source, lambda found: found.live and all(one.workload for one in found.pods.values()))
        (one,) = found.pods.values()
        assert (one.workload_kind, one.workload) == ("ReplicaSet", "web-5d4f")


async def test_what_a_policy_asks_for_is_read(
    account: Account, server_api: Api, server_namespace: str, node: str
) -> None:
    """Priority as admission wrote it, grace, phase, controller, the sidecar; the namespace's labels, also changed."""
    spec = pod_spec() | {"nodeName": node, "initContainers": [pod_spec()["containers"][0] | {"name": "proxy"}]}
    spec["initContainers"][0]["restartPolicy"] = "Always"
    thing = pod("one", spec, labels={"app": "x"})
    notebook = {"metadata": {"name": "nb", "uid": "00000000-0000-4000-8000-000000000001"}}
    thing["metadata"] |= {
        "annotations": {"a": "b"},
        "ownerReferences": [owner(notebook, "kubeflow.org/v1", "Notebook")],
    }
    uid = PodUid((await server_api.create(pods_of(server_namespace), thing))["metadata"]["uid"])
    status = {name: [{"name": of, "image": "x", "imageID": "x"}] for name, of in STATUSES.items()}
    await server_api.patch(f"{pods_of(server_namespace)}/one/status", {"status": {"phase": "Running", **status}})
    clock, client = Later(), account.client()
    async with naming(client, node) as source:
        found = await named(source, lambda found: uid in found.pods and len(found.containers) == 2)
        one = found.pods[uid]
        assert (one.phase, one.priority, one.controller_kind, one.grace_seconds) == ("Running", 0, "Notebook", 1.0)
        assert (one.labels, one.annotations) == ({"app": "x"}, {"a": "b"})
        assert {c.name: str(c.kind) for c in found.containers} == {"proxy": "sidecar", "main": "regular"}
        namespaces = Namespaces(client, lambda: [server_namespace], clock=clock, random=Random(1))
        await namespaces.look()
        assert namespaces.labels[server_namespace] == {"kubernetes.io/metadata.name": server_namespace}
        labels = {"metadata": {"labels": {"gpusteward.io/mode": "enforce"}}}
        await server_api.patch(f"/api/v1/namespaces/{server_namespace}", labels)
        clock.ahead = 80.0
        await namespaces.look()
        assert namespaces.labels[server_namespace]["gpusteward.io/mode"] == "enforce"


@pytest.mark.fault(17)
async def test_a_pod_made_anew_under_its_name_is_another(
    account: Account, server_api: Api, server_namespace: str, node: str
) -> None:
    """Force-deleted and made again at once: the old UID stays named and terminating, the new one stands beside it."""
    old = await run_pod(server_api, server_namespace, "twin", node)
    await report(server_api, server_namespace, "twin", A)
    async with naming(account.client(), node) as source:
        await named(source, lambda found: found.containers)
        await server_api.delete(f"{pods_of(server_namespace)}/twin", gracePeriodSeconds=0)
        new = await run_pod(server_api, server_namespace, "twin", node)
        await report(server_api, server_namespace, "twin", B)
        found = await named(source, lambda found: len(found.containers) == 2)
        assert (found.pods[old].terminating, found.pods[new].terminating) == (True, False)
        assert {(c.pod_uid, c.id) for c in found.containers} == {(old, A), (new, B)}
        assert source.finished == frozenset(), "the name is in use"


async def test_every_legal_name_comes_through(account: Account, server_api: Api, node: str) -> None:
    """The longest names, and every character that Kubernetes allows in them."""
    alphabet = "abcdefghijklmnopqrstuvwxyz-0123456789"
    pod_name = ".".join([f"0{alphabet}{alphabet[:25]}", *("a" * 63,) * 2, "z" * 61])
    assert (len(pod_name), len(f"0{alphabet}{alphabet[:25]}")) == (253, 63)
    namespace = f"test-{new_token()}-{alphabet}"[:62] + "9"
    container = f"{alphabet}{alphabet[:25]}z"
    await server_api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})

    async def has_account() -> bool:
        return not await server_api.missing(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")

    await becomes(has_account, "the namespace to admit pods")
    spec = pod_spec() | {"nodeName": node}
    spec["containers"][0]["name"] = container
    uid = (await server_api.create(pods_of(namespace), pod(pod_name, spec)))["metadata"]["uid"]
    id_ = {
        "name": container,
        "image": "x",
        "imageID": "x",
        "ready": True,
        "restartCount": 0,
        "containerID": f"cri-o://{A}",
    }
    await server_api.patch(f"{pods_of(namespace)}/{pod_name}/status", {"status": {"containerStatuses": [id_]}})
    async with naming(account.client(), node) as source:
        found = await named(source, lambda found: found.live)
        assert (found.pods[uid].namespace, found.pods[uid].name) == (namespace, pod_name)
        assert [(c.name, c.id) for c in found.containers] == [(container, A)]
    await server_api.delete(f"{pods_of(namespace)}/{pod_name}", gracePeriodSeconds=0)


async def test_a_list_of_five_megabytes_is_read(
    account: Account, server_api: Api, server_namespace: str, node: str
) -> None:
    """1,000 pods of 5 kB come in one answer, and a pod of half a megabyte as one line of a watch."""
    note = {"annotations": {"note": "x" * 4000}}
    at_once = asyncio.Semaphore(20)

    async def one(number: int) -> None:
        async with at_once:
            await run_pod(server_api, server_namespace, f"p{number}", node, **note)

    await asyncio.gather(*(one(number) for number in range(1000)))
    client = account.client()
    body = await client.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"})
    assert len(body) > 5_000_000
    async with naming(client, node) as source:
        found = await named(source, lambda found: found.live)
        assert len(found.pods) == 1000
        large = {f"note-{number}": "x" * 50_000 for number in range(5)}
        uid = await run_pod(server_api, server_namespace, "large", node, annotations=large)
        found = await named(source, lambda found: uid in found.pods)
        assert len(found.pods) == 1001


# --- faults -----------------------------------------------------------------------------------------------------------


class Between:
    """
    A proxy before the real server, which refuses or cuts on demand.

    A question to the real server is never cancelled, only its answer thrown away: asyncio forgets a connection that is
    cancelled in its TLS handshake, and the garbage collector complains of it in whichever test is next.
    """

    def __init__(self, bed: Bed) -> None:
        self.refusals: list[web.Response] = []
        self.watches: list[web.Request] = []
        self._server = bed.control_plane.server
        trust = trusting(bed.control_plane.authority.certificate)
        self._session = aiohttp.ClientSession(connector=Connector(trust, force_close=True))
        self._asked: list[asyncio.Task[aiohttp.ClientResponse]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.refusals:
            return self.refusals.pop(0)
        headers = {"Authorization": request.headers["Authorization"], "Accept": request.headers["Accept"]}
        asked = asyncio.ensure_future(self._ask(f"{self._server}{request.path_qs}", headers))
        self._asked.append(asked)
        answer = await asyncio.shield(asked)
        response = web.StreamResponse(status=answer.status)
        response.enable_chunked_encoding()
        await response.prepare(request)
        if "watch" in request.query:
            self.watches.append(request)
        with suppress(ConnectionResetError):  # it was cut
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        return response

    async def close(self) -> None:
        for answer in await asyncio.gather(*self._asked, return_exceptions=True):
            if isinstance(answer, aiohttp.ClientResponse):
                answer.close()
        await self._session.close()

    async def _ask(self, url: str, headers: dict[str, str]) -> aiohttp.ClientResponse:
        return await self._session.get(url, headers=headers)

    def cut(self) -> None:
        """Reset the newest watch."""
        transport = self.watches[-1].transport
        assert transport is not None
        transport.abort()


@asynccontextmanager
async def between(account: Account) -> AsyncIterator[tuple[Between, Client]]:
    authority = account.bed.control_plane.authority
    pair = authority.issue("proxy", "proxy", hosts=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    proxy = Between(account.bed)
    try:
        async with serving(proxy.answer, context=context) as server:
            yield proxy, account.client(port=int(server.url.rpartition(":")[2]))
    finally:
        await proxy.close()


async def test_a_dropped_watch_misses_nothing(
    account: Account, server_api: Api, server_namespace: str, node: str
) -> None:
    """The next watch reports what happened while the watch was cut, from the last version on: no second list."""
    async with between(account) as (proxy, client), naming(client, node) as source:
        await named(source, lambda found: found.live)
        await until(lambda: proxy.watches)
        for round_ in range(3):
            proxy.cut()
            await run_pod(server_api, server_namespace, f"p{round_}", node)
            if round_:
                await server_api.delete(f"{pods_of(server_namespace)}/p{round_ - 1}", gracePeriodSeconds=0)
            found = await named(source, lambda found, name=f"p{round_}": by_name(found, name))  # type: ignore[misc]
            assert found.live
            await until(lambda count=round_ + 2: len(proxy.watches) >= count)  # type: ignore[misc]
        found = await named(source, lambda found: [one.terminating for one in found.pods.values()].count(False) == 1)
        assert len(found.pods) == 3

    async def written() -> bool:
        return ("watch", "pods", 200) in account.requests()

    await becomes(written, "the audit log")
    assert account.lists() == 1


@pytest.mark.parametrize(
    "answer",
    [(429, "TooManyRequests"), (504, "Timeout"), (410, "Expired"), (500, "InternalError")],
)
async def test_refusals_pass(
    account: Account, server_api: Api, server_namespace: str, node: str, answer: tuple[int, str]
) -> None:
    """A server that refuses for a while loses nothing: names stay meanwhile, and afterwards all is known and live."""
    kept = await run_pod(server_api, server_namespace, "kept", node)
    async with between(account) as (proxy, client), naming(client, node) as source:
        await named(source, lambda found: found.live)
        await until(lambda: proxy.watches)
        proxy.refusals += [refusal(*answer) for _ in range(4)]
        proxy.cut()
        new = await run_pod(server_api, server_namespace, "new", node)
        await until(lambda: not proxy.refusals)
        assert kept in source.inventory().pods
        found = await named(source, lambda found: found.live and new in found.pods)
        assert set(found.pods) == {kept, new}


async def test_a_server_that_fell_back_is_noticed(
    account: Account, server_api: Api, server_namespace: str, node: str
) -> None:
    """After a restore from a backup the server has never come as far as we were: it says nothing, and all is listed."""
    patience = Patience(first=0.05, most=0.5, watch=(60, 60), idle=5.0)
    async with between(account) as (proxy, client), naming(client, node, patience=patience) as source:
        await named(source, lambda found: found.live)
        await until(lambda: proxy.watches)
        source._watch.pods = replace(source._watch.pods, version=str(10**12))
        proxy.cut()
        uid = await run_pod(server_api, server_namespace, "unheard-of", node)
        await named(source, lambda found: not found.live)
        await named(source, lambda found: found.live and uid in found.pods)


async def test_a_rotated_token_is_used(account: Account, server_api: Api, node: str) -> None:
    """After the kubelet wrote a new token, requests show that one: the audit log has both ids, in that order."""
    clock = Later()
    async with closing(account.client(clock=clock)) as client:
        await client.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
        await account.rotate()
        clock.ahead = 61.0
        await client.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})

    async def both() -> bool:
        return len(account.credentials()) == 2

    await becomes(both, "two credential ids in the audit log")


async def test_a_revoked_token_is_told_and_a_new_one_mends_it(
    account: Account, server_api: Api, server_namespace: str, node: str
) -> None:
    """The ServiceAccount is made anew: the old token is refused, names stay; with the new token all is live again."""
    uid = await run_pod(server_api, server_namespace, "kept", node)
    patience = Patience(first=0.05, most=0.5, watch=(1, 2), idle=90.0)
    async with naming(account.client(), node, patience=patience) as source:
        await named(source, lambda found: found.live)
        await server_api.delete(f"/api/v1/namespaces/{server_namespace}/serviceaccounts/{ACCOUNT}")
        # The server remembers for 10 s that the token was good. On a busy machine a question may run into its deadline
        # before that, which is reported as an outage.
        found = await named(source, lambda found: told(found) == ["api_unauthorized"])
        assert (uid in found.pods, found.live) == (True, False)
        await account.make_account()
        await account.rotate()
        await named(source, lambda found: found.live)


@pytest.fixture(scope="module")
def own_server() -> Iterator[Bed]:
    """An API server that only this module uses, so that it may be stopped."""
    require(requirements.missing(node=False))
    with Bed(node=False) as bed:
        yield bed


async def test_an_api_server_that_stops_and_starts(own_server: Bed, tmp_path: Path) -> None:
    """
    Stopped: names stay, not live. Started: all is live and right, without help.

    The versions of before are forgotten by then (410): other objects have moved them on while the watch was silent.
    """
    async with own_server.api() as api, fresh_namespace(api) as namespace:
        (node,) = await simulated_nodes.add(api, 1, prefix="stopping")
        account = Account(own_server, api, namespace, tmp_path / "serviceaccount")
        await account.make(*RULES)
        configs = f"/api/v1/namespaces/{namespace}/configmaps"
        old = await run_pod(api, namespace, "old", node)
        async with naming(account.client(), node) as source:
            await named(source, lambda found: found.live)
            for number in range(2):
                for map_ in range(20):
                    await api.create(configs, {"metadata": {"name": f"m-{number}-{map_}"}})
                restart = stop_api_server(own_server)
                found = await named(source, lambda found: not found.live)
                assert [fault.reason for fault in found.faults] == ["api_away"]
                assert found.pods[old].name == "old"
                await restart()
                new = await run_pod(api, namespace, f"new-{number}", node)
                found = await named(source, lambda found, new=new: found.live and new in found.pods)  # type: ignore[misc]
            await api.delete(f"{pods_of(namespace)}/old", gracePeriodSeconds=0)
            found = await named(source, lambda found: found.pods[old].terminating)
            assert sorted(one.name for one in found.pods.values() if not one.terminating) == ["new-0", "new-1"]
        assert account.lists() == 3, "the first, and one after each stop"


@pytest.mark.fault(19)
async def test_what_the_real_server_forgot_and_never_knew(own_server: Bed, tmp_path: Path) -> None:
    """Its own words for both: after a restart a watch of before is 410, and a list of the far future has its cause."""
    async with own_server.api() as api, fresh_namespace(api) as namespace:
        account = Account(own_server, api, namespace, tmp_path / "serviceaccount")
        await account.make(*RULES)
        await stop_api_server(own_server)()
        async with closing(account.client()) as client:
            with pytest.raises(KubeError) as forgotten:
                await watch_once(client, version="1")
            with pytest.raises(KubeError) as unknown:
                await client.get("/api/v1/pods", {"resourceVersion": str(10**12)})
    assert (forgotten.value.status, forgotten.value.reason) == (410, "Expired")
    assert (unknown.value.status, "ResourceVersionTooLarge" in unknown.value.causes) == (504, True)


async def watch_once(client: Client, *, version: str) -> None:
    async with client.watch("/api/v1/pods", {"resourceVersion": version}, seconds=5, idle=10.0) as lines:
        async for line in lines:
            parse_event(line)


def stop_api_server(bed: Bed) -> Callable[[], Awaitable[None]]:
    """Kill the API server of this bed (after SIGTERM it takes a minute); what is returned starts it as it was."""
    process = next(process for name, process in reversed(bed._processes._running) if name == "kube-apiserver")
    process.kill()
    process.wait(PATIENCE)

    async def restart() -> None:
        arguments = [str(word) for word in process.args]  # type: ignore[union-attr]
        await asyncio.to_thread(bed._processes.start, "kube-apiserver", arguments, bed.control_plane._ready)

    return restart
