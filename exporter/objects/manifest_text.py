"""
The Kubernetes objects of a text, each with its place in it.

What comes in: YAML or JSON text of one object, a List, or several documents. What goes out: objects as plain data,
each with its document's number; and a line for each part that cannot be read.

The rule: a document that cannot be read does not stop the others.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from exporter.base.text_files import MalformedError, documents, show

_NEITHER = "neither YAML nor JSON as kubectl prints it"
_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
"""YAML forbids this line within a document, also in quoted and block texts (YAML 1.2.2, section 9.1.2)."""
_NO_CONTENT = re.compile(r"(?:[ \t]*(?:[#%][^\n]*)?(?:\n|\Z))*")
_MOST_DOCUMENTS = 10_000
"""Documents of a broken text. They are parsed one by one, which costs more than all at once."""


@dataclass(frozen=True, slots=True)
class TextObject:
    """An object. `place` names it within a text of several objects, else it is empty. Documents start at 1."""

    data: Mapping[str, Any]
    document: int
    place: str = ""


Problem = tuple[int, str]
"""The number of a document, and one line about what is wrong with a part of it."""


@dataclass(frozen=True, slots=True)
class TextObjects:
    """The objects of a text in order, and a problem for each part that is no object."""

    objects: tuple[TextObject, ...]
    problems: tuple[Problem, ...]


def objects_of(text: str, source: str) -> TextObjects:
    """Read all objects of a text; problems begin with the name of the source."""
    problems: list[Problem] = []
    numbered = list(_documents(text, source, problems))
    several = len(numbered) + len(problems) > 1
    objects: list[TextObject] = []
    for number, document in numbered:
        for read in _flat(document, f"document {number}" if several else "", number):
            if isinstance(read, TextObject):
                objects.append(read)
            else:
                problems.append((number, f"{source}: {read}"))
    return TextObjects(tuple(objects), tuple(problems))


def within(place: str, message: str) -> str:
    """Put the place, if not empty, before a message."""
    return f"{place}: {message}" if place else message


def _documents(text: str, source: str, problems: list[Problem]) -> Iterator[tuple[int, Any]]:
    """Decode JSON or YAML. JSON first: the YAML reader reads it, too, but takes a hundred times as long."""
    if text.lstrip().startswith("{"):
        try:
            yield 1, json.loads(text, object_pairs_hook=_once)
        except (json.JSONDecodeError, _DoubledError):
            pass  # YAML may start like this, too; and its reader reports the place of a doubled key
        except RecursionError:
            problems.append((1, f"{source}: {_NEITHER}: nested too deeply"))
            return
        except ValueError:
            problems.append((1, f"{source}: {_NEITHER}: a number of more than {sys.get_int_max_str_digits()} digits"))
            return
        else:
            return
    try:
        yield from enumerate(_yaml(text), 1)
    except MalformedError as error:
        parts = _parts(text)
        if len(parts) == 1:
            problems.append((1, _malformed(error).at(source)))
        else:
            yield from _one_by_one(parts, source, problems)


class _DoubledError(Exception):
    """A JSON object has a key twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object, and refuse a doubled key: the json module alone would take the last one."""
    data = dict(pairs)
    if len(data) < len(pairs):
        raise _DoubledError
    return data


def _one_by_one(parts: Iterable[tuple[int, str]], source: str, problems: list[Problem]) -> Iterator[tuple[int, Any]]:
    """Decode the documents of a text one by one, and add a problem for each that cannot be read."""
    number = 1
    for line, part in parts:
        try:
            contents = _yaml(part)
        except MalformedError as error:
            problems.append((number, _malformed(error, line, f"document {number}").at(source)))
            number += 1
        else:
            yield from enumerate(contents, number)
            number += len(contents)


def _yaml(text: str) -> list[Any]:
    return documents(text.encode(errors="surrogatepass"))


def _malformed(error: MalformedError, lines_before: int = 0, place: str = "") -> MalformedError:
    line = error.line + lines_before if error.line else 0
    return MalformedError(within(place, f"{_NEITHER}: {error}"), line, error.column)


def _parts(text: str) -> list[tuple[int, str]]:
    """Cut a text at its document markers into (lines before, text); one part if there are too many."""
    starts = [match.start() for match in _MARKER.finditer(text)]
    if len(starts) > _MOST_DOCUMENTS:
        return [(0, text)]
    if not starts or not _NO_CONTENT.fullmatch(text, 0, starts[0]):
        starts = [0, *starts]  # the first document has no marker
    else:
        starts[0] = 0  # directives and comments belong to the document below them
    parts, lines = [], 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        parts.append((lines, text[start:end]))
        lines += text.count("\n", start, end)
    return parts


def _flat(data: Any, place: str, document: int, kind: str = "") -> Iterator[TextObject | str]:
    """Yield an object, or those of a List, or a problem as text. `kind`: for a List's items without a kind."""
    if data is None:
        return
    if not isinstance(data, dict):
        yield within(place, f"expected an object with a kind, found {show(data)}")
        return
    if kind and "kind" not in data:
        data = {**data, "kind": kind}
    own_kind = data.get("kind")
    if not isinstance(own_kind, str) or not own_kind.endswith("List") or "items" not in data:
        yield TextObject(data, document, place)
        return
    items = data["items"]
    if items is not None and not isinstance(items, list):
        yield within(place, f"{show(own_kind)}: items: expected a list, found {show(items)}")
        return
    prefix = f"{place}, " if place else ""
    for index, item in enumerate(items or ()):
        yield from _flat(item, f"{prefix}items[{index}]", document, own_kind.removesuffix("List"))
