"""
The whole way of each vendor: library, kubelet's answer and pod's declarations, to the metrics of its containers.

The exporter's own modules and the sockets between them are real. The vendor's library (C, in this process), the
kubelet, the API server and `/proc` are fake. Two pods are on the device: what one declares must not become the other's.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from exporter.base.clock import SystemClock
from exporter.host.procfs import ProcFs
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.pod_resources import socket_of
from exporter.kube.proto import pod_resources_pb2 as api
from exporter.kube.source import KubernetesSource
from exporter.limits.loading import builtin
from exporter.metrics.exposition import Exposition
from exporter.rounds.latest import Latest
from exporter.rounds.limits import Limiting
from exporter.rounds.sampler import Beat, Sampler
from kubelet.fake import FakeKubelet
from libraries.fake import FakeDevice, FakePart, FakeProcess, GiB, MiB
from libraries.fixtures import Install, Open
from libraries.proc import NULL, Proc, pod_cgroup
from scraped import series
from sources.kube_api import kubeconfig, listing, pod, refusal, serving, until

Object = dict[str, Any]
Page = Callable[..., Awaitable[str]]
UIDS = {"trainer": "11111111-1111-4111-8111-111111111111", "server": "22222222-2222-4222-8222-222222222222"}
CONTAINERS = {name: sha256(name.encode()).hexdigest() for name in UIDS}
PIDS = {"trainer": 4001, "server": 4002}
MLU = "00000000-0000-0000-0000-000012345678"
DIE = "E0F4EE64-802061B1-6A691492-89528485-104301E3"
DIE_2 = "E281A66C-140C9790-2CFBED72-A4500485-104301E3"
PPU = "GPU-019e2226-4211-0208-0000-000000ab261d"
GPU, GPU_2 = "GPU-3fd4ee8f-169c-6d31-f9dc-c2a90a441f1b", "GPU-3c0d0f70-9f8d-8a2f-a4bf-2910193f4e49"


@dataclass(frozen=True, slots=True)
class Story:
    """
    One vendor's node, and what is expected of the pod `trainer`; `server` holds 2 GiB beside it.

    `server_limit`: what `server` declares: nothing, or the whole card.

    `nodes`: the kernel shows which processes have device nodes open; else the kubelet's list must prove the numbers.
    `handed`: the pods to which the device was handed, by the kubelet's ids.
    """

    variant: str
    device: str
    resource: str
    ids: Mapping[str, tuple[str, ...]]
    requests: Mapping[str, str]
    limit: int | None
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_annotations: Mapping[str, str] = field(default_factory=dict)
    uuids: tuple[str, str] = (GPU, GPU_2)
    nodes: bool = True
    handed: tuple[str, ...] = ()
    pod_limit: int | None = None
    server_limit: int | None = None


STORIES = {
    "iluvatar, HAMi": Story(
        "ixml-v3",
        GPU,
        "iluvatar.ai/BI-V150-vgpu",
        {"trainer": ("made-up-0",), "server": ("made-up-1",)},
        {"iluvatar.ai/BI-V150-vgpu": "1", "iluvatar.ai/BI-V150.vMem": "32"},
        32 * 256 * MiB,
    ),
    "iluvatar, the vendor's plugin": Story(
        "ixml",
        GPU,
        "iluvatar.com/gpu",
        {"trainer": (f"{GPU}::0",), "server": (f"{GPU}::1",)},
        {"iluvatar.com/gpu": "1"},
        8 * GiB,
        annotations={"nvidia.com/container.main.gpu-memory.limit": "8Gi"},
        nodes=False,
        handed=("trainer", "server"),
    ),
    "enflame": Story(
        "efml",
        "enflame-0000:3b:00.0",
        "enflame.com/drs-gcu",
        {"trainer": ("0-1",), "server": ("0-2",)},
        {"enflame.com/drs-gcu": "1", "enflame.com/gcu-memory": "6"},
        6 * GiB,
    ),
    "metax": Story(
        "mxsml",
        GPU,
        "metax-tech.com/sgpu",
        {"trainer": ("sgpu-0",), "server": ("sgpu-1",)},
        {"metax-tech.com/sgpu": "1", "metax-tech.com/vmemory": "4"},
        4 * GiB,
        annotations={"metax-tech.com/gpu-devices-allocated": f'[[{{"uuid":"{GPU}","compute":25,"vRam":4096}}]]'},
    ),
    "kunlunxin": Story(
        "xpuml",
        "02K00Y6217V000X7",
        "kunlunxin.com/vxpu",
        {"trainer": ("v0",), "server": ("v1",)},
        {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "20000"},
        24576 * MiB,
        uuids=("02K00Y6217V000X7", "02K00Y6217V000X8"),
    ),
    "t-head": Story(
        "hgml",
        PPU,
        "example.com/ppu",
        {"trainer": (PPU,), "server": (PPU,)},
        {"example.com/ppu": "1"},
        16 * GiB,
        annotations={"nvidia.com/container.main.gpu-memory.limit": "16Gi"},
        uuids=(PPU, PPU.replace("261d", "261e")),
        nodes=False,
        handed=("trainer", "server"),
    ),
    "ascend, HAMi": Story(
        "dcmi",
        DIE,
        "huawei.com/Ascend910B2",
        {"trainer": ("Ascend910B2-0",), "server": ("Ascend910B2-1",)},
        {"huawei.com/Ascend910B2": "1", "huawei.com/Ascend910B2-memory": "16384"},
        16384 * MiB,
        annotations={"huawei.com/Ascend910B2": f'[{{"UUID":"{DIE}","temp":"vir05_1c_16g","memory":16384}}]'},
        uuids=(DIE, DIE_2),
        server_limit=64 * GiB,
    ),
    "ascend, MindCluster": Story(  # the kubelet says the other device, and the plugin what it really gave
        "dcmi",
        DIE,
        "huawei.com/Ascend910",
        {"trainer": ("Ascend910-7",), "server": ("Ascend910-6",)},
        {"huawei.com/Ascend910": "1"},
        64 * GiB,
        annotations={"huawei.com/AscendReal": "Ascend910-6"},
        uuids=(DIE, DIE_2),
        handed=("trainer",),
        server_limit=64 * GiB,
    ),
    "ascend, MindCluster's soft sharing": Story(
        "dcmi",
        DIE,
        "huawei.com/Ascend910",
        {"trainer": ("Ascend910-7-12",), "server": ("Ascend910-7-13",)},
        {"huawei.com/Ascend910": "1"},
        None,
        annotations={
            "huawei.com/AscendReal": "Ascend910-6",
            "huawei.com/scheduler.softShareDev.hbmQuota": "16384",
            "huawei.com/scheduler.softShareDev.aicoreQuota": "25",
        },
        uuids=(DIE, DIE_2),
        handed=("trainer",),
        pod_limit=16384 * MiB,
        server_limit=64 * GiB,
    ),
    "hygon": Story(
        "rsmi",
        "hygon-000000002a4f00c1",
        "hygon.com/dcunum",
        {"trainer": ("d0",), "server": ("d1",)},
        {"hygon.com/dcunum": "1", "hygon.com/dcumem": "6000"},
        6000 * MiB,
        uuids=("2a4f00c1", "2a4f00c2"),
    ),
    "cambricon": Story(
        "cndev",
        f"MLU-{MLU}",
        "cambricon.com/mlu",
        {"trainer": (f"MLU-{MLU}-_-1",), "server": (f"MLU-{MLU}-_-2",)},
        {"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vmemory": "20"},
        20 * 256 * MiB,
        annotations={"CAMBRICON_DSMLU_PROFILE": "0_25_20"},
        uuids=(MLU, MLU.replace("5678", "9999")),
        handed=("trainer", "server"),
    ),
}


@asynccontextmanager
async def node(story: Story, tmp_path: Path) -> AsyncIterator[KubernetesSource]:
    """Run a kubelet and an API server that know the two pods."""

    def made(name: str) -> Object:
        mine = name == "trainer"
        limits = dict(story.requests) if mine else {story.resource: "1"}
        return pod(
            name,
            UIDS[name],
            namespace="ml",
            metadata={"annotations": dict(story.annotations) if mine else {}},
            spec={"containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}]},
            status={"containerStatuses": [{"name": "main", "containerID": f"containerd://{CONTAINERS[name]}"}]},
        )

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/pods" and "watch" in request.query:
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            await asyncio.Event().wait()
        if request.path == "/api/v1/pods":
            return web.Response(body=listing(*map(made, UIDS)))
        if request.path == "/api/v1/nodes/n1":
            metadata = {"name": "n1", "annotations": dict(story.node_annotations)}
            return web.json_response({"metadata": metadata, "status": {"allocatable": {story.resource: "2"}}})
        if request.path.startswith("/api/v1/namespaces/"):
            return web.json_response({"metadata": {}})
        return refusal(404, "NotFound")

    devices = {
        name: [api.ContainerDevices(resource_name=story.resource, device_ids=ids)] for name, ids in story.ids.items()
    }
    listed = api.ListResponse(
        pod_resources=[
            api.PodResources(
                name=name, namespace="ml", containers=[api.ContainerResources(name="main", devices=devices[name])]
            )
            for name in UIDS
        ]
    )
    socket = socket_of(tmp_path)  # a socket's path has at most 107 characters
    async with (
        serving(answer) as server,
        FakeKubelet(socket, listed=listed, allocatable=api.AllocatableResponse()),
    ):
        credentials = from_kubeconfig(kubeconfig(tmp_path / "config", server.url))
        source = KubernetesSource(credentials, "n1", clock=SystemClock(), socket=socket)
        task = asyncio.create_task(source.run())
        try:
            await until(lambda: (found := source.inventory(())).declared and found.node)
            await until(lambda: source._kubelet.view().known)
            yield source
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def page_of(tmp_path: Path, install: Install, sources: Open) -> Page:
    """Make one round of a story's node, and give its page of metrics."""

    async def page(story: Story, *, parts: tuple[FakePart, ...] = (), pids: Mapping[str, int] = PIDS) -> str:
        host = Proc.made(tmp_path / "host")
        host.node("fake0")
        for name, pid in PIDS.items():
            opened = (NULL,) if story.nodes else ()
            host.process(pid, pod_cgroup(UIDS[name], CONTAINERS[name]), *opened, hidden=not story.nodes)
        library = install(story.variant)
        processes = (FakeProcess(pids["trainer"], 5 * GiB), FakeProcess(pids["server"], 2 * GiB))
        first = FakeDevice(
            0,
            story.uuids[0],
            minor=6,
            total=64 * GiB,
            free=56 * GiB,
            node="/dev/fake0",
            processes=processes,
            parts=parts,
        )
        second = replace(first, index=1, uuid=story.uuids[1], minor=7, card=1, pci="0000:5e:00.0", node="/dev/fake1")
        library.write(first, replace(second, processes=(), parts=()))
        async with node(story, tmp_path) as inventory:
            latest = Latest()
            sampler = Sampler(
                node="n1",
                devices=sources(library, proc=host.proc, dev=host.dev),
                host=ProcFs(host.proc, trusted=True),
                inventory=inventory,
                beat=Beat(),
                clock=SystemClock(),
                limiting=Limiting(builtin()),
            )
            snapshot = await sampler.round()
            latest.publish(snapshot, latest.tally.after(snapshot))
            assert [fault for fault in snapshot.faults if fault.incomplete] == []
            return Exposition(latest, node="n1", version="0").page(now=snapshot.monotonic, interval=5).body.decode()

    return page


