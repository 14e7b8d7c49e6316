"""
What Kubernetes 1.37 has, or has behind a feature gate, that touches gpusteward: it reads on, and nothing acts for it.

In: a bed of Kubernetes 1.37 with these gates on (`versions.GATES`). Out: what the daemon shows of pods that use them,
and what its ServiceAccount may do. docs/platforms.md says what gpusteward makes of each.
"""

from __future__ import annotations

from typing import Any

import pytest

from cluster.bed import GPUS, NODE_NAME
from cluster.client import Api, ApiError, Object, until
from cluster.dra_plugin import DRIVER, RESOURCES
from cluster.manifests import pod
from cluster.stage import ENFORCER, NAMESPACE, Stage, seen, spec, truth
from cluster.test_claims import claim, claim_spec, driver, run, told
from daemon.running import Daemon
from driver.node import GiB

__all__ = ["driver"]

pytestmark = [pytest.mark.cluster, pytest.mark.versions(only="1.37-gates")]

TAINTS = f"{RESOURCES}/devicetaintrules"
EVICTION_REQUESTS = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/{}/evictionrequests"
POD_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/{}/podgroups"


def clean(daemon: Daemon, claims: dict[str, int], what: str) -> dict[str, Any]:
    """Wait for a complete round without faults in which these are the claims' bytes."""

    def there(snapshot: dict[str, Any]) -> dict[str, Any] | None:
        good = snapshot["complete"] and not snapshot["faults"] and told(daemon, "claim_memory_used_bytes") == claims
        return snapshot if good else None

    return daemon.until(there, what)


async def test_a_tainted_device_is_read_as_before_and_its_pods_go(driver: None, stage: Stage, namespace: str) -> None:
    """A taint that keeps pods away changes no account; one that evicts ends the pod, and the daemon sees it go."""
    await claim(stage, namespace, "tainted", "10Gi")
    await run(stage, namespace, "train", "1GiB", {"resourceClaimName": "tainted"})
    selector = {"driver": DRIVER, "pool": NODE_NAME, "device": "gpu-1"}
    try:
        with stage.daemon() as daemon:
            clean(daemon, {"tainted": GiB}, "the pod's use")
            taint = {"key": "example.com/ecc", "effect": "NoSchedule"}
            rule = {"metadata": {"name": "ecc"}, "spec": {"deviceSelector": selector, "taint": taint}}
            await stage.api.create(TAINTS, rule)
            clean(daemon, {"tainted": GiB}, "the same use beside a taint")
            await stage.api.delete(f"{TAINTS}/ecc")
            evicting = {"deviceSelector": selector, "taint": {**taint, "effect": "NoExecute"}}
            await stage.api.create(TAINTS, {"metadata": {"name": "ecc"}, "spec": evicting})

            async def gone() -> bool:
                return await stage.api.missing(f"/api/v1/namespaces/{namespace}/pods/train")

            await until(gone, "the pod to be evicted by the taint")
            clean(daemon, {}, "no use of the claim")
    finally:
        if not await stage.api.missing(f"{TAINTS}/ecc"):
            await stage.api.delete(f"{TAINTS}/ecc")


async def test_the_claim_of_a_pod_group_is_shared_by_its_pods(driver: None, stage: Stage, namespace: str) -> None:
    """One claim is made for the group and reserved for it, not for pods: it has the sum of what its pods hold."""
    template = {"metadata": {"name": "ours"}, "spec": {"spec": claim_spec("10Gi")}}
    await stage.api.create(f"{RESOURCES}/namespaces/{namespace}/resourceclaimtemplates", template)
    one = {"name": "gpu", "resourceClaimTemplateName": "ours"}
    group = {"metadata": {"name": "ranks"}, "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": [one]}}
    await stage.api.create(POD_GROUPS.format(namespace), group)
    for number, size in enumerate(("1GiB", "2GiB")):
        made = spec(f"alloc visible {size}", resource=None)
        made["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        made |= {"resourceClaims": [one], "schedulingGroup": {"podGroupName": "ranks"}}
        await stage.api.create(f"/api/v1/namespaces/{namespace}/pods", pod(f"rank-{number}", made))
    for number in range(2):
        ready = await stage.api.ready_pod(namespace, f"rank-{number}")
        stage.bed.driver.workload(ready["metadata"]["uid"]).ready()
    (shared,) = (await stage.api.get(f"{RESOURCES}/namespaces/{namespace}/resourceclaims"))["items"]
    assert {each["resource"] for each in shared["status"]["reservedFor"]} == {"podgroups"}
    name = shared["metadata"]["name"]
    with stage.daemon() as daemon:
        snapshot = clean(daemon, {name: 3 * GiB}, "what the group's claim holds")
        assert told(daemon, "claim_memory_limit_bytes") == {name: 10 * GiB}
        pods = {each["pod"] for each in snapshot["limits"] if each["claim"] == f"{namespace}/{name}"}
        assert pods == {"rank-0", "rank-1"}


async def test_a_pod_with_resources_of_its_own_is_resized_in_place(stage: Stage, namespace: str) -> None:
    """Limits of the pod as a whole hide no container, and a resize leaves its account as it was."""
    made = spec("alloc visible 1GiB")
    made["resources"] = {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    await stage.api.create(path, pod("whole", made))
    ready = await stage.api.ready_pod(namespace, "whole")
    stage.bed.driver.workload(ready["metadata"]["uid"]).ready()
    expected = await truth(stage, namespace)
    assert expected == {(namespace, "whole", GPUS[0].uuid): GiB}
    with stage.daemon() as daemon:
        seen(daemon, lambda: expected, "the pod's use")
        larger = {"spec": {"resources": {"limits": {"cpu": "600m", "memory": "320Mi"}}}}
        await stage.api.patch(f"{path}/whole/resize", larger)

        async def resized() -> Object | None:
            now = await stage.api.get(f"{path}/whole")
            limits = now["status"].get("resources", {}).get("limits", {})
            return now if limits.get("memory") == "320Mi" else None

        after = await until(resized, "the kubelet to resize the pod")
        assert after["status"]["containerStatuses"][0]["restartCount"] == 0
        seen(daemon, lambda: expected, "the same use after the resize")


async def test_an_eviction_request_is_not_the_daemons(stage: Stage, namespace: str) -> None:
    """The server keeps it, and no controller of 1.37 acts on it; the daemon's account may neither make nor read one."""
    await stage.enforcing()
    await stage.may_evict(namespace)
    made = {**spec("alloc visible 1GiB"), "evictionResponders": [{"name": "example.com/saver", "priority": 10000}]}
    await stage.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("asked", made))
    ready = await stage.api.ready_pod(namespace, "asked")
    target = {"pod": {"name": "asked", "uid": ready["metadata"]["uid"]}}
    wanted = {"target": target, "requester": "example.com/tester", "intent": "Eviction"}
    path = EVICTION_REQUESTS.format(namespace)
    request = {"metadata": {"name": "please"}, "spec": wanted}
    await stage.api.create(path, request)
    async with Api(await stage.api.token(NAMESPACE, ENFORCER)) as daemon_api:
        for ask in (daemon_api.create(path, {**request, "metadata": {"name": "mine"}}), daemon_api.get(path)):
            with pytest.raises(ApiError) as refused:
                await ask
            assert refused.value.status == 403
    with stage.daemon() as daemon:
        seen(daemon, lambda: {(namespace, "asked", GPUS[0].uuid): GiB}, "the pod that was asked to go, and lives")
