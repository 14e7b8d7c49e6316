"""
`gpusteward run`: the node daemon.

What comes in: the flags and the config of the daemon. What goes out: 0 ended by a signal, 1 the node cannot do what was
asked, 2 wrong usage or config.

The law: one daemon per node. It observes as gpusteward-exporter does, with the same code, and puts the policy on top.
Signals are heeded before anything else is loaded: see `exporter.__main__`.
"""

import argparse
import asyncio
import os
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NoReturn

from exporter.config.arguments import add_flags, chosen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from enforcer.actions.kube_writer import Writer
    from enforcer.cli import Commands
    from enforcer.policy.rules import Rules
    from enforcer.runtime.arming import World
    from enforcer.runtime.decider import Tell
    from enforcer.runtime.executor import Fresh
    from exporter.base.clock import Clock
    from exporter.config import Arguments, Config
    from exporter.kube.client import Client
    from exporter.model import GpuUuid, Snapshot

PROGRAM = "gpusteward"
POD_UID, POD_NAMESPACE, POD_NAME = "POD_UID", "POD_NAMESPACE", "POD_NAME"
"""Environment variables that the DaemonSet fills from its own pod's fields."""


def add(commands: "Commands") -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "run",
        help="the node daemon: observe, export, and decide as far as the mode allows",
        description="Observe this node, export what is seen, and judge it by the policy, as far as --mode allows.",
        allow_abbrev=False,
    )
    add_flags(parser)
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Run the daemon; return the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # until the event loop takes over
    from enforcer.runtime.policy_config import impossible  # noqa: PLC0415  (with the daemon come driver, HTTP and more)
    from exporter.config import ConfigError, load  # noqa: PLC0415
    from exporter.devices import DeviceError  # noqa: PLC0415
    from exporter.rounds import logs  # noqa: PLC0415
    from exporter.running import refuse, until_signalled  # noqa: PLC0415
    from exporter.web.server import WebError  # noqa: PLC0415

    arguments = chosen(namespace, os.environ)
    code = 0
    try:
        config = load(arguments, impossible)
        logs.configure(config.log.level, config.log.format)
        asyncio.run(until_signalled(_daemon(arguments, config, os.environ)))
    except* ConfigError as errors:
        code = refuse(f"{PROGRAM} run", errors, 2)
    except* (DeviceError, WebError) as errors:
        code = refuse(f"{PROGRAM} run", errors, 1)
    return code


def _leave(*_signal: object) -> NoReturn:
    """End at once: nothing is open yet, and an exception would rise somewhere in the middle of an import."""
    os._exit(0)


async def _daemon(arguments: "Arguments", config: "Config", environ: "Mapping[str, str]") -> None:
    from enforcer.policy.rules import Ceiling  # noqa: PLC0415
    from enforcer.policy.vocabulary import Mode, Reason  # noqa: PLC0415
    from enforcer.runtime.arming import Arming  # noqa: PLC0415
    from enforcer.runtime.decider import Deciding  # noqa: PLC0415
    from enforcer.runtime.dry_run import Rehearsing  # noqa: PLC0415
    from enforcer.runtime.live_pod import Asking  # noqa: PLC0415
    from enforcer.runtime.policy_config import impossible, rules_of  # noqa: PLC0415
    from exporter.daemon import Enforcement, observe  # noqa: PLC0415
    from exporter.rounds.latest import Latest  # noqa: PLC0415

    own_pod, own_namespace = environ.get(POD_UID, ""), environ.get(POD_NAMESPACE, "")

    def rules(of: "Config") -> "Rules":
        return rules_of(of, own_pod=own_pod, own_namespace=own_namespace)

    def apply(changed: "Config") -> None:
        deciding.rules, deciding.stop_file = rules(changed), changed.policy.stop_file

    latest, link = Latest(), _Link()
    async with _kubernetes(config, environ) as kube:
        deciding = Deciding(rules(config), config.policy.stop_file, tell=kube.tell if kube else lambda _: None)
        enforcement = Enforcement(deciding, impossible, apply, link.attach)
        observing = observe(arguments, config, latest, program=f"{PROGRAM} run", enforcement=enforcement)
        if kube is None:
            deciding.ceilings = (Ceiling(Mode.DRY_RUN, Reason.NOT_ARMED),)
            await observing
            return
        world = _world(config, kube, own_namespace)
        arming = Arming(deciding, world, latest, link.fresh, clock=kube.clock)
        ask = Asking(kube.looker, listing=True)
        rehearsing = Rehearsing(deciding, ask, link.fresh, world.proc, clock=kube.clock, trusted=world.trusted)
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(arming.run(), name="arming"),
                tasks.create_task(rehearsing.run(), name="rehearsing"),
                tasks.create_task(rehearsing.hold(latest), name="holding for rehearsals"),
            ]
            await observing
            for one in beside:
                one.cancel()


