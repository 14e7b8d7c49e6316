"""
The chart's kernel.access "drm": the daemon's pod looks at what processes of the node have open, by CAP_SYS_PTRACE.

In: the chart as a user installs it, a played sysfs with one GPU of AMD, a pod whose process has a render node open; no
driver is behind it, so what it holds stays unknown. Out: whether the daemon's pod sees that process.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.bed import NODE_NAME, Bed
from cluster.client import Object
from cluster.installed import Release, released
from cluster.manifests import pod
from cluster.stage import Stage
from scraped import series
from sources.kernel import RENDER, Node

pytestmark = pytest.mark.cluster

SYS_PTRACE = 1 << 19
GPU = "0000:0a:00.0"
AMD_HERE = "feature.node.kubernetes.io/amd-gpu"
OPENS = "import os, time; os.open('/dev/dri/renderD128', os.O_PATH); time.sleep(1e6)"
"""With O_PATH no driver is asked; the link and the numbers are those of any descriptor."""


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart, on a node that feature discovery calls one of AMD."""
    path = f"/api/v1/nodes/{NODE_NAME}"
    await stage.api.patch(path, {"metadata": {"labels": {AMD_HERE: "true"}}})
    try:
        async with released(cluster, stage.api, tmp_path) as made:
            yield made
    finally:
        await stage.api.patch(path, {"metadata": {"labels": {AMD_HERE: None}}})


def drm(image: str, sys: Path) -> Object:
    """Values for such a node, whose sysfs is the played one."""
    repository, _, tag = image.rpartition(":")
    places = ["/host/sys", str(sys)]  # its links name it by its own path
    return {
        "image": {"registry": "", "repository": repository, "tag": tag, "pullPolicy": "Never"},
        "nvml": {"access": "none"},
        "kernel": {"access": "drm"},
        "vendors": ["amd"],
        "config": {"devices": "drm", "sampling": {"interval": "2s"}},
        "extraVolumes": [{"name": "sys", "hostPath": {"path": str(sys)}}],
        "extraVolumeMounts": [{"name": "sys", "mountPath": place} for place in places],
    }


async def renderer(stage: Stage, namespace: str, image: str, node: Path) -> None:
    """Run a pod that has a render node open, and wait until it has."""
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(RENDER, 128))
    spec: Object = {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": image,
                "imagePullPolicy": "Never",
                "command": ["python3", "-c", OPENS],
                "volumeMounts": [{"name": "node", "mountPath": "/dev/dri/renderD128"}],
            }
        ],
        "volumes": [{"name": "node", "hostPath": {"path": str(node), "type": "CharDevice"}}],
    }
    await stage.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("render", spec))
    await stage.api.ready_pod(namespace, "render")


async def test_it_looks_by_one_capability(
    release: Release, stage: Stage, namespace: str, image: str, tmp_path: Path
) -> None:
    """With SYS_PTRACE alone it finds whose process has the GPU open. Without it: a fault that says so, and nobody."""
    node = Node(tmp_path / "node")
    node.card(GPU, figures={"mem_info_vram_total": 192 << 30, "mem_info_vram_used": 9 << 30})
    await renderer(stage, namespace, image, tmp_path / "renderD128")

    release.helm("install", values=drm(image, node.root / "sys"))
    first = await release.pod()

    def seen(page: str) -> bool:
        return (namespace, "render") in series(page, "container_processes", "namespace", "pod")

    page = await release.shows(lambda page: page if seen(page) else None, "whose process has the GPU open")
    assert release.capabilities() == SYS_PTRACE
    assert series(page, "device_memory_used_bytes", "uuid") == {(GPU,): 9 << 30}
    assert (namespace, "render") not in series(page, "container_memory_used_bytes", "namespace", "pod"), "unknown"
    assert "CAP_SYS_PTRACE" not in release.log()

    less = [{"op": "remove", "path": "/spec/template/spec/containers/0/securityContext/capabilities/add"}]
    release.bed.kubectl(
        "-n", release.namespace, "patch", "daemonset", release.account, "--type=json", f"-p={json.dumps(less)}"
    )
    await release.pod(besides=first["metadata"]["uid"])
    page = await release.page()
    assert release.capabilities() == 0
    assert "fdinfo takes CAP_SYS_PTRACE" in release.log()
    assert not seen(page)
    assert series(page, "device_memory_used_bytes", "uuid") == {(GPU,): 9 << 30}
