"""
A stolen token evicts no pod of another node: the policy gpusteward-own-node on a real API server.

In: what deploy/manifests/evict ships, a thief with a node's token, pods of that node and of others. Out: what the
server says. Law: each no comes from this policy, in its words, and the pod lives.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from cluster import requirements, simulated_nodes
from cluster.bed import Bed
from cluster.client import Api, ApiError, Credentials, until
from cluster.fixtures import fresh_namespace, require
from cluster.manifests import pod, pod_spec
from cluster.theft import (
    ADMISSION,
    CONSENT,
    OWN,
    OWN_NODE,
    POLICY,
    SHIPPED,
    Scene,
    apply,
    bind,
    consent,
    denied,
    run_pod,
    stolen,
    theft,
)
from containers.cgroupfs import new_token
from enforcer.actions.evict.admission_probe import Guard, OwnPod, Sighting, evictions, missing, own_node
from enforcer.actions.kube_writer import Writer
from exporter.base.clock import SystemClock
from exporter.kube.credentials import from_kubeconfig

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

Look = Callable[[Writer, OwnPod], Awaitable[Sighting]]
DENIED = f"{denied(OWN_NODE)} "
ELSEWHERE = "the pod is not on the node of the token"
NO_PARAMS = 422  # the server's own refusal, where it knows no pod of the namespace
ANOTHER = "the API server knows the pod by another UID"


@pytest.fixture(scope="module")
def own_server() -> Iterator[Bed]:
    """An API server of this module's own: the policies are there for all evictions of the account."""
    require(requirements.missing(node=False))
    with Bed(node=False) as bed:
        yield bed


@pytest.fixture
async def scene(own_server: Bed) -> AsyncIterator[Scene]:
    """What is shipped, and consent."""
    async with own_server.api() as api, fresh_namespace(api) as namespace:
        await apply(api, *yaml.safe_load_all(SHIPPED.read_text()))
        async with theft(api, namespace) as made:
            yield made


@asynccontextmanager
async def writing(credentials: Credentials, folder: Path) -> AsyncIterator[Writer]:
    """The daemon's own client."""
    writer = Writer(from_kubeconfig(str(credentials.kubeconfig(folder / f"{uuid4()}.json"))), clock=SystemClock())
    try:
        yield writer
    finally:
        await writer.close()


async def another_node(api: Api) -> str:
    (name,) = await simulated_nodes.add(api, 1, prefix=f"other-{new_token()}")
    return name


async def evicted(api: Api, namespace: str, name: str, uid: str) -> tuple[int, str]:
    """What the server says to an eviction as the daemon sends it."""
    try:
        await api.evict(namespace, name, preconditions={"uid": uid})
    except ApiError as error:
        return error.status, error.message
    return 201, ""


async def dry_run(scene: Scene, name: str, uid: str) -> tuple[int, str]:
    """The same, and nothing is evicted."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": scene.namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    path = f"/api/v1/namespaces/{scene.namespace}/pods/{name}/eviction?dryRun=All"
    try:
        await scene.thief.create(path, body)
    except ApiError as error:
        return error.status, error.message
    return 201, ""


async def alive(api: Api, namespace: str, name: str) -> bool:
    found = await api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    return "deletionTimestamp" not in found["metadata"]


async def test_a_pod_of_another_node_is_refused(scene: Scene) -> None:
    """With its UID, in a namespace that consents; the pod of the own node beside it is evicted."""
    uid = await run_pod(scene.api, scene.namespace, "elsewhere", await another_node(scene.api))

    async def known() -> bool:
        return (await evicted(scene.thief, scene.namespace, "elsewhere", str(uuid4())))[0] == 403

    await until(known, "the server to know the pod")
    got, said = await evicted(scene.thief, scene.namespace, "elsewhere", uid)
    assert (got, DENIED in said, said.endswith(ELSEWHERE)) == (403, True, True), said
    assert await alive(scene.api, scene.namespace, "elsewhere")
    assert await scene.answer(scene.thief, preconditions={"uid": scene.uid}) == (201, "")


async def test_a_pod_without_a_node_is_refused(scene: Scene) -> None:
    """A pod that waits for its node is no node's."""
    made = await scene.api.create(f"/api/v1/namespaces/{scene.namespace}/pods", pod("waiting", pod_spec()))

    async def refused() -> str:
        got, said = await evicted(scene.thief, scene.namespace, "waiting", str(uuid4()))
        return said if got == 403 else ""

    await until(refused, "the server to know the pod")
    got, said = await evicted(scene.thief, scene.namespace, "waiting", made["metadata"]["uid"])
    assert (got, said.endswith(ELSEWHERE)) == (403, True), said
    assert await alive(scene.api, scene.namespace, "waiting")


