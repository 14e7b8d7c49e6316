"""
Devices of other vendors on a real kubelet: their plugins' resources and ids, allotted to real pods.

The kubelet's list of which pod was handed what is real. So is what the API server says that pods declare, and so are
the pods' processes. The vendors' libraries are fake (C, see libraries), and so is the device plugin, which offers what
the vendors' plugins do. Under HAMi a pod asks for more resources than the kubelet knows, and comes to its node past the
scheduler: so here, too.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster import pod_resources
from cluster.bed import INVENTORY, NODE_NAME, Bed
from cluster.client import Object, until
from cluster.manifests import pod, pod_spec
from cluster.stage import Stage
from daemon.running import Daemon
from daemon.running import until as daemon_until
from libraries.build import HOLDER
from libraries.fake import FakeDevice, FakeLibrary, FakeProcess, GiB, MiB
from libraries.fixtures import libraries_build
from scraped import series

__all__ = ["libraries_build"]

pytestmark = pytest.mark.cluster

IX = "3fd4ee8f-169c-6d31-f9dc-c2a90a441f1a"
GPU = "GPU-3fd4ee8f-169c-6d31-f9dc-c2a90a441f1b"
PPU = "GPU-019e2226-4211-0208-0000-000000ab261d"
GCU = "T6R2312A50203"
XPU = "02K00Y6217V000X7"
DIE = "E0F4EE64-802061B1-6A691492-89528485-104301E3"
MLU = "00000000-0000-0000-0000-000012345678"
OURS = {"nvidia.com/container.main.gpu-memory.limit": "8Gi"}
NODE = "mxcd"
TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Story:
    """
    A device, the pod that has it, and what is to be seen.

    Attributes:
        variant: of the library; `uuid` is what that calls the device, `device` what the daemon does.
        offered: resource and id of the vendor's plugin; `more`: what the pod asks for besides.
        limit: bytes of the container, `pod_limit` of its pod.
        handed: whether the kubelet's id, or an annotation of the plugin, names the device.
        proof: only the kubelet's list proves the library's numbers.

    """

    variant: str
    uuid: str
    offered: tuple[str, str]
    device: str = ""
    more: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    pod_limit: int | None = None
    handed: bool = True
    proof: bool = False

    @property
    def name(self) -> str:
        """What the daemon calls the device."""
        return self.device or self.uuid


STORIES = {
    "iluvatar": Story("ixml", IX, ("iluvatar.com/gpu", f"{IX}::0"), annotations=OURS, limit=8 * GiB, proof=True),
    "enflame": Story("efml-uuid", GCU, ("enflame.com/gcu", GCU), annotations=OURS, limit=8 * GiB, proof=True),
    "kunlunxin": Story("xpuml", XPU, ("kunlunxin.com/xpu", XPU), annotations=OURS, limit=8 * GiB, proof=True),
    "t-head": Story("hgml", PPU, ("example.com/ppu", PPU), annotations=OURS, limit=8 * GiB, proof=True),
    "metax": Story(  # HAMi's ids name no device: that its process has the device open is the proof
        "mxsml",
        GPU,
        ("metax-tech.com/sgpu", "sgpu-0"),
        more={"metax-tech.com/vmemory": "4"},
        annotations={"metax-tech.com/gpu-devices-allocated": f'[[{{"uuid":"{GPU}","compute":25,"vRam":4096}}]]'},
        limit=4 * GiB,
        handed=False,
    ),
    "huawei": Story(  # MindCluster's annotation, against what the kubelet says
        "dcmi",
        DIE,
        ("huawei.com/Ascend910", "Ascend910-7-12"),
        annotations={"huawei.com/AscendReal": "Ascend910-6", "huawei.com/scheduler.softShareDev.hbmQuota": "16384"},
        pod_limit=16 * GiB,
    ),
    "cambricon": Story(
        "cndev",
        MLU,
        ("cambricon.com/mlu", f"MLU-{MLU}-_-1"),
        device=f"MLU-{MLU}",
        more={"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vmemory": "20"},
        limit=20 * 256 * MiB,
    ),
    "hygon": Story(
        "rsmi",
        "2a4f00c1",
        ("hygon.com/dcunum", "d0"),
        device="hygon-000000002a4f00c1",
        more={"hygon.com/dcumem": "6000"},
        limit=6000 * MiB,
        handed=False,
    ),
    "mthreads": Story(
        "mtml",
        "mtt-0",
        ("mthreads.com/vgpu", "v0"),
        more={"mthreads.com/sgpu-memory": "8"},
        annotations={"mthreads.com/gpu-index": "0"},
        limit=8 * 512 * MiB,
        handed=False,
    ),
}
HELD = {vendor: number * GiB for number, vendor in enumerate(STORIES, 1) if vendor != "mthreads"}
"""What the container of each vendor's pod holds. What one of Moore Threads holds is unknown."""
DECLARED: Mapping[str, Mapping[tuple[str, ...], float]] = {
    "container_memory_limit_bytes": {
        (story.name, vendor): story.limit for vendor, story in STORIES.items() if story.limit
    },
    "pod_memory_limit_bytes": {
        (story.name, vendor): story.pod_limit for vendor, story in STORIES.items() if story.pod_limit
    },
    "container_allocated_replicas": {(story.name, vendor): 1 for vendor, story in STORIES.items() if story.handed},
}
"""What is to be seen of declarations and allotments, by device and pod."""
PROVEN_BY_KUBELET = [vendor for vendor, story in STORIES.items() if story.proof]


