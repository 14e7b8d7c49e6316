"""
The journal for the acting half: each record is written beside the event loop, and a lost journal is reported.

What comes in: records. What goes out: nothing; a call returns when its record is on the disk.

The rule: a record that must be on the disk first raises if it is not. The record of an end is best effort. A write that
has begun is finished before the journal is closed.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from enforcer.actions.fence.fences import Fence
from enforcer.actions.interface import Answer
from enforcer.journal.file import JournalFile
from enforcer.journal.fold import changes
from enforcer.journal.records import Acked, Ended, Fenced, Intent, Planned, Record, Sent, Unfenced, digest
from enforcer.policy.history import Action, History, Result
from enforcer.policy.holder import CaseKey
from exporter.base.threads import to_its_end


class Journal(Protocol):
    """The records of one action."""

    async def intend(self, decision: str, action: Action) -> None:
        """Note an action that may be taken from now on. Raises OSError: it must not be taken."""

    async def hear(self, decision: str, answer: Answer) -> None:
        """Note an answer; best effort, because a begun action is watched to its end in any case."""

    async def end(self, decision: str, result: Result, detail: str) -> None:
        """Note the end; best effort."""


@dataclass(frozen=True, slots=True)
class JournalWriter:
    """Writes the journal's file; `lost` gets the reason when that fails."""

    file: JournalFile
    lost: Callable[[str], None]

    async def intend(self, decision: str, action: Action) -> None:
        """Note the intent, and that the call may be sent: no write delays it after the last look."""
        rules = self.file.rules
        await self._must(Intent(decision, Planned.of(action), rules.ceiling.mode, digest(rules)), Sent(decision))

    async def hear(self, decision: str, answer: Answer) -> None:
        """Note an answer."""
        await self._try(Acked(decision, answer))

    async def end(self, decision: str, result: Result, detail: str) -> None:
        """Note the end."""
        await self._try(Ended(decision, result, detail))

    async def note(self, before: History, after: History, by: str) -> None:
        """Note changed breakers; `by` closed them."""
        await self._try(*changes(before, after, by=by))

    @property
    def fences(self) -> Mapping[CaseKey, Fence]:
        """The fences that are in force, or may be."""
        return self.file.kept.fences

    async def fence(self, fence: Fence) -> None:
        """Note that a fence is about to be set. Raises OSError: it must not be set."""
        await self._must(Fenced(fence))

    async def unfence(self, key: CaseKey, detail: str) -> None:
        """Note that a fence is no longer in force."""
        await self._try(Unfenced(key, detail))

    async def _must(self, *records: Record) -> None:
        try:
            await to_its_end(partial(self.file.append, *records))
        except OSError as error:
            self.lost(str(error))
            raise

    async def _try(self, *records: Record) -> None:
        with suppress(OSError):
            await self._must(*records)
