"""
Flags, environment, file and defaults to one frozen config.

What comes in: `Arguments`. What goes out: `Config`, or `ConfigError`. `combine` is the pure half, `load` reads.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from exporter.config.arguments import Arguments
from exporter.config.catalogue import catalogue_of
from exporter.config.schema import PATHS, Config, found_at, problems
from exporter.config.values import RECORDED
from exporter.config.yaml_text import check, parse, read, refuse

Check = Callable[[Config], Iterable[tuple[str, str]]]
"""Names each key whose value is impossible, with what was expected instead."""


def load(arguments: Arguments, also: Check = lambda _: ()) -> Config:
    """
    Read the config file, if one was named, and put everything together.

    `also` finds what is impossible beyond what this package knows of. Raises ConfigError.
    """
    content = read(arguments.config_file) if arguments.config_file else b""
    return combine(arguments, content, hostname(), also)


def hostname() -> str:
    """Name this machine in lower case, because so the kubelet registers it."""
    return socket.gethostname().strip().lower()


def combine(arguments: Arguments, content: bytes, name: str, also: Check = lambda _: ()) -> Config:
    """
    Put flags and environment over the file, and the file over the defaults.

    `name` is the node's name when nobody says otherwise. Raises ConfigError.
    """
    file = arguments.config_file
    source = str(file) if file else "configuration"
    written = parse(content, source)
    data = _merge({"node": {"name": name}}, written)
    check(data, Config, source)  # the file by itself, before flags hide its mistakes
    if file is not None:
        data = _merge(data, _nested(_anchored(data, file.parent)))
    data = _merge(data, _nested(arguments.overrides))
    config = check(data, Config, source, arguments.origins)
    if not (data.get("sampling") or {}).get("fast_interval"):
        config = _not_slower_than_full_rounds(config)
    for key, expected in (*problems(config), *also(config)):
        raise refuse(source, key, expected, found_at(config, key), arguments.origins)
    if config.limits.rows or config.limits.systems.names is not None:
        catalogue_of(config.limits, source, arguments.origins.get("limits.systems", ""))
    return config


def _not_slower_than_full_rounds(config: Config) -> Config:
    """Lower the default of `sampling.fast_interval` to a shorter `sampling.interval`; who wrote it meant it."""
    sampling = config.sampling
    fast = min(sampling.fast_interval, sampling.interval)
    return msgspec.structs.replace(config, sampling=msgspec.structs.replace(sampling, fast_interval=fast))


def _anchored(data: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Say what the paths of a file mean: those that are relative start at the file's folder."""
    found = {}
    for key in PATHS:
        section, _, name = key.partition(".")
        if value := data.get(section, {}).get(name):
            found[key] = str(folder / value)
    devices = data.get("devices", "")
    if devices.startswith(RECORDED):
        found["devices"] = RECORDED + str(folder / devices.removeprefix(RECORDED))
    return found


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.partition(".")
        if name:
            nested.setdefault(section, {})[name] = value
        else:
            nested[section] = value
    return nested


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        lower = merged.get(key)
        merged[key] = _merge(lower, value) if isinstance(lower, dict) and isinstance(value, dict) else value
    return merged
