"""
The journal for those who act: each record beside the event loop, and a journal that is lost is told.

What comes in: what is to be noted. What goes out: nothing, once it is on the disk.

The law: what must be on the disk first raises when it is not; what only tells an end is noted as well as that can be.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from enforcer.actions.fence.fences import Fence
from enforcer.actions.interface import Answer
from enforcer.journal.fold import Kept
from enforcer.policy.history import Action, History, Result
from enforcer.policy.limit_holders import CaseKey
from enforcer.policy.rules import Rules


class Journal(Protocol):
    """The part of the journal's file that is used here; each method blocks for a sync."""

    rules: Rules
    kept: Kept

    def intend(self, decision: str, action: Action) -> None: ...  # noqa: D102
    def send(self, decision: str) -> None: ...  # noqa: D102
    def hear(self, decision: str, answer: Answer) -> None: ...  # noqa: D102
    def end(self, decision: str, result: Result, detail: str) -> None: ...  # noqa: D102
    def note(self, before: History, now: History, *, by: str = "") -> None: ...  # noqa: D102
    def fence(self, fence: Fence) -> None: ...  # noqa: D102
    def unfence(self, key: CaseKey, detail: str) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Noting:
    """The journal, beside the event loop; `lost` is told when it cannot be written."""

    journal: Journal
    lost: Callable[[str], None]

    async def intend(self, decision: str, action: Action) -> None:
        """Note intent, and that the call may leave from now on: between the last look and it stands nothing."""
        try:
            await asyncio.to_thread(self._intend, decision, action)
        except OSError as error:
            self.lost(str(error))
            raise

    async def hear(self, decision: str, answer: Answer) -> None:
        """Note what was heard."""
        await self._write(self.journal.hear, decision, answer)

    async def end(self, decision: str, result: Result, detail: str) -> None:
        """Note the end."""
        await self._write(self.journal.end, decision, result, detail)

    async def note(self, before: History, after: History, by: str) -> None:
        """Note changed breakers and strikes; `by` whom."""
        await self._write(partial(self.journal.note, by=by), before, after)

    @property
    def fences(self) -> Mapping[CaseKey, Fence]:
        """The fences that stand, or may."""
        return self.journal.kept.fences

    async def fence(self, fence: Fence) -> None:
        """Note that a fence is about to be set. Raises OSError."""
        try:
            await asyncio.to_thread(self.journal.fence, fence)
        except OSError as error:
            self.lost(str(error))
            raise

    async def unfence(self, key: CaseKey, detail: str) -> None:
        """Note that it stands no more."""
        await self._write(self.journal.unfence, key, detail)

    async def _write(self, write: Callable[..., None], *what: object) -> None:
        try:
            await asyncio.to_thread(write, *what)
        except OSError as error:
            self.lost(str(error))

    def _intend(self, decision: str, action: Action) -> None:
        self.journal.intend(decision, action)
        self.journal.send(decision)
