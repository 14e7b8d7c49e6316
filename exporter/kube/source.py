"""
Kubernetes as the source of names and allocations: API server, kubelet and own node, together.

What comes in: a client, the kubelet's socket, the present GPUs. What goes out: one inventory, at once.

The rule: each part may be away alone, and no part guesses the answers of another.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from exporter.base.clock import Clock
from exporter.kube.claims import Claims
from exporter.kube.client import Client
from exporter.kube.combining import combine
from exporter.kube.credentials import Credentials
from exporter.kube.device_ids import RememberedIds
from exporter.kube.inventory import KubeInventory
from exporter.kube.namespaces import Namespaces
from exporter.kube.own_node import OwnNode
from exporter.kube.pod_resources import PodResources
from exporter.model import DeclaredPod, Gpu, Inventory, PodUid


class KubernetesSource:
    """The names and allocations of one node. Run `run()` in a task; `inventory()` never waits."""

    def __init__(
        self,
        credentials: Credentials,
        node: str,
        *,
        clock: Clock,
        socket: Path,
        log_links: Path | None = None,
        limited: Callable[[], Iterable[PodUid]] | None = None,
    ) -> None:
        """
        Make a source that sends no request yet.

        `limited` returns the pods that have limits now. Only their namespaces are read, because on most nodes nearly
        all pods are agents that declare nothing. Without it the namespaces of all pods are read.
        """
        self._client = Client(credentials, clock=clock)
        random = Random()  # noqa: S311  (it spreads requests, and keeps no secret)
        self._names = KubeInventory(self._client, node, clock=clock, random=random, log_links=log_links)
        self._kubelet = PodResources(socket)
        self._ids = RememberedIds()
        self._node = OwnNode(self._client, node, clock=clock, random=random, has_claims=self._has_claims)
        self._claims = Claims(self._client, self._declared, self._node.look_at_devices, clock=clock, random=random)
        self._limited = limited
        self._known: set[PodUid] = set()
        """Pods that had a limit in some round: one incomplete round must not make a consent unknown."""
        self._namespaces = Namespaces(self._client, self._namespaces_here, clock=clock, random=random)

    def inventory(self, gpus: Sequence[Gpu]) -> Inventory:
        """Return the known pods and containers, and their allocations of `gpus`."""
        if (living := self._names.living) is not None:
            self._kubelet.keep_only(living)
        names = self._names.inventory()
        declared = names.declared.items() if self._node.asked else ()
        self._ids.begin_round()
        return combine(
            replace(
                names,
                node=self._node.facts,
                declared={uid: pod for uid, pod in declared if uid not in self._names.pods or self._claims.asked(pod)},
                claims=self._claims.found(self._node.uuids),
                namespaces=self._namespaces.labels,
                faults=(*names.faults, *self._namespaces.faults, *self._claims.faults),
            ),
            self._kubelet.view(),
            gpus,
            self._node.labels,
            finished=self._names.finished,
            uuids=self._node.uuids,
            read=self._ids,
        )

    async def run(self) -> None:
        """Keep all of it up to date until cancelled; a part that is away is a fault, never an exception."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._names.run(), name="names")
                tasks.create_task(self._kubelet.run(), name="allocations")
                tasks.create_task(self._node.run(), name="own node")
                tasks.create_task(self._claims.run(lambda: self._node.uuids), name="claims")
                tasks.create_task(self._namespaces.run(), name="namespaces")
        finally:
            await self._client.close()

    def _declared(self) -> Iterator[DeclaredPod]:
        return (known.declared for known in self._names.pods.values() if known.declared is not None)

    def _namespaces_here(self) -> Iterator[str]:
        living = {uid: known.pod.namespace for uid, known in self._names.pods.items() if not known.finished}
        if self._limited is None:
            return iter(living.values())
        self._known = (self._known | set(self._limited())) & living.keys()
        return (living[uid] for uid in self._known)

    def _has_claims(self) -> bool:
        return bool(self._kubelet.view().claims) or any(pod.claims for pod in self._declared())
