"""
Joins flags, environment, file and defaults into one frozen config.

What comes in: `Arguments`. What goes out: `Config`, or `ConfigError`. `combine` is the pure half, `load` reads.
A daemon uses `start`, which also accepts a file with keys that this version does not know.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from exporter.config.arguments import Arguments
from exporter.config.catalogue import catalogue_of
from exporter.config.policy import REMOVED, removed
from exporter.config.schema import PATHS, Config, found_at, problems, replaced
from exporter.config.values import RECORDED
from exporter.config.yaml_text import ConfigError, check, known, parse, read, refuse

Check = Callable[[Config], Iterable[tuple[str, str]]]
"""Names each key whose value is impossible, with what was expected instead."""


def load(arguments: Arguments, also: Check = lambda _: ()) -> Config:
    """
    Read the config file, if one was named, and join all settings.

    `also` finds impossible values that this package does not know. Raises ConfigError.
    """
    content = read(arguments.config_file) if arguments.config_file else b""
    return combine(arguments, content, hostname(), also)


def start(arguments: Arguments, also: Check = lambda _: ()) -> tuple[Config, ConfigError | None]:
    """
    Read the config that a daemon starts with, as `load` does.

    A file of another version may have keys that this version does not know. Then the config is the rest of the file in
    mode `observe`, and the error is the refusal: a node that measures is better than one without a daemon.
    An unknown key of `web` may keep strangers out, so that such a file is refused as a whole. Raises ConfigError.
    """
    content = read(arguments.config_file) if arguments.config_file else b""
    try:
        return combine(arguments, content, hostname(), also), None
    except ConfigError as error:
        refusal = error
    rest, unknown = known(parse(content, _source(arguments)), Config)
    if not unknown or any(_of_web(key) for key in unknown):
        raise refusal
    config = _joined(arguments, rest, hostname(), also)
    return (config if config.policy.mode == "off" else replaced(config, "policy.mode", "observe")), refusal


def _of_web(key: str) -> bool:
    """Whether an unknown key is of the section `web`, or of one that was probably meant to be it."""
    import difflib  # noqa: PLC0415  (0.2 MB, for a wrong key only)

    return bool(difflib.get_close_matches(key.partition(".")[0].lower(), ["web"]))


def hostname() -> str:
    """Return this machine's host name in lower case, as the kubelet registers it."""
    return socket.gethostname().strip().lower()


def combine(arguments: Arguments, content: bytes, name: str, also: Check = lambda _: ()) -> Config:
    """
    Put flags and environment over the file, and the file over the defaults.

    `name` is the node's name if no flag, variable or key sets it. Raises ConfigError.
    """
    return _joined(arguments, parse(content, _source(arguments)), name, also)


def _source(arguments: Arguments) -> str:
    return str(arguments.config_file) if arguments.config_file else "configuration"


def _joined(arguments: Arguments, data: dict[str, Any], name: str, also: Check) -> Config:
    file, source = arguments.config_file, _source(arguments)
    data = {"node": {}} | data
    if isinstance(data["node"], dict):
        data["node"] = {"name": name} | data["node"]
    _refuse_removed(data, source)
    check(data, Config, source)  # the file by itself, before flags hide its mistakes
    if file is not None:
        data = _with(data, _anchored(data, file.parent))
    data = _with(data, arguments.overrides)
    config = check(data, Config, source, arguments.origins)
    if not (data.get("sampling") or {}).get("fast_interval"):
        # The operator set a `sampling.interval` below the default of `fast_interval`, so that default is lowered.
        fast = min(config.sampling.fast_interval, config.sampling.interval)
        config = replaced(config, "sampling.fast_interval", fast)
    if config.limits.rows or config.limits.systems.names is not None:
        catalogue_of(config.limits, source, arguments.origins.get("limits.systems", ""))
    for key, expected in (*problems(config), *also(config)):
        raise refuse(source, key, expected, _written(data, key, found_at(config, key)), arguments.origins)
    return config


def _written(data: Any, key: str, otherwise: object) -> object:
    """Return the value of a dotted key as it was written; `otherwise` where it was not."""
    for name in key.split("."):
        if not isinstance(data, Mapping) or name not in data:
            return otherwise
        data = data[name]
    return data


def _refuse_removed(data: Mapping[str, Any], source: str) -> None:
    """Refuse keys of an earlier version, and name their replacement. Raises ConfigError."""
    for key in REMOVED:
        part: Any = data
        for name in key.split("."):
            part = part.get(name) if isinstance(part, Mapping) else None
        if part is not None:
            raise removed(key, source)


def _anchored(data: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Resolve the paths of a file: a relative path starts at the file's folder."""
    anchored = {}
    for key in PATHS:
        section, _, name = key.partition(".")
        if value := data.get(section, {}).get(name):
            anchored[key] = str(folder / value)
    devices = data.get("devices", "")
    if devices.startswith(RECORDED):
        anchored["devices"] = RECORDED + str(folder / devices.removeprefix(RECORDED))
    return anchored


def _with(data: Mapping[str, Any], flat: Mapping[str, Any]) -> dict[str, Any]:
    """Put values at dotted keys on top of nested data."""
    merged = dict(data)
    for key, value in flat.items():
        section, _, rest = key.partition(".")
        below = merged.get(section)
        merged[section] = _with(below if isinstance(below, Mapping) else {}, {rest: value}) if rest else value
    return merged
