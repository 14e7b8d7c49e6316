"""How an error reads on a terminal."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import enforcer
import exporter
from exporter.base.problem import WIDEST, Problem, lines


def test_what_happened_cause_and_fix_are_lines_of_their_own() -> None:
    """In this order; what is not known has no line."""
    error = Problem("cannot listen on :9478", cause="address already in use", fix="end the other process")
    assert [*lines("gpusteward run", error)] == [
        "gpusteward run: cannot listen on :9478",
        "cause: address already in use",
        "fix: end the other process",
    ]
    assert [*lines("gpusteward", "nothing else is known")] == ["gpusteward: nothing else is known"]
    assert str(error) == "cannot listen on :9478: address already in use; fix: end the other process"


def test_no_line_is_longer_than_160_characters() -> None:
    """Long texts go on in the next line; a path stays whole, so that it can be copied."""
    path = "/" + "a" * 200
    told = [*lines("gpusteward", Problem("word " * 100, fix=f"look at {path} " + "word " * 100))]
    assert [line for line in told if len(line) > WIDEST] == [f"  {path}"]
    assert " ".join(" ".join(told).split()).count("word") == 200


def test_foreign_text_becomes_printable() -> None:
    """An escape sequence in a file name does nothing to the terminal."""
    assert [*lines("gpusteward", Problem("\x1b[31m", fix="a\nb"))] == [r"gpusteward: \x1b[31m", r"fix: a\nb"]


def test_each_error_that_a_person_reads_has_a_fix() -> None:
    """Each kind of problem has a fix of its own, or is given one wherever it is raised."""
    for package in (exporter, enforcer):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    kinds = {kind.__name__: kind for kind in _kinds(Problem)}
    assert {"ConfigError", "DeviceError", "DriverAccessLostError"} <= kinds.keys()
    named = re.compile("|".join(kinds))
    without = []
    for package in (exporter, enforcer):
        for file in Path(package.__path__[0]).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            if named.search(text) is None:  # six files of seven: the trees of all take 0.5 s
                continue
            for call in ast.walk(ast.parse(text)):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    kind = kinds.get(call.func.id)
                    given = "fix" in {keyword.arg for keyword in call.keywords}
                    if kind is not None and not kind.fix and not given:
                        without.append(f"{file.name}:{call.lineno}")
    assert without == []


def _kinds(of: type[Problem]) -> Iterator[type[Problem]]:
    yield of
    for kind in of.__subclasses__():
        yield from _kinds(kind)
