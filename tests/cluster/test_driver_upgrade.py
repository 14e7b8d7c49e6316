"""
The driver is upgraded under the daemon in its pod: by that pod's next container it has the new one.

In: the chart as a user installs it, a library that is replaced on the node as packages replace it. Out: what the
kubelet makes of the daemon's end, and what its next container exports.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.bed import Bed
from cluster.client import Object, until
from cluster.installed import Release, released, values
from cluster.stage import Stage
from driver.build import Variant
from driver.node import GiB
from scraped import series

pytestmark = pytest.mark.cluster

MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH: the old library beside the new kernel module
UPGRADED = "590.44.01"


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart, on a node that has its own driver again in the end."""
    driver = cluster.driver
    async with released(cluster, stage.api, tmp_path) as made:
        try:
            yield made
        finally:
            for function in ("*", "nvmlInit"):
                driver.clear_switch(f"fail.{function}")
            driver.write(driver.gpus)


def put(library: Path, on_node: Path) -> int:
    """Install a library as packages do, under its name at once. Gives its inode."""
    draft = on_node.with_suffix(".new")
    shutil.copy(library, draft)
    draft.rename(on_node)
    return on_node.stat().st_ino


async def test_the_next_container_has_the_new_driver(
    release: Release, stage: Stage, namespace: str, image: str, tmp_path: Path
) -> None:
    """The daemon ends with exit code 1 and says why; the kubelet starts it anew, in the same pod, with all numbers."""
    driver, library = stage.bed.driver, tmp_path / "libnvidia-ml.so.1"
    await stage.run(namespace, "train", f"alloc visible {GiB}")
    put(driver.library(Variant.ABI535), library)
    lent = {"access": "hostPath", "hostPath": {"library": str(library), "privileged": False}}
    release.helm("install", values=values(stage.bed, image, {}, nvml=lent))
    first = await release.pod()

    new = put(driver.library(), library)
    driver.write(driver.gpus, driver=UPGRADED)
    for function in ("*", "nvmlInit"):
        driver.fail(function, MISMATCH)

    async def ended() -> Object | None:
        (pod,) = await release.pods()
        (container,) = pod["status"]["containerStatuses"]
        said = "upgraded under the loaded library" in release.log()
        return dict(container.get("lastState") or container["state"]).get("terminated") if said else None

    end = await until(ended, "the daemon's end")
    assert end["exitCode"] == 1
    for function in ("*", "nvmlInit"):
        driver.clear_switch(f"fail.{function}")

    def told(page: str) -> bool:
        versions = {version for version, _ in series(page, "gpu_info", "driver_version", "uuid")}
        used = series(page, "container_memory_used_bytes", "namespace", "pod")
        return versions == {UPGRADED} and used.get((namespace, "train"), 0) >= GiB

    await release.shows(lambda page: told(page) or None, "the new driver and the old pod's use")
    assert (await release.pod())["metadata"]["uid"] == first["metadata"]["uid"]
    loaded = "import os; print(os.stat('/usr/local/nvidia/lib64/libnvidia-ml.so.1').st_ino)"
    assert int(release.inside(loaded)) == new
