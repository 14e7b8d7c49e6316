"""
`observe()`: the parts, wired.

What comes in: the arguments and the config made of them. What goes out: nothing; it runs until it is cancelled, or
until something happens that only a new process can cure (then `DeviceError` or `WebError` rises).

The law: one task group, named tasks, no task without a parent. If one part dies of a surprise, all end and the kubelet
starts the daemon anew: a dead sampler must not look alive. The driver is let go whatever happens.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import structlog

from exporter import first_seen, logs
from exporter.clock import Clock, SystemClock
from exporter.config import Arguments, Config, ConfigError, catalogue_of, reloads, source_of_names
from exporter.devices import DeviceSource
from exporter.devices.nvml import NvmlSource
from exporter.devices.simulated import SimulatedNode
from exporter.host import HostSource
from exporter.host.procfs import ProcFs, proc_root
from exporter.kube import InventorySource, NoNames
from exporter.kube.file import FileInventory
from exporter.latest import Latest
from exporter.limiting import Limiting
from exporter.limits import Options
from exporter.metrics.exposition import Exposition
from exporter.model import Fault
from exporter.sampling import Beat, Sampler
from exporter.web import Answers
from exporter.web_server import Server

log = structlog.get_logger()

VERSION = version("gpusteward")


@dataclass(frozen=True, slots=True)
class Sources:
    """The three seams, opened."""

    devices: DeviceSource
    host: HostSource
    inventory: InventorySource


async def observe(arguments: Arguments, config: Config, latest: Latest, *, program: str) -> None:
    """Observe and export until cancelled. Raises DeviceError, WebError or ConfigError when that cannot be done."""
    # The driver's thread builds thousands of Python objects a round; a scrape must not wait 5 ms for each turn.
    sys.setswitchinterval(0.0005)
    clock = SystemClock()
    sources = await open_sources(config, clock)
    try:
        limiting = _limiting(config)
        sampler = Sampler(
            node=config.node.name,
            devices=sources.devices,
            host=sources.host,
            inventory=sources.inventory,
            beat=_beat(config),
            clock=clock,
            limiting=limiting,
        )
        exposition = Exposition(latest, node=config.node.name, version=VERSION)
        answers = Answers(
            latest,
            exposition,
            interval=lambda: sampler.beat.interval,
            clock=clock,
            program=f"{program} {VERSION}",
            started=clock.monotonic(),
            api=config.web.api,
        )
        async with Server(answers, config.web.listen_address, config.web.config_file) as server:
            log.info("daemon.started", version=VERSION, node=config.node.name, url=server.url, devices=config.devices)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sources.inventory.run(), name="names")
                tasks.create_task(sampler.run(latest), name="sampling")
                tasks.create_task(_render(latest, exposition, answers), name="rendering")
                if config.limits.first_seen_file is not None:
                    tasks.create_task(_remember(latest, limiting, config.limits.first_seen_file), name="remembering")
                tasks.create_task(server.watch(), name="web config")
                tasks.create_task(logs.tell(latest), name="telling")
                tasks.create_task(_reload(arguments, config, sampler), name="config")
    finally:
        await sources.devices.close()
        log.info("daemon.stopped")


async def open_sources(config: Config, clock: Clock) -> Sources:
    """Open what the config names. `auto` is the driver of this node, never a simulation. Raises DeviceError."""
    if config.devices == "simulated":
        node = SimulatedNode(clock.time, started_at=clock.time())
        return Sources(node.devices, node.host, node.inventory)
    host = ProcFs(proc_root(config.node.host_root), trusted=config.node.trust_pid_namespace)
    return Sources(await NvmlSource.open(clock=clock.time, monotonic=clock.monotonic), host, _names(config, clock))


async def _render(latest: Latest, exposition: Exposition, answers: Answers) -> None:
    """Render each round's page ahead of the scrapes."""
    seen = 0
    while True:
        seen = (await latest.newer_than(seen)).round
        await exposition.prepare(now=answers.clock.monotonic(), interval=answers.interval())


async def _remember(latest: Latest, limiting: Limiting, file: Path) -> None:
    """Write what was first seen whenever there is more or less of it; a disk that is full is told, and tried again."""
    seen, written, told = 0, limiting.first_seen, ""
    while True:
        seen = (await latest.newer_than(seen)).round
        if (wanted := limiting.first_seen) == written:
            continue
        try:
            await asyncio.to_thread(first_seen.save, file, wanted)
        except OSError as error:
            if str(error) != told:
                log.warning("first_seen.not_written", file=str(file), reason=str(error))
            told = str(error)
            continue
        written, told = wanted, ""


async def _reload(arguments: Arguments, config: Config, sampler: Sampler) -> None:
    """Apply what a changed file says; what it gets wrong changes nothing, and stands in each snapshot until mended."""
    async for change in reloads(arguments, config):
        if isinstance(change, ConfigError):
            log.error("config.refused", reason=str(change), remedy="the last good config stays in force")
            sampler.standing = (Fault("config", "config_invalid", str(change), incomplete=False),)
            continue
        sampler.standing = ()
        sampler.beat = _beat(change.config)
        if "names.file" in change.applied and isinstance(sampler.inventory, (FileInventory, NoNames)):
            sampler.inventory = FileInventory(change.config.names.file) if change.config.names.file else NoNames()
        logs.configure(change.config.log.level, change.config.log.format)
        log.info("config.reloaded", message=change.message)


def _names(config: Config, clock: Clock) -> InventorySource:
    names = config.names
    source = source_of_names(names, in_a_pod="KUBERNETES_SERVICE_HOST" in os.environ)
    if source == "file" and names.file is not None:
        return FileInventory(names.file)
    if source == "kubernetes":
        # Imported here, because the Kubernetes client costs 20 MB that a daemon without it need not pay.
        from exporter.kube.client import credentials  # noqa: PLC0415
        from exporter.kube.pod_resources import socket_of  # noqa: PLC0415
        from exporter.kube.remembered import links_below  # noqa: PLC0415
        from exporter.kube.source import KubernetesSource  # noqa: PLC0415

        return KubernetesSource(
            credentials(names.kubeconfig),
            config.node.name,
            clock=clock,
            socket=socket_of(config.node.kubelet_root),
            log_links=links_below(config.node.host_root),
        )
    return NoNames()


def _limiting(config: Config) -> Limiting:
    chosen = config.limits
    options = Options(chosen.systems.names, chosen.fair_share, mps_container=chosen.mps_scope == "container")
    remembered = first_seen.load(chosen.first_seen_file) if chosen.first_seen_file is not None else None
    return Limiting(catalogue_of(chosen), options, remembered)


def _beat(config: Config) -> Beat:
    return Beat(float(config.sampling.interval), float(config.sampling.fast_interval))
