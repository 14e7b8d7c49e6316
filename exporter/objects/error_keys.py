"""
Puts the key of a mapping into a message of msgspec, which writes `[...]` in its place.

What comes in: a message such as "Expected `str`, got `int` - at `$.metadata.labels[...]`", and the data that was read.
What goes out: the message with the key, `$.metadata.labels[app]`.

The rule: the first value of the named type is the refused one, because msgspec reads in order and stops there.
"""

import re
from typing import Any

_PLACE = re.compile(r"got `(?P<type>[^`]+)` - at `\$(?P<path>[^`]*)\[\.\.\.\]`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_LONGEST_KEY = 100
_TYPES = {"NoneType": "null", "list": "array", "dict": "object"}
"""msgspec's names of Python's types, where they differ."""


def with_key(message: str, data: Any) -> str:
    """Put the key into the message; return the message unchanged if no key is found."""
    place = _PLACE.search(message)
    if place is None or not isinstance(mapping := _at(data, place["path"]), dict):
        return message
    for key, value in mapping.items():
        name = type(value).__name__
        if _TYPES.get(name, name) == place["type"]:
            shown = key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}..."
            return f"{message[: place.start()]}got `{place['type']}` - at `${place['path']}[{shown}]`"
    return message


def _at(data: Any, path: str) -> Any:
    """Follow a path of the same data; None if the path has another `[...]` in it."""
    for step in _STEP.finditer(path):
        name, index = step.groups()
        if isinstance(data, dict) and name is not None:
            data = data.get(name)
        elif isinstance(data, list) and index is not None and int(index) < len(data):
            data = data[int(index)]
        else:
            return None
    return None if "[...]" in path else data
