"""
The chart's nvml.access "cdi": the daemon's pod asks for the driver by an annotation, and NVIDIA's toolkit brings it.

In: NVIDIA's container toolkit as its operator runs it, containerd, the chart as a user installs it. Out: what the
daemon's own pod exports, and what it was given.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster import gpu_operator, toolkit
from cluster.bed import Bed
from cluster.client import until
from cluster.installed import Release, mig_guarded, released, values
from cluster.stage import GPU, MIG, Stage, truth
from driver.node import GiB
from scraped import series

pytestmark = pytest.mark.cluster


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart, on a node with MIG guarded."""
    with mig_guarded(cluster):
        async with released(cluster, stage.api, tmp_path) as made:
            yield made


async def test_the_driver_comes_by_an_annotation(release: Release, stage: Stage, namespace: str, image: str) -> None:
    """
    NVIDIA's plugin heeds it only in namespaces of its setting; elsewhere the daemon says what it lacks, and ends.

    There it brings the library and the devices, that of mig/monitor among them. So the daemon has all numbers, those of
    MIG too, with no capability.
    """
    bed = stage.bed
    await stage.run(namespace, "train", f"alloc visible {GiB}", resource=MIG)
    await stage.run(namespace, "serve", f"alloc visible {2 * GiB}", resource=GPU)
    held = {(namespace, pod, uuid): size for (_, pod, uuid), size in (await truth(stage, namespace)).items()}

    with gpu_operator.serving(bed) as log:
        said = release.helm("install", values=values(bed, image, {}, nvml={"access": "cdi"}), wait=False)
        assert f"NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES={release.namespace}" in said

        async def refused() -> bool:
            return f"pod {release.namespace}/" in log.read_text() and "NVML Shared Library Not Found" in release.log()

        await until(refused, "the daemon to say that it lacks the library")

    with gpu_operator.serving(bed, release.namespace):
        bed.kubectl("-n", release.namespace, "delete", "pods", "--all")
        await release.pod()

        def told(page: str) -> bool | None:
            used = series(page, "container_memory_used_bytes", "namespace", "pod", "uuid")
            return {where: size for where, size in used.items() if where[0] == namespace} == held or None

        await release.shows(told, "what each pod holds")
        assert release.capabilities() == 0
        given = release.inside("import glob; print(*glob.glob('/dev/nvidia*'), *glob.glob('/dev/nvidia-caps/*'))")
        assert set(given.split()) == {*toolkit.devices(bed.folder), "/dev/nvidia-caps"}
        assert not await release.refused()
