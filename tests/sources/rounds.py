"""
The exporter's own rounds over a node of files, with pods that a test makes up; none of its modules is replaced.

In: a node of files, what the kubelet handed to which pod, what pods ask for. Out: snapshots and pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from exporter.base.clock import SystemClock
from exporter.devices import DeviceSource
from exporter.devices.kernel import Counting, KernelSource
from exporter.devices.thread import DEADLINE
from exporter.host.procfs import ProcFs
from exporter.kube.allocations import AllocationsView, Holding
from exporter.kube.combining import combine
from exporter.limits.loading import builtin
from exporter.metrics.exposition import Exposition
from exporter.model import (
    Container,
    ContainerId,
    DeclaredContainer,
    DeclaredPod,
    Gpu,
    Inventory,
    NodeFacts,
    Pod,
    PodUid,
    Snapshot,
)
from exporter.rounds.latest import Latest
from exporter.rounds.limits import Limiting
from exporter.rounds.sampler import Beat, Sampler
from sources.kernel import Node


@dataclass
class Pods:
    """The names' source: pods `a`, `b` ... with one container `main` each, and what the kubelet handed to them."""

    handed: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    asked: dict[str, dict[str, str]] = field(default_factory=dict)
    offered: dict[str, tuple[str, ...]] = field(default_factory=dict)
    noted: dict[str, dict[str, str]] = field(default_factory=dict)
    """Annotations."""

    async def run(self) -> None:
        """Nothing is fetched."""

    def inventory(self, gpus: Sequence[Gpu]) -> Inventory:
        names = sorted(self.handed.keys() | self.asked.keys())
        pods = {
            uid(name): Pod(
                uid(name),
                "team",
                name,
                workload_kind="Deployment",
                workload=name,
                phase="Running",
                priority=0,
                controller_kind="ReplicaSet",
            )
            for name in names
        }
        known = Inventory(
            pods=pods,
            containers=tuple(Container(uid(name), "main", container(name)) for name in names),
            declared={
                uid(name): DeclaredPod(
                    uid(name),
                    "team",
                    name,
                    annotations=self.noted.get(name, {}),
                    containers=(DeclaredContainer("main", self.asked.get(name, {})),),
                )
                for name in names
            },
            node=NodeFacts(allocatable={resource: str(len(ids)) for resource, ids in self.offered.items()}),
            namespaces={"team": {"gpusteward.io/mode": "enforce"}},
            known=True,
            live=True,
        )
        view = AllocationsView(
            holdings=tuple(Holding("team", pod, "main", resource, ids) for pod, (resource, ids) in self.handed.items()),
            allocatable=self.offered,
            known=True,
            live=True,
        )
        return combine(known, view, gpus, {})


def uid(name: str) -> PodUid:
    """Name a pod of one letter by its UID."""
    return PodUid(f"{name * 8}-{name * 4}-{name * 4}-{name * 4}-{name * 12}")


def container(name: str) -> ContainerId:
    """Name the container of a pod of one letter."""
    return ContainerId(name * 64)


def cgroup(name: str) -> str:
    """Name the cgroup of that container."""
    return f"kubepods/burstable/pod{uid(name)}/{container(name)}"


@dataclass
class Rounds:
    """The exporter's round over a node of files. `devices`: another source of devices than those files."""

    node: Node
    pods: Pods
    devices: DeviceSource | None = None
    _source: Counting | None = None
    _sampler: Sampler | None = None

    async def close(self) -> None:
        """End the source's thread."""
        if self._source is not None:
            await self._source.close()

    async def next(self) -> Snapshot:
        """Make a round."""
        if self._sampler is None:
            devices = self.devices or KernelSource(self.node.roots)
            self._source = Counting(devices, self.node.roots.cgroup, DEADLINE)
            self._sampler = Sampler(
                node="n1",
                devices=self._source,
                host=ProcFs(self.node.roots.proc, trusted=True),
                inventory=self.pods,
                beat=Beat(),
                clock=SystemClock(),
                limiting=Limiting(builtin()),
            )
        return await self._sampler.round()

    async def page(self) -> bytes:
        """Make a round, and serve it as a scraper reads it."""
        latest = Latest()
        snapshot = await self.next()
        latest.publish(snapshot, latest.tally.after(snapshot))
        return Exposition(latest, node="n1", version="0").page(now=0.0, interval=5.0).body
