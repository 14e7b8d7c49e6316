"""
What was first seen of each pod's declarations, in a file: so that a restart of the daemon is no way to raise a limit.

What comes in: the file, and what is to be remembered. What goes out: what was remembered.

The law: the file is whole or as before (written beside it, then renamed). One that cannot be read counts as none and
is reported: then what is declared now counts as first seen.
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
"""Bytes; a declaration takes some 130, a node has hundreds."""

FirstSeen = Mapping[PodUid, tuple[Seen, ...]]


def load(path: Path) -> FirstSeen:
    """Read what was remembered; nothing where there is no such file, or no file that can be used."""
    try:
        if not path.exists():
            return {}
        data = msgspec.json.decode(read(path, MOST), type=dict[str, list[dict[str, str | int | None]]])
        return {PodUid(uid): tuple(map(from_data, seen)) for uid, seen in data.items()}
    except (OSError, UnreadableError, msgspec.DecodeError, ValueError) as error:
        log.warning("first_seen.unusable", file=str(path), reason=str(error), effect="the file is written anew")
        return {}


def save(path: Path, first_seen: FirstSeen) -> None:
    """Write all that is to be remembered. Raises OSError."""
    content = msgspec.json.encode({uid: [as_data(entry) for entry in seen] for uid, seen in first_seen.items()})
    draft = path.with_name(f".{path.name}.new")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
