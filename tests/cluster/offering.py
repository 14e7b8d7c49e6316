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
    await offer(bed, api, {**INVENTORY, resource: [f"{device}::{replica}" for replica in range(count)]})
    try:
        yield
    finally:
        await offer(bed, api, INVENTORY)


async def offer(bed: Bed, api: Api, inventory: Mapping[str, Sequence[str]]) -> None:
    """Let the device plugin offer these ids, and wait until the kubelet and the Node say so."""
    await offer_to_kubelet(bed, inventory)
    await on_the_node(api, inventory)


async def offer_to_kubelet(bed: Bed, inventory: Mapping[str, Sequence[str]]) -> None:
    """Let the device plugin offer these ids, and wait until the kubelet has them: enough for pods that are bound."""
    bed.set_inventory(inventory)
    wanted = {resource: sorted(ids) for resource, ids in inventory.items() if ids}

    async def offered() -> bool:
        return await pod_resources.allocatable(bed.node.pod_resources_socket) == wanted

    await until(offered, "the kubelet to have the replicas")


async def on_the_node(api: Api, inventory: Mapping[str, Sequence[str]]) -> None:
    """
    Wait until the Node says what the kubelet has, which takes up to 10 s more.

    The scheduler goes by the Node. Where it is short, a critical pod preempts others.
    """

    async def known() -> bool:
        told = (await api.get(f"/api/v1/nodes/{NODE_NAME}"))["status"]["allocatable"]
        return all(told.get(resource) == str(len(ids)) for resource, ids in inventory.items())

    await until(known, "the Node to say what the kubelet offers")
