"""
Recorded rounds, worked out again.

What comes in: a recording, and a config whose limits count. What goes out: the snapshot of each round, made by the same
code that the daemon runs: attribution, accounts, limits.

The rule: one code path. The sources play what they said, the clock shows what it showed, and the sampler does not know.
A snapshot equals the one of then, as long as version and config are the same. Annotations of its pods and parameters of
its claims are an exception: only those come back that are kept, see `exporter.recording.keeping`.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from exporter.config import Config, catalogue_of, options_of, tolerance_of
from exporter.limits.first_seen import from_data
from exporter.model import PodUid, Snapshot
from exporter.recording import Reading, RecordingError
from exporter.recording.player import Stage
from exporter.rounds.limits import Limiting
from exporter.rounds.sampler import Beat, Sampler


async def snapshots(reading: Reading, config: Config) -> AsyncIterator[Snapshot]:
    """
    Yield the snapshot of each round of an open recording, in order.

    Of `config` the section `limits` and the policy's tolerance count. Raises RecordingError, also in the middle;
    `reading.torn` says at the end what is missing there.
    """
    header, stage, clock = reading.header, Stage(), _Clock()
    try:
        seen = {PodUid(uid): tuple(map(from_data, pod)) for uid, pod in header.first_seen.items()}
    except ValueError as error:
        raise RecordingError(f"the header of the recording: {error}") from error
    sampler = Sampler(
        node=header.node,
        devices=stage,
        host=stage.host,
        inventory=stage.inventory,
        beat=Beat(header.interval),
        clock=clock,
        limiting=Limiting(
            catalogue_of(config.limits), options_of(config.limits), seen, tolerance=tolerance_of(config.policy)
        ),
    )
    for recorded in reading:
        stage.set(recorded)
        clock.show(recorded.taken_at, recorded.monotonic)
        snapshot = await sampler.round(recorded.only, by_time=recorded.by_time)
        # Its number counts failed rounds, which left nothing here; its duration is not ours.
        yield replace(snapshot, round=recorded.number, duration=recorded.duration)


class _Clock:
    """A clock that is set by hand, and on which a wait ends at once."""

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
