"""
What a sharing system says on the node that its devices have.

What comes in: the text of a node's annotation, such as `hami.io/node-nvidia-register`. What goes out: UUID and bytes of
each device.

The law: anybody who may patch nodes wrote it, so what cannot be read is nothing, never an error.

Source: Project-HAMi/HAMi pkg/device/devices.go (JSON since 2.5, before that `uuid,split,MiB,cores,type,numa,health:`).
"""

import json
from collections.abc import Iterator

_MIB = 2**20
_FIELDS = 3
_MOST = 64


def registered(text: str) -> tuple[tuple[str, int], ...]:
    """List (UUID, bytes) of the devices that a text registers; bytes are what the system hands out, scaled or not."""
    entries = ((uuid, _number(memory) * _MIB) for uuid, memory in _entries(text))
    return tuple((uuid, memory) for uuid, memory in entries if uuid and memory)[:_MOST]


def _entries(text: str) -> Iterator[tuple[str, str]]:
    if not text.startswith("["):
        rows = (each.split(",") for each in text.split(":") if each)
        yield from ((row[0], row[2]) for row in rows if len(row) >= _FIELDS)
        return
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return
    for each in listed:
        if isinstance(each, dict):
            yield str(each.get("id", "")), str(each.get("devmem", ""))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004
