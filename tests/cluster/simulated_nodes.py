"""Nodes without a kubelet: Node objects that say Ready, with their leases, as many as a test wants.

In: an API server without node controllers (they would take silence for death). Out: names.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from cluster.client import Api

GPUS_PER_NODE = 8


async def add(api: Api, count: int, *, prefix: str = "simulated") -> list[str]:
    """Create `count` nodes, `<prefix>-0000` and on."""
    names = [f"{prefix}-{number:04}" for number in range(count)]
    await asyncio.gather(*(_add(api, name) for name in names))
    return names


async def remove(api: Api, names: list[str]) -> None:
    """Delete nodes and leases."""
    # Leases first: the garbage collector would take those of a deleted node.
    await asyncio.gather(*(api.delete(lease_path(name)) for name in names))
    await asyncio.gather(*(api.delete(f"/api/v1/nodes/{name}") for name in names))


def lease_path(name: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"


async def _add(api: Api, name: str) -> None:
    now = datetime.now(UTC)
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "simulated",
        "lastHeartbeatTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    node = await api.create(
        "/api/v1/nodes",
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": resources, "allocatable": resources, "conditions": [ready]},
        },
    )
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    await api.create(
        lease_path(name).rpartition("/")[0],
        {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": 40,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        },
    )
