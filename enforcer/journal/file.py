"""
The journal on the disk.

What comes in: records. What goes out: lines that outlive a power cut, or `JournalError`; the state after all records.

The rule: **a daemon that cannot write does not act.** A record is on disk when `append` returns, and not before: one
write, one `fdatasync`. A line that could not be written whole is removed again. The file is replaced whole: written
beside, synced, renamed, the folder synced. So a complete file exists at each moment. The last replaced file is kept,
and up to eight damaged ones. A journal that another process wrote meanwhile is given up.

`append` blocks for one sync (about a millisecond, seconds on a failing disk): call it in a thread.

Above 300 lines, because writing, rewriting and repairing are one promise about one file.
"""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import structlog

from enforcer.actions.fence.fences import Fence
from enforcer.journal import trusted_files
from enforcer.journal.fold import Kept, Reading, after, pruned, replayed
from enforcer.journal.records import Record, Stamp, Started, Stopped, encode
from enforcer.policy.holder import CaseKey
from enforcer.policy.rules import Rules

log = structlog.get_logger()

DEFAULT = Path("/var/lib/gpusteward/journal")
LIMIT = 4 << 20
"""Bytes after which the file is rewritten as its state; they hold some 5,000 actions."""
LARGEST = 4 * LIMIT
"""Bytes above which nothing is written, because no rewrite succeeded; a longer file counts as damaged."""
KEEP = 31 * 86400.0
"""The least seconds for which past actions are kept: a workload's back-off looks back a day."""
DAMAGED = 8
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Clocks = Callable[[], tuple[float, float]]


class JournalError(OSError):
    """An action cannot be written to the journal, so it must not be taken."""


def read_clocks() -> tuple[float, float]:
    """Read CLOCK_BOOTTIME and Unix time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME), time.time()


def boot_id() -> str:
    """Return the id of this boot of the kernel. Raises JournalError."""
    try:
        name = _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise JournalError(f"{_BOOT_ID}: {error}") from error
    if not name:
        raise JournalError(f"{_BOOT_ID}: empty")
    return name


@dataclass(frozen=True, slots=True)
class Given:
    """The id of this boot, the kernel's clocks, and the bytes after which the file is rewritten."""

    boot: str
    clocks: Clocks = read_clocks
    limit: int = LIMIT


class JournalFile:
    """
    An open journal, of a daemon that holds the node's lock. Any thread may call it.

    Attributes:
        rules: in force; replace them whole.
        kept: the state that the next reader would find.

    """

    def __init__(self, path: Path, descriptor: int, reading: Reading, rules: Rules, given: Given) -> None:
        self.rules = rules
        self.kept = reading.kept
        self._path, self._descriptor, self._given = path, descriptor, given
        self._seq = reading.seq
        self._size = os.fstat(descriptor).st_size
        self._rewrite_at = given.limit
        self._broken = ""
        self._mutex = threading.Lock()

    @property
    def boot(self) -> str:
        """The id of this boot of the kernel."""
        return self._given.boot

    def append(self, *records: Record) -> None:
        """Write records one after the other. Raises JournalError: the failed one and those after it are not written."""
        for record in records:
            self._append(record)

    def close(self) -> None:
        """Write the end, unless that fails, and close the file."""
        with contextlib.suppress(JournalError):
            self.append(Stopped())
        with self._mutex:
            self._broken = f"{self._path}: closed"
            os.close(self._descriptor)

    def _append(self, record: Record) -> None:
        with self._mutex:
            if self._broken:
                raise JournalError(self._broken)
            self._check()
            if self._size >= self._rewrite_at:
                self._rewrite()
            boottime, now = self._given.clocks()
            line = encode(Stamp(self._seq + 1, self._given.boot, boottime, now), record)
            if self._size + len(line) > LARGEST:
                raise JournalError(f"{self._path}: has grown to {self._size} bytes, and could not be rewritten")
            self._write(line)
            self._seq, self._size = self._seq + 1, self._size + len(line)
            self.kept = after(self.kept, record, boottime, now)

    def _check(self) -> None:
        """Give up if the name belongs to another file, or another program changed the file."""
        try:
            mine = os.fstat(self._descriptor)
            exchanged = not os.path.samestat(mine, self._path.lstat())
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from error
        if exchanged or mine.st_size != self._size:
            self._give_up("another program moved or wrote it")

    def _write(self, line: bytes) -> None:
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            self._take_back(error.strerror or "cannot be written")
        if written != len(line):
            self._take_back(os.strerror(errno.ENOSPC))
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:  # after a failed sync the kernel forgets what it could not write: no second try
            self._give_up(f"cannot be synced: {error.strerror}")

    def _take_back(self, why: str) -> NoReturn:
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            self._give_up(f"{why}, and cannot be repaired: {error.strerror}")
        raise JournalError(f"{self._path}: {why}")

    def _rewrite(self) -> None:
        boottime, now = self._given.clocks()
        budgets = self.rules.budgets
        keep = max(KEEP, budgets.node.window, budgets.namespace.window)
        kept = pruned(self.kept, boottime, keep)
        line = encode(Stamp(self._seq + 1, self._given.boot, boottime, now), kept.state("rewritten"))
        try:
            descriptor = _put(self._path, line, aside=self._path.with_name(f"{self._path.name}.1"))
        except OSError as error:
            self._check()
            log.warning("journal.not_rewritten", file=str(self._path), reason=error.strerror)
            self._rewrite_at = self._size + self._given.limit // 8
            return
        os.close(self._descriptor)
        self._descriptor, self.kept = descriptor, kept
        self._seq, self._size = self._seq + 1, len(line)
        self._rewrite_at = max(self._given.limit, 2 * self._size)

    def _give_up(self, why: str) -> NoReturn:
        self._broken = f"{self._path}: {why}"
        raise JournalError(self._broken)


