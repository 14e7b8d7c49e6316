"""
Breaks each guard of the policy, one at a time, and sees which test turns red: `make guards`.

The guards come in, and the tests beside this file. `guards.txt` goes out: each guard with the first test that noticed
its loss. The exit code is 1 when one was lost unnoticed.

The rule: nothing on disk is broken. The tests are collected once. Then each guard gets a fork of that process. There
its function's code is replaced by what the changed syntax tree compiles to. The test that noticed last time runs first,
then those that noticed the loss of neighbours. The module's own tests follow, the quick ones first, and then all
others. Where no test can notice a loss, because another guard does the same, the list has a reason that a person wrote.
"""

import ast
import contextlib
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from policy.guards import Guard, broken, guards, source
from policy.scenes import forget

HERE = Path(__file__).resolve().parent
LIST = HERE / "guards.txt"
REASON = "no test can: "
LOST = "nobody noticed"
AGAIN = "lost"
"""Instead of a part of the name: only those whose loss no test that exists has noticed so far."""
OURS = {"enforcer", "policy", "bench", "tests"}
"""Packages whose modules may have imported a number of the policy."""
LONGEST = 30
"""Seconds that one test may take on a broken policy; a test that hangs is one that noticed."""
PROCESSES = 2
QUICK = 0.1
"""Seconds; a test that takes longer is asked when the quick ones are all green."""
SEARCHES = ("test_enumeration.py", "test_invariants.py")
"""Slow, and one of them by chance: a test that says what is wrong is the better witness."""
HEAD = """\
# Each guard of the policy, and the first test that turns red without it. Written by `make guards`; of what stands here
# only the reasons behind "no test can" are written by hand. tests/policy/test_mutation.py holds it against the code.
"""


class _Red:
    """Remembers which test turned red, and how long each took."""

    def __init__(self) -> None:
        self.first = ""
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.first = self.first or report.nodeid


def read(text: str) -> dict[Guard, str]:
    """Read the list: guards, and the test that notices, or why none can. Raises ValueError when a line stands alone."""
    found: dict[Guard, str] = {}
    where = what = ""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if indent == 0:
            where = line
        elif indent == 2:
            what = line.strip()
        elif indent == 4 and where and what:
            found[Guard(where, what)] = line.strip()
            what = ""
        else:
            raise ValueError(f"{line!r} belongs to no guard")
    return found


def written(found: dict[Guard, str]) -> str:
    """Write the list, in the order given."""
    lines, where = [HEAD], ""
    for guard, noticed in found.items():
        if guard.where != where:
            lines.append(("\n" if where else "") + guard.where)
            where = guard.where
        lines += [f"  {guard.what}", f"    {noticed}"]
    return "\n".join(lines) + "\n"


def lose(guard: Guard) -> None:
    """Take a guard away from the policy as it runs in this process."""
    forget()  # what it said before, while the tests were collected
    module = import_module(guard.module)
    name, _, place = guard.where.partition(".")
    if not place:  # a number of the module, which others may have imported
        constant = guard.what.partition(" = ")[0]
        whole = getattr(module, constant)
        smaller = next(value for value in _values(broken(guard), constant) if value != whole)
        for one in list(sys.modules.values()):
            if vars(one).get(constant) is whole and one.__name__.partition(".")[0] in OURS:
                setattr(one, constant, smaller)
        return
    function = _function(module, place)
    before, after = (_code(tree, place) for tree in (ast.parse(source(name)), broken(guard)))
    if before == after:
        raise ValueError(f"{guard} is broken, and its function is the same")
    function.__code__ = after


def _function(module: object, place: str) -> FunctionType:
    found = module
    for part in place.split("."):
        found = vars(found)[part]
    found = found.fget if isinstance(found, property) else found
    found = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    assert isinstance(found, FunctionType)
    return found


def _code(tree: ast.Module, place: str) -> CodeType:
    found = compile(tree, "broken", "exec", dont_inherit=True)
    for part in place.split("."):
        found = next(one for one in found.co_consts if isinstance(one, CodeType) and one.co_name == part)
    return found


def _values(tree: ast.Module, name: str) -> Iterator[object]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            (target,) = statement.targets
            if isinstance(target, ast.Name) and target.id == name:
                yield statement.value.value


