"""The daemon's client of the pod-resources API, at a real kubelet: what pods were handed, in good times and bad."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.bed import GPUS, INVENTORY, MIG_GPU, Bed
from cluster.client import Api, until
from cluster.manifests import pod, pod_spec
from cluster.versions import later
from exporter.devices.nvml import NvmlSource
from exporter.kube.allocations import allocations, sharing
from exporter.kube.pod_resources import PodResources, ask, socket_of
from exporter.model import Allocation, DeviceKey, Gpu, GpuUuid, Sharing
from stopping import stopped

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

ROOT = Path(__file__).parents[2]
GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
MIG = "nvidia.com/mig-1g.10gb"
FIRST, SECOND, SPLIT = (GpuUuid(gpu.uuid) for gpu in (*GPUS, MIG_GPU))
OFFERED = {
    DeviceKey(FIRST): (Sharing.TIME_SLICING, 2),
    DeviceKey(SECOND): (Sharing.TIME_SLICING, 4),
    DeviceKey(SPLIT, 1): (Sharing.MIG, 1),
    DeviceKey(SPLIT, 2): (Sharing.MIG, 1),
}


@pytest.fixture
async def gpus(cluster: Bed, monkeypatch: pytest.MonkeyPatch) -> tuple[Gpu, ...]:
    """The node's GPUs as the daemon's own NVML source sees them."""
    monkeypatch.setenv("FAKE_NVML_STATE", str(cluster.driver.folder))
    cluster.driver.preload()
    source = await NvmlSource.open()
    answer = await source.sample()
    await source.close()
    return tuple(sample.gpu for sample in answer.samples)


@pytest.fixture
async def source(cluster: Bed) -> AsyncIterator[PodResources]:
    """The daemon's source, asking ten times a second, once all devices of earlier tests are free and offered."""
    found = PodResources(socket_of(cluster.node.kubelet_folder), interval=0.1)
    running = asyncio.create_task(found.run())

    async def free() -> bool:
        return not found.view().holdings and set(found.view().allocatable or {}) >= set(INVENTORY)

    await until(free, "the devices of earlier tests to be free, and all to be offered")
    yield found
    running.cancel()


async def start_pod(api: Api, namespace: str, name: str, resources: dict[str, int]) -> None:
    """Create a pod and wait until it is Ready."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await api.create(path, pod(name, pod_spec(resources=resources)))

    async def ready() -> bool:
        conditions = (await api.get(f"{path}/{name}"))["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    await until(ready, f"pod {name} to be ready")


async def held(source: PodResources, gpus: tuple[Gpu, ...], count: int = 1) -> set[Allocation]:
    """The allocations, as soon as there are so many."""

    async def there() -> bool:
        return len(allocations(source.view(), gpus)) == count

    await until(there, f"{count} allocations")
    return set(allocations(source.view(), gpus))


@pytest.mark.parametrize(
    ("resource", "count", "devices"),
    [
        pytest.param(GPU, 1, {DeviceKey(FIRST): 1}, id="a replica"),
        pytest.param(SHARED, 3, {DeviceKey(SECOND): 3}, id="three replicas of a shared GPU"),
        pytest.param(MIG, 2, {DeviceKey(SPLIT, 1): 1, DeviceKey(SPLIT, 2): 1}, id="two MIG devices"),
    ],
)
async def test_a_pods_devices_are_the_drivers(  # noqa: PLR0917
    source: PodResources,
    gpus: tuple[Gpu, ...],
    node_api: Api,
    namespace: str,
    resource: str,
    count: int,
    devices: dict[DeviceKey, int],
) -> None:
    """What the kubelet handed to a real pod is resolved to the driver's devices; after its end no pod has them."""
    await start_pod(node_api, namespace, "train", {resource: count})
    assert await held(source, gpus, len(devices)) == {
        Allocation(namespace, "train", "main", resource, device, replicas) for device, replicas in devices.items()
    }
    assert (namespace, "train") in source.view().pods
    assert (source.view().live, source.view().faults) == (True, ())
    await node_api.delete(f"/api/v1/namespaces/{namespace}/pods/train")
    await held(source, gpus, 0)


async def test_the_kubelets_offer_tells_sharing_and_replicas(source: PodResources, gpus: tuple[Gpu, ...]) -> None:
    """GetAllocatableResources: replicas by GPU, instances by MIG device; MPS when the node's label says so."""
    assert sharing(source.view(), gpus, {}) == OFFERED
    mps = sharing(source.view(), gpus, {"nvidia.com/gpu.sharing-strategy": "mps"})
    assert {told for told, _ in mps.values()} == {Sharing.MPS, Sharing.MIG}


