"""
Text of a YAML file to checked data.

What comes in: bytes, and the msgspec struct that says what is allowed. What goes out: the struct, or one `ConfigError`
that names the source, the path of the key, what was expected and what was found.

The law: nothing is guessed. Unknown keys, doubled keys and wrong types are refused; `null` is the same as not written.
"""

import difflib
import re
import types
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml

from exporter.config import values

MAX_BYTES = 1 << 20
"""The largest ConfigMap that Kubernetes takes; a file above that is not a config."""

Struct = TypeVar("Struct", bound=msgspec.Struct)


class ConfigError(Exception):
    """The configuration cannot be used; the message says where and why. A daemon ends with exit code 2 at start."""


def read(path: Path) -> bytes:
    """Read a whole config file. Raises ConfigError when that is not possible."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES} bytes, which is no config file")
    return content


def parse(content: bytes, source: str) -> dict[str, Any]:
    """Turn YAML into a mapping of mappings, without its nulls. An empty document is an empty mapping."""
    try:
        data = yaml.load(content.decode(), Loader=_Loader)  # noqa: S506  (a SafeLoader, only stricter)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not UTF-8 text (byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_place(source, error)) from error
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{source}: character {error.position} is not text (code {error.character})") from error
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2025-13-45
        raise ConfigError(f"{source}: not YAML: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"{source}: expected keys with values, such as `sampling: {{interval: 5s}}`, got {show(data)}"
        )
    pruned: dict[str, Any] = without_nulls(data)
    return pruned


def without_nulls(data: Any) -> Any:
    """Drop keys whose value is null, at every depth of mappings."""
    if isinstance(data, dict):
        return {key: without_nulls(value) for key, value in data.items() if value is not None}
    return data


def check(
    data: Mapping[str, Any], struct: type[Struct], source: str, origins: Mapping[str, str] | None = None
) -> Struct:
    """
    Turn plain data into `struct`.

    `origins` names those dotted keys that came from elsewhere than `source`. Raises ConfigError.
    """
    try:
        return msgspec.convert(data, struct, dec_hook=values.decode)
    except msgspec.ValidationError as error:
        raise _explain(str(error), data, struct, source, origins or {}) from error


def refuse(source: str, path: str, expected: str, found: object, origins: Mapping[str, str]) -> ConfigError:
    """Say that the value at the dotted `path` is not what was expected."""
    place = origins.get(path) or (f"{source}: {path}" if path else source)
    return ConfigError(f"{place}: expected {expected}, got {show(found)}")


def show(value: object) -> str:
    """Show what was found, as YAML would write it, in a few words."""
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    shown = text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004  (fits a terminal line)
    return (
        f'"{shown}"'
        if isinstance(value, str) and (not shown.isprintable() or shown != shown.strip())
        else shown or '""'
    )


def hint(key: str, known: list[str]) -> str:
    """Say which known key was probably meant, or which there are."""
    close = difflib.get_close_matches(key, known, n=1)
    return f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(sorted(known))}"


# --- msgspec's message in our words -----------------------------------------------------------------------------------

_AT = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`", re.DOTALL)


def _explain(
    message: str, data: Mapping[str, Any], struct: type[Any], source: str, origins: Mapping[str, str]
) -> ConfigError:
    """Translate `Expected `str`, got `int` - at `$.node.name``: the field's own description says it better."""
    match = _AT.match(message)
    assert match is not None  # noqa: S101  (the expression matches every text)
    path = match["path"] or ""
    if unknown := _UNKNOWN.match(match["what"]):
        section = _annotation(struct, path)
        key = unknown["key"]
        return ConfigError(f"{source}: {f'{path}.' if path else ''}{key}: unknown key; {hint(key, _keys(section))}")
    path, free, _ = path.partition("[...]")  # msgspec does not say which key of a mapping, or which item of a list
    found: Any = data
    for key in filter(None, path.split(".")):
        found = found[key]
    if free and isinstance(found, dict):
        path, found = next(((f"{path}.{key}", value) for key, value in found.items() if not isinstance(value, str)))
        return refuse(source, path, "text", found, origins)
    return refuse(source, path, _expected(_annotation(struct, path)), found, origins)


def _annotation(struct: type[Any], path: str) -> Any:
    annotation: Any = struct
    for key in filter(None, path.split(".")):
        annotation = get_type_hints(_plain(annotation), include_extras=True)[key]
    return annotation


def _plain(annotation: Any) -> Any:
    """Take the extras and the `| None` off a type."""
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
    return {bool: "true or false", str: "text", Path: "a path"}.get(plain, getattr(plain, "__name__", str(plain)))


# --- YAML, stricter ---------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """A SafeLoader that refuses doubled keys (YAML 1.2 does, PyYAML takes the last) and keys that are no text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {show(key)} is not text; quote it", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f'the key "{key}" twice', key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _place(source: str, error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "not YAML"
    if "'\\t'" in problem:
        problem = "a tab where YAML wants spaces"
    mark = error.problem_mark or error.context_mark
    place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark is not None else source
    return f"{place}: {problem}"
