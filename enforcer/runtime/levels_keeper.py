"""
Keeps the levels on the disk while this daemon acts.

What comes in: the decider's levels, every half minute, after an accepted action, and at the end. What goes out: the
file beside the journal.

The rule: the file is a help, not a promise. A disk that does not take it stops no action: after a restart the levels
then begin at 0.
"""

import asyncio
from functools import partial
from pathlib import Path

import structlog

from enforcer.journal import levels_file
from enforcer.runtime.decider import Decider
from exporter.base.clock import Clock
from exporter.base.threads import to_its_end

log = structlog.get_logger()

EVERY = 30.0
"""Seconds between two writes."""


class LevelsKeeper:
    """Writes the file. One task calls `run`."""

    def __init__(self, decider: Decider, path: Path, *, clock: Clock) -> None:
        self._decider = decider
        self._path = path
        self._clock = clock
        self._failed = ""
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Write every half minute, until cancelled, and then once more."""
        try:
            while True:
                await self._clock.sleep(EVERY)
                await self.save()
        finally:
            async with self._turn:  # `save` of another task may be writing the same draft
                self._write(self._decider.levels())

    async def save(self) -> None:
        """Write now, beside the event loop."""
        async with self._turn:
            await to_its_end(partial(self._write, self._decider.levels()))

    def _write(self, levels: levels_file.SavedLevels | None) -> None:
        if levels is None:
            return
        try:
            levels_file.write(self._path, levels)
        except OSError as error:
            if self._failed != str(error):
                log.warning("levels.not_saved", file=str(self._path), reason=str(error))
            self._failed = str(error)
        else:
            self._failed = ""
