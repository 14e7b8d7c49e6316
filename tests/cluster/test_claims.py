"""ResourceClaims (DRA) end to end: allocated by the real scheduler, run by the real kubelet, shown by the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster.bed import GPUS, Bed
from cluster.beside import beside
from cluster.client import Object
from cluster.dra_plugin import DRIVER, RESOURCES, driving
from cluster.manifests import pod
from cluster.stage import Stage, spec
from daemon.running import Daemon
from driver.node import GiB
from scraped import series

pytestmark = [pytest.mark.cluster, pytest.mark.versions(since="1.34")]

UUID = GPUS[1].uuid
CLAIM = ("namespace", "claim", "uuid")
MPS = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "GpuConfig",
    "sharing": {
        "strategy": "MPS",
        "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "2Gi", "defaultActiveThreadPercentage": 50},
    },
}


@pytest.fixture
def driver(cluster: Bed) -> Iterator[None]:
    """A DRA driver with one device; named before `namespace` in a test, because pods end before their driver does."""
    with beside(lambda: driving(cluster, {"gpu-1": UUID}, memory="40Gi")):
        yield


@pytest.fixture
def whole_devices(cluster: Bed) -> Iterator[None]:
    """The same, whose device is one claim's alone: NVIDIA's driver refuses MPS where shares are consumed."""
    with beside(lambda: driving(cluster, {"gpu-1": UUID}, memory="40Gi", shares=False)):
        yield


def claim_spec(memory: str | None, config: Object | None = None) -> Object:
    """Ask for a device, or for so much of one."""
    exactly: Object = {"deviceClassName": DRIVER}
    if memory is not None:
        exactly["capacity"] = {"requests": {"memory": memory}}
    devices: Object = {"requests": [{"name": "gpu", "exactly": exactly}]}
    if config is not None:
        devices["config"] = [{"requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": config}}]
    return {"devices": devices}


async def claim(stage: Stage, namespace: str, name: str, memory: str | None, config: Object | None = None) -> None:
    body = {"metadata": {"name": name}, "spec": claim_spec(memory, config)}
    await stage.api.create(f"{RESOURCES}/namespaces/{namespace}/resourceclaims", body)


async def run(stage: Stage, namespace: str, name: str, size: str, source: Object, *, container: str = "main") -> None:
    """Run a pod that uses a claim and holds so much, and wait until it does."""
    made = spec(f"alloc visible {size}", resource=None)
    main = made["containers"][0]
    main["name"] = container
    if "limits" in source:
        main["resources"] = source
    else:
        main["resources"] = {"claims": [{"name": "gpu"}]}
        made["resourceClaims"] = [{"name": "gpu", **source}]
    await stage.api.create(f"/api/v1/namespaces/{namespace}/pods", pod(name, made))
    ready = await stage.api.ready_pod(namespace, name)
    stage.bed.driver.workload(ready["metadata"]["uid"]).ready()


def told(daemon: Daemon, family: str) -> dict[str, float]:
    """Read claim to bytes of a family; there is one device."""
    return {claim: size for (_, claim, uuid), size in series(daemon.get("/metrics")[1], family, *CLAIM).items()}


async def test_two_pods_share_one_claim(driver: None, stage: Stage, namespace: str) -> None:
    """Its limit counts once, its use is the sum of both; the claim of a third pod beside them is its own."""
    await claim(stage, namespace, "shared", "10Gi")
    template = {"metadata": {"name": "own"}, "spec": {"spec": claim_spec("4Gi")}}
    await stage.api.create(f"{RESOURCES}/namespaces/{namespace}/resourceclaimtemplates", template)
    await run(stage, namespace, "rank-0", "1GiB", {"resourceClaimName": "shared"})
    with stage.daemon() as daemon:
        daemon.until(lambda _: told(daemon, "claim_memory_used_bytes") == {"shared": GiB}, "the first pod's use")
        await run(stage, namespace, "rank-1", "2GiB", {"resourceClaimName": "shared"})
        await run(stage, namespace, "alone", "512MiB", {"resourceClaimTemplateName": "own"})
        claims = await stage.api.get(f"{RESOURCES}/namespaces/{namespace}/resourceclaims")
        (own,) = (one["metadata"]["name"] for one in claims["items"] if one["metadata"]["name"] != "shared")
        limits, used = {"shared": 10 * GiB, own: 4 * GiB}, {"shared": 3 * GiB, own: GiB // 2}
        daemon.until(lambda _: told(daemon, "claim_memory_used_bytes") == used, f"what each claim holds: {used}")
        daemon.until(lambda _: told(daemon, "claim_memory_limit_bytes") == limits, f"what each may hold: {limits}")
        snapshot = daemon.until(lambda s: s if s["complete"] and not s["faults"] else None, "a round without faults")
        page = daemon.page()
        assert series(page, "device_memory_declared_bytes", "uuid") == {(UUID,): 14 * GiB}, "each claim once"
        assert series(page, "container_memory_limit_bytes", "pod") == {}, "no container has a limit of its own"
        sharing = {device["uuid"]: device["sharing"] for device in snapshot["devices"]}
        assert sharing[UUID] == "dra"
        shared = [one for one in snapshot["limits"] if one["claim"] == f"{namespace}/shared"]
        assert {one["pod"] for one in shared} == {"rank-0", "rank-1"}
        assert [one["report_only"] for one in shared] == [[], []], "sharing is no reason to only report it"
        await stage.api.delete(f"/api/v1/namespaces/{namespace}/pods/alone")
        await stage.api.delete(f"/api/v1/namespaces/{namespace}/pods/rank-1")
        daemon.until(lambda _: told(daemon, "claim_memory_used_bytes") == {"shared": GiB}, "one pod left")
        # Awaited: on a busy machine a round of 200 ms is soon stale, and a page without figures comes in between.
        daemon.until(lambda _: told(daemon, "claim_memory_limit_bytes") == {"shared": 10 * GiB}, "its limit as before")
    assert {("get", "resourceclaims"), ("list", "resourceslices"), ("get", "namespaces")} <= stage.asked()


async def test_a_claim_with_mps_limits_each_process(whole_devices: None, stage: Stage, namespace: str) -> None:
    """The driver's own configuration in a claim: a limit of each process, none of the claim, and its compute share."""
    await claim(stage, namespace, "mps", None, MPS)
    await run(stage, namespace, "mps-0", "1GiB", {"resourceClaimName": "mps"})
    with stage.daemon() as daemon:

        def declared(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
            return [one for one in snapshot["limits"] if one["scope"] == "process" and snapshot["complete"]]

        (limit,) = daemon.until(declared, "the limit of its processes")
        assert (limit["container"], limit["memory_bytes"], limit["enforced_by"]) == ("main", 2 * GiB, "mps")
        assert limit["compute_ratio"] == 0.5
        daemon.until(lambda _: told(daemon, "claim_memory_used_bytes") == {"mps": GiB}, "what the claim holds")
        assert told(daemon, "claim_memory_limit_bytes") == {}

        def shown(_: dict[str, Any]) -> bool:
            page = daemon.get("/metrics")[1]
            return ("mps-0", "nvidia-dra", "process") in series(page, "container_limit_info", "pod", "system", "scope")

        daemon.until(shown, "the scope of the limit")


async def test_an_extended_resource_that_is_served_by_a_claim(
    whole_devices: None, stage: Stage, namespace: str
) -> None:
    """No container names the claim that the scheduler made for `example.com/gpu`: the pod's status does."""
    served = {"spec": {"extendedResourceName": "example.com/gpu"}}
    await stage.api.patch(f"{RESOURCES}/deviceclasses/{DRIVER}", served)
    await run(stage, namespace, "old-style", "1GiB", {"limits": {"example.com/gpu": "1"}})
    (found,) = (await stage.api.get(f"{RESOURCES}/namespaces/{namespace}/resourceclaims"))["items"]
    name = found["metadata"]["name"]
    with stage.daemon() as daemon:
        daemon.until(lambda _: told(daemon, "claim_memory_used_bytes") == {name: GiB}, "what the claim holds")
        daemon.until(lambda _: told(daemon, "claim_memory_limit_bytes") == {name: 40 * GiB}, "what it may hold")
