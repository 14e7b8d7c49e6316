"""
Recorded rounds, worked out again.

What comes in: a recording, and a config whose limits count. What goes out: the snapshot of each round, made by the same
code that the daemon runs: attribution, accounts, limits.

The law: one code path. The sources play what they said, the clock shows what it showed, and the sampler does not know.
A snapshot equals the one of then, as long as version and config are the same; apart from annotations of its pods and
parameters of its claims, of which only those come back that somebody reads: see `exporter.recording.keeping`.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from exporter.config import Config, catalogue_of, options_of
from exporter.limits.first_seen import from_data
from exporter.model import PodUid, Snapshot
from exporter.recording import Header, Reading, RecordedRound, RecordingError
from exporter.recording.player import Stage
from exporter.rounds.limits import Limiting
from exporter.rounds.sampler import Beat, Sampler


async def snapshots(reading: Reading, config: Config) -> AsyncIterator[Snapshot]:
    """
    Yield the snapshot of each round of an open recording, in order.

    Of `config` the section `limits` counts. Raises RecordingError, also in the middle; `reading.torn` tells at the end
    what is missing there.
    """
    replay = Replay(reading.header, config)
    for recorded in reading:
        yield await replay.snapshot(recorded)


class Replay:
    """A sampler on recorded sources."""

    def __init__(self, header: Header, config: Config) -> None:
        """Begin where the recording began. Raises RecordingError when its header holds what is no first declaration."""
        self._stage = Stage()
        self._clock = _Clock()
        try:
            seen = {PodUid(uid): tuple(map(from_data, pod)) for uid, pod in header.first_seen.items()}
        except ValueError as error:
            raise RecordingError(f"the header of the recording: {error}") from error
        self._sampler = Sampler(
            node=header.node,
            devices=self._stage,
            host=self._stage.host,
            inventory=self._stage.inventory,
            beat=Beat(header.interval),
            clock=self._clock,
            limiting=Limiting(catalogue_of(config.limits), options_of(config.limits), seen),
        )

    async def snapshot(self, recorded: RecordedRound) -> Snapshot:
        """Make one round of what was said in it; rounds are to be handed in in their order."""
        self._stage.set(recorded)
        self._clock.show(recorded.taken_at, recorded.monotonic)
        snapshot = await self._sampler.round(recorded.only)
        # Its number counts failed rounds, which left nothing here; its duration is not ours.
        return replace(snapshot, round=recorded.number, duration=recorded.duration)


class _Clock:
    """A clock that shows what it is told to, and on which nobody waits."""

    def __init__(self) -> None:
        self._time = self._monotonic = 0.0

    def show(self, time: float, monotonic: float) -> None:
        self._time, self._monotonic = time, monotonic

    def time(self) -> float:
        return self._time

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, _seconds: float) -> None:
        await asyncio.sleep(0)
