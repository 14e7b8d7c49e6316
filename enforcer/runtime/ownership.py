"""
The right to act on this node: its lock, and a journal that can be written.

What comes in: the journal's path. What goes out: an open journal, or why there is none.

The rule: the lock comes first, and the journal is open only while the lock is held. Nothing is taken after `release`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from enforcer.journal import file as journal_file
from enforcer.journal import levels_file, lock
from enforcer.journal.file import JournalFile
from enforcer.journal.writer import JournalWriter
from enforcer.policy.rules import Rules
from exporter.base.threads import to_its_end
from exporter.base.version import VERSION


class Ownership:
    """Lock and journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal: JournalFile | None = None
        self._lock: lock.Lock | None = None

    async def take_lock(self) -> str:
        """Take the lock, unless it is held; say why not."""
        return await to_its_end(self._take_lock)

    async def open_journal(self, rules: Rules) -> str:
        """Open the journal, unless it is open; say why not."""
        return await to_its_end(partial(self._open_journal, rules))

    def _take_lock(self) -> str:
        if self._lock is None:
            path = self.path.with_name(f"{self.path.name}.lock")
            try:
                self._lock = lock.take(path)
            except lock.LockError as error:
                return str(error)
            if self._lock is None:
                return f"{path} is held by {lock.holder(path) or 'another daemon'}"
        return ""

    def _open_journal(self, rules: Rules) -> str:
        if self.journal is None:
            try:
                self.journal = journal_file.opened(self.path, rules, version=VERSION)
            except journal_file.JournalError as error:
                return str(error)
        return ""

    @property
    def levels_path(self) -> Path:
        """Where the levels are saved."""
        return levels_file.path_of(self.path)

    def holds(self) -> bool:
        """Tell whether the lock is still the one that others would take."""
        return self._lock is not None and self._lock.holds()

    def writer(self, lost: Callable[[str], None]) -> JournalWriter:
        """Write the journal, which is open, beside the event loop; `lost` gets the reason when that fails."""
        assert self.journal is not None  # noqa: S101  (`open_journal` was asked first)
        return JournalWriter(self.journal, lost)

    def close_journal(self) -> None:
        """Close the journal, if it is open."""
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def release(self) -> None:
        """Let go of the journal and the lock."""
        self.close_journal()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
