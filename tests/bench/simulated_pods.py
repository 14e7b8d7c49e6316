"""
Pods on simulated nodes, as large as real ones, and a kubelet's answer about what they hold.

In: an API server without node controllers. Out: Pod objects that say they run. Law: 5.5 kB each as the API server lists
them (managed fields and all), which is what a small training pod takes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from google.protobuf.message import Message

from cluster import kubelet_pb2 as kubelet
from cluster.client import Api, Object
from cluster.manifests import pod, pod_spec
from driver.node import FakeGpu

NAMESPACE = "default"
RESOURCE = "nvidia.com/gpu"


async def add(api: Api, node: str, count: int, *, running: bool = False, owners: Sequence[Object] = ()) -> list[str]:
    """Create `count` pods on a node and return their names.

    `running`: each with the status that a kubelet writes. `owners`: references to controllers that exist, in turn.
    """
    names = [f"train-{node}-worker-{number:04}" for number in range(count)]
    made = [_pod(name, node, owners[number % len(owners)] if owners else None) for number, name in enumerate(names)]
    await asyncio.gather(*(_add(api, thing, running) for thing in made))
    return names


def answers(names: Sequence[str], gpus: Sequence[FakeGpu]) -> tuple[Message, Message]:
    """Say what the kubelet would list when each pod had one replica of a GPU; and what it could hand out."""
    replicas = [f"{gpus[number % len(gpus)].uuid}::{number // len(gpus)}" for number in range(len(names))]
    handed = [kubelet.ContainerDevices(resource_name=RESOURCE, device_ids=[one]) for one in replicas]
    pods = [
        kubelet.PodResources(
            name=name, namespace=NAMESPACE, containers=[kubelet.ContainerResources(name="main", devices=[devices])]
        )
        for name, devices in zip(names, handed, strict=True)
    ]
    return (
        kubelet.ListPodResourcesResponse(pod_resources=pods),
        kubelet.AllocatableResourcesResponse(devices=handed),
    )


def _pod(name: str, node: str, owner: Object | None) -> Object:
    spec = pod_spec(command=["/bin/workload"], resources={RESOURCE: 1}) | {"nodeName": node}
    spec["containers"][0] |= {
        "env": [{"name": f"VARIABLE_{place}", "value": "value"} for place in range(20)],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec["volumes"] = [{"name": "data", "emptyDir": {}}]
    made = pod(name, spec, labels={"app": "train", "kueue.x-k8s.io/queue-name": "gold"})
    made["metadata"]["annotations"] = {"cni.example.com/networks": "x" * 500}
    if owner:
        made["metadata"]["ownerReferences"] = [owner]
    return made


async def _add(api: Api, thing: Object, running: bool) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await api.create(path, thing)
    if running:
        container = {
            "name": "main",
            "image": "x",
            "imageID": "x",
            "ready": True,
            "restartCount": 0,
            "containerID": f"containerd://{uuid.uuid4().hex * 2}",
            "state": {"running": {"startedAt": "2026-11-01T10:00:00Z"}},
        }
        await api.patch(
            f"{path}/{thing['metadata']['name']}/status",
            {"status": {"phase": "Running", "containerStatuses": [container]}},
        )