def fences(path: Path, rules: Rules, *, given: Given | None = None) -> Mapping[CaseKey, Fence]:
    """Read which fences are in force, without taking over the journal. Raises JournalError if it cannot be read."""
    given = given or Given(boot_id())
    try:
        descriptor, data = _read(path)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error
    if descriptor is None:
        return {}
    os.close(descriptor)
    return replayed(data, given.clocks()[0], given.boot, most=rules.budgets.node.most).kept.fences


def opened(path: Path, rules: Rules, *, version: str = "", given: Given | None = None) -> JournalFile:
    """
    Open the journal, or make it. A torn file is repaired, and a damaged one is set aside.

    Args:
        path: the file.
        rules: in force; a damaged file uses up the node's budget.
        version: of the daemon, for people.
        given: other clocks than the kernel's.

    Raises JournalError: this daemon must not act.

    """
    given = given or Given(boot_id())
    try:
        trusted_files.folder(path.parent)
        descriptor, reading = _mended(path, rules, given)
        journal = JournalFile(path, descriptor, reading, rules, given)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error
    try:
        journal.append(Started(os.getpid(), version))
    except JournalError:
        os.close(descriptor)
        raise
    return journal


def _mended(path: Path, rules: Rules, given: Given) -> tuple[int, Reading]:
    """Open the file, or replace it by one that has the same state and takes new records."""
    boottime, now = given.clocks()
    descriptor, data = _read(path)
    what, reading = "made", Reading(Kept())
    if descriptor is None:
        log.info("journal.created", file=str(path))
    else:
        reading = replayed(data, boottime, given.boot, most=rules.budgets.node.most)
        if not reading.torn and not reading.damaged:
            return descriptor, reading
        os.close(descriptor)
        what = "damaged" if reading.damaged else "torn"
        log.warning("journal.repaired", file=str(path), damage=what, problems=reading.kept.problems)
    line = encode(Stamp(reading.seq + 1, given.boot, boottime, now), reading.kept.state(what))
    whole = data[: reading.whole].removesuffix(b"\n") + b"\n" if reading.whole else b""
    fresh = _put(path, whole + line, aside=_quarantine(path) if reading.damaged else None)
    return fresh, replace(reading, seq=reading.seq + 1)


def _read(path: Path) -> tuple[int | None, bytes]:
    try:
        descriptor = trusted_files.opened(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return None, b""
    try:
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(LARGEST + 1)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, data if len(data) <= LARGEST else data[:LARGEST] + b"\n"  # a cut line: damaged


def _put(path: Path, data: bytes, *, aside: Path | None) -> int:
    """Replace the file at `path` by one with `data`, and move the old one `aside`; return the new descriptor."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = trusted_files.opened(draft, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
        if aside is not None:
            aside.unlink(missing_ok=True)
            os.link(path, aside)
        draft.replace(path)
        trusted_files.sync_folder(path.parent)
    except OSError:
        os.close(descriptor)
        draft.unlink(missing_ok=True)
        raise
    return descriptor


def _quarantine(path: Path) -> Path:
    names = [path.with_name(f"{path.name}.damaged-{number}") for number in range(1, DAMAGED + 1)]
    return next((name for name in names if not name.exists()), names[-1])
