"""
What a stolen token can do, tried on a real API server with what deploy/manifests/evict ships.

In: tokens of the daemon's ServiceAccount, bound to pods as the kubelet binds them, and unbound ones. Out: what the
server says to each request that a thief may think of. Law: each no comes from the rule that is meant, in that rule's
text, and the pod lives. What is not stopped is tried, too, and docs/threat-model.md says it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import requirements, simulated_nodes
from cluster.bed import Bed
from cluster.client import Api, ApiError, Object, until
from cluster.fixtures import fresh_namespace, require
from cluster.manifests import pod, pod_spec
from cluster.theft import (
    ADMISSION,
    CONSENT,
    OWN,
    OWN_NODE,
    POLICY,
    RBAC,
    SHIPPED,
    Scene,
    apply,
    consent,
    denied,
    run_pod,
    stolen,
    theft,
)
from containers.cgroupfs import new_token
from deploy import chart

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

DENIED = f"{denied(POLICY)} "


@pytest.fixture(scope="module")
def own_server() -> Iterator[Bed]:
    """An API server of this module's own: the policy is there for all evictions of the account."""
    require(requirements.missing(node=False))
    with Bed(node=False) as bed:
        yield bed


@pytest.fixture
async def scene(own_server: Bed) -> AsyncIterator[Scene]:
    """What is shipped, and consent."""
    things = list(yaml.safe_load_all(SHIPPED.read_text()))
    async with own_server.api() as api, fresh_namespace(api) as namespace:
        await apply(api, *things)
        async with theft(api, namespace) as made:
            yield made


async def test_the_daemons_own_eviction_is_let_through(scene: Scene) -> None:
    """UID, a node's token, consent: granted."""
    assert await scene.answer(scene.thief, preconditions={"uid": scene.uid}) == (201, "")
    assert not await scene.lives()


NO_UID = "an eviction needs a UID precondition"
MORE = "deleteOptions may hold dryRun and preconditions.uid alone, and no grace period"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing said": ({}, NO_UID),
    "no precondition": ({"gracePeriodSeconds": 30}, NO_UID),
    "a precondition of another kind": ({"preconditions": {"resourceVersion": "1"}}, NO_UID),
    "an empty UID": ({"preconditions": {"uid": ""}}, NO_UID),
    "a further precondition": ({"preconditions": {"uid": "{uid}", "resourceVersion": "1"}}, MORE),
    "no grace": ({"preconditions": {"uid": "{uid}"}, "gracePeriodSeconds": 0}, MORE),
    "a shorter grace": ({"preconditions": {"uid": "{uid}"}, "gracePeriodSeconds": 1}, MORE),
    "a longer grace": ({"preconditions": {"uid": "{uid}"}, "gracePeriodSeconds": 3600}, MORE),
    "a grace below zero": ({"preconditions": {"uid": "{uid}"}, "gracePeriodSeconds": -1}, MORE),
    "in the foreground": ({"preconditions": {"uid": "{uid}"}, "propagationPolicy": "Foreground"}, MORE),
    "leaving orphans": ({"preconditions": {"uid": "{uid}"}, "propagationPolicy": "Orphan"}, MORE),
    "leaving orphans, as it was": ({"preconditions": {"uid": "{uid}"}, "orphanDependents": True}, MORE),
}
"""What the daemon never sends, and the words of the rule that refuses it."""


@pytest.mark.parametrize("what", REFUSED)
async def test_an_eviction_that_the_daemon_would_not_make_is_refused(scene: Scene, what: str) -> None:
    """By the rule that is meant, in its words; and the pod lives."""
    options, words = REFUSED[what]
    preconditions = options.get("preconditions", {})
    if preconditions.get("uid") == "{uid}":
        options = {**options, "preconditions": {**preconditions, "uid": scene.uid}}
    got, said = await scene.answer(scene.thief, **options)
    assert (got, words in said, DENIED in said) == (403, True, True), said
    assert await scene.lives()


async def test_a_token_without_a_node_is_refused(scene: Scene) -> None:
    """A user that may make tokens of the account, and is not the kubelet of a node with its pod, evicts no pod."""
    async with Api(await stolen(scene.api, OWN, OWN)) as unbound:
        got, said = await scene.answer(unbound, preconditions={"uid": scene.uid})
    assert got == 403 and said.endswith("denied request: the token carries no node claim")
    assert await scene.lives()


