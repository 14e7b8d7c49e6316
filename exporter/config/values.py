"""
Values that are written as text and are more than text: durations, addresses, paths.

What comes in: a scalar as YAML or a flag gave it. What goes out: a value in our units, or `ValueError`.
"""

import re
from pathlib import Path
from typing import Any

from exporter.quantities import parse_duration


class Duration(float):
    """Seconds, written as "5s", "500ms" or "1m30s". It remembers nothing else: it is a float."""

    __slots__ = ()

    def __str__(self) -> str:
        """Write it as people do: 5s, 500ms."""
        return f"{self * 1000:g}ms" if self < 1 else f"{float(self):g}s"


class ListenAddress(str):
    """Where a server listens: ":9478", "127.0.0.1:9478", "[::1]:9478". Port 0 lets the kernel choose."""

    __slots__ = ()

    @property
    def host(self) -> str:
        """The host without brackets; empty for all addresses of this machine."""
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The TCP port, 0 to 65535."""
        return int(self.rpartition(":")[2])


_ADDRESS = re.compile(r"(?P<host>|[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\]):(?P<port>\d{1,5})", re.ASCII)
_HIGHEST_PORT = 65535


def decode(kind: type[Any], value: object) -> object:
    """Make a value of `kind` from the scalar `value`: msgspec's `dec_hook`. Raises ValueError."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("not text")
    if kind is Duration:
        return Duration(parse_duration(value))
    if kind is ListenAddress:
        match = _ADDRESS.fullmatch(value)
        if match is None or int(match["port"]) > _HIGHEST_PORT:
            raise ValueError("not an address")
        return ListenAddress(value)
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)
