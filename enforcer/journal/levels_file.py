"""
The levels of limit holders, on the disk beside the journal.

What comes in: levels, with the boot, build, rules and drivers for which they count. What goes out: a file that outlives
a power cut, and at the next start the same levels, or none.

The rule: a file that is unreadable, or that others could have written, does not count. The levels then begin at 0,
which can delay an action, and never hasten one. `carry_over.restored` decides whether readings still count.
"""

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import structlog

from enforcer.journal import trusted_files
from enforcer.journal.records import digest
from enforcer.policy.history import History, Moment
from enforcer.policy.holder import CaseKey, HolderKey
from enforcer.policy.levels import Excess, Level
from enforcer.policy.rules import Rules
from exporter.model import DeviceKey

log = structlog.get_logger()

VERSION = 1
OLDEST = 300.0
"""Seconds after which a file is too old: a restart takes a minute or two."""
LARGEST = 16 << 20
"""Bytes above which a file is not ours: a node has some 250 pods, and a level takes half a kilobyte."""

_BY_DEVICE = tuple[tuple[DeviceKey, Excess], ...]
_TYPES = get_type_hints(Level) | {"excesses": _BY_DEVICE}
"""Of each field, as it is written: keys of JSON objects are texts, so what is kept by device is a list of pairs."""


class SavedLevel(msgspec.Struct, frozen=True):
    """One level: its fields as they are written."""

    holder: HolderKey
    level: dict[str, Any]


class _Format(msgspec.Struct, frozen=True):
    """The part of the file that each version can read."""

    version: int = VERSION


class SavedLevels(msgspec.Struct, frozen=True):
    """
    The content of the file.

    Attributes:
        boot_id: of the kernel; the levels have the times of its monotonic clock.
        build: version of the daemon, and digest of the catalogue.
        rules: their digest, see `wishes`.
        drivers: versions of the GPUs' drivers, sorted.
        vetted: the blast radius was judged with these, and the hold-off is over.
        at: monotonic seconds at which it was saved; `asleep`: seconds that this machine had slept by then.
        fenced: holders that were fenced in any generation of their containers; those of living ones are in the journal.

    """

    boot_id: str
    build: str
    rules: str
    drivers: tuple[str, ...]
    vetted: bool
    levels: tuple[SavedLevel, ...]
    at: float = 0.0
    asleep: float = 0.0
    version: int = VERSION
    fenced: frozenset[CaseKey] = frozenset()

    def restored(self) -> Mapping[HolderKey, Level]:
        """Make the levels again. Raises msgspec.ValidationError where a field is missing, or has another type."""
        return {saved.holder: _level(saved.level) for saved in self.levels}


def path_of(journal: Path) -> Path:
    """Return the path of the file beside a journal."""
    return journal.with_name(f"{journal.name}.levels")


def saved(history: History, boot_id: str) -> SavedLevels | None:
    """Take the part of a history to save; None before the first snapshot."""
    settled = history.settled
    if settled is None:
        return None
    levels = tuple(SavedLevel(holder, _plain(level)) for holder, level in history.levels.items())
    drivers = tuple(sorted(settled.drivers))
    at, asleep = (0.0, 0.0) if history.at is None else (history.at.monotonic, history.at.boot - history.at.monotonic)
    rules = wishes(settled.rules)
    return SavedLevels(
        boot_id, settled.rules.build, rules, drivers, settled.vetted, levels, at, asleep, fenced=history.fenced
    )


def holds_for(saved: SavedLevels, boot_id: str, rules: Rules, drivers: frozenset[str], now: Moment) -> bool:
    """
    Tell whether the levels may be restored: saved a short time ago, in this boot, under this build, rules and drivers.

    A file of a daemon that stopped enforcing long ago, or before the machine slept, proves nothing about the present.
    """
    slept = now.boot - now.monotonic - saved.asleep
    if not 0 <= now.monotonic - saved.at <= OLDEST or slept > OLDEST:
        return False
    mine = (boot_id, rules.build, wishes(rules))
    # A GPU that does not answer takes its driver's version away, which is no change.
    return mine == (saved.boot_id, saved.build, saved.rules) and drivers <= frozenset(saved.drivers)


def wishes(rules: Rules) -> str:
    """Name the operator's choices, without facts of the node or the UID of the daemon's own pod."""
    return digest(replace(rules, ceilings=(), missing=(), own_pod=None))


def write(path: Path, levels: SavedLevels) -> None:
    """Put the file in place: written beside, synced, renamed, the folder synced. Raises OSError."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = trusted_files.opened(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  (a descriptor)
            file.write(msgspec.json.encode(levels))
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    trusted_files.sync_folder(path.parent)


def read(path: Path) -> SavedLevels | None:
    """Read the file; None where there is none, or none that can be used."""
    try:
        descriptor = trusted_files.opened(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123  (a descriptor)
            data = file.read(LARGEST + 1)
        if msgspec.json.decode(data, type=_Format).version != VERSION:
            return None
        levels = msgspec.json.decode(data, type=SavedLevels)
        levels.restored()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        log.warning("levels.not_read", file=str(path), reason=str(error))
        return None
    return levels


def _plain(level: Level) -> dict[str, Any]:
    written = {field.name: getattr(level, field.name) for field in fields(level)}
    return {
        name: msgspec.to_builtins(value) for name, value in (written | {"excesses": [*level.excesses.items()]}).items()
    }


def _level(written: Mapping[str, Any]) -> Level:
    kept = {name: msgspec.convert(value, _TYPES[name]) for name, value in written.items() if name in _TYPES}
    if "read_at" not in kept:
        raise msgspec.ValidationError("a level without `read_at`")
    return Level(**kept | {"excesses": dict(kept.get("excesses", ()))})
