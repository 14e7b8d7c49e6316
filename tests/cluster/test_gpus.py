"""GPUs on a real node: the kubelet's own allocation, admission and pod-resources, and evictions that free them."""

from __future__ import annotations

import pytest

from cluster import pod_resources
from cluster.bed import GPUS, INVENTORY, MIG_GPU, NODE_NAME, Bed
from cluster.client import Api, ApiError, Object, until
from cluster.manifests import controller, disruption_budget, pod, pod_spec
from cluster.pod_resources import Holding

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
MIG = "nvidia.com/mig-1g.10gb"


def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


async def held(cluster: Bed, namespace: str) -> list[Holding]:
    """What pods of this namespace hold, as the kubelet says."""
    found = await pod_resources.holdings(cluster.node.pod_resources_socket)
    return [holding for holding in found if holding.namespace == namespace]


@pytest.fixture(autouse=True)
async def all_devices_free(cluster: Bed, node_api: Api) -> None:
    """Begin when no pod of an earlier test holds a device any more."""

    async def free() -> bool:
        return not await pod_resources.holdings(cluster.node.pod_resources_socket)

    await until(free, "the devices of earlier tests to be free")


async def test_the_node_offers_replicas_shared_gpus_and_mig(cluster: Bed, node_api: Api) -> None:
    """What the device plugin registered is the Node's allocatable, and the kubelet lists each id."""
    node = await node_api.get(f"/api/v1/nodes/{NODE_NAME}")
    assert {name: node["status"]["allocatable"][name] for name in INVENTORY} == {GPU: "2", SHARED: "4", MIG: "2"}
    offered = await pod_resources.allocatable(cluster.node.pod_resources_socket)
    assert offered == {name: sorted(ids) for name, ids in INVENTORY.items()}
    assert all("::" in device_id for device_id in offered[GPU] + offered[SHARED])


