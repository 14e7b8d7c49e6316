"""The prose of this repository: pages, docstrings, comments, messages.

In: the text of a file. Out: its prose as Markdown, with the line of each part in the file.
Law: pages are taken as they are. Of code, what people read: docstrings, comments, and strings that are sentences. Of
tests, docstrings and comments: their strings are the world's, or the program's.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import yaml

import plain_yaml

PAGES = ("*.md", "docs/*.md", "docs/runbooks/*.md", "alerts/*.md", "alerts/dcgm/*.md", "deploy/charts/gpusteward/*.md")
CODE = ("exporter", "enforcer", "tools", "grafana", "alerts", "deploy")
TESTS = "tests"
GENERATED = ("docs/metrics.md", "deploy/manifests/", "alerts/tests/", "_pb2.py", "_grpc.py")
"""Written from texts that are looked at here; those of docs/systems.md and docs/faults.md are not."""
MESSAGES = ("summary", "description")
"""The annotations of an alert that people read."""
DIRECTIVE = re.compile(r"#\s*(?:noqa|type|pragma|fmt|nosec|!)\b\S*(?:\s*[A-Z]+\d+,?)*:?\s*")
SENTENCE = re.compile(r"[a-z]{2,} [a-z`']+ [a-z`']{2,}")
"""Three words in a row: the strings that are prose, as opposed to names, paths and lists."""
QUERY = re.compile(r"\b(?:by|on|without|ignoring|group_left) \(|\{\{|<script")
"""PromQL, a legend's template, JavaScript."""
CODE_WORD = "`x`"
"""Stands for what is put into a message when it is written."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of prose, and the line of the file that it begins in."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Prose:
    """A file's prose as one Markdown text, and for each of its lines the line in the file."""

    path: str
    text: str
    lines: tuple[int, ...]


def files(root: Path) -> Iterator[Path]:
    """Yield the files whose prose counts, in the order of their paths."""
    found = {path for pattern in PAGES for path in root.glob(pattern)}
    for folder in CODE:
        found |= {path for path in (root / folder).rglob("*") if path.suffix in {".py", ".yaml"}}
    found |= set((root / TESTS).rglob("*.py"))
    yield from sorted(path for path in found if not any(one in path.relative_to(root).as_posix() for one in GENERATED))


def prose(path: str, text: str) -> Prose:
    """Take the prose out of a file."""
    if path.endswith(".md"):
        page = text.partition("\n## ")[0] + newest(text) if path == "CHANGELOG.md" else text
        return Prose(path, page, tuple(range(1, page.count("\n") + 2)))
    if path.endswith(".yaml"):
        return _joined(path, sorted(of_yaml(text), key=lambda one: one.line))
    parts = of_python(text, messages=not path.startswith(f"{TESTS}/"))
    return _joined(path, sorted(parts, key=lambda one: one.line))


def newest(changelog: str) -> str:
    """Return the section of what changed last: what was released is history."""
    _, mark, rest = changelog.partition("\n## ")
    return mark + rest.partition("\n## ")[0]


def of_python(text: str, *, messages: bool = True) -> Iterator[Part]:
    """Yield docstrings, comments and, if asked for, messages."""
    yield from _comments(
        (token.start[0], token.start[1], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    )
    within: set[int] = set()
    for node in ast.walk(ast.parse(text)):  # what is around comes before what it holds
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            within.add(id(node.value))
            yield Part(node.lineno, inspect.cleandoc(node.value.value))
        elif messages and id(node) not in within and isinstance(node, ast.Constant | ast.JoinedStr):
            within |= {id(one) for one in ast.walk(node)}
            message = _message(node)
            if SENTENCE.search(message) and not QUERY.search(message):
                yield Part(node.lineno, message)


def of_yaml(text: str) -> Iterator[Part]:
    """Yield comments, and what alerts say. A template of Helm has no alerts, and is not YAML."""
    lines = enumerate(text.splitlines(), start=1)
    marks = ((number, re.search(r"(?:^|\s)(#\s.*)$", line)) for number, line in lines)
    yield from _comments((number, mark.start(1), mark[1]) for number, mark in marks if mark)
    if "annotations:" in text and "{{-" not in text:
        for document in yaml.compose_all(text, Loader=plain_yaml.LOADER):
            yield from _annotations(document)


def _message(node: ast.Constant | ast.JoinedStr) -> str:
    values = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [one.value if isinstance(one, ast.Constant) else CODE_WORD for one in values]
    return inspect.cleandoc("".join(one for one in texts if isinstance(one, str)))


def _comments(marks: Iterable[tuple[int, int, str]]) -> Iterator[Part]:
    """Join the lines of a comment: those that follow one another, in the same column."""
    text: list[str] = []
    for (line, column, comment), following in pairwise([*marks, (0, 0, "")]):
        text.append(DIRECTIVE.sub("", comment).lstrip("#").strip())
        if following[:2] != (line + 1, column):
            yield Part(line + 1 - len(text), "\n".join(text))
            text = []


def _annotations(node: yaml.Node | None) -> Iterator[Part]:
    if isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from _annotations(one)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value in MESSAGES and isinstance(value, yaml.ScalarNode):
                yield Part(value.start_mark.line + 1, re.sub(r"\{\{.*?\}\}", CODE_WORD, value.value))
            else:
                yield from _annotations(value)


def _joined(path: str, parts: Iterable[Part]) -> Prose:
    texts, lines = [], []
    for part in parts:
        rows = part.text.split("\n")
        texts += [*rows, ""]
        lines += [*range(part.line, part.line + len(rows)), part.line]
    return Prose(path, "\n".join(texts), tuple(lines) or (1,))
