"""
What a policy makes of a stretch of time, per container, in one line of characters; and two policies side by side.

What comes in: verdicts of one policy with their Unix times, then two such courses. What goes out: text, or plain data.

The rule: a character stands for a part of the time, and shows the most urgent state in it. Containers that neither
policy ever found over their limits are counted, and have no line.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from enforcer.messages.sentences import duration
from enforcer.policy.history import Holding, Verdict
from enforcer.policy.vocabulary import Reason, Rung, State

Name = tuple[str, str, str, str]
"""Namespace, pod and container (empty for a pod's limit); or a claim alone."""


class Mark(StrEnum):
    """A state as a character, the least urgent first."""

    ABSENT = " "
    UNKNOWN = "?"
    OK = "."
    EXEMPT = "x"
    OVER = "o"
    GRACE = "g"
    HELD = "h"
    DUE = "D"
    ACTED = "!"


KEY = (
    f"{Mark.OK} within its limit  {Mark.OVER} over  {Mark.GRACE} warned, grace runs  {Mark.HELD} held  "
    f"{Mark.DUE} due  {Mark.ACTED} action  {Mark.EXEMPT} protected  {Mark.UNKNOWN} unknown"
)
_URGENCY = {mark: place for place, mark in enumerate(Mark)}
_MARKS = {
    State.OK: Mark.OK,
    State.OVER: Mark.OVER,
    State.GRACE: Mark.GRACE,
    State.DUE: Mark.DUE,
    State.ACTING: Mark.DUE,
    State.HELD: Mark.HELD,
    State.EXEMPT: Mark.EXEMPT,
    State.UNJUDGED: Mark.UNKNOWN,
}
_EXCESS = frozenset({Mark.OVER, Mark.GRACE, Mark.HELD, Mark.DUE, Mark.ACTED})


@dataclass(slots=True)
class Course:
    """
    What one policy makes of a recording, filled verdict by verdict. Times are Unix seconds.

    Attributes:
        begin, end: times of the first and the last verdict.
        marks: of each container its changes of state, in order.
        actions: of each container what was done to it, and when.
        held: of each container the last reason for which its action was held.

    """

    begin: float | None = None
    end: float = 0.0
    marks: dict[Name, list[tuple[float, Mark]]] = field(default_factory=dict)
    actions: dict[Name, list[tuple[float, Rung]]] = field(default_factory=dict)
    held: dict[Name, Reason] = field(default_factory=dict)

    def hear(self, verdict: Verdict, at: float) -> None:
        """Take a verdict."""
        self.begin, self.end = at if self.begin is None else self.begin, at
        now: dict[Name, Mark] = dict.fromkeys(self.marks, Mark.ABSENT)
        for standing in verdict.standings:
            name, mark = name_of(standing), _MARKS[standing.state]
            now[name] = max(now.get(name, Mark.ABSENT), mark, key=_URGENCY.__getitem__)
            if standing.state is State.HELD and standing.reason is not None:
                self.held[name] = standing.reason
        for name, mark in now.items():
            changes = self.marks.setdefault(name, [])
            if not changes or changes[-1][1] is not mark:
                changes.append((at, mark))
        if (action := verdict.action) is not None:
            self.actions.setdefault(name_of(action), []).append((at, action.rung))

    def over(self) -> set[Name]:
        """Name the containers that were over their limits at any time."""
        return {name for name, changes in self.marks.items() if any(mark in _EXCESS for _, mark in changes)}

    def drawn(self, name: Name, width: int) -> str:
        """Draw the line of a container in so many characters."""
        begin, span = self.begin or 0.0, max(self.end - (self.begin or 0.0), 1e-9)
        cells = [Mark.ABSENT] * width

        def cell(at: float) -> int:
            return min(width - 1, max(0, int((at - begin) / span * width)))

        changes = self.marks.get(name, [])
        for number, (at, mark) in enumerate(changes):
            until = changes[number + 1][0] if number + 1 < len(changes) else self.end
            last = cell(until) if number + 1 == len(changes) else max(cell(at), cell(until) - 1)
            for place in range(cell(at), last + 1):
                cells[place] = max(cells[place], mark, key=_URGENCY.__getitem__)
        for at, _ in self.actions.get(name, ()):
            cells[cell(at)] = Mark.ACTED
        return "".join(cells)


def name_of(holding: Holding) -> Name:
    """Name the limit holder, the same in all its generations and on all its devices."""
    if holding.claim:
        return "", "", "", holding.claim
    # Of an action `container` is its victim; the limit is the holder's.
    container = holding.key.container
    return holding.namespace, holding.pod, container, ""


def called(name: Name) -> str:
    """Write a name for people."""
    return f"claim {name[3]}" if name[3] else "/".join(filter(None, name))


def compared(a: Course, b: Course, width: int, clock: Callable[[float], str]) -> Iterator[str]:
    """Draw two courses over the same time below one another, container by container; then their actions in a table."""
    names = sorted(a.over() | b.over())
    others = len(a.marks.keys() | b.marks.keys()) - len(names)
    if names:
        yield KEY
        begin, end = clock(a.begin or 0.0), clock(a.end)
        yield f"    {begin}{end:>{max(width - 4 - len(begin), len(end) + 1)}}"
    for name in names:
        yield called(name)
        yield from (f"  {label} {course.drawn(name, width - 4)}".rstrip() for label, course in (("A", a), ("B", b)))
    if others:
        yield f"{others} more with a limit were never over it"
    if names:
        yield ""
        yield from _table([("FIRST ACTION ON", "A", "B", "CHANGE"), *(_row(a, b, name, clock) for name in names)])


def data_of(a: Course, b: Course, written: Callable[[float], str]) -> list[Mapping[str, Any]]:
    """Describe the same in plain data; `written` writes a time."""
    return [
        {
            "namespace": name[0] or None,
            "pod": name[1] or None,
            "container": name[2],
            "claim": name[3],
            **{label: _course(course, name, written) for label, course in (("a", a), ("b", b))},
        }
        for name in sorted(a.over() | b.over())
    ]


def _course(course: Course, name: Name, written: Callable[[float], str]) -> Mapping[str, Any]:
    return {
        "states": [{"at": written(at), "state": mark.name.lower()} for at, mark in course.marks.get(name, ())],
        "actions": [{"at": written(at), "action": rung} for at, rung in course.actions.get(name, ())],
        "held": course.held.get(name),
    }


def _row(a: Course, b: Course, name: Name, clock: Callable[[float], str]) -> tuple[str, ...]:
    first = [next((at for at, _ in course.actions.get(name, ())), None) for course in (a, b)]
    return called(name), _said(a, name, clock), _said(b, name, clock), _difference(*first)


def _said(course: Course, name: Name, clock: Callable[[float], str]) -> str:
    """Say what is done first, and how often more; or why nothing is done."""
    actions = course.actions.get(name, ())
    if not actions:
        return f"held: {course.held[name]}" if name in course.held else "none"
    (at, rung), more = actions[0], len(actions) - 1
    return f"{rung} {clock(at)}" + (f" and {more} more" if more else "")


def _difference(a: float | None, b: float | None) -> str:
    if a is None and b is None:
        return "the same"
    if a is None or b is None:
        return "only B acts" if a is None else "only A acts"
    if a == b:
        return "the same"
    return f"{duration(round(abs(a - b)))} {'earlier' if b < a else 'later'}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
