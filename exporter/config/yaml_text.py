"""
Turns the text of a YAML file into checked data.

What comes in: bytes, and the msgspec struct that defines the valid data. What goes out: the struct, or one
`ConfigError` with the source, the path of the key, what was expected and what was found.

The rule: nothing is guessed. Unknown keys, duplicate keys and wrong types are refused; `null` means not set. Errors
show the refused value, unless the file is one of secrets: then they show its kind.
"""

import re
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from exporter.base import text_files
from exporter.base.problem import Problem
from exporter.base.text_files import show
from exporter.config import values

MAX_BYTES = 1 << 20
"""The largest ConfigMap that Kubernetes accepts; a larger file is no config."""

Struct = TypeVar("Struct", bound=msgspec.Struct)


class ConfigError(Problem):
    """The configuration cannot be used; the message says where and why. A daemon ends with exit code 2 at start."""

    fix = "correct the configuration; docs/reference/config.md lists each key with its default"


def read(path: Path, key: str = "") -> bytes:
    """Read a whole config file, which `key` names. Raises ConfigError."""
    try:
        return text_files.read(path, MAX_BYTES)
    except text_files.UnreadableError as error:
        raise ConfigError(f"{key and f'{key}: '}{path}: {error}", fix=error.fix) from error


def parse(content: bytes, source: str) -> dict[str, Any]:
    """Turn YAML into a mapping of mappings, without its nulls. An empty document is an empty mapping."""
    pruned: dict[str, Any] = without_nulls(mapping(content, source))
    return pruned


def mapping(content: bytes, source: str, *, secret: bool = False) -> dict[str, Any]:
    """Turn YAML into a mapping, with its nulls. Raises ConfigError, which shows no value of a `secret` file."""
    try:
        data = text_files.plain(content)
    except text_files.MalformedError as error:
        raise ConfigError(error.at(source)) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"{source}: expected keys with values, got {(kind if secret else show)(data)}",
            fix="write `sampling: {interval: 5s}`",
        )
    return data


def without_nulls(data: Any) -> Any:
    """Drop keys whose value is null, at every depth of mappings."""
    if isinstance(data, dict):
        return {key: without_nulls(value) for key, value in data.items() if value is not None}
    return data


def kind(value: object) -> str:
    """Name the kind of a value, without the value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    return "text" if isinstance(value, str) else "a list" if isinstance(value, list) else show(value)


def check(
    data: Mapping[str, Any],
    struct: type[Struct],
    source: str,
    origins: Mapping[str, str] | None = None,
    *,
    secret: bool = False,
) -> Struct:
    """
    Turn plain data into `struct`.

    `origins` names those dotted keys that came from elsewhere than `source`. Raises ConfigError, which shows no value
    of a `secret` file.
    """
    data = spoken(data, struct)
    try:
        return msgspec.convert(data, struct, dec_hook=values.decode)
    except msgspec.ValidationError as error:
        raise _explain(str(error), data, struct, source, origins or {}, shown=kind if secret else show) from error


_SWITCHES = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
"""YAML 1.1's words for true and false. In quotes they are text; without quotes `mode: off` is false."""


def spoken(data: Any, annotation: Any) -> Any:
    """
    Convert YAML's words for true and false to the type of their key.

    A boolean key accepts `"on"` in quotes, as a template, an environment or Helm's --set-string writes it. A key with a
    fixed set of words accepts `off` without quotes. Other values stay as they are, and are checked later.
    """
    plain = _plain(annotation)
    if plain is bool and isinstance(data, str):
        return _SWITCHES.get(data.lower(), data)
    if get_origin(plain) is Literal and isinstance(data, bool):
        meant = [word for word in get_args(plain) if _SWITCHES.get(word) is data]
        return meant[0] if meant else data
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct) and isinstance(data, Mapping):
        types_of = get_type_hints(plain, include_extras=True)
        names = {field.encode_name: types_of[field.name] for field in msgspec.structs.fields(plain)}
        return {key: spoken(value, names[key]) if key in names else value for key, value in data.items()}
    return data


def known(data: Any, annotation: Any, path: str = "") -> tuple[Any, tuple[str, ...]]:
    """Split data into what has a key of the struct, and the dotted keys of the rest. What lists hold stays as it is."""
    plain = _plain(annotation)
    if not (isinstance(plain, type) and issubclass(plain, msgspec.Struct) and isinstance(data, Mapping)):
        return data, ()
    types_of = get_type_hints(plain, include_extras=True)
    names = {field.encode_name: types_of[field.name] for field in msgspec.structs.fields(plain)}
    kept, strange = {}, [f"{path}{key}" for key in data if key not in names]
    for key in names.keys() & data.keys():
        kept[key], more = known(data[key], names[key], f"{path}{key}.")
        strange += more
    return kept, tuple(sorted(strange))


