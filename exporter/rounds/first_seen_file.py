"""
The file of first-seen values, so that no user can raise a limit by a restart of the daemon.

What comes in: the file, and the values to write. What goes out: the values in the file.

The rule: a write replaces the whole file or nothing (a new file, then a rename). A file that cannot be read counts as
missing, and is reported. Then the present declarations count as first seen.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from exporter.base.text_files import UnreadableError, read
from exporter.limits import Seen
from exporter.limits.first_seen import as_data, from_data
from exporter.model import PodUid

log = structlog.get_logger()

MOST = 16 << 20
"""Bytes; a declaration takes about 130, and a node has hundreds."""

FirstSeen = Mapping[PodUid, tuple[Seen, ...]]


def load(path: Path) -> FirstSeen:
    """Read the first-seen values; empty if the file is missing or cannot be used."""
    try:
        if not path.exists():
            return {}
        data = msgspec.json.decode(read(path, MOST), type=dict[str, list[dict[str, str | int | None]]])
        return {PodUid(uid): tuple(map(from_data, seen)) for uid, seen in data.items()}
    except (OSError, UnreadableError, msgspec.DecodeError, ValueError) as error:
        log.warning("first_seen.unusable", file=str(path), reason=str(error), effect="the file is written anew")
        return {}


def save(path: Path, first_seen: FirstSeen) -> None:
    """Write all first-seen values. Raises OSError."""
    content = msgspec.json.encode({uid: [as_data(entry) for entry in seen] for uid, seen in first_seen.items()})
    draft = path.with_name(f".{path.name}.new")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