async def test_a_mirror_pod_of_another_node_is_refused_and_of_the_own_is_not(scene: Scene) -> None:
    """A static pod's mirror is a pod like others: its node counts, and its UID in the API."""
    nodes = {"mine": scene.node, "theirs": await another_node(scene.api)}
    uids = {}
    for name, node in nodes.items():
        thing = pod(name, pod_spec() | {"nodeName": node})
        thing["metadata"]["annotations"] = {"kubernetes.io/config.mirror": new_token()}
        made = await scene.api.create(f"/api/v1/namespaces/{scene.namespace}/pods", thing)
        uids[name] = made["metadata"]["uid"]

        async def known(name: str = name) -> bool:
            return (await evicted(scene.thief, scene.namespace, name, str(uuid4())))[0] == 403

        await until(known, "the server to know the mirror")
    got, said = await evicted(scene.thief, scene.namespace, "theirs", uids["theirs"])
    assert (got, said.endswith(ELSEWHERE)) == (403, True), said
    assert await alive(scene.api, scene.namespace, "theirs")
    assert await evicted(scene.thief, scene.namespace, "mine", uids["mine"]) == (201, "")


async def test_a_pod_of_the_same_name_in_another_namespace_changes_nothing(scene: Scene) -> None:
    """Neither does one of the own node there excuse one of another node here, nor the other way round."""
    async with fresh_namespace(scene.api) as other:
        await consent(scene.api, other, {**CONSENT})
        await bind(scene.api, other)
        uids = {
            scene.namespace: scene.uid,
            other: await run_pod(scene.api, other, "victim", await another_node(scene.api)),
        }

        async def known() -> bool:
            return (await evicted(scene.thief, other, "victim", str(uuid4())))[0] == 403

        await until(known, "the server to know the other pod")
        for uid in uids.values():
            got, said = await evicted(scene.thief, other, "victim", uid)
            assert (got, DENIED in said) == (403, True), said
        assert await alive(scene.api, other, "victim")
        assert await evicted(scene.thief, scene.namespace, "victim", scene.uid) == (201, "")


async def test_a_pod_speaks_for_its_own_uid_alone(scene: Scene) -> None:
    """A successor on another node has another UID: a pod of its name that the server still remembers does not help."""
    got, said = await evicted(scene.thief, scene.namespace, "victim", str(uuid4()))
    assert (got, DENIED in said, said.endswith(ANOTHER)) == (403, True, True), said
    await scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/victim", gracePeriodSeconds=0)
    uid = await run_pod(scene.api, scene.namespace, "victim", await another_node(scene.api))

    async def refused() -> str:
        said = (await dry_run(scene, "victim", uid))[1]
        return "" if "no params found" in said else said  # for a moment it knows neither, and refuses, too

    said = await until(refused, "the server to know the successor, or to remember the pod before")
    assert DENIED in said and said.endswith((ELSEWHERE, ANOTHER))
    assert await scene.lives()


async def test_in_a_namespace_without_pods_nothing_is_evicted(scene: Scene) -> None:
    """A server that knows no pod of the namespace refuses, whatever was created there a moment ago."""
    async with fresh_namespace(scene.api) as other:
        await consent(scene.api, other, {**CONSENT})
        await bind(scene.api, other)

        async def refused() -> str:
            got, said = await evicted(scene.thief, other, "first", str(uuid4()))
            return said if got == NO_PARAMS and DENIED in said else ""

        assert "no params found" in await until(refused, "the server to read the label")
        uid = await run_pod(scene.api, other, "first", await another_node(scene.api))
        got, said = await evicted(scene.thief, other, "first", uid)
        assert (got in (403, NO_PARAMS), DENIED in said) == (True, True), said
        assert await alive(scene.api, other, "first")


