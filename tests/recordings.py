"""
Recordings for tests: a sampler that keeps its rounds, and what comes back of them.

What comes in: sources, a clock. What goes out: a file, and the snapshots of then to compare with.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from random import Random

import pytest

from exporter.base.clock import Clock
from exporter.config import Arguments, Policy, load, tolerance_of
from exporter.limits.loading import builtin
from exporter.model import Snapshot
from exporter.recording import FORMAT, Header, Reading, RecordedRound, Writing
from exporter.recording.anonymizing import Pseudonyms
from exporter.recording.keeping import Keeping
from exporter.recording.replay import snapshots
from exporter.recording.tape import Tape
from exporter.rounds.latest import Latest
from exporter.rounds.limits import Limiting
from exporter.rounds.sampler import Beat, Sampler
from exporter.simulated import SimulatedNode

BEGINNING = 1_760_000_000.0


class SteppedClock:
    """Time that passes only in `sleep`; a sleep past `end` is cancelled."""

    def __init__(self, end: float) -> None:
        self.now, self.end = 0.0, end

    def time(self) -> float:
        return BEGINNING + self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self.end:
            raise asyncio.CancelledError
        await asyncio.sleep(0)


def header(interval: float = 5.0) -> Header:
    return Header(gpusteward_recording=FORMAT, program="1", node="n", started_at=BEGINNING, interval=interval)


def sampler(tape: Tape, clock: Clock, file: Writing, live: list[Snapshot]) -> Sampler:
    """Make a sampler that keeps its rounds."""

    def keep(snapshot: Snapshot) -> None:
        live.append(snapshot)
        file.add(tape.round(snapshot))

    return Sampler(
        node="n",
        devices=tape.devices,
        host=tape.host,
        inventory=tape.inventory,
        beat=Beat(5.0, 0.5, jitter=0.0),
        clock=clock,
        limiting=Limiting(builtin(), tolerance=tolerance_of(Policy())),
        keep=keep,
        random=Random(1),
    )


async def record(
    path: Path, node: SimulatedNode, clock: SteppedClock, names: Pseudonyms | None = None
) -> list[Snapshot]:
    """Run a sampler on `node` until the clock ends; the file has its rounds, the answer its snapshots."""
    kept = names or Keeping.of(builtin())
    live: list[Snapshot] = []
    tape = Tape(node.devices, node.host, node.inventory)

    with (
        Writing(path, header(), inventory=kept.inventory, host=names.host if names else lambda whole: whole) as file,
        pytest.raises(asyncio.CancelledError),
    ):
        await sampler(tape, clock, file, live).run(Latest())
    return live


def rounds(path: Path) -> Iterator[RecordedRound]:
    """Yield the rounds of a recording."""
    with Reading(path) as reading:
        yield from reading


async def replayed(path: Path) -> list[Snapshot]:
    with Reading(path) as reading:
        return [snapshot async for snapshot in snapshots(reading, load(Arguments()))]


def assert_same(found: list[Snapshot], live: list[Snapshot]) -> None:
    """Compare field by field, so that a failure says which."""
    assert len(found) == len(live) > 0
    for one, other in zip(found, live, strict=True):
        for field in fields(Snapshot):
            assert getattr(one, field.name) == getattr(other, field.name), (one.round, field.name)