@asynccontextmanager
async def offering(bed: Bed, folder: Path) -> AsyncIterator[None]:
    """Run a second device plugin, with the vendors' resources; afterwards the kubelet has what it had."""
    wanted = {resource: [device] for resource, device in (story.offered for story in STORIES.values())}
    inventory = folder / "vendors.json"
    inventory.write_text(json.dumps(wanted))
    (folder / "state").mkdir()

    async def offered(resources: Mapping[str, object]) -> None:
        async def same() -> bool:
            return (await pod_resources.allocatable(bed.node.pod_resources_socket)).keys() == resources.keys()

        await until(same, f"the kubelet to have {', '.join(resources)}")

    python = ("env", f"PYTHONPATH={TESTS}", sys.executable)
    bed.node.run("vendors", [*python, "-m", "cluster.device_plugin", inventory, folder / "state"], lambda: True)
    try:
        await offered({**INVENTORY, **wanted})
        yield
    finally:
        bed.node.end("vendors")
        for resource in wanted:
            socket = bed.node.kubelet_folder / f"device-plugins/gpusteward-test-{resource.replace('/', '-')}.sock"
            socket.unlink(missing_ok=True)
        await offered(INVENTORY)


def manifest(vendor: str, holder: Path, node: Path) -> Object:
    """Write the pod of a vendor; MetaX's process has its device open."""
    story = STORIES[vendor]
    asked = {story.offered[0]: "1", **story.more}
    made = pod_spec(command=["/bin/holder", f"/dev/{NODE}"] if vendor == "metax" else ["sleep", "86400"])
    (container,) = made["containers"]
    container["resources"] = {"limits": asked, "requests": asked}
    if vendor == "metax":
        files = {"holder": (holder, "/bin/holder"), "node": (node, f"/dev/{NODE}")}
        made["volumes"] = [{"name": name, "hostPath": {"path": str(path)}} for name, (path, _) in files.items()]
        container["volumeMounts"] = [{"name": name, "mountPath": at} for name, (_, at) in files.items()]
    found = pod(vendor, {**made, "nodeName": NODE_NAME})
    found["metadata"]["annotations"] = dict(story.annotations)
    return found


