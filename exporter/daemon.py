"""
`observe()`: connects the parts of the daemon.

What comes in: the arguments and their config. What goes out: nothing. The daemon runs until it is cancelled, or until
only a new process can help; then `DeviceError` or `WebError` is raised.

The rule: one task group, named tasks, no task without a parent. If one task fails unexpectedly, all end and the kubelet
restarts the daemon, because a dead sampler must not look alive. The driver is released in any case.
"""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from exporter.base.clock import Clock, SystemClock
from exporter.base.revision import revision
from exporter.base.version import VERSION
from exporter.config import Arguments, Check, Config, ConfigError, catalogue_of, options_of, reloads, tolerance_of
from exporter.kube import NoNames
from exporter.kube.file import FileInventory
from exporter.metrics.exposition import Exposition
from exporter.metrics.process import Process
from exporter.model import Fault, GpuUuid, PodUid, Snapshot
from exporter.rounds import first_seen_file, logs
from exporter.rounds.judge import Judge
from exporter.rounds.latest import Latest, Reload
from exporter.rounds.limits import Limiting
from exporter.rounds.sampler import Beat, Sampler
from exporter.sources import open_sources
from exporter.web.app import Answers
from exporter.web.server import Server

log = structlog.get_logger()

COLLECTED_AFTER = 50_000
"""
New objects after which Python looks for cycles.

Its default of 700 is reached many times per round on a large node.
"""
KEPT = "the last valid config stays in force, in mode observe"
LEFT_OUT = "the rest of the file is in force, in mode observe"
"""What a refused config means while the daemon runs, and at its start (`exporter.config.start`)."""

Fresh = Callable[[Collection[GpuUuid]], Awaitable[Snapshot | None]]


@dataclass(frozen=True, slots=True)
class Enforcement:
    """
    The enforcer's part, added to the exporter's.

    Attributes:
        judge: receives every snapshot.
        check: finds impossible values in a config of the right form.
        apply: takes a reloaded config.
        attach: gets a function that reads some GPUs again at once; its snapshot is None when that failed.

    """

    judge: Judge
    check: Check
    apply: Callable[[Config], None]
    attach: Callable[[Fresh], None] = lambda _: None


async def observe(
    arguments: Arguments,
    config: Config,
    latest: Latest,
    *,
    program: str,
    enforcement: Enforcement | None = None,
    refused: ConfigError | None = None,
) -> None:
    """
    Observe and export until cancelled; `refused`: what is wrong with the file of which `config` is a part.

    Raises DeviceError, WebError or ConfigError if that is impossible.
    """
    # The driver's thread builds thousands of Python objects per round. A scrape must not wait 5 ms for each turn.
    sys.setswitchinterval(0.0005)
    clock = SystemClock()
    if arguments.config_file is not None:
        latest.reload = Reload(successful=refused is None, at=clock.time())
    sources = await open_sources(config, clock, lambda: _limited(latest))
    try:
        limiting = limiting_of(config)
        judge = enforcement.judge if enforcement else None
        exposition = Exposition(
            latest,
            node=sources.node,
            version=VERSION,
            revision=revision(),
            more=judge.families if judge else lambda _: iter(()),
            process=Process(clock.monotonic).collect,
            exported=config.metrics.workload_labels == "exported",
        )
        sampler = Sampler(
            node=sources.node,
            devices=sources.devices,
            host=sources.host,
            inventory=sources.inventory,
            beat=beat_of(config),
            clock=clock,
            limiting=limiting,
            keep=judge.hear if judge else None,
            scrape=exposition.scrapes.wait,
        )
        if refused is not None:
            sampler.standing = (_invalid(refused),)  # the watch of the file logs it
        if enforcement is not None:
            enforcement.attach(lambda only: sampler.fresh(only, latest))
        answers = Answers(
            latest,
            exposition,
            interval=lambda: sampler.beat.interval,
            clock=clock,
            program=f"{program} {VERSION}",
            started=clock.monotonic(),
            api=config.web.api,
            resolution=limiting.resolution,
            judge=judge,
        )
        written = config.web
        async with Server(answers, written.listen_address, written.config_file, written.probe_address) as server:
            log.info(
                "daemon.started",
                version=VERSION,
                node=sources.node,
                url=server.url,
                probe_url=server.probe_url,
                devices=config.devices,
                sources=sources.devices.name,
            )
            # Objects that live until the end are not searched again: each full collection would stop scrapes for 50 ms.
            gc.freeze()
            gc.set_threshold(COLLECTED_AFTER)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sources.inventory.run(), name="names")
                tasks.create_task(sampler.run(latest), name="sampling")
                tasks.create_task(render(latest, exposition, answers), name="rendering")
                if config.limits.first_seen_file is not None:
                    tasks.create_task(_remember(latest, limiting, config.limits.first_seen_file), name="remembering")
                tasks.create_task(server.watch(), name="web config")
                tasks.create_task(logs.tell(latest, limiting.invalid), name="telling")
                tasks.create_task(
                    _reload(
                        arguments,
                        config,
                        sampler,
                        latest,
                        limiting=limiting,
                        clock=clock,
                        enforcement=enforcement,
                        refused=refused,
                    ),
                    name="config",
                )
    finally:
        await sources.devices.close()
        log.info("daemon.stopped")


