"""
Config values that are written as text and have a type of their own: durations, addresses, paths.

What comes in: a scalar from YAML or a flag. What goes out: a value in our units, or `ValueError`.
"""

import re
from pathlib import Path
from typing import Any

from exporter.base.quantities import parse_bytes, parse_duration
from exporter.devices import NAMES


class Duration(float):
    """Seconds, written as "5s", "500ms" or "1m30s". It is a float, and does not keep the text."""

    __slots__ = ()

    def __str__(self) -> str:
        """Write it for people: 5s, 500ms."""
        return f"{self * 1000:g}ms" if self < 1 else f"{float(self):g}s"


class ListenAddress(str):
    """
    The address of a server: ":9478", "127.0.0.1:9478", "[::1]:9478". With port 0 the kernel chooses one.

    IPv6 zones (`%eth0`) are refused: they belong to link-local addresses, which no scraper can be given.
    """

    __slots__ = ()

    @property
    def host(self) -> str:
        """The host without brackets; empty for all addresses of this machine."""
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The TCP port, 0 to 65535."""
        return int(self.rpartition(":")[2])


class Bytes(int):
    """Bytes, written as a Kubernetes quantity: "256Mi", "1G", 1048576. "512m", half a byte, is a misspelt "512Mi"."""

    __slots__ = ()


class Rate(str):
    """A number per time: "3/10m"."""

    __slots__ = ()

    @property
    def most(self) -> int:
        """The number."""
        return int(self.partition("/")[0])

    @property
    def window(self) -> float:
        """The time in seconds."""
        return parse_duration(self.partition("/")[2])


class Systems(str):
    """The sharing systems whose limits are read: "auto", or names as a list or with commas; an empty list is none."""

    __slots__ = ()

    @property
    def names(self) -> frozenset[str] | None:
        """The names; None for "auto"."""
        return None if self == "auto" else frozenset(filter(None, self.split(",")))


class Devices(str):
    """The sources of devices: "auto", "simulated", "recorded:" and a path, or names of sources with commas between."""

    __slots__ = ()

    @property
    def recording(self) -> Path | None:
        """The recording to play; None for devices of another kind."""
        return Path(self.removeprefix(RECORDED)) if self.startswith(RECORDED) else None

    @property
    def names(self) -> frozenset[str] | None:
        """The sources to open; None for "auto", and for devices that are not this node's."""
        named = self not in {"auto", "simulated"} and self.recording is None
        return frozenset(map(str.strip, self.split(","))) if named else None


RECORDED = "recorded:"
_SYSTEMS = re.compile(r"[a-z0-9-]+(?:, ?[a-z0-9-]+)*")
_BYTES = re.compile(r"([0-9]+([eE][+]?[0-9]+)?|([0-9]+[.]?[0-9]*|[.][0-9]+)([kMGTPE]|[KMGTPE]i))")
"""Quantities of whole bytes, or of a multiple of them; the chart has the same form."""
_RATE = re.compile(r"\d{1,6}/\S+", re.ASCII)
_ADDRESS = re.compile(r"(?P<host>|[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})", re.ASCII)
_HIGHEST_PORT = 65535


def decode(kind: type[Any], value: object) -> object:
    """Make a value of `kind` from the scalar `value`: msgspec's `dec_hook`. Raises ValueError."""
    if kind is Systems:
        return _systems(value)
    if kind is Bytes and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("not text")
    if kind is Duration:
        return Duration(parse_duration(value))
    if kind is Bytes:
        if not _BYTES.fullmatch(value):
            raise ValueError("not bytes")
        return Bytes(parse_bytes(value))
    if kind is Rate:
        if not _RATE.fullmatch(value) or Rate(value).window <= 0:
            raise ValueError("not a rate")
        return Rate(value)
    if kind is ListenAddress:
        match = _ADDRESS.fullmatch(value)
        if match is None or int(match["port"]) > _HIGHEST_PORT:
            raise ValueError("not an address")
        return ListenAddress(value)
    if kind is Devices:
        devices = Devices(value)
        if (devices.names or set()) - set(NAMES) or value == RECORDED:
            raise ValueError("not a source of devices")
        return devices
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)


def _systems(value: object) -> Systems:
    parts: list[object] = value if isinstance(value, list) else [value]
    names = [part for part in parts if isinstance(part, str) and _SYSTEMS.fullmatch(part)]
    if len(names) < len(parts) or (isinstance(value, list) and "auto" in names):
        raise ValueError("not names of systems")
    return Systems(",".join(names).replace(" ", ""))
