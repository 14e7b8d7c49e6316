"""
The daemon, put together: the exporter's own `observe()`, with the policy on top.

What comes in: flags, config and environment. What goes out: nothing; it ends when it is cancelled.

The rule: the parts are made here and nowhere else. The exporter gets the policy as four functions, and never learns
what they do. A dry run gets a client that cannot change anything.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
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
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Mode, Reason
from enforcer.runtime.arming import Arming, World
from enforcer.runtime.decider import Decider
from enforcer.runtime.dry_run import DryRuns
from enforcer.runtime.hands import Fresh
from enforcer.runtime.live_pod import LivePods
from enforcer.runtime.policy_config import impossible, plays, rules_of
from exporter.base.clock import Clock, SystemClock
from exporter.config import Arguments, Config, ConfigError, source_of_names
from exporter.daemon import Enforcement, observe
from exporter.host.pod_cgroups import pod_cgroups
from exporter.host.procfs import proc_root
from exporter.kube.client import Client
from exporter.kube.credentials import credentials
from exporter.model import GpuUuid, Snapshot
from exporter.rounds.latest import Latest

POD_UID, POD_NAMESPACE, POD_NAME = "POD_UID", "POD_NAMESPACE", "POD_NAME"
"""Environment variables that the DaemonSet fills from its own pod's fields."""


async def daemon(
    arguments: Arguments,
    config: Config,
    environ: Mapping[str, str],
    *,
    program: str,
    refused: ConfigError | None = None,
) -> None:
    """Observe, decide and (as far as the mode allows) act, until cancelled. Raises as `observe` does."""
    own_pod, own_namespace = environ.get(POD_UID, ""), environ.get(POD_NAMESPACE, "")

    def rules(of: Config) -> Rules:
        return rules_of(of, own_pod=own_pod, own_namespace=own_namespace, confirm=kube is not None)

    def apply(changed: Config) -> None:
        decider.rules, decider.stop_file.path = rules(changed), changed.policy.stop_file

    latest, link = Latest(), _Link()
    async with _kubernetes(config, environ) as kube:
        decider = Decider(rules(config), config.policy.stop_file, tell=kube.notifier.tell if kube else lambda _: None)
        enforcement = Enforcement(decider, impossible, apply, link.attach)
        observing = observe(arguments, config, latest, program=program, enforcement=enforcement, refused=refused)
        if kube is None:
            decider.ceilings = (Ceiling(Mode.DRY_RUN, Reason.NOT_ARMED),)
            await observing
            return
        kube.notifier.accepted = decider.warned
        world = _world(config, kube, OwnPod(own_namespace, environ.get(POD_NAME, "")))
        arming = Arming(decider, world, latest, link.fresh, clock=kube.clock)
        ask = LivePods(kube.looker, listing=True)
        preflight = Kill(world.proc, world.pods, trusted=world.trusted)
        dry_runs = DryRuns(decider, ask, link.fresh, preflight, clock=kube.clock)
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(arming.run(), name="arming"),
                tasks.create_task(dry_runs.run(), name="dry runs"),
                tasks.create_task(dry_runs.hold(latest), name="holding for dry runs"),
            ]
            await observing
            for task in beside:
                task.cancel()


class _Link:
    """The way to ask for a fresh round, once the sampler is there."""

    def __init__(self) -> None:
        self._fresh: Fresh | None = None

    def attach(self, fresh: Fresh) -> None:
        self._fresh = fresh

    async def fresh(self, only: Collection[GpuUuid]) -> Snapshot | None:
        return None if self._fresh is None else await self._fresh(only)


@dataclass(frozen=True, slots=True)
class _Kubernetes:
    """Clients of the API server, and the way to write Events. `looker` cannot change anything."""

    looker: Client
    reader: Writer
    writer: Writer
    notifier: Notifier
    clock: Clock


@asynccontextmanager
async def _kubernetes(config: Config, environ: Mapping[str, str]) -> AsyncIterator[_Kubernetes | None]:
    """Write Events on pods meanwhile, where the names of this node come from an API server; None where not."""
    if source_of_names(config.names, in_a_pod="KUBERNETES_SERVICE_HOST" in environ) != "kubernetes" or plays(config):
        yield None
        return
    clock, login = SystemClock(), credentials(config.names.kubeconfig)
    looker = Client(login, clock=clock)
    reader, writer = Writer(login, clock=clock), Writer(login, clock=clock, deadline=DEADLINE)
    random = Random()  # noqa: S311  (it spreads requests, and keeps no secret)
    notifier = Notifier(reader, environ.get(POD_NAME) or config.node.name, clock=clock, random=random)
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
