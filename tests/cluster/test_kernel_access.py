"""
The chart's kernel.access "drm": the daemon's pod looks at what processes of the node have open, by CAP_SYS_PTRACE.

In: the chart as a user installs it, a played sysfs with one GPU of AMD, the node's real processes. None of these has a
GPU open, because no driver is here. Out: whether the daemon's pod may look at them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.bed import NODE_NAME, Bed
from cluster.client import Object
from cluster.installed import Release, released
from cluster.stage import Stage
from scraped import series
from sources.kernel import Node

pytestmark = pytest.mark.cluster

SYS_PTRACE = 1 << 19
GPU = "0000:0a:00.0"
AMD_HERE = "feature.node.kubernetes.io/amd-gpu"
REFUSED = "fdinfo needs CAP_SYS_PTRACE"
"""What the fault says where it may not look."""


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


async def test_it_looks_by_one_capability(release: Release, image: str, tmp_path: Path) -> None:
    """With SYS_PTRACE alone it may look. Without: a fault that says so, and the figures that need none."""
    node = Node(tmp_path / "node")
    node.card(GPU, figures={"mem_info_vram_total": 192 << 30, "mem_info_vram_used": 9 << 30})

    def told(page: str) -> bool:
        return series(page, "device_memory_used_bytes", "uuid") == {(GPU,): 9 << 30}

    release.helm("install", values=drm(image, node.root / "sys"))
    first = await release.pod()
    assert told(await release.page())
    assert release.capabilities() == SYS_PTRACE
    assert REFUSED not in release.log()

    less = [{"op": "remove", "path": "/spec/template/spec/containers/0/securityContext/capabilities/add"}]
    release.bed.kubectl(
        "-n", release.namespace, "patch", "daemonset", release.account, "--type=json", f"-p={json.dumps(less)}"
    )
    await release.pod(besides=first["metadata"]["uid"])
    assert told(await release.page())
    assert release.capabilities() == 0
    assert REFUSED in release.log()