async def render(latest: Latest, exposition: Exposition, answers: Answers) -> None:
    """Render each round's page ahead of the scrapes; forget what was made of the round before."""
    async for snapshot in latest.rounds():
        answers.documents.forget(snapshot)
        await exposition.prepare(now=answers.clock.monotonic(), interval=answers.interval())


async def _remember(latest: Latest, limiting: Limiting, file: Path) -> None:
    """Write the first declarations whenever they change. A write that fails is logged, and tried again each round."""
    written, reported = limiting.first_seen, ""
    async for _ in latest.rounds():
        if (wanted := limiting.first_seen) == written:
            continue
        try:
            await asyncio.to_thread(first_seen_file.save, file, wanted)
        except OSError as error:
            if str(error) != reported:
                log.warning("first_seen.not_written", file=str(file), reason=str(error))
            reported = str(error)
            continue
        written, reported = wanted, ""


async def _reload(
    arguments: Arguments,
    config: Config,
    sampler: Sampler,
    latest: Latest,
    *,
    limiting: Limiting,
    clock: Clock,
    enforcement: Enforcement | None = None,
    refused: ConfigError | None = None,
) -> None:
    """
    Apply a changed config file. A wrong file changes nothing, and is a fault in each snapshot until it is fixed.

    `refused`: what was wrong with the file at the start.
    """
    effect = KEPT if refused is None else LEFT_OUT
    async for change in reloads(arguments, config, also=enforcement.check if enforcement else lambda _: ()):
        if isinstance(change, ConfigError):
            log.error("config.refused", reason=change.reason, fix=change.fix, effect=effect)
            sampler.standing = (_invalid(change),)
            if latest.reload is not None:
                latest.reload = replace(latest.reload, successful=False)
            continue
        sampler.standing, effect = (), KEPT
        latest.reload = Reload(successful=True, at=clock.time())
        sampler.beat, limiting.tolerance = beat_of(change.config), tolerance_of(change.config.policy)
        if "names.file" in change.applied and isinstance(sampler.inventory, (FileInventory, NoNames)):
            sampler.inventory = FileInventory(change.config.names.file) if change.config.names.file else NoNames()
        if enforcement is not None:
            enforcement.apply(change.config)
        logs.configure(change.config.log.level, change.config.log.format)
        log.info("config.reloaded", message=change.message)


def _invalid(error: ConfigError) -> Fault:
    return Fault("config", "config_invalid", str(error), incomplete=False)


def _limited(latest: Latest) -> Iterable[PodUid]:
    return {limit.pod_uid for limit in latest.snapshot.limits} if latest.snapshot else ()


def limiting_of(config: Config) -> Limiting:
    """Make the reader of limits from the config and the remembered first declarations."""
    chosen = config.limits
    remembered = first_seen_file.load(chosen.first_seen_file) if chosen.first_seen_file is not None else None
    return Limiting(catalogue_of(chosen), options_of(chosen), remembered, tolerance=tolerance_of(config.policy))


def beat_of(config: Config) -> Beat:
    """Return the intervals of the config."""
    return Beat(float(config.sampling.interval), float(config.sampling.fast_interval))
