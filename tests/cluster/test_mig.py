"""
The chart's nvml.mig, on a node whose driver reports what MIG instances hold only to a process with mig/monitor.

In: a pod on a MIG device, the chart as a user installs it, NVIDIA's own runtime on the fake driver. Out: what the
daemon's own pod exports, and what `check` says in there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cluster import gpu_operator, toolkit
from cluster.bed import GPUS, MIG_GPU, Bed
from cluster.client import Object, until
from cluster.installed import Release, mig_guarded, nvidia_class, released, values
from cluster.stage import GPU, MIG, Stage, truth
from driver.node import FakeComputeInstance, GiB
from scraped import series

pytestmark = pytest.mark.cluster

SYS_ADMIN = 1 << 21


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart, on a node as NVIDIA's operator leaves it, with MIG guarded."""
    try:
        with mig_guarded(cluster):
            async with nvidia_class(stage.api), released(cluster, stage.api, tmp_path) as made:
                yield made
    finally:
        cluster.driver.write([*GPUS, MIG_GPU])


def given(bed: Bed, image: str, **more: object) -> Object:
    """Values with the chart's default way to the driver; `more` is laid over them."""
    lent: Object = {"extraEnv": [], "extraVolumes": [], "extraVolumeMounts": []}
    return values(bed, image, {}, nvml={"access": "runtimeClass"}) | lent | more


def instances(page: str) -> dict[str, float]:
    """Bytes used by instance of the MIG GPU."""
    found = series(page, "device_memory_used_bytes", "uuid", "gpu_instance")
    return {instance: used for (uuid, instance), used in found.items() if uuid == MIG_GPU.uuid}


def refusals(page: str) -> float | None:
    """How many rounds were incomplete because the driver did not tell what instances hold."""
    return series(page, "rounds_incomplete_total", "reason").get(("no_permission",))


def another_instance(bed: Bed) -> None:
    """Divide the MIG GPU further, which takes nothing from those that are there."""
    compute = FakeComputeInstance(uuid="MIG-00000003-0000-4000-8000-000000000002", slot=3)
    third = replace(MIG_GPU.instances[0], id=3, computes=(compute,))
    anew = replace(MIG_GPU, instances=(*MIG_GPU.instances, third))
    toolkit.make_devices(bed.folder, [anew])
    bed.driver.write([*GPUS, anew])


def checked(release: Release) -> str:
    """What `gpusteward check` says of the driver in the daemon's container: verdict, message and fix."""
    command = ("exec", f"ds/{release.account}", "--", "gpusteward", "check", "--json")
    try:
        said = release.bed.kubectl("-n", release.namespace, *command)
    except subprocess.CalledProcessError as error:
        said = error.stdout
    (driver,) = (one for one in json.loads(said)["checks"] if one["check"] == "driver")
    return f"{driver['verdict']} {driver['message']} {driver['fix']}"


async def held_back(release: Release) -> None:
    """Wait until the kubelet says why it cannot start the daemon's container."""

    async def said() -> bool:
        return "in a non-privileged container" in json.dumps([one["status"] for one in await release.pods()])

    await until(said, "the runtime's refusal")


async def test_the_variant_mig_has_what_it_takes_and_no_more(
    release: Release, stage: Stage, namespace: str, image: str
) -> None:
    """
    Without nvml.mig: the instances of the pod's start. With one instance more, no pod's share of the GPU is reported.

    With nvml.mig the daemon has all numbers, and CAP_SYS_ADMIN as its only capability. Without that capability, the
    container does not start. By the CDI device for management it has all numbers, and no capability.
    """
    await stage.run(namespace, "train", f"alloc visible {GiB}", resource=MIG)
    await stage.run(namespace, "serve", f"alloc visible {2 * GiB}", resource=GPU)
    held = {pod: size for (_, pod, _), size in (await truth(stage, namespace)).items()}
    bed = stage.bed

    def attributed(page: str) -> dict[str, float]:
        used = series(page, "container_memory_used_bytes", "namespace", "pod")
        return {pod: size for (where, pod), size in used.items() if where == namespace}

    def told(page: str, *, besides: int) -> bool:
        return attributed(page) == held and sorted(instances(page).values()) == [0] * besides + [held["train"]]

    release.helm("install", values=given(bed, image))
    first = await release.pod()
    await release.shows(partial(told, besides=1), "what the instances hold, and for whom")
    assert not refusals(await release.page())

    another_instance(bed)

    def partly(page: str) -> bool:
        others = sorted(instances(page).values()) == [0, held["train"]]
        return bool(refusals(page)) and others and attributed(page) == {"serve": held["serve"]}

    await release.shows(partly, "a fault: what the other instances hold, not who holds it; of other GPUs all")
    assert release.capabilities() == 0
    assert checked(release).startswith("fail") and "nvml.mig" in checked(release)

    release.helm("upgrade", values=given(bed, image, nvml={"mig": True}))
    second = await release.pod(besides=first["metadata"]["uid"])
    await release.shows(partial(told, besides=2), "what each instance holds")
    assert release.capabilities() == SYS_ADMIN
    assert checked(release).startswith("ok")

    less = [{"op": "remove", "path": "/spec/template/spec/containers/0/securityContext/capabilities/add"}]
    daemonset = ("patch", "daemonset", release.account, "--type=json", f"-p={json.dumps(less)}")
    bed.kubectl("-n", release.namespace, *daemonset)
    await held_back(release)

    gpu_operator.specify(bed)
    release.helm("upgrade", values=given(bed, image, nvml={"visibleDevices": "management.nvidia.com/gpu=all"}))
    await release.pod(besides=second["metadata"]["uid"])
    await release.shows(partial(told, besides=2), "the same by the device")
    assert release.capabilities() == 0
    assert not await release.refused()
