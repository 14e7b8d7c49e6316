"""
Pods on simulated nodes, as large as real ones; a kubelet's word on what they hold.

In: an API server without node controllers. Out: Pod objects that say they run. Law: 4 to 5 kB each as the API server
lists them, which is what a training pod with its managed fields takes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from google.protobuf.message import Message

from cluster import kubelet_pb2 as kubelet
from cluster.client import Api
from cluster.manifests import pod, pod_spec
from driver.node import FakeGpu

NAMESPACE = "default"
RESOURCE = "nvidia.com/gpu"


async def add(api: Api, node: str, count: int, *, running: bool = False) -> list[str]:
    """Create `count` pods on a node; `running`: each with the status that a kubelet writes. Returns their names."""
    names = [f"train-{node}-worker-{number:04}" for number in range(count)]
    await asyncio.gather(*(_add(api, name, node, running) for name in names))
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


async def _add(api: Api, name: str, node: str, running: bool) -> None:
    spec = pod_spec(command=["/bin/workload"], resources={RESOURCE: 1}) | {"nodeName": node}
    spec["containers"][0] |= {
        "env": [{"name": f"VARIABLE_{place}", "value": "value"} for place in range(20)],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec["volumes"] = [{"name": "data", "emptyDir": {}}]
    made = pod(name, spec, labels={"app": "train", "kueue.x-k8s.io/queue-name": "gold"})
    made["metadata"]["annotations"] = {"cni.example.com/networks": "x" * 500}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await api.create(path, made)
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
        await api.patch(f"{path}/{name}/status", {"status": {"phase": "Running", "containerStatuses": [container]}})
