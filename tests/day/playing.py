"""
A day of the daemon, compressed: the installed `gpusteward run` in mode enforce, among all that happens to it.

What comes in: rounds, events, a folder. What goes out: readings, and what happened. The rule: the daemon is the shipped
one with the shipped rights. A round each 100 ms instead of each 5 s makes its day 29 minutes long. Each time of its
policy is shorter in the same measure. The API server is real, the driver and the kubelet's socket are not.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.account import grant, kubeconfig
from cluster import simulated_nodes
from cluster.bed import Bed
from cluster.build import cache
from cluster.client import Api
from cluster.stage import ENFORCER, NAMESPACE, RUN, Stage
from containers.cgroupfs import Ledger, new_token
from daemon.running import Daemon, until
from day.events import Events
from day.lanes import LANES, LIFE, NAMESPACES, Lanes
from day.machine import Machine
from day.readings import Progress, Reading, read
from day.script import ROUNDS, Event, Turn
from day.visitor import Visitor
from driver.build import build
from driver.node import FakeNode, gpus
from kubelet.fake import FakeKubelet

READINGS = 288
"""Per day: one for every five minutes of it."""
CONSENT = {"gpusteward.io/mode": "enforce"}
POLICY = {
    "mode": "enforce",
    "warn_after": "300ms",
    "grace": "2400ms",
    "hold_off": "1s",
    "spacing": "1s",
    "budgets": {"node": "1000/10m", "namespace": "1000/10m"},
}
"""The times of the default policy, divided by 50; budgets that a day in half an hour does not spend."""
SAMPLING = {"interval": "100ms", "fast_interval": "50ms"}
FIRST = ("sh", "-c", 'chrt --rr --pid 1 $$ || true; exec "$@"', "sh")
"""The daemon goes before all else on the cores, where that is allowed. Two readings prove an excess between them if
they are at most one and a half intervals apart, and rounds are jittered by a fifth. At 100 ms that leaves 30 ms for
other programs, where a node leaves 1.5 s."""


@dataclass
class Day:
    """What was seen, and what became of it."""

    readings: list[Reading] = field(default_factory=list)
    happened: list[Event] = field(default_factory=list)
    code: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)
    breakers: set[str] = field(default_factory=set)
    answers: int = 0
    log: list[str] = field(default_factory=list)


@dataclass
class Scene:
    """A running daemon and the world around it."""

    daemon: Daemon
    machine: Machine
    visitor: Visitor
    events: Events
    saved: Path


async def play(
    folder: Path,
    turns: Sequence[Turn],
    *,
    rounds: int = ROUNDS,
    life: int = LIFE,
    readings: int = READINGS,
    each: Callable[[Reading], None] = lambda _: None,
) -> Day:
    """Play a day of so many rounds; `each` takes every reading at once."""
    day = Day()
    async with scene(folder) as on:
        lanes = Lanes(on.machine, on.visitor, life)
        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(on.visitor.run(), name="visitor")]
                await on.visitor.reaches(1)
                beside += [tasks.create_task(lanes.run(lane), name=f"lane {lane}") for lane in range(LANES)]
                beside.append(tasks.create_task(_look(on, day, rounds / readings, each), name="looking"))
                first = on.visitor.round
                for turn in turns:
                    await on.visitor.reaches(first + turn.round)
                    await on.events.happens(turn.event)
                await on.visitor.reaches(first + rounds)
                for task in beside:
                    task.cancel()
            day.code, _ = await asyncio.to_thread(on.daemon.stop)
        finally:
            day.happened, day.ends = list(on.events.happened), lanes.ends
            day.breakers, day.answers = on.visitor.breakers, on.visitor.answers
            day.log = list(on.daemon.lines)
    return day


async def _look(on: Scene, day: Day, apart: float, each: Callable[[Reading], None]) -> None:
    """Read the daemon, again and again."""
    began, first = time.monotonic(), on.visitor.round
    while True:
        visitor = on.visitor
        progress = Progress(visitor.round - first, time.monotonic() - began, on.machine.begun, visitor.evictions)
        day.readings.append(read(on.daemon.process.pid, on.saved, progress))
        each(day.readings[-1])
        await visitor.reaches(first + round(len(day.readings) * apart))


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    """Start all that a day needs; the daemon is armed."""
    async with AsyncExitStack() as stack:
        bed = stack.enter_context(Bed(node=False))
        api = await stack.enter_async_context(bed.api())
        driver = stack.enter_context(FakeNode(folder / "driver", build(cache())))
        driver.write(gpus(8))
        ledger = Ledger(new_token())
        stack.callback(ledger.clear)
        kubelet = await stack.enter_async_context(FakeKubelet(folder / "kubelet/pod-resources/kubelet.sock"))
        (node,) = await simulated_nodes.add(api, 1, prefix="day")
        machine = Machine(api, node, driver, kubelet, ledger)
        stage = await _stage(bed, api, folder, machine)
        saved = folder / "saved"
        saved.mkdir(mode=0o700)
        config = folder / "config.yaml"
        files = {"stop_file": str(folder / "stop"), "journal": str(saved / "journal")}
        config.write_text(json.dumps({"policy": {**POLICY, **files}, "sampling": SAMPLING}))
        daemon = stack.enter_context(_daemon(bed, stage, machine, config, saved))
        await asyncio.to_thread(until, lambda: "enforcer.armed" in daemon.log, "arming", daemon)
        visitor = Visitor(daemon.url)
        events = Events(bed, stage, driver=driver, kubelet=kubelet, config=config, visitor=visitor)
        yield Scene(daemon, machine, visitor, events, saved)


async def _stage(bed: Bed, api: Api, folder: Path, machine: Machine) -> Stage:
    """Give the daemon its account, its rights, and a pod of its own on the node."""
    stage = Stage(bed, api, folder)
    await grant(api)
    await stage.enforcing()
    for name in NAMESPACES:
        await api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": CONSENT}})
    await stage.may_evict(*NAMESPACES)
    await stage.guard()
    own = await machine.start(NAMESPACE, "gpusteward-day", account=ENFORCER)
    stage.own_pod = await api.get(own.path)
    await stage.rotate()
    return stage


def _daemon(bed: Bed, stage: Stage, machine: Machine, config: Path, saved: Path) -> Daemon:
    own = stage.own_pod["metadata"] if stage.own_pod else {}
    return Daemon(
        f"--config={config}",
        "--devices=nvml",
        "--names.source=kubernetes",
        f"--names.kubeconfig={kubeconfig(bed, stage.folder)}",
        f"--node-name={machine.node}",
        f"--node.kubelet-root={stage.folder / 'kubelet'}",
        "--node.host-root=/",
        f"--node.pods-cgroup={machine.root}/kubepods",
        f"--limits.first-seen-file={saved / 'first-seen'}",
        "--log.format=json",
        env={
            **machine.driver.environment(),
            "POD_UID": own["uid"],
            "POD_NAME": own["name"],
            "POD_NAMESPACE": own["namespace"],
        },
        enter=FIRST,
        command=RUN,
    )