def pid_of(bed: Bed, ready: Object) -> int:
    """Ask the runtime for the number of a pod's process."""
    (status,) = ready["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    assert bed.node.containerd is not None
    return int(json.loads(bed.node.containerd.cri.container_status(container).info["info"])["pid"])


def of(held: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    """Write what vendors' pods hold by device and pod."""
    return {(STORIES[vendor].name, vendor): size for vendor, size in held.items()}


def unproven(snapshot: Mapping[str, Any]) -> set[str]:
    """Read which devices' numbers are not believed."""
    return {fault["subject"] for fault in snapshot["faults"] if fault["reason"] == "pids_unproven"}


def page_when(daemon: Daemon, wanted: Mapping[str, Mapping[tuple[str, ...], float]], what: str) -> str:
    """Wait for a page on which these families are what is wanted, by device and pod; that page."""

    def there() -> str | None:
        page = daemon.get("/metrics")[1]
        return page if all(series(page, name, "uuid", "pod") == found for name, found in wanted.items()) else None

    return daemon_until(there, what, daemon)


class Libraries:
    """The libraries of all vendors, each with one device."""

    def __init__(self, folder: Path, build: Path) -> None:
        self._folder = folder
        self._all = {vendor: FakeLibrary(folder, build, story.variant) for vendor, story in STORIES.items()}

    def list(self, pids: Mapping[str, int]) -> None:
        """Have each list one process, which holds what the vendor's pod does."""
        for vendor, library in self._all.items():
            processes = (FakeProcess(pids[vendor], HELD[vendor]),) if vendor in HELD else ()
            uuid = STORIES[vendor].uuid
            library.write(FakeDevice(0, uuid, minor=6, total=64 * GiB, free=48 * GiB, processes=processes))

    def daemon(self, stage: Stage) -> Daemon:
        """Start the daemon on them."""
        paths = ":".join(str(library.path.parent) for library in self._all.values())
        words = ("env", f"LD_LIBRARY_PATH={paths}", f"FAKE_LIBRARIES={self._folder}")
        return stage.daemon(f"--devices={','.join(library.name for library in self._all.values())}", enter=words)


async def test_what_a_kubelet_hands_out_of_nine_vendors(
    stage: Stage, namespace: str, libraries_build: Path, tmp_path: Path
) -> None:
    """
    Each vendor's device is its pod's: handed out by the vendor's id, held by the pod's process, limited as declared.

    For four libraries the kubelet's list is the proof of their numbers. While they list a process of a container that
    was handed another device, no container is named, and faults say so.
    """
    bed, host = stage.bed, stage.folder / "host"
    (host / "sys/module/hycu").mkdir(parents=True)
    (host / "dev").mkdir()
    os.mknod(host / "dev" / NODE, stat.S_IFCHR | 0o666, os.makedev(240, 0))
    libraries = Libraries(tmp_path / "fake-libraries", libraries_build)
    async with offering(bed, tmp_path):
        for vendor in STORIES:
            made = manifest(vendor, libraries_build / HOLDER, host / "dev" / NODE)
            await stage.api.create(f"/api/v1/namespaces/{namespace}/pods", made)
        pids = {vendor: pid_of(bed, await stage.api.ready_pod(namespace, vendor)) for vendor in STORIES}
        holdings = await pod_resources.holdings(bed.node.pod_resources_socket)
        assert {one.pod: (one.resource, *one.device_ids) for one in holdings} == {
            vendor: story.offered for vendor, story in STORIES.items()
        }

        others = dict(zip(PROVEN_BY_KUBELET, PROVEN_BY_KUBELET[1:] + PROVEN_BY_KUBELET[:1], strict=True))
        libraries.list({vendor: pids[others.get(vendor, vendor)] for vendor in STORIES})
        with libraries.daemon(stage) as daemon:
            certain = {vendor: size for vendor, size in HELD.items() if vendor not in others}
            page_when(daemon, {"container_memory_used_bytes": of(certain), **DECLARED}, "who is certain")
            doubtful = {STORIES[vendor].name for vendor in others}
            daemon.until(lambda s: unproven(s) == doubtful, "the faults")
            libraries.list(pids)
            page = page_when(daemon, {"container_memory_used_bytes": of(HELD), **DECLARED}, "everybody")
            assert daemon.until(lambda s: s if not unproven(s) and s["complete"] else None, "no doubt")["names_live"]
        total = series(page, "device_memory_used_bytes", "uuid")
        assert total == {(story.name,): 16 * GiB for story in STORIES.values()}
        unattributed = series(page, "device_memory_unattributed_bytes", "uuid")
        assert unattributed == {(STORIES[vendor].name,): 16 * GiB - size for vendor, size in HELD.items()}
