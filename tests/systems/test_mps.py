"""
MPS is recognised by each of three facts, in every system that knows it: through the real parsers and the real policy.

What comes in: the nodes of systems that share GPUs by MPS, none with a label of NVIDIA's, and pods above their limits.
What goes out: whether `policy.mps` holds the eviction. The twin of each system lacks the trusted fact: there the pod is
evicted, whatever its author wrote.
"""

import json
from typing import Any

import msgspec
import pytest

from systems.book import SceneRow, gpu_uuid
from systems.player import Played, play

UUID = "GPU-00000000-0000-0000-0000-000000000000"
GPU = gpu_uuid(0)
LABELLED = "nvidia.com/container.main.gpu-memory.limit"

Facts = dict[str, Any]


def pod(name: str, *, limits: Facts | None = None, env: Facts | None = None, **metadata: Any) -> Facts:
    """Make a pod with one container, in a namespace of its own."""
    container: Facts = {
        "name": "main",
        "resources": {"limits": limits or {}},
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
    }
    metadata = {"name": name, "namespace": f"team-{name}", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def scene(
    pods: list[Facts], processes: list[Facts] | None = None, config: Facts | None = None, **more: Any
) -> SceneRow:
    """Put pods on a node. The first is far above its limit, the others far below; no process is an MPS client."""
    names = [each["metadata"]["name"] for each in pods]
    default = [{"pod": name, "memory": "4Gi"} for name in names]
    default[0]["memory"] = "30Gi"
    policy = {"trigger": "limit", **(config or {}).get("policy", {})}
    data = {
        "pods": pods,
        "processes": processes or default,
        "config": {**(config or {}), "policy": policy},
        "expect": {"sharing": [], "limits": [], "verdicts": []},
        **more,
    }
    return msgspec.convert(data, SceneRow)


def state(played: Played, name: str) -> tuple[str, str | None]:
    """Say what became of a pod: the action on it, or its state with the reason."""
    for (acted, _), done in played.acted.items():
        if acted == name:
            return done.action, None
    (standing,) = [one for (its, _), one in played.states.items() if its == name and one.limit.memory is not None]
    return str(standing.state), standing.reason


# --- the systems -----------------------------------------------------------------------------------------------------


def nvidia_mps() -> Facts:
    node = {"labels": {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "4"}}
    limits = {"nvidia.com/gpu": "1"}
    return {
        "node": {**node, "capacity": {"nvidia.com/gpu": "4"}},
        "allocatable": {"nvidia.com/gpu": [GPU + "::{0..3}"]},
        "allocations": [{"pod": name, "resource": "nvidia.com/gpu", "ids": [f"{GPU}::{n}"]} for n, name in NAMED],
        "pods": [pod(name, limits=limits) for _, name in NAMED],
        "config": {"limits": {"mps_scope": "container"}},
    }


def gke_mps() -> Facts:
    strategy = {
        "cloud.google.com/gke-gpu-sharing-strategy": "mps",
        "cloud.google.com/gke-max-shared-clients-per-gpu": "4",
    }
    limits = {"nvidia.com/gpu": "1"}
    return {
        "node": {"labels": strategy, "capacity": {"nvidia.com/gpu": "4"}},
        "allocatable": {"nvidia.com/gpu": ["nvidia0/vgpu{0..3}"]},
        "allocations": [{"pod": name, "resource": "nvidia.com/gpu", "ids": [f"nvidia0/vgpu{n}"]} for n, name in NAMED],
        "pods": [pod(name, limits=limits) for _, name in NAMED],
        "config": {"limits": {"mps_scope": "container"}},
    }


def alauda() -> Facts:
    limits = {"nvidia.com/mps-core": "25", "nvidia.com/mps-memory": "16"}
    return {
        "node": {"capacity": {"nvidia.com/mps-core": "100", "nvidia.com/mps-memory": "80"}},
        "pods": [pod(name, limits=limits) for _, name in NAMED],
    }


def ack() -> Facts:
    return {
        "node": {
            "labels": {"ack.node.gpu.schedule": "mps"},
            "capacity": {
                "aliyun.com/gpu-mem": "80",
                "aliyun.com/gpu-count": "1",
                "aliyun.com/gpu-core.percentage": "100",
            },
        },
        "pods": [pod(name, limits={"aliyun.com/gpu-mem": "16"}) for _, name in NAMED],
    }


def hami(mode: str = "mps", annotation: str = "") -> Facts:
    device = {"id": UUID, "count": 10, "devmem": 81920, "devcore": 100, "type": "NVIDIA-A100", "mode": mode}
    register = json.dumps([device])
    written = {"hami.io/vgpu-devices-allocated": f"{UUID},NVIDIA,16384,0:;"}
    if annotation:
        written["nvidia.com/vgpu-mode"] = annotation
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "16384"}
    return {
        "gpus": [{"uuid": UUID}],
        "node": {"annotations": {"hami.io/node-nvidia-register": register}, "capacity": {"nvidia.com/gpu": "10"}},
        "pods": [pod(name, limits=limits, annotations=written) for _, name in NAMED],
    }


