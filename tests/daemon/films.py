"""
Films: recordings of the simulated node whose clock was set by hand.

What comes in: from which moment of the simulation on, and for how many seconds. What goes out: a file that a daemon
plays in real time (`--devices recorded:FILE`), in a loop. In it anna-notebook is calm, or above its limit, for as long
as a test wants; of the cuts between scenes the daemon learns nothing.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from exporter.limits.loading import builtin
from exporter.recording import Writing
from exporter.recording.keeping import Keeping
from exporter.recording.tape import Tape
from exporter.simulated import SimulatedNode
from recordings import BEGINNING, SteppedClock, header, sampler

ANNA = ("team-vision", "anna-notebook-0", "notebook")
CALM, OVER = 30.0, 100.0
"""Seconds of the simulated node at which anna-notebook is far below, and far above its limit of 16 GiB."""
INTERVAL = 0.2


def film(path: Path, *scenes: tuple[float, float]) -> Path:
    """Record the simulated node from each moment on for so many seconds. The recording does not show the cuts."""
    asyncio.run(_film(path, scenes))
    return path


async def _film(path: Path, scenes: Iterable[tuple[float, float]]) -> None:
    clock = SteppedClock(float("inf"))
    shown = CALM
    node = SimulatedNode(lambda: BEGINNING + shown, started_at=BEGINNING)
    tape = Tape(node.devices, node.host, node.inventory)
    with Writing(path, header(INTERVAL), inventory=Keeping.of(builtin()).inventory, host=lambda whole: whole) as file:
        looking = sampler(tape, clock, file, [])
        for moment, seconds in scenes:
            for round_ in range(round(seconds / INTERVAL)):
                shown = moment + round_ * INTERVAL
                file.add(tape.round(await looking.round()))
                clock.now += INTERVAL
