"""
The chart's nvml.mig, on a node whose driver tells what MIG instances hold to those alone who can open mig/monitor.

In: a pod on a MIG device, the chart as a user installs it, the fake driver behind a stand-in for NVIDIA's runtime. Out:
what the daemon's own pod exports, and what `check` says in there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.bed import MIG_GPU, Bed
from cluster.client import Object, until
from cluster.installed import PATIENT, RUNTIME_CLASS, Release, mig_guarded, released, values
from cluster.stage import MIG, Stage, truth
from cluster.toolkit import MONITOR
from driver.node import GiB
from scraped import series

pytestmark = pytest.mark.cluster

SYS_ADMIN = 1 << 21
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart, on a node as NVIDIA's operator leaves it, with MIG guarded."""
    await stage.api.create(CLASSES, RUNTIME_CLASS)
    try:
        with mig_guarded(cluster):
            async with released(cluster, stage.api, tmp_path) as made:
                yield made
    finally:
        await stage.api.delete(f"{CLASSES}/nvidia")


def given(bed: Bed, image: str, **more: object) -> Object:
    """Values with the chart's default way to the driver; `more` is laid over them."""
    lent: Object = {"extraEnv": [], "extraVolumes": [], "extraVolumeMounts": []}
    return values(bed, image, {}, nvml={"access": "runtimeClass"}) | lent | more


def instances(page: str) -> dict[str, float]:
    """Bytes used by instance of the MIG GPU."""
    found = series(page, "device_memory_used_bytes", "uuid", "gpu_instance")
    return {instance: used for (uuid, instance), used in found.items() if uuid == MIG_GPU.uuid}


def checked(release: Release) -> str:
    """What `gpusteward check` says of the driver in the daemon's container."""
    command = ("exec", f"ds/{release.account}", "--", "gpusteward", "check", "--config=/etc/gpusteward/config.yaml")
    try:
        said = release.bed.kubectl("-n", release.namespace, *command)
    except subprocess.CalledProcessError as error:
        said = error.stdout
    (line,) = (line for line in said.splitlines() if line.split()[1:2] == ["driver"])
    return line


async def held_back(release: Release) -> None:
    """Wait until the kubelet says why it cannot start the daemon's container."""

    async def said() -> bool:
        return "non privileged" in json.dumps([one["status"] for one in await release.pods()])

    await until(said, "the runtime's refusal", PATIENT)


async def test_the_variant_mig_has_what_it_takes_and_no_more(
    release: Release, stage: Stage, namespace: str, image: str
) -> None:
    """
    Without nvml.mig: a fault, no number of an instance, never ready. With it all numbers, and CAP_SYS_ADMIN alone.

    Taken away, the container does not start. Where the device comes by another way, all numbers without capability.
    """
    await stage.run(namespace, "train", f"alloc visible {GiB}", resource=MIG)
    (held,) = (await truth(stage, namespace)).values()
    bed = stage.bed

    release.helm("install", values=given(bed, image), wait=False)
    first = await release.pod(ready=False)

    def faulty(page: str) -> str | None:
        return page if ("no_permission",) in series(page, "rounds_incomplete_total", "reason") else None

    page = await release.shows(faulty, "a fault", ready=False)
    assert instances(page) == {}
    assert len(series(page, "device_memory_used_bytes", "uuid", "gpu_instance")) == 2, "the GPUs without MIG"
    assert (namespace, "train") not in series(page, "container_memory_used_bytes", "namespace", "pod")
    assert release.capabilities() == 0
    assert checked(release).startswith("fail") and "nvml.mig" in checked(release)

    release.helm("upgrade", values=given(bed, image, nvml={"mig": True}))
    second = await release.pod(besides=first["metadata"]["uid"])

    def told(page: str) -> bool | None:
        used = series(page, "container_memory_used_bytes", "namespace", "pod").get((namespace, "train"))
        return (used == held and sorted(instances(page).values()) == [0, held]) or None

    await release.shows(told, "what the instance holds, and for whom")
    assert release.capabilities() == SYS_ADMIN
    assert checked(release).startswith("ok")

    less = [{"op": "remove", "path": "/spec/template/spec/containers/0/securityContext/capabilities/add"}]
    daemonset = ("patch", "daemonset", release.account, "--type=json", f"-p={json.dumps(less)}")
    bed.kubectl("-n", release.namespace, *daemonset)
    await held_back(release)

    volume = {"name": "monitor", "hostPath": {"path": str(bed.folder / "nvidia-cap"), "type": "File"}}
    mount = {"name": "monitor", "mountPath": MONITOR, "readOnly": True}
    release.helm("upgrade", values=given(bed, image, extraVolumes=[volume], extraVolumeMounts=[mount]))
    await release.pod(besides=second["metadata"]["uid"])
    await release.shows(told, "the same by the device")
    assert release.capabilities() == 0
    assert not await release.refused()
