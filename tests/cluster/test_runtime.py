"""
NVIDIA's own container runtime, which containerd calls for the class `nvidia`: what it gives to a pod, what it refuses.

In: pods that ask by variables, as our chart and device plugins do. Out: device files and library in their containers.
The daemon on it is in test_mig.py and test_overlays.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pytest

from cluster import gpu_operator, toolkit
from cluster.bed import GPUS, MIG_GPU, Bed
from cluster.client import Api, until
from cluster.installed import nvidia_class
from cluster.manifests import pod, pod_spec
from cluster.stage import GPU, MIG
from cluster.toolkit import LIBRARY, MONITOR, STATE

pytestmark = pytest.mark.cluster

ALL = {"NVIDIA_VISIBLE_DEVICES": "all"}
MONITORS = ALL | {"NVIDIA_MIG_MONITOR_DEVICES": "all"}
MANAGES = {"NVIDIA_VISIBLE_DEVICES": "management.nvidia.com/gpu=all"}
CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm"}


@pytest.fixture(autouse=True)
async def node(cluster: Bed, node_api: Api) -> AsyncIterator[None]:
    """As NVIDIA's operator leaves it, with a CDI specification for management."""
    gpu_operator.specify(cluster)
    async with nvidia_class(node_api):
        yield


async def asked(
    api: Api,
    namespace: str,
    name: str,
    environment: Mapping[str, str],
    *,
    resource: str | None = None,
    capabilities: Sequence[str] = (),
) -> None:
    """Create a pod of the class."""
    spec = pod_spec(command=["sleep", "86400"], resources={resource: 1} if resource else None)
    spec["runtimeClassName"] = toolkit.HANDLER
    (container,) = spec["containers"]
    container["env"] = [{"name": key, "value": value} for key, value in environment.items()]
    container["securityContext"] = {"capabilities": {"drop": ["ALL"], "add": list(capabilities)}}
    await api.create(f"/api/v1/namespaces/{namespace}/pods", pod(name, spec))


async def given(bed: Bed, api: Api, namespace: str, name: str) -> set[str]:
    """Device files, library and driver's state in a pod's container."""
    await api.ready_pod(namespace, name)
    look = f"find /dev -name 'nvidia*' -type c; ls {LIBRARY} {STATE}/node; true"
    return set(bed.kubectl("-n", namespace, "exec", name, "--", "sh", "-c", look).split())


async def refused(api: Api, namespace: str, name: str, words: str) -> None:
    """Wait until the kubelet says why a pod's container does not start."""

    async def said() -> bool:
        return words in json.dumps((await api.get(f"/api/v1/namespaces/{namespace}/pods/{name}"))["status"])

    await until(said, f"the runtime to say {words!r} of {name}")


async def test_each_is_given_what_it_asks_for(cluster: Bed, node_api: Api, namespace: str) -> None:
    """
    Nothing, one GPU, one MIG instance, all of both; mig/monitor by variable and CAP_SYS_ADMIN, or by the CDI device.

    A pod that asks for mig/monitor by the variable without that capability does not start. Nor does one that asks for
    what no specification has.
    """
    await asked(node_api, namespace, "nothing", {})
    await asked(node_api, namespace, "gpu", {}, resource=GPU)
    await asked(node_api, namespace, "mig", {}, resource=MIG)
    await asked(node_api, namespace, "all", ALL)
    await asked(node_api, namespace, "monitor", MONITORS, capabilities=["SYS_ADMIN"])
    await asked(node_api, namespace, "management", MANAGES)
    await asked(node_api, namespace, "unprivileged", MONITORS)
    await asked(node_api, namespace, "unknown", {"NVIDIA_VISIBLE_DEVICES": "management.nvidia.com/gpu=nobody"})

    driver = CONTROL | {LIBRARY, f"{STATE}/node"}
    instances = {gi.id: toolkit.of_instance(MIG_GPU, gi.id) for gi in MIG_GPU.instances}
    every = driver | {f"/dev/nvidia{gpu.minor}" for gpu in GPUS} | set().union(*instances.values())
    assert await given(cluster, node_api, namespace, "nothing") == set()
    assert await given(cluster, node_api, namespace, "gpu") == driver | {f"/dev/nvidia{GPUS[0].minor}"}
    assert await given(cluster, node_api, namespace, "mig") in [driver | one for one in instances.values()]
    assert await given(cluster, node_api, namespace, "all") == every
    assert await given(cluster, node_api, namespace, "monitor") == every | {MONITOR}
    assert await given(cluster, node_api, namespace, "management") == driver | toolkit.devices(cluster.folder)
    await refused(node_api, namespace, "unprivileged", "in a non-privileged container")
    await refused(node_api, namespace, "unknown", "unresolvable CDI devices")


async def test_a_gpu_cut_into_nothing_yet(cluster: Bed, node_api: Api, namespace: str) -> None:
    """A GPU has MIG on and no instance: a pod that asks for all gets no device file of it, one for management does."""
    cluster.driver.write([*GPUS, replace(MIG_GPU, instances=())])
    try:
        await asked(node_api, namespace, "all", ALL)
        await asked(node_api, namespace, "management", MANAGES)
        of_gpu = f"/dev/nvidia{MIG_GPU.minor}"
        assert of_gpu not in (shown := await given(cluster, node_api, namespace, "all"))
        assert shown > {f"/dev/nvidia{gpu.minor}" for gpu in GPUS}
        assert of_gpu in await given(cluster, node_api, namespace, "management")
    finally:
        cluster.driver.write([*GPUS, MIG_GPU])
