"""
Names from Kubernetes: runs the parts of this folder.

What comes in: a client of the API server, the node's name, and (optionally) the folder of the kubelet's log links. What
goes out: pods, containers and workloads as last known, at once, whatever the API server does.

The rule: names stay. While the API server is away, the last view stays in use, completed from the log links, with a
fault. When the server is back, all resumes by itself.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from exporter.base.clock import Clock
from exporter.kube import remembered
from exporter.kube.allocations import PodName
from exporter.kube.client import Client
from exporter.kube.combining import fill_in, finished_names
from exporter.kube.errors import KubeError
from exporter.kube.pods import KnownPod
from exporter.kube.watching import PATIENCE, Patience, PodWatch
from exporter.kube.workloads import APART, Workloads
from exporter.model import Container, DeclaredPod, Fault, Inventory, Pod, PodUid

LOOK_AGAIN = 10.0
"""Seconds between two readings of the log links while the API server is away; 10 microseconds per link."""

_REFUSED = {
    401: ("api_unauthorized", "the API server does not accept the token: is the ServiceAccount still there?"),
    403: ("api_forbidden", "a right is missing: pods list, watch (ClusterRole)"),
}
"""HTTP's status to the fault's reason and its fix."""
_SETTLING = "a server that has just started refuses until it has read its roles"


class KubeInventory:
    """The source of names. Run `run()` in a task; `inventory()` never waits."""

    def __init__(
        self,
        client: Client,
        node: str,
        *,
        clock: Clock,
        random: Random,
        log_links: Path | None = None,
        patience: Patience = PATIENCE,
        apart: float = APART,
    ) -> None:
        self._watch = PodWatch(client, node, clock=clock, random=random, patience=patience)
        self._workloads = Workloads(client, clock=clock, apart=apart)
        self._clock = clock
        self._random = random
        self._apart = apart
        self._patience = patience
        self._log_links = log_links
        self._remembered = Inventory()
        self._made: dict[PodUid, tuple[Pod, Pod]] = {}
        """Pods as the API names them, and the same ones with their workloads."""

    @property
    def pods(self) -> Mapping[PodUid, KnownPod]:
        """The pods in the API server's last answer, with labels, annotations and resources."""
        return self._watch.pods.known

    @property
    def finished(self) -> frozenset[PodName]:
        """Names of pods that have ended or were deleted: their devices are free again."""
        return finished_names(self._everybody().values())

    @property
    def living(self) -> frozenset[PodName] | None:
        """Names of the pods that the API server has on this node now; None while that is unknown."""
        if not self._watch.live:
            return None
        return frozenset((known.pod.namespace, known.pod.name) for known in self._watch.pods.known.values())

    def inventory(self) -> Inventory:
        """Return the names as last known."""
        pods: dict[PodUid, Pod] = {}
        containers: list[Container] = []
        declared: dict[PodUid, DeclaredPod] = {}
        for uid, known in self._everybody().items():
            pods[uid] = self._named(known)
            containers += known.containers
            if known.declared is not None:
                declared[uid] = known.declared
        self._made = {uid: made for uid, made in self._made.items() if uid in pods}
        names = Inventory(
            pods=pods,
            containers=tuple(containers),
            declared=declared,
            known=self._watch.known,
            live=self._watch.live,
        )
        if not names.live:
            names = fill_in(names, self._remembered)
        return replace(names, faults=self._faults(names.known))

    async def run(self) -> None:
        """Keep the names up to date until cancelled."""
        await self._look()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run(), name="pods")
            tasks.create_task(self._learn(), name="workloads")
            tasks.create_task(self._remember(), name="log links")

    async def _learn(self) -> None:
        failures = 0
        while True:
            if failures:
                await self._clock.sleep(self._patience.wait(failures, self._random))
            else:
                await self._watch.changed.wait()
            self._watch.changed.clear()
            pods = tuple(self._watch.pods.known.values())
            wanted = [(known.pod.namespace, known.controller) for known in pods if known.controller]
            failures = 0 if await self._workloads.learn(wanted) else failures + 1
            await self._clock.sleep(self._apart)  # many changes at once are one change

    async def _remember(self) -> None:
        while True:
            await self._clock.sleep(LOOK_AGAIN)
            if self._watch.live:
                self._remembered = Inventory()  # it would be outdated when it is needed
            else:
                await self._look()

    async def _look(self) -> None:
        if self._log_links is not None:
            self._remembered = remembered.inventory(await asyncio.to_thread(remembered.read, self._log_links))

    def _everybody(self) -> dict[PodUid, KnownPod]:
        now = self._clock.monotonic()
        departed = self._watch.pods.departed.items()
        return {**{uid: gone.known for uid, gone in departed if gone.until > now}, **self._watch.pods.known}

    def _named(self, known: KnownPod) -> Pod:
        """Add the workload. The same pod is the same object in each round: then the next steps compare it at once."""
        workload = self._workloads.of(known.controller)
        if workload is None:
            return known.pod
        plain, made = self._made.get(known.pod.uid, (None, known.pod))
        if plain is not known.pod or (made.workload_kind, made.workload) != (workload.kind, workload.name):
            made = replace(known.pod, workload_kind=workload.kind, workload=workload.name)
            self._made[known.pod.uid] = known.pod, made
        return made

    def _faults(self, known: bool) -> tuple[Fault, ...]:  # noqa: FBT001
        faults = tuple(
            Fault("api", "pod_undecodable", f"pod {name} cannot be decoded: {why}", subject=name, incomplete=False)
            for name, why in self._watch.pods.broken.items()
        )
        if self._watch.live:
            return faults
        if self._watch.error is None:
            return (*faults, Fault("api", "api_pending", "the API server has not answered yet", incomplete=not known))
        return (*faults, _away(self._watch.error, known=known, settling=self._watch.settling))


def _away(error: KubeError, *, known: bool, settling: bool) -> Fault:
    """Make the fault of names that are not live. A round with the last known names is complete."""
    reason, remedy = _REFUSED.get(error.status, ("api_away", ""))
    if error.reason == "NotConfigured":
        reason = "api_not_configured"
    if settling:
        reason, remedy = "api_away", _SETTLING
    names = "the last known names stay" if known else "GPU memory is not attributed to pods"
    return Fault("api", reason, "; ".join(filter(None, (str(error), remedy, names))), incomplete=not known)