@pytest.mark.parametrize(
    ("resource", "count", "visible"),
    [
        pytest.param(GPU, 1, {GPUS[0].uuid}, id="one replica"),
        pytest.param(GPU, 2, {GPUS[0].uuid}, id="two replicas of one GPU"),
        pytest.param(SHARED, 1, {GPUS[1].uuid}, id="shared"),
        pytest.param(MIG, 2, {c.uuid for gi in MIG_GPU.instances for c in gi.computes}, id="two MIG devices"),
    ],
)
async def test_a_pod_gets_the_plugins_env_and_pod_resources_names_it(  # noqa: PLR0917 - fixtures and parameters
    cluster: Bed, node_api: Api, namespace: str, resource: str, count: int, visible: set[str]
) -> None:
    """The container sees the physical devices, each once; pod-resources names pod, container and replica ids."""
    await node_api.create(pods(namespace), pod("train", pod_spec(resources={resource: count})))
    await node_api.ready_pod(namespace, "train")
    env = cluster.kubectl("-n", namespace, "exec", "train", "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
    seen = env.strip().split(",")
    assert (len(seen), set(seen)) == (len(visible), visible)
    cluster.kubectl("-n", namespace, "exec", "train", "--", "test", "-d", "/run/fake-nvml/alloc")
    found = await held(cluster, namespace)
    ids = [device_id for holding in found for device_id in holding.device_ids]
    assert {(h.pod, h.container, h.resource) for h in found} == {("train", "main", resource)}
    assert (len(ids), len(set(ids))) == (count, count)
    assert set(ids) <= set(INVENTORY[resource])


async def test_a_workload_in_a_pod_holds_memory_of_its_gpu(cluster: Bed, node_api: Api, namespace: str) -> None:
    """The workload as a pod's first process allocates on the device that the kubelet handed out, and says so."""
    name = f"{namespace}-train"
    spec = pod_spec(command=["/bin/workload", "--name", name, "alloc visible 1GiB compute"], resources={SHARED: 1})
    await node_api.create(pods(namespace), pod("train", spec))
    await node_api.ready_pod(namespace, "train")
    workload = cluster.driver.workload(name)
    workload.ready()
    assert workload.says().held == {GPUS[1].uuid: 1 << 30}


async def test_more_replicas_than_there_are_wait_for_one(cluster: Bed, node_api: Api, namespace: str) -> None:
    """A third pod on two replicas is Pending, Unschedulable; it runs as soon as another is evicted."""
    for name in ("first", "second"):
        await node_api.create(pods(namespace), pod(name, pod_spec(resources={GPU: 1})))
        await node_api.ready_pod(namespace, name)
    await node_api.create(pods(namespace), pod("third", pod_spec(resources={GPU: 1})))

    async def unschedulable() -> bool:
        found = await node_api.get(f"{pods(namespace)}/third")
        return any(c.get("reason") == "Unschedulable" for c in found["status"].get("conditions", []))

    await until(unschedulable, "the scheduler's word on the third pod")
    await node_api.evict(namespace, "first")
    await node_api.ready_pod(namespace, "third")
    assert {h.pod for h in await held(cluster, namespace)} == {"second", "third"}


async def test_the_kubelet_refuses_a_pod_for_which_it_has_no_device(
    cluster: Bed, node_api: Api, namespace: str
) -> None:
    """A pod bound past the scheduler is refused by the kubelet's own admission: Failed, with the reason."""
    await node_api.create(pods(namespace), pod("all", pod_spec(resources={MIG: 2})))
    await node_api.ready_pod(namespace, "all")
    await node_api.create(pods(namespace), pod("late", pod_spec(resources={MIG: 1}) | {"nodeName": NODE_NAME}))

    async def refused() -> Object | None:
        status: Object = (await node_api.get(f"{pods(namespace)}/late"))["status"]
        return status if status.get("phase") == "Failed" else None

    status = await until(refused, "the kubelet's refusal")
    assert status["reason"] in ("UnexpectedAdmissionError", "OutOfnvidia.com/mig-1g.10gb")
    assert {h.pod for h in await held(cluster, namespace)} == {"all"}


async def test_an_eviction_removes_the_pod_and_frees_its_device(cluster: Bed, node_api: Api, namespace: str) -> None:
    """201, the container gets SIGTERM, the pod is gone after its grace, and the kubelet counts the device as free."""
    await node_api.create(pods(namespace), pod("train", pod_spec(resources={GPU: 2})))
    await node_api.ready_pod(namespace, "train")
    assert (await node_api.evict(namespace, "train"))["status"] == "Success"

    async def gone() -> bool:
        return await node_api.missing(f"{pods(namespace)}/train")

    await until(gone, "the evicted pod to be gone")

    async def free() -> bool:
        return not await held(cluster, namespace)

    await until(free, "its devices to be free")


async def test_a_deployments_evicted_pod_comes_back_as_another(cluster: Bed, node_api: Api, namespace: str) -> None:
    """An evicted pod of a Deployment is replaced by one of a new name and UID, which gets a device again."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    await node_api.create(path, controller("Deployment", "serve", pod_spec(resources={GPU: 1}), replicas=1))

    async def ready() -> list[Object]:
        items: list[Object] = (await node_api.get(pods(namespace)))["items"]
        return [
            item
            for item in items
            if "deletionTimestamp" not in item["metadata"]
            and any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", []))
        ]

    before = (await until(ready, "the first pod"))[0]["metadata"]
    await node_api.evict(namespace, before["name"])

    async def replaced() -> list[Object]:
        return [item for item in await ready() if item["metadata"]["uid"] != before["uid"]]

    after = (await until(replaced, "the second pod"))[0]["metadata"]
    assert after["name"] != before["name"]
    assert after["name"] in {h.pod for h in await held(cluster, namespace)}


async def test_a_budget_keeps_a_pod_and_its_device(cluster: Bed, node_api: Api, namespace: str) -> None:
    """While a PodDisruptionBudget needs it: 429, the pod runs on and keeps its device; without it: evicted."""
    await node_api.create(pods(namespace), pod("train", pod_spec(resources={GPU: 1}), labels={"app": "train"}))
    uid = (await node_api.ready_pod(namespace, "train"))["metadata"]["uid"]
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    await node_api.create(budgets, disruption_budget("keep", {"app": "train"}, min_available=1))

    async def counted() -> bool:
        status = (await node_api.get(f"{budgets}/keep")).get("status", {})
        return bool(status.get("currentHealthy") == 1)

    await until(counted, "the disruption controller to count the pod")
    with pytest.raises(ApiError, match="disruption budget") as caught:
        await node_api.evict(namespace, "train")
    assert caught.value.status == 429
    still = await node_api.ready_pod(namespace, "train")
    assert (still["metadata"]["uid"], "deletionTimestamp" in still["metadata"]) == (uid, False)
    assert [h.pod for h in await held(cluster, namespace)] == ["train"]

    await node_api.delete(f"{budgets}/keep")
    await node_api.evict(namespace, "train")


async def test_a_device_that_goes_leaves_the_node(cluster: Bed, node_api: Api, namespace: str) -> None:
    """ListAndWatch is live: a MIG device taken out of the inventory is no longer offered, and comes back."""

    async def offers(count: int) -> bool:
        node = await node_api.get(f"/api/v1/nodes/{NODE_NAME}")
        return bool(node["status"]["allocatable"].get(MIG) == str(count))

    cluster.set_inventory({**INVENTORY, MIG: INVENTORY[MIG][:1]})
    try:
        await until(lambda: offers(1), "one MIG device less")
    finally:
        cluster.set_inventory(INVENTORY)
    await until(lambda: offers(2), "both MIG devices again")


async def test_allocations_survive_a_restart_of_the_kubelet(cluster: Bed, node_api: Api, namespace: str) -> None:
    """A kubelet that was killed knows the allocation again from its checkpoint; the container ran on."""
    await node_api.create(pods(namespace), pod("train", pod_spec(resources={GPU: 1})))
    before = await node_api.ready_pod(namespace, "train")
    holding = await held(cluster, namespace)
    assert [h.pod for h in holding] == ["train"]
    cluster.node.restart_kubelet()

    async def known_again() -> bool:
        return await held(cluster, namespace) == holding

    await until(known_again, "the kubelet to know the allocation")

    async def offered_again() -> bool:
        node = await node_api.get(f"/api/v1/nodes/{NODE_NAME}")
        return {name: node["status"]["allocatable"].get(name) for name in INVENTORY} == {
            GPU: "2",
            SHARED: "4",
            MIG: "2",
        }

    await until(offered_again, "the devices to be offered again")
    after = await node_api.ready_pod(namespace, "train")
    ids = [found["status"]["containerStatuses"][0]["containerID"] for found in (before, after)]
    assert ids[0] == ids[1]