def refuse(
    source: str,
    path: str,
    expected: str,
    value: object,
    origins: Mapping[str, str] = types.MappingProxyType({}),
    *,
    shown: Callable[[object], str] = show,
) -> ConfigError:
    """Make the error for a wrong value at the dotted `path`; `origins` as in `check`; `shown` writes the value."""
    origin = origins.get(path)
    place = origin or (f"{source}: {path}" if path else source)
    return ConfigError(
        f"{place}: expected {expected}, got {shown(value)}",
        fix=f"correct {origin}; docs/reference/config.md describes {path}" if origin else "",
    )


def hint(key: str, known: list[str]) -> str:
    """Suggest the known key that was probably meant, or list the known ones."""
    import difflib  # noqa: PLC0415  (0.2 MB, for a wrong key only)

    close = difflib.get_close_matches(key, known, n=1)
    return f'use "{close[0]}", or remove the key' if close else f"use a known key: {', '.join(sorted(known))}"


# --- msgspec's messages, rewritten for the operator -------------------------------------------------------------------

_AT = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?$", re.DOTALL)
_ITEM = re.compile(r"\[\d+\].*", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`", re.DOTALL)


def _explain(
    message: str,
    data: Mapping[str, Any],
    struct: type[Any],
    source: str,
    origins: Mapping[str, str],
    *,
    shown: Callable[[object], str],
) -> ConfigError:
    """Rewrite a message such as `Expected `str`, got `int` - at `$.node.name`` with the field's own description."""
    match = _AT.match(message)
    assert match is not None  # noqa: S101  (the expression matches every text)
    path = match["path"] or ""
    if unknown := _UNKNOWN.match(match["what"]):
        section = _annotation(struct, path)
        key = unknown["key"]
        return ConfigError(f"{source}: {f'{path}.' if path else ''}{key}: unknown key", fix=hint(key, _keys(section)))
    if missing := _MISSING.match(match["what"]):
        return ConfigError(f"{source}: {f'{path}.' if path else ''}{missing['key']}: this key is missing")
    path = _ITEM.sub("", path)  # a list is shown as a whole: its items are few, and make sense only together
    path, free, _ = path.partition("[...]")  # msgspec does not say which key of a mapping, or which item of a list
    part: Any = data
    for key in filter(None, path.split(".")):
        part = part[key]
    if free and isinstance(part, dict):
        inside = get_args(_plain(_annotation(struct, path)))[1]
        path, part = next((f"{path}.{key}", value) for key, value in part.items() if not _fits(value, inside))
        return refuse(source, path, _expected(inside), part, origins, shown=shown)
    return refuse(source, path, _expected(_annotation(struct, path)), part, origins, shown=shown)


def _fits(value: object, annotation: Any) -> bool:
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        return False
    return True


def _annotation(struct: type[Any], path: str) -> Any:
    annotation: Any = struct
    for key in filter(None, path.split(".")):
        annotation = get_type_hints(_plain(annotation), include_extras=True)[key]
    return annotation


def words_of(struct: type[Any], path: str) -> tuple[str, ...] | None:
    """Return the words that the key at the dotted `path` accepts; None if it accepts other values."""
    try:
        plain = _plain(_annotation(struct, path))
    except (KeyError, TypeError):
        return None  # no key of the file
    return get_args(plain) if get_origin(plain) is Literal else None


def _plain(annotation: Any) -> Any:
    """Remove the extras and the `| None` from a type."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) is types.UnionType:
        return _plain(get_args(annotation)[0])
    return annotation


def _keys(annotation: Any) -> list[str]:
    return list(_plain(annotation).__struct_encode_fields__)


def _expected(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        for extra in get_args(annotation)[1:]:
            if isinstance(extra, msgspec.Meta) and extra.description:
                return extra.description
    plain = _plain(annotation)
    if get_origin(plain) is Literal:
        return " or ".join(get_args(plain))
    if get_origin(plain) is list:
        return "a list of texts"
    if get_origin(plain) is dict or (isinstance(plain, type) and issubclass(plain, msgspec.Struct)):
        return "a mapping"
    return {bool: "true or false", str: "text", float: "a number", Path: "a path"}.get(
        plain, getattr(plain, "__name__", str(plain))
    )