async def test_a_pod_that_ran_to_its_end_holds_nothing(
    cluster: Bed, source: PodResources, gpus: tuple[Gpu, ...], node_api: Api, namespace: str
) -> None:
    """
    Its device is free while the pod object is still there.

    Kubelets from 1.34 on list it no more. Older ones do: it counts as finished because the API server says so.
    """
    spec = pod_spec(command=["/bin/sh", "-c", "exit 0"], resources={GPU: 1}, restart="Never")
    path = f"/api/v1/namespaces/{namespace}/pods"
    await node_api.create(path, pod("once", spec))

    async def succeeded() -> bool:
        return bool((await node_api.get(f"{path}/once"))["status"].get("phase") == "Succeeded")

    await until(succeeded, "the pod to succeed")
    await held(source, gpus, int(later("1.34", cluster.control_plane.version)))
    assert allocations(source.view(), gpus, finished={(namespace, "once")}) == ()
    assert not await node_api.missing(f"{path}/once")


async def test_a_hung_kubelet_is_told_and_heard_again(cluster: Bed, gpus: tuple[Gpu, ...]) -> None:
    """A stopped kubelet process: its connection is taken but not answered; the view stays, and revives with it."""
    source = PodResources(socket_of(cluster.node.kubelet_folder), deadline=1)

    async def answers() -> bool:
        await source.ask()
        return source.view().live

    await until(answers, "the kubelet to answer")
    with stopped(kubelet(cluster).pid):
        await source.ask()
    assert [fault.reason for fault in source.view().faults] == ["kubelet_slow"]
    assert sharing(source.view(), gpus, {}) == OFFERED
    await until(answers, "the kubelet to answer again")


async def test_allocations_survive_the_kubelets_restart(
    cluster: Bed, source: PodResources, gpus: tuple[Gpu, ...], node_api: Api, namespace: str
) -> None:
    """
    The kubelet ends and starts while the API server hangs: it lists no pods and offers nothing, but nothing is lost.

    The kubelet lists all of it again once the API server is back and the device plugin has registered anew.
    """
    await start_pod(node_api, namespace, "train", {SHARED: 2})
    before = await held(source, gpus)
    kubelet(cluster).terminate()
    kubelet(cluster).wait()

    async def away() -> bool:
        return [fault.reason for fault in source.view().faults] == ["kubelet_away"]

    await until(away, "the kubelet to be away")
    assert set(allocations(source.view(), gpus)) == before

    server = dict(cluster._processes._running)["kube-apiserver"]
    with stopped(server.pid):
        await asyncio.to_thread(start_kubelet, cluster)

        async def lists_nobody() -> bool:
            view = source.view()
            return view.live and not view.pods and all(holding.remembered for holding in view.holdings)

        await until(lists_nobody, "the new kubelet's empty list")
        assert (await ask(socket_of(cluster.node.kubelet_folder))).holdings == ()
        assert set(allocations(source.view(), gpus)) == before
        assert sharing(source.view(), gpus, {}) == OFFERED

    async def named() -> bool:
        return [holding.remembered for holding in source.view().holdings] == [False]

    await until(named, "the kubelet to name the pod again")
    assert set(allocations(source.view(), gpus)) == before

    async def offered() -> bool:
        return set(source.view().allocatable or {}) >= set(INVENTORY)

    await until(offered, "the devices to be offered again")
    assert sharing(source.view(), gpus, {}) == OFFERED


ASK = """
import asyncio, pathlib, sys
from exporter.kube.pod_resources import ask
capabilities = pathlib.Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0]
print(capabilities, (asyncio.run(ask(pathlib.Path(sys.argv[1])))).live)
"""


async def test_root_without_capabilities_may_ask(cluster: Bed) -> None:
    """The kubelet's own modes on folder and socket let uid 0 in that has dropped every capability."""
    if shutil.which("setpriv") is None:
        pytest.fail("setpriv (Debian's util-linux) is needed to drop capabilities")
    drop = ["setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"]
    command = [*drop, sys.executable, "-c", ASK, str(socket_of(cluster.node.kubelet_folder))]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert output.decode() == "0000000000000000 True\n"


def kubelet(cluster: Bed) -> subprocess.Popen[bytes]:
    """The kubelet's process: the one that was started last."""
    return dict(cluster.node._processes._running)["kubelet"]


def start_kubelet(cluster: Bed) -> None:
    """Start the ended kubelet with the arguments it had; ready when its socket takes connections."""
    config = cluster.folder / "kubelet.json"
    words = kubelet(cluster).args
    assert isinstance(words, list)
    assert f"--config={config}" in words
    made = cluster.node.pod_resources_socket.stat().st_ctime_ns
    processes = cluster.node._processes
    as_a_node_starts = processes._again["kubelet"]
    processes.start("kubelet", words, lambda: cluster.node.pod_resources_socket.stat().st_ctime_ns != made)
    processes._again["kubelet"] = as_a_node_starts  # so that a later test's restart waits for the Node again
