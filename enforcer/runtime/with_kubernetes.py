"""
The parts of the daemon that need an API server: Events, actions and dry runs.

What comes in: the config, the decider and the latest snapshots. What goes out: tasks that run beside the observing.

The rule: a dry run gets a client that cannot change anything. Only a daemon whose pods have their names from an API
server imports this module.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from enforcer.actions.evict.actuator import DEADLINE
from enforcer.actions.evict.admission_probe import OwnPod
from enforcer.actions.fence.cgroup_paths import mount_point
from enforcer.actions.fence.nvml import NvmlLimits
from enforcer.actions.kill.actuator import Kill
from enforcer.actions.kube_writer import Writer
from enforcer.actions.notify.actuator import Notifier
from enforcer.journal.file import DEFAULT
from enforcer.runtime.arming import Arming, World
from enforcer.runtime.decider import Decider
from enforcer.runtime.dry_run import DryRuns
from enforcer.runtime.hands import Fresh
from enforcer.runtime.live_pod import LivePods
from exporter.base.clock import Clock, SystemClock
from exporter.config import Config
from exporter.host.pod_cgroups import pod_cgroups
from exporter.host.procfs import proc_root
from exporter.kube.client import Client
from exporter.kube.credentials import credentials
from exporter.rounds.latest import Latest


@asynccontextmanager
async def acting(
    config: Config, decider: Decider, latest: Latest, fresh: Fresh, *, own: tuple[str, str]
) -> AsyncIterator[None]:
    """Write Events on pods, and arm as far as the mode says, meanwhile; `own`: namespace and name of the own pod."""
    pod = OwnPod(*own)
    async with _kubernetes(config, pod) as kube:
        decider.tell, kube.notifier.accepted = kube.notifier.tell, decider.warned
        world = _world(config, kube, pod)
        arming = Arming(decider, world, latest, fresh, clock=kube.clock)
        ask = LivePods(kube.looker, listing=True)
        preflight = Kill(world.proc, world.pods, trusted=world.trusted)
        dry_runs = DryRuns(decider, ask, fresh, preflight, clock=kube.clock)
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(arming.run(), name="arming"),
                tasks.create_task(dry_runs.run(), name="dry runs"),
                tasks.create_task(dry_runs.hold(latest), name="holding for dry runs"),
            ]
            yield
            for task in beside:
                task.cancel()


@dataclass(frozen=True, slots=True)
class _Kubernetes:
    """Clients of the API server, and the way to write Events. `looker` cannot change anything."""

    looker: Client
    reader: Writer
    writer: Writer
    notifier: Notifier
    clock: Clock


@asynccontextmanager
async def _kubernetes(config: Config, own: OwnPod) -> AsyncIterator[_Kubernetes]:
    """Open the clients, and write Events on pods meanwhile."""
    clock, login = SystemClock(), credentials(config.names.kubeconfig)
    looker = Client(login, clock=clock)
    reader, writer = Writer(login, clock=clock), Writer(login, clock=clock, deadline=DEADLINE)
    random = Random()  # noqa: S311  (it spreads requests, and keeps no secret)
    notifier = Notifier(reader, own.name or config.node.name, clock=clock, random=random)
    task = asyncio.create_task(notifier.run(), name="notifying")
    try:
        yield _Kubernetes(looker, reader, writer, notifier, clock)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for client in (looker, reader, writer):
            await client.close()


def _world(config: Config, kube: _Kubernetes, own: OwnPod) -> World:
    return World(
        kube.writer,
        kube.reader,
        proc_root(config.node.host_root),
        config.policy.journal or DEFAULT,
        pod_cgroups(config.node.pods_cgroup, config.node.host_root),
        admission=own if config.policy.admission == "required" else None,
        trusted=config.node.trust_pid_namespace,
        limits=NvmlLimits(),
        cgroups=mount_point(),
    )
