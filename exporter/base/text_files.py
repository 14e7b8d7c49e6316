"""
Reads files that people write: the bytes of a file, and YAML or JSON as plain data.

What comes in: a path, or bytes. What goes out: bytes; or dicts, lists and scalars; or `UnreadableError` and
`MalformedError`, which say why and where. They show no values, because a value may be a secret.

The rule: no file can harm the reader. It does not wait for a pipe, and reads no more than it was asked for. Every error
of the YAML library becomes a `MalformedError`. Nothing is guessed: duplicate keys, keys that are no text, anchors and
aliases are refused. Twenty lines of aliases can make a million values. The parser is libyaml where PyYAML was built
with it. It is nine times faster, but overflows its stack in deep nesting. So the depth is counted first.
"""

import os
import stat
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import yaml

DEEPEST = 50
"""Levels of nesting; no file of ours needs ten."""
_LONGEST_NUMBER = 64
"""Characters of a number, a date or a boolean; Python takes quadratic time to parse a number of many digits."""
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_TEXT_FOR_KUBERNETES = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"}
_Data = TypeVar("_Data")


class UnreadableError(Exception):
    """The file cannot be read; the message says why, and does not name it. `fix` says what to do."""

    def __init__(self, why: str, *, fix: str = "name a file that this user can read") -> None:
        super().__init__(f"cannot be read: {why}")
        self.fix = fix


class MalformedError(Exception):
    """The text is not what was expected. `line` and `column` start at 1; both are 0 without a single place."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        super().__init__(problem)
        self.line = line
        self.column = column

    def at(self, source: str) -> str:
        """Write the error with its place in `source`."""
        return f"{source}:{self.line}:{self.column}: {self}" if self.line else f"{source}: {self}"


def opened(path: Path) -> BinaryIO:
    """Open a regular file; never wait for a pipe. Raises UnreadableError."""
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  (closed by the caller)
    except (OSError, ValueError) as error:  # a path with a NUL byte is a ValueError
        if isinstance(error, IsADirectoryError):
            raise UnreadableError(reason(error), fix="name the file in this folder") from error
        raise UnreadableError(reason(error)) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UnreadableError("not a regular file", fix="name a regular file; a pipe or a device is not read")
    return file


def read(path: Path, most: int) -> bytes:
    """Read a whole regular file of at most `most` bytes. Raises UnreadableError."""
    with opened(path) as file:
        try:
            content = file.read(most + 1)
        except OSError as error:
            raise UnreadableError(reason(error)) from error
    if len(content) > most:
        raise UnreadableError(f"larger than {most} bytes", fix=f"name a file of at most {most} bytes")
    return content


def reason(error: OSError | ValueError) -> str:
    """Say in lower case why a file cannot be opened, read or written."""
    return ((error.strerror if isinstance(error, OSError) else "") or str(error)).lower()


def plain(content: bytes) -> Any:
    """Turn one YAML or JSON document into dicts, lists and scalars; None when it is empty. Raises MalformedError."""
    return _loaded(content, lambda text: yaml.load(text, Loader=_Loader))  # noqa: S506  (a SafeLoader, only stricter)


def documents(content: bytes) -> list[Any]:
    """Turn a file of Kubernetes objects, any number of YAML documents (`---`), into data. Raises MalformedError."""
    return _loaded(content, lambda text: list(yaml.load_all(text, Loader=_ObjectLoader)))


def _loaded(content: bytes, load: Callable[[str], _Data]) -> _Data:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 text (byte {error.start})") from error
    if unprintable := yaml.reader.Reader.NON_PRINTABLE.search(text):
        start = unprintable.start()
        line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
        raise MalformedError(f"a character that is not text (code {ord(unprintable[0])})", line, column)
    try:
        _look_ahead(text)
        return load(text)
    except yaml.constructor.ConstructorError as error:
        if error.problem and "tag" in error.problem:
            error.problem = "a tag (!), which is not taken here; quote it if it is text"
        raise _placed(text, error) from None  # its text quotes the value
    except yaml.MarkedYAMLError as error:
        raise _placed(text, error) from error
    except yaml.YAMLError as error:
        raise MalformedError(f"not YAML: {error}") from error


def show(value: object) -> str:
    """Show a value as YAML would write it, in a few words."""
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        items = [show(item) for item in value if not isinstance(item, Mapping | list)]
        written = f"[{', '.join(items)}]"
        return written if len(items) == len(value) and len(written) <= 60 else "a list"  # noqa: PLR2004
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    shown = text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004  (fits a terminal line)
    return (
        f'"{shown}"'
        if isinstance(value, str) and (not shown.isprintable() or shown != shown.strip())
        else shown or '""'
    )


def _without_waiting(path: str, flags: int) -> int:
    """Open a path that may be a pipe; without O_NONBLOCK, opening a pipe waits for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


if TYPE_CHECKING:
    _Base = yaml.SafeLoader
else:
    _Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _look_ahead(text: str) -> None:
    """Refuse deep nesting and aliases, event by event and without recursion, before the rest of the code meets them."""
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _refused("an anchor (&) or alias (*), which is not taken here; quote it if it is text", event)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise _refused("nested too deeply", event)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Loader(_Base):
    """A SafeLoader that refuses duplicate keys (as YAML 1.2; PyYAML takes the last one) and keys that are no text."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        if isinstance(node, yaml.ScalarNode) and node.tag != _TEXT and len(node.value) > _LONGEST_NUMBER:
            raise _refused("a long text without quotes", node) if node.style is None else _not_a(node)
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, str):
                value.encode()  # the escape "\ud800" is no character
        except yaml.YAMLError:
            raise
        except Exception as error:  # an IndexError for `!!int ''`, a KeyError for `!!bool x`, a ValueError for a date
            raise _not_a(node) from error
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                raise _refused("a merge key (<<), which is not taken here; write the keys out", key_node)
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _refused("a key that is not text; quote it", key_node)
            if key in seen:
                raise _refused(f'the key "{key}" twice', key_node)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


class _ObjectLoader(_Loader):
    """
    A loader that reads dates, `1:30` and `=` as text, as kubectl's YAML reader does (sigs.k8s.io/yaml).

    `annotations: {built: 2025-01-01}` is a text for Kubernetes. `enum: [=]` occurs in CRDs of charts.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXT_FOR_KUBERNETES]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and ":" in node.value:
            node.tag = _TEXT
        return super().construct_object(node, deep)


def _not_a(node: yaml.Node) -> yaml.MarkedYAMLError:
    kind = node.tag.rpartition(":")[2]
    return _refused(f"expected a value of the kind {kind}; quote it if it is text", node)


def _refused(problem: str, where: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=where.start_mark)  # type: ignore[arg-type]  # libyaml's


def _placed(text: str, error: yaml.MarkedYAMLError) -> MalformedError:
    problem = error.problem or error.context or "not YAML"
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return MalformedError(problem)
    lines = text.split("\n")
    if mark.line >= len(lines):  # libyaml places the end of the text below its last line
        return MalformedError(problem, len(lines), len(lines[-1]) + 1)
    if lines[mark.line][mark.column : mark.column + 1] == "\t":
        problem = "a tab where YAML wants spaces"
    return MalformedError(problem, mark.line + 1, mark.column + 1)
