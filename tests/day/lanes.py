"""
The pods of a day: some calm, some that crash, some that exceed their limits until they are evicted.

What comes in: a machine. What goes out: what became of the pods. The rule: a lane runs one pod after the other, for
ever, and the lanes share GPUs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field

from day.machine import Machine, Running
from day.visitor import Visitor
from driver.node import GiB
from driver.workload import WorkloadError

NAMESPACES = ("team-a", "team-b", "team-c")
LANES = 12
KINDS = ("calm", "greedy", "crash")
HELD, LIMIT, EXCESS = GiB, "2Gi", 3 * GiB
LIFE = 160
"""Rounds that a pod lives, and more in some lanes."""
PATIENCE = 400
"""Rounds after which a pod over its limit goes by itself."""


@dataclass
class Lanes:
    """Pods come and go; `ends` counts how."""

    machine: Machine
    visitor: Visitor
    life: int = LIFE
    ends: Counter[str] = field(default_factory=Counter)

    async def run(self, lane: int) -> None:
        """Run one pod after the other until cancelled."""
        for turn in itertools.count():
            kind = KINDS[(turn + lane) % len(KINDS)]
            gpu = lane % len(self.machine.driver.gpus)
            running = await self.machine.start(
                NAMESPACES[lane % len(NAMESPACES)],
                f"{kind}-{lane}-{turn}",
                f"alloc {gpu} {HELD}",
                gpu=gpu,
                limit=LIMIT,
            )
            await self.visitor.after(self.life // 2 + 5 * lane)
            self.ends[await self._half(kind, running, gpu)] += 1
            await self.machine.end(running)

    async def _half(self, kind: str, running: Running, gpu: int) -> str:
        """Let the second half of a pod's life pass; say how it ended."""
        if kind == "greedy" and running.workload is not None:
            try:
                await asyncio.to_thread(running.workload.alloc, gpu, EXCESS)
            except (WorkloadError, TimeoutError):  # the driver is away at this moment
                await self.visitor.after(self.life // 2)
                return "unable"
            evicted = await self.visitor.until(lambda: self.machine.going(running), PATIENCE)
            return "evicted" if evicted else "spared"
        if kind == "crash":
            await self.machine.restart(running, f"alloc {gpu} {HELD}")
        await self.visitor.after(self.life // 2)
        return "calm"
