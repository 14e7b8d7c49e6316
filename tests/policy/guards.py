"""
The guards of the policy's pure modules, as their syntax trees show them, and each of them broken.

The source of the modules comes in. Guards go out, each with the one change that takes it away.

The rule: a guard is known by its function and its own text, so that a list of guards outlives a change elsewhere. Each
`if` never holds. Each operand of `and` and `or` is left out, and so is each filter of a comprehension. Each comparison
is its neighbour (`<` is `<=`) or its contrary (`is` is `is not`). Each number is a fifth smaller, or one less.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

POLICY = Path(__file__).resolve().parents[2] / "enforcer" / "policy"
MODULES = (
    "levels",
    "weighing",
    "announcing",
    "judgement",
    "next_step",
    "protection",
    "victims",
    "holds",
    "budgets",
    "breakers",
    "settling",
    "outcomes",
    "last_look",
    "carry_over",
    "contention",
    "entitlements",
    "abnormal_ends",
    "limit_holders",
    "cases",
    "shared_claims",
    "usage_bounds",
    "mps",
    "decide",
)
CONSTANTS = {"rules": {"READINGS", "APART", "TOGETHER", "SLOW", "FEWEST_INTERVALS", "LONGEST_GRACE"}}
"""Modules of which only these names, and numbers inside of functions, are looked at."""

_OTHER: dict[type[ast.cmpop], tuple[type[ast.cmpop], str]] = {
    ast.Lt: (ast.LtE, "<="),
    ast.LtE: (ast.Lt, "<"),
    ast.Gt: (ast.GtE, ">="),
    ast.GtE: (ast.Gt, ">"),
    ast.Eq: (ast.NotEq, "!="),
    ast.NotEq: (ast.Eq, "=="),
    ast.Is: (ast.IsNot, "is not"),
    ast.IsNot: (ast.Is, "is"),
    ast.In: (ast.NotIn, "not in"),
    ast.NotIn: (ast.In, "in"),
}


@dataclass(frozen=True, slots=True, order=True)
class Guard:
    """One guard: `where` is module and function, `what` its text and what becomes of it."""

    where: str
    what: str

    @property
    def module(self) -> str:
        """Return the module's full name."""
        return f"enforcer.policy.{self.where.split('.')[0]}"


Break = Callable[[], None]
"""Changes the tree, in place."""


@cache
def source(module: str) -> str:
    """Read a module of the policy."""
    return (POLICY / f"{module}.py").read_text()


@cache
def guards() -> tuple[Guard, ...]:
    """List all guards, in the order of the source."""
    return tuple(guard for module in (*MODULES, *CONSTANTS) for guard, _ in _found(module, ast.parse(source(module))))


def broken(guard: Guard) -> ast.Module:
    """Return the module of a guard with this guard broken. Raises KeyError where there is none."""
    module = guard.where.split(".")[0]
    tree = ast.parse(source(module))
    for there, apply in _found(module, tree):
        if there == guard:
            apply()
            return ast.fix_missing_locations(tree)
    raise KeyError(guard)


def _found(module: str, tree: ast.Module) -> Iterator[tuple[Guard, Break]]:
    seen: Counter[tuple[str, str]] = Counter()
    text = source(module)
    for place, what, apply in _places(tree, module, text):
        where = f"{module}.{place}" if place else module
        seen[where, what] += 1
        times = seen[where, what]
        yield Guard(where, what if times == 1 else f"{what} (no. {times})"), apply


def _places(tree: ast.Module, module: str, text: str) -> Iterator[tuple[str, str, Break]]:
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    only = CONSTANTS.get(module)
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            (target,) = statement.targets
            name = target.id if isinstance(target, ast.Name) else ""
            if isinstance(statement.value.value, int | float) and (only is None or name in only):
                yield "", f"{name} = {statement.value.value} made smaller", _smaller(statement.value)
    for place, function in _functions(tree.body):
        for node in ast.walk(function):
            if only is None or isinstance(node, ast.Constant):
                for what, apply in _broken(node, lines):
                    yield place, what, apply


def _functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{node.name}.")
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node


def _broken(node: ast.AST, lines: list[bytes]) -> Iterator[tuple[str, Break]]:
    def said(part: ast.expr) -> str:
        # What `ast.get_source_segment` says, which splits all of the text for each answer.
        first, last = part.lineno - 1, (part.end_lineno or part.lineno) - 1
        text = b"".join(lines[first : last + 1])
        end = len(text) - len(lines[last]) + (part.end_col_offset or 0)
        return " ".join(text[part.col_offset : end].decode().split())

    if isinstance(node, ast.If):
        yield f"if {said(node.test)}: never", _put(node, "test", ast.Constant(value=False))
    default = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and isinstance(node.values[-1], ast.Constant)
    if isinstance(node, ast.BoolOp) and not default:  # `size or 0` guards nothing
        neutral = isinstance(node.op, ast.And)
        for index, operand in enumerate(node.values):
            yield f"{said(node)}: without {said(operand)}", _put_at(node.values, index, neutral)
    if isinstance(node, ast.comprehension):
        for index, condition in enumerate(node.ifs):
            yield (
                f"for {said(node.target)} in {said(node.iter)} if {said(condition)}: all",
                _put_at(node.ifs, index, True),
            )
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            other, word = _OTHER[type(operator)]
            yield f"{said(node)}: {word}{f' at {index + 1}' if len(node.ops) > 1 else ''}", _turn(node, index, other)
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value not in (0.0, 1.0):
        yield f"{node.value} made smaller", _smaller(node)


def _put(node: ast.If, field: str, value: ast.expr) -> Break:
    return lambda: setattr(node, field, value)


def _put_at(parts: list[ast.expr], index: int, value: bool) -> Break:
    def apply() -> None:
        parts[index] = ast.Constant(value=value)

    return apply


def _turn(node: ast.Compare, index: int, other: type[ast.cmpop]) -> Break:
    def apply() -> None:
        node.ops[index] = other()

    return apply


def _smaller(node: ast.Constant) -> Break:
    def apply() -> None:
        assert isinstance(node.value, int | float)
        node.value = node.value - 1 if isinstance(node.value, int) else node.value * 0.8

    return apply
