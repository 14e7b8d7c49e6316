"""
Recorded rounds, computed again.

What comes in: a recording, and a config, of which limits and tolerance count. What goes out: the snapshot of each
round, made by the same code as in the daemon: attribution, accounts, limits.

The rule: there is one code path. Sources and clock give the recorded values, and the sampler is the daemon's own. With
the same version and config, a snapshot equals the original one. The exceptions are annotations of pods and parameters
of claims: only those that `exporter.recording.keeping` keeps are there.
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

    Of `config`, the section `limits` and the policy's tolerance count. Raises RecordingError, also between rounds. At
    the end `reading.torn` says what is missing.
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
        # The recorded number counts failed rounds, too, and the recorded duration is that of the original round.
        yield replace(snapshot, round=recorded.number, duration=recorded.duration)


class _Clock:
    """A clock that is set by hand; its waits end at once."""

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