async def test_a_new_pod_of_another_node_is_refused_once_the_server_knows_it(scene: Scene) -> None:
    """
    In the first moment the server may not know the pod, and then this policy does not see it: docs/threat-model.md.

    From the first refusal on each request is refused.
    """
    there = await another_node(scene.api)
    for number in range(10):
        name = f"new-{number}"
        uid = await run_pod(scene.api, scene.namespace, name, there)

        async def refused(name: str = name, uid: str = uid) -> str:
            return (await dry_run(scene, name, uid))[1]

        said = await until(refused, "the server to know the pod")
        assert DENIED in said and said.endswith(ELSEWHERE)
        assert [(await refused()).endswith(ELSEWHERE) for _ in range(3)] == [True] * 3
        assert await alive(scene.api, scene.namespace, name)


async def test_a_pod_that_was_just_bound_to_the_own_node_is_evicted_soon(scene: Scene) -> None:
    """Until the server's cache has the pod's node the answer is a no in plain words: the daemon tries again later."""
    path = f"/api/v1/namespaces/{scene.namespace}/pods"
    made = await scene.api.create(path, pod("bound", pod_spec()))
    target = {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": scene.node}}
    await scene.api.create(f"{path}/bound/binding", target)
    answers = []

    async def granted() -> bool:
        answers.append(await evicted(scene.thief, scene.namespace, "bound", made["metadata"]["uid"]))
        return answers[-1] == (201, "")

    await until(granted, "the server to know the pod's node")
    assert all((got, said.endswith(ELSEWHERE)) == (403, True) for got, said in answers[:-1]), answers


async def test_others_evict_what_they_like(scene: Scene) -> None:
    """`kubectl drain` by an administrator is not bound to a node."""
    uid = await run_pod(scene.api, scene.namespace, "elsewhere", await another_node(scene.api))
    assert await evicted(scene.api, scene.namespace, "elsewhere", uid) == (201, "")


async def test_the_daemon_finds_both_policies_or_says_which_is_not_there(scene: Scene, tmp_path: Path) -> None:
    """
    With a node's token both are seen, and nothing is evicted; each is missed when it is gone.

    A server without the second policy repeats the eviction for ten seconds because of its UID. The client may have
    stopped waiting by then: the policy is absent or unknown.
    """
    own = OwnPod(OWN, scene.own_pod[0])
    bindings = f"{ADMISSION}/validatingadmissionpolicybindings"
    async with writing(scene.thief.credentials, tmp_path) as writer:
        assert await missing(writer, own) is None
        for look, name in ((evictions, POLICY), (own_node, f"{OWN_NODE}-probe")):
            binding = await scene.api.get(f"{bindings}/{name}")
            await scene.api.delete(f"{bindings}/{name}")

            async def absent(look: Look = look) -> Sighting | None:
                sighting = await look(writer, own)
                return sighting if sighting.guard in {Guard.ABSENT, Guard.UNKNOWN} else None

            sighting = await until(absent, f"{name} to be missed")
            assert sighting.problem.reason.startswith(f"{sighting.policy} is {sighting.guard}: ")
            found = await missing(writer, own)
            assert found is not None and found.policy == sighting.policy
            await scene.api.create(bindings, {"metadata": {"name": name}, "spec": binding["spec"]})

            async def back() -> bool:
                return await missing(writer, own) is None

            await until(back, f"{name} to be seen again")
    assert await alive(scene.api, OWN, own.name)


async def test_a_token_without_a_node_is_reported_as_such(scene: Scene, tmp_path: Path) -> None:
    """As of Kubernetes before 1.30: each eviction would be refused, so the daemon is not armed, and says why."""
    async with writing(await stolen(scene.api, OWN, OWN), tmp_path) as writer:
        sighting = await missing(writer, OwnPod(OWN, scene.own_pod[0]))
    assert sighting is not None and sighting.guard is Guard.NO_NODE
    assert sighting.problem.fix == "run the daemon as a pod, on Kubernetes 1.30 or later"