def older_hami(mode: str = "mps", annotation: str = "") -> Facts:
    made = hami(mode, annotation)
    text = f"{UUID},10,81920,100,NVIDIA-A100,0,true,0,{mode}:"
    return {**made, "node": {**made["node"], "annotations": {"hami.io/node-nvidia-register": text}}}


def volcano(mode: str = "mps", annotation: str = "") -> Facts:
    register = {"volcano.sh/node-vgpu-register": f"{UUID},10,81920,NVIDIA-A100,true,{mode}:"}
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "16384"}
    written = {"volcano.sh/vgpu-mode": annotation} if annotation else {}
    return {
        "gpus": [{"uuid": UUID}],
        "node": {
            "annotations": register,
            "capacity": {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "81920"},
        },
        "pods": [pod(name, limits=limits, annotations=written) for _, name in NAMED],
    }


def dra() -> Facts:
    """Two pods share a claim's GPU, by the MPS server that NVIDIA's driver starts for the claim."""
    config = {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "16Gi"}}
    claim: Facts = {
        "metadata": {"name": "mps", "namespace": "team-a"},
        "status": {
            "allocation": {
                "devices": {
                    "config": [
                        {
                            "opaque": {"driver": "gpu.nvidia.com", "parameters": {"sharing": config}},
                            "requests": ["gpu"],
                            "source": "FromClaim",
                        }
                    ],
                    "results": [
                        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "gpu-node-1", "device": "gpu-0"}
                    ],
                }
            },
            "reservedFor": [{"resource": "pods", "name": name, "uid": name} for _, name in NAMED],
        },
    }
    pods = [pod(name, namespace="team-a") for _, name in NAMED]
    for each in pods:
        each["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "mps"}]
        each["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": UUID}}
    device = {"name": "gpu-0", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}
    place = {"driver": "gpu.nvidia.com", "nodeName": "gpu-node-1"}
    pool = {"name": "gpu-node-1", "generation": 1, "resourceSliceCount": 1}
    return {
        "gpus": [{"uuid": UUID}],
        "claims": [claim],
        "slices": [{"metadata": {"name": "s"}, "spec": {**place, "pool": pool, "devices": [device]}}],
        "allocations": [
            {"pod": name, "claim": "mps", "driver": "gpu.nvidia.com", "device": "gpu-0"} for _, name in NAMED
        ],
        "pods": pods,
        "config": {"limits": {"mps_scope": "container"}},
    }


def nos() -> Facts:
    """nos' own limit is only reported, because its unit is not sure; so the pods lower it themselves."""
    lowered = {LABELLED: "12Gi"}
    return {
        "node": {"capacity": {"nvidia.com/gpu-16gb": "5"}},
        "pods": [pod(name, limits={"nvidia.com/gpu-16gb": "1"}, annotations=lowered) for _, name in NAMED],
    }


NAMED = ((0, "greedy"), (1, "meek"))
SYSTEMS = {
    "nvidia-mps": nvidia_mps(),
    "gke-mps": gke_mps(),
    "alauda-mps": alauda(),
    "ack": ack(),
    "hami-nvidia": hami(),
    "hami-nvidia-2.4": older_hami(),
    "hami-nvidia-annotated": hami(annotation="mps"),
    "volcano-vgpu": volcano(),
    "nvidia-dra": dra(),
    "nos": nos(),
}
"""Nodes on which the pods are MPS clients, by the catalogue's names."""


def changed(facts: Facts, **policy: Any) -> SceneRow:
    config = facts.get("config", {})
    return scene(**{**facts, "config": {**config, "policy": policy}})


@pytest.mark.parametrize("name", SYSTEMS)
def test_whoever_shares_a_gpu_by_mps_is_told_and_not_evicted(name: str) -> None:
    """With `policy.mps: notify`, which is the default, ending one client may not take its neighbours along."""
    assert state(play(changed(SYSTEMS[name])), "greedy") == ("held", "mps")


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_operator_whose_servers_survive_it_has_mps_clients_evicted(name: str) -> None:
    """`policy.mps: evict` acts on the same pod."""
    assert state(play(changed(SYSTEMS[name], mps="evict")), "greedy") == ("evict", None)