class _Link:
    """The way to ask for a fresh round, once the sampler is there."""

    def __init__(self) -> None:
        self._fresh: Fresh | None = None

    def attach(self, fresh: "Fresh") -> None:
        self._fresh = fresh

    async def fresh(self, only: "Collection[GpuUuid]") -> "Snapshot | None":
        return None if self._fresh is None else await self._fresh(only)


@dataclass(frozen=True, slots=True)
class _Kubernetes:
    """What is asked of the API server, and how users are told. `looker` cannot change anything."""

    looker: "Client"
    reader: "Writer"
    writer: "Writer"
    tell: "Tell"
    clock: "Clock"


@asynccontextmanager
async def _kubernetes(config: "Config", environ: "Mapping[str, str]") -> "AsyncIterator[_Kubernetes | None]":
    """Write Events on pods meanwhile, where the names of this node come from an API server; None where not."""
    from enforcer.runtime.policy_config import plays  # noqa: PLC0415
    from exporter.config import source_of_names  # noqa: PLC0415

    if source_of_names(config.names, in_a_pod="KUBERNETES_SERVICE_HOST" in environ) != "kubernetes" or plays(config):
        yield None
        return
    from enforcer.actions.evict.actuator import DEADLINE  # noqa: PLC0415  (the Kubernetes client costs 20 MB)
    from enforcer.actions.kube_writer import Writer  # noqa: PLC0415
    from enforcer.actions.notify.actuator import Notifier  # noqa: PLC0415
    from exporter.base.clock import SystemClock  # noqa: PLC0415
    from exporter.kube.client import Client, credentials  # noqa: PLC0415

    clock, found = SystemClock(), credentials(config.names.kubeconfig)
    looker = Client(found, clock=clock)
    reader, writer = Writer(found, clock=clock), Writer(found, clock=clock, deadline=DEADLINE)
    lot = Random()  # noqa: S311  (it spreads requests, and keeps no secret)
    notifier = Notifier(reader, environ.get(POD_NAME) or config.node.name, clock=clock, random=lot)
    task = asyncio.create_task(notifier.run(), name="notifying")
    try:
        yield _Kubernetes(looker, reader, writer, notifier.tell, clock)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await looker.close()
        await reader.close()
        await writer.close()


def _world(config: "Config", kube: _Kubernetes, own_namespace: str) -> "World":
    from enforcer.actions.fence.cgroup_paths import mount_point  # noqa: PLC0415
    from enforcer.actions.fence.nvml import NvmlLimits  # noqa: PLC0415
    from enforcer.journal.file import DEFAULT  # noqa: PLC0415
    from enforcer.runtime.arming import World  # noqa: PLC0415
    from exporter.host.procfs import proc_root  # noqa: PLC0415

    return World(
        kube.writer,
        kube.reader,
        proc_root(config.node.host_root),
        config.policy.journal or DEFAULT,
        admission=own_namespace if config.policy.admission == "required" else None,
        trusted=config.node.trust_pid_namespace,
        limits=NvmlLimits(),
        cgroups=mount_point(),
    )