def of_pods(page: str, name: str) -> dict[tuple[str, ...], float]:
    """Read a family by device and pod."""
    return series(page, name, "uuid", "pod", "container")


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
async def test_a_vendor_from_its_library_to_the_metrics(story: Story, page_of: Page) -> None:
    """What each container holds of which device, and what it declared: of the right container, on the right device."""
    page = await page_of(story)

    used = of_pods(page, "container_memory_used_bytes")
    assert {entry: value for entry, value in used.items() if value} == {
        (story.device, "trainer", "main"): 5 * GiB,
        (story.device, "server", "main"): 2 * GiB,
    }
    limits = of_pods(page, "container_memory_limit_bytes")
    declared = {"trainer": story.limit, "server": story.server_limit}
    assert limits == {(story.device, name, "main"): limit for name, limit in declared.items() if limit is not None}
    whole = series(page, "pod_memory_limit_bytes", "uuid", "pod")
    assert whole == ({} if story.pod_limit is None else {(story.device, "trainer"): story.pod_limit})
    handed = of_pods(page, "container_allocated_replicas")
    assert handed == {(story.device, name, "main"): 1 for name in story.handed}
    unattributed = series(page, "device_memory_unattributed_bytes", "uuid")
    assert unattributed[story.device,] == 8 * GiB - 7 * GiB