# --- what a pod's author can write -----------------------------------------------------------------------------------


def without_node(facts: Facts) -> Facts:
    """The same pods, bound by hand to a node that has nothing of their system."""
    return {**facts, "node": {"capacity": {"nvidia.com/gpu": "1"}}}


def sliced(**written: Any) -> Facts:
    """Pods on time slices of a GPU, with their own limit, and with whatever else they write."""
    annotations = {LABELLED: "16Gi", **written.pop("annotations", {})}
    return {
        "node": {"capacity": {"nvidia.com/gpu": "4"}},
        "allocatable": {"nvidia.com/gpu": [GPU + "::{0..3}"]},
        "allocations": [{"pod": name, "resource": "nvidia.com/gpu", "ids": [f"{GPU}::{n}"]} for n, name in NAMED],
        "pods": [
            pod(name, limits={"nvidia.com/gpu": "1", **written.get("limits", {})}, annotations=annotations, **more)
            for _, name in NAMED
            for more in [{key: value for key, value in written.items() if key != "limits"}]
        ],
    }


FORGED = {
    "hami-annotation": hami("hami-core", annotation="mps"),
    "hami-annotation-2.4": older_hami("hami-core", annotation="mps"),
    "volcano-annotation": volcano("hami-core", annotation="mps"),
    "volcano-annotation-without-register": {
        **volcano("hami-core", annotation="mps"),
        "node": {"capacity": {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "81920"}},
    },
    "alauda-resource-that-the-node-lacks": without_node(alauda()),
    "nos-resource-that-the-node-lacks": without_node(nos()),
    "nos-resource-beside-the-node-s": {**nos(), "node": {"capacity": {"nvidia.com/gpu-10gb": "8"}}},
    "mps-environment": sliced(env={"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8G", "CUDA_MPS_PIPE_DIRECTORY": "/tmp"}),
    "asks-for-zero": sliced(limits={"nvidia.com/mps-memory": "0", "nvidia.com/mps-core": "0"}),
    "mode-annotations": sliced(annotations={"nvidia.com/vgpu-mode": "mps", "volcano.sh/vgpu-mode": "mps"}),
}
"""What a tenant may write, where no MPS is."""


@pytest.mark.parametrize("name", FORGED)
def test_no_word_of_a_pod_makes_it_an_mps_client(name: str) -> None:
    """An annotation, an environment or a resource that the node does not have protects no pod."""
    assert state(play(changed(FORGED[name])), "greedy") == ("evict", None)


def test_asking_for_nothing_is_no_share_of_mps() -> None:
    """A node of Alauda's beside it: a pod may ask for zero units anywhere, and holds no share of MPS by that."""
    facts = sliced(limits={"nvidia.com/mps-memory": "0", "nvidia.com/mps-core": "0"})
    capacity = {"nvidia.com/gpu": "4", "nvidia.com/mps-core": "100", "nvidia.com/mps-memory": "80"}
    assert state(play(changed({**facts, "node": {"capacity": capacity}})), "greedy") == ("evict", None)


# --- the driver's list -----------------------------------------------------------------------------------------------


def listed(*kinds: str, **more: Any) -> Facts:
    processes: list[Facts] = [
        {"pod": name, "memory": memory, "kind": kind}
        for (_, name), memory, kind in zip(NAMED, ("30Gi", "4Gi"), kinds, strict=True)
    ]
    return {**sliced(), "processes": [*processes, {"memory": "64Mi"}], **more}


def test_the_drivers_list_protects_beside_another_pods_client() -> None:
    """No label and no declaration: the driver lists clients of two pods, so that one's end may be the other's."""
    assert state(play(changed(listed("mps", "mps"))), "greedy") == ("held", "mps")
    assert state(play(changed(listed("mps", "mps"), mps="evict")), "greedy") == ("evict", None)


@pytest.mark.parametrize("kinds", [("mps", "compute"), ("compute", "mps")])
def test_a_server_of_its_own_protects_no_pod(kinds: tuple[str, str]) -> None:
    """A tenant that starts its own MPS server is its only client; nor is a pod a client by its neighbour's server."""
    assert state(play(changed(listed(*kinds))), "greedy") == ("evict", None)


def test_two_clients_of_one_pod_are_no_neighbours() -> None:
    """However many processes of the pod are clients: only another pod's counts."""
    facts = listed("mps", "compute")
    facts["processes"].append({"pod": "greedy", "memory": "1Gi", "kind": "mps"})
    assert state(play(changed(facts)), "greedy") == ("evict", None)