@pytest.mark.parametrize(
    "labels", [{"gpusteward.io/mode": None}, {"gpusteward.io/mode": "dry-run"}, {"gpusteward.io/mode": ""}]
)
async def test_a_namespace_that_takes_its_word_back_is_left_alone(scene: Scene, labels: dict[str, str | None]) -> None:
    """At once, though the RoleBinding is still there: without the label, with another value, with an empty one."""
    await consent(scene.api, scene.namespace, labels)

    async def refused() -> str:
        got, said = await scene.answer(scene.thief, preconditions={"uid": scene.uid}, dryRun=["All"])
        return said if got == 403 else ""

    assert "the namespace does not consent" in await until(refused, "the server to read the label")
    got, said = await scene.answer(scene.thief, preconditions={"uid": scene.uid})
    assert got == 403 and DENIED in said
    assert await scene.lives()


async def test_a_label_without_the_role_is_no_consent(scene: Scene) -> None:
    """A user that may label a namespace, and may not bind roles there, gives the daemon no right."""
    async with fresh_namespace(scene.api) as other:
        await consent(scene.api, other, {**CONSENT})
        uid = await run_pod(scene.api, other, "victim", scene.node)
        got, said = await scene.answer(scene.thief, namespace=other, preconditions={"uid": uid})
        assert got == 403 and "cannot create resource" in said and DENIED not in said
        assert await scene.lives(other)


async def test_the_daemons_themselves_are_not_evicted(scene: Scene) -> None:
    """The role is bound in their namespace, too, for the canary: the policy refuses, because there is no consent."""
    name, uid = scene.own_pod
    with pytest.raises(ApiError, match="the namespace does not consent") as caught:
        await scene.thief.evict(OWN, name, preconditions={"uid": uid})
    assert caught.value.status == 403
    assert "deletionTimestamp" not in (await scene.api.get(f"/api/v1/namespaces/{OWN}/pods/{name}"))["metadata"]


async def test_all_else_that_ends_or_changes_pods_is_refused(scene: Scene) -> None:
    """Delete, delete all, patch, status, exec, create; secrets and tokens; nodes and their kubelets: 403 each."""
    pods = f"/api/v1/namespaces/{scene.namespace}/pods"
    empty: Object = {}
    tried = {
        "delete": scene.thief.delete(f"{pods}/victim"),
        "deletecollection": scene.thief.delete(pods),
        "patch": scene.thief.patch(f"{pods}/victim", {"metadata": {"labels": {"a": "b"}}}),
        "status": scene.thief.patch(f"{pods}/victim/status", {"status": {"phase": "Failed"}}),
        "ephemeral": scene.thief.patch(f"{pods}/victim/ephemeralcontainers", {"spec": {}}),
        "exec": scene.thief.create(f"{pods}/victim/exec?command=id", empty),
        "binding": scene.thief.create(f"{pods}/victim/binding", empty),
        "create": scene.thief.create(pods, pod("mine", pod_spec())),
        "secrets": scene.thief.get(f"/api/v1/namespaces/{scene.namespace}/secrets"),
        "own secrets": scene.thief.get(f"/api/v1/namespaces/{OWN}/secrets"),
        "tokens": scene.thief.create(f"/api/v1/namespaces/{OWN}/serviceaccounts/{OWN}/token", {"spec": {}}),
        "node": scene.thief.patch(f"/api/v1/nodes/{scene.node}", {"spec": {"unschedulable": True}}),
        "kubelet": scene.thief.get(f"/api/v1/nodes/{scene.node}/proxy/pods"),
        "consent": scene.thief.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": CONSENT}}),
        "roles": scene.thief.get(f"{RBAC}/clusterroles"),
        "policy": scene.thief.delete(f"{ADMISSION}/validatingadmissionpolicies/{POLICY}"),
        "config": scene.thief.get(f"/api/v1/namespaces/{OWN}/configmaps"),
    }
    found = {}
    for what, asked in tried.items():
        with pytest.raises(ApiError) as caught:
            await asked
        found[what] = caught.value.status
    assert found == dict.fromkeys(tried, 403)
    assert await scene.lives()


async def test_others_are_not_bound_by_the_policy(scene: Scene) -> None:
    """`kubectl drain` evicts as it always did: the policy is about one account."""
    assert await scene.answer(scene.api) == (201, "")