@pytest.mark.parametrize("pids", [PIDS, {"trainer": 1, "server": 7}], ids=["theirs", "of another namespace"])
async def test_numbers_that_nothing_proves_name_nobody(pids: Mapping[str, int], page_of: Page) -> None:
    """Neither open nodes nor the kubelet prove them: memory is reported of no container, and of no host process."""
    story = replace(STORIES["iluvatar, HAMi"], nodes=False)

    page = await page_of(story, pids=pids)

    assert of_pods(page, "container_memory_used_bytes") == {}
    told = series(page, "device_memory_used_bytes", "uuid")
    assert told[story.device,] == 8 * GiB
    for part in ("attributed", "ghost", "host", "unattributed"):
        assert (story.device,) not in series(page, f"device_memory_{part}_bytes", "uuid"), part


async def test_the_numbers_of_another_namespace_are_nobodys(page_of: Page) -> None:
    """That a pod was handed a device does not prove numbers that mean a process of the host: 1 is systemd here."""
    story = STORIES["iluvatar, the vendor's plugin"]

    page = await page_of(story, pids={"trainer": 1, "server": PIDS["server"]})

    assert of_pods(page, "container_memory_used_bytes").keys() <= {
        (story.uuids[1], name, "main") for name in ("trainer", "server")
    }
    assert (story.device,) not in series(page, "device_memory_attributed_bytes", "uuid")