class Breaking:
    """Instead of running the tests once, runs them once on the whole policy, and then once for each guard."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._seconds: Mapping[str, float] = {}
        self._kills: dict[str, list[str]] = defaultdict(list)
        self.code = 2

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Take the place of pytest's own loop."""
        self._session = session
        everything = guards()
        there = {item.nodeid for item in session.items}
        before = {one: test for one, test in _before().items() if test in there or test.startswith(REASON)}
        words = [word for word in self._arguments if word != AGAIN]
        asked = [one for one in everything if all(word in f"{one.where} {one.what}" for word in words)]
        asked = [one for one in asked if not before.get(one, "").startswith(REASON)]
        asked = [one for one in asked if one not in before or AGAIN not in self._arguments]
        for one, test in before.items():
            self._noticed(one, test)
        found: dict[Guard, str] = {}
        for guard, (first, seconds) in self._answers([None, *asked], before):
            if guard is None:
                if first:
                    print(f"{first} is red with all guards in place")
                    return True
                self._seconds = seconds
                continue
            found[guard] = first or LOST
            self._noticed(guard, first)
            # At once: a run that is stopped in the middle keeps what it found.
            LIST.write_text(written({one: found.get(one) or before.get(one, LOST) for one in everything}))
            if not first:
                print(f"{guard.where}: {guard.what}: {LOST}", flush=True)
        told = read(LIST.read_text())
        lost = sum(test == LOST for test in told.values())
        cannot = sum(test.startswith(REASON) for test in told.values())
        print(f"{len(told)} guards: {len(told) - lost - cannot} noticed, {cannot} that no test can notice, {lost} lost")
        self.code = 1 if lost else 0
        return True

    def _noticed(self, guard: Guard, test: str) -> None:
        if "::" in test:
            self._kills[guard.where].append(test)

    def _answers(
        self, asked: Sequence[Guard | None], before: Mapping[Guard, str]
    ) -> Iterator[tuple[Guard | None, tuple[str, Mapping[str, float]]]]:
        """Fork for each guard, some at a time; None is the whole policy, which is looked at alone and first."""
        fork, running, waiting = get_context("fork"), dict[Connection, Guard | None](), list(reversed(asked))
        while waiting or running:
            while waiting and len(running) < PROCESSES and None not in running.values():
                guard = waiting.pop()
                ours, theirs = fork.Pipe(duplex=False)
                last = before.get(guard, "") if guard else ""
                fork.Process(target=self._child, args=(guard, self._order(guard, last), theirs)).start()
                theirs.close()
                running[ours] = guard
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)  # what went in
                with ready:
                    yield running.pop(ready), ready.recv()

    def _order(self, guard: Guard | None, last: str) -> list[pytest.Item]:
        if guard is None:
            return list(self._session.items)
        module = guard.where.partition(".")[0]
        near = {test: index for index, test in enumerate(reversed(self._kills[guard.where]))}

        def rank(item: pytest.Item) -> tuple[bool, bool, bool, int, bool, float]:
            search = item.path.name in SEARCHES
            own = item.path.name in {f"test_{module}.py", "test_edges.py"}
            node = item.nodeid
            seconds = self._seconds.get(node, 0.0)
            return node != last, search, seconds > QUICK, near.get(node, len(near)), not own, seconds

        return sorted(self._session.items, key=rank)

    def _child(self, guard: Guard | None, items: Sequence[pytest.Item], answer: Connection) -> None:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        red, node = _Red(), ""
        if guard is not None:
            lose(guard)
            signal.signal(signal.SIGALRM, _too_long)
        self._session.config.pluginmanager.register(red)
        with contextlib.suppress(TimeoutError):
            for item, following in zip(items, [*items[1:], None], strict=True):
                node = item.nodeid
                signal.alarm(LONGEST if guard else 0)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if red.first:
                    break
            node = ""
        answer.send((red.first or node, dict(red.seconds)))


def _too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"longer than {LONGEST} s")


def _before() -> dict[Guard, str]:
    return read(LIST.read_text()) if LIST.exists() else {}


def main(arguments: Sequence[str]) -> int:
    """Break all guards, or those in whose place or text each argument occurs (`lost`: see AGAIN); write the list."""
    os.chdir(HERE.parents[1])
    breaking = Breaking(arguments)
    tests = [str(path) for path in sorted(HERE.glob("test_*.py")) if path.name != "test_mutation.py"]
    pytest.main(["-q", "-s", "-p", "no:cacheprovider", *tests], plugins=[breaking])
    return breaking.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
