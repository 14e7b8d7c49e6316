"""
Kubernetes as the source of names and allocations: API server, kubelet and own node, together.

What comes in: a client, the kubelet's socket, the GPUs of the moment. What goes out: one inventory, at once.

The law: three parts that may be away one by one; what one of them does not say, the others do not invent.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from exporter.clock import Clock
from exporter.kube.client import Client, Credentials
from exporter.kube.combining import combine
from exporter.kube.inventory import KubeInventory
from exporter.kube.own_node import OwnNode
from exporter.kube.pod_resources import PodResources
from exporter.model import Gpu, Inventory


class KubernetesSource:
    """The names and allocations of one node. Run `run()` in a task; `inventory()` never waits."""

    def __init__(
        self, credentials: Credentials, node: str, *, clock: Clock, socket: Path, log_links: Path | None = None
    ) -> None:
        self._client = Client(credentials, clock=clock)
        lot = Random()  # noqa: S311  (it spreads requests, and keeps no secret)
        self._names = KubeInventory(self._client, node, clock=clock, random=lot, log_links=log_links)
        self._kubelet = PodResources(socket)
        self._node = OwnNode(
            self._client, node, clock=clock, random=lot, has_claims=lambda: bool(self._kubelet.view().claims)
        )

    def inventory(self, gpus: Sequence[Gpu]) -> Inventory:
        """Return what is known now of pods, containers, and what they were handed of `gpus`."""
        if (living := self._names.living) is not None:
            self._kubelet.keep_only(living)
        names = self._names.inventory()
        return combine(
            replace(names, node=self._node.facts, declared=names.declared if self._node.asked else {}),
            self._kubelet.view(),
            gpus,
            self._node.labels,
            finished=self._names.finished,
            uuids=self._node.uuids,
        )

    async def run(self) -> None:
        """Keep all three up to date until cancelled; what is away is a fault, never an exception."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._names.run(), name="names")
                tasks.create_task(self._kubelet.run(), name="allocations")
                tasks.create_task(self._node.run(), name="own node")
        finally:
            await self._client.close()
