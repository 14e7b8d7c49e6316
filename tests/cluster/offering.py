"""
How many replicas of a GPU the kubelet has to give.

In: a resource of the bed, and a number. Out: a while in which the Node has so many. Law: what the device plugin offers
is what it offered before, when it is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from cluster import pod_resources
from cluster.bed import INVENTORY, NODE_NAME, Bed
from cluster.client import Api, until


@asynccontextmanager
async def replicas(bed: Bed, api: Api, resource: str, count: int) -> AsyncIterator[None]:
    """Offer the first GPU behind a resource in so many replicas."""
    device = INVENTORY[resource][0].partition("::")[0]
    await _offer(bed, api, {**INVENTORY, resource: [f"{device}::{replica}" for replica in range(count)]})
    try:
        yield
    finally:
        await _offer(bed, api, INVENTORY)


async def _offer(bed: Bed, api: Api, inventory: Mapping[str, Sequence[str]]) -> None:
    bed.set_inventory(inventory)

    async def offered() -> bool:
        found = await pod_resources.allocatable(bed.node.pod_resources_socket)
        # The scheduler goes by the Node, which comes later. Where it is short, a critical pod preempts others.
        told = (await api.get(f"/api/v1/nodes/{NODE_NAME}"))["status"]["allocatable"]
        known = all(told.get(resource) == str(len(ids)) for resource, ids in inventory.items())
        return known and found == {resource: sorted(ids) for resource, ids in inventory.items()}

    await until(offered, "the kubelet to offer the replicas, and the Node to say so")