async def test_a_vnpu_is_handed_out_and_its_use_is_unknown(page_of: Page) -> None:
    """The part that the plugin's annotation names has its memory; what each container holds of it is unknown, not 0."""
    story = replace(
        STORIES["ascend, MindCluster"],
        resource="huawei.com/Ascend910-2c",
        ids={"trainer": ("Ascend910-2c-101-7",), "server": ()},
        requests={"huawei.com/Ascend910-2c": "1"},
        annotations={"huawei.com/AscendReal": "Ascend910-2c-100-6"},
    )
    parts = (FakePart(100, "vir02", 16 * GiB, 10 * GiB), FakePart(101, "vir02", 16 * GiB, 16 * GiB))

    page = await page_of(story, parts=parts)

    handed = series(page, "container_allocated_replicas", "uuid", "gpu_instance", "pod")
    assert handed == {(DIE, "100", "trainer"): 1}
    used = series(page, "device_memory_used_bytes", "uuid", "gpu_instance")
    assert (used[DIE, "100"], used[DIE, "101"]) == (6 * GiB, 0)
    held = series(page, "container_memory_used_bytes", "uuid", "pod")
    assert DIE not in {uuid for uuid, _ in held}


async def test_of_moore_threads_containers_the_processes_are_known(page_of: Page) -> None:
    """Row 58: one process each, bytes unknown and not 0; the limit is there, on the device of the annotation."""
    story = Story(
        "mtml",
        "mtt-0",
        "mthreads.com/vgpu",
        {"trainer": ("v0",), "server": ("v1",)},
        {"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "8"},
        8 * 512 * MiB,
        annotations={"mthreads.com/gpu-index": "0"},
        uuids=("mtt-0", "mtt-1"),
    )

    page = await page_of(story)

    here = {("mtt-0", "trainer", "main"), ("mtt-0", "server", "main")}
    processes = of_pods(page, "container_processes")
    assert {entry for entry, count in processes.items() if count} == here
    assert of_pods(page, "container_memory_used_bytes").keys().isdisjoint(here)
    assert of_pods(page, "container_memory_limit_bytes") == {("mtt-0", "trainer", "main"): story.limit}
    assert series(page, "device_memory_used_bytes", "uuid")["mtt-0",] == 8 * GiB