async def test_a_token_dies_with_the_pod_that_it_was_bound_to(scene: Scene) -> None:
    """Delete the daemon's pod, and what was stolen of it is worth nothing."""
    name, _ = scene.own_pod
    await scene.api.delete(f"/api/v1/namespaces/{OWN}/pods/{name}", gracePeriodSeconds=0)

    async def refused() -> bool:
        return (await scene.answer(scene.thief, preconditions={"uid": scene.uid}, dryRun=["All"]))[0] == 401

    await until(refused, "the token to be refused")
    assert await scene.lives()


async def test_another_release_with_another_label(own_server: Bed, tmp_path: Path) -> None:
    """The chart's policy for another release, account and label works, and the usual label says nothing there."""
    values = {
        "rights": ["events", "evict"],
        "config": {"policy": {"namespaces": {"label": "example.com/gpu-policy=strict"}}},
        "admission": {"serviceAccounts": [{"namespace": OWN, "name": OWN}]},
    }
    rendering = chart.text(chart.written(tmp_path, values), release="t4", namespace="pool")
    async with own_server.api() as api, fresh_namespace(api) as namespace:
        if await api.missing(f"/api/v1/namespaces/{'pool'}"):
            await api.create("/api/v1/namespaces", {"metadata": {"name": "pool"}})
        bindings = [f"ybindings/{name}" for name in (POLICY, OWN_NODE, f"{OWN_NODE}-probe")]
        for end in (*bindings, f"ies/{POLICY}", f"ies/{OWN_NODE}"):  # one of each a cluster: these in their place
            path = f"{ADMISSION}/validatingadmissionpolic{end}"
            if not await api.missing(path):
                await api.delete(path)
        await apply(api, *chart.objects(rendering))
        labels: dict[str, str | None] = {"example.com/gpu-policy": "strict"}
        async with theft(api, namespace, labels, "pool", "t4-gpusteward") as scene:
            await consent(api, namespace, {"example.com/gpu-policy": "lax", **CONSENT})

            async def refused() -> str:
                return (await scene.answer(scene.thief, preconditions={"uid": scene.uid}, dryRun=["All"]))[1]

            assert "the namespace does not consent" in await until(refused, "the other label to count")
            await consent(api, namespace, labels)

            async def granted() -> bool:
                return (await scene.answer(scene.thief, preconditions={"uid": scene.uid}, dryRun=["All"]))[0] == 201

            await until(granted, "the label to count")
            assert await scene.lives(), "a dry run does nothing"
            assert await scene.answer(scene.thief, preconditions={"uid": scene.uid}) == (201, "")


async def test_who_kills_needs_no_right_to_evict(own_server: Bed, tmp_path: Path) -> None:
    """The ladder notify, kill: the last look sees pod and namespace where the role is bound; no eviction is granted."""
    async with own_server.api() as api, fresh_namespace(api) as namespace, fresh_namespace(api) as elsewhere:
        if await api.missing("/api/v1/namespaces/killers"):
            await api.create("/api/v1/namespaces", {"metadata": {"name": "killers"}})
        policy = {"mode": "enforce", "ladder": ["notify", "kill"]}
        values = {"config": {"policy": policy}, "evict": {"namespaces": [namespace]}}
        things = chart.objects(chart.text(chart.written(tmp_path, values), release="killer", namespace="killers"))
        await apply(api, *things)
        (node,) = await simulated_nodes.add(api, 1, prefix=f"node-{new_token()}")
        uid = await run_pod(api, namespace, "victim", node)
        await run_pod(api, elsewhere, "victim", node)
        async with Api(await stolen(api, "killers", "killer-gpusteward")) as daemon:

            async def sees() -> bool:
                try:
                    found = await daemon.get(f"/api/v1/namespaces/{namespace}/pods/victim")
                except ApiError as error:
                    if error.status != 403:
                        raise
                    return False
                return bool(found["metadata"]["uid"] == uid)

            await until(sees, "the roles to be in force")
            assert (await daemon.get(f"/api/v1/namespaces/{namespace}"))["metadata"]["name"] == namespace
            with pytest.raises(ApiError, match="cannot get resource"):
                await daemon.get(f"/api/v1/namespaces/{elsewhere}/pods/victim")
            with pytest.raises(ApiError, match="cannot create resource"):
                await daemon.evict(namespace, "victim", preconditions={"uid": uid})
