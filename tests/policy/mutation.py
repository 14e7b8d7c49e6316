"""
Breaks each guard of the policy, one at a time, and sees which test turns red: `make guards`.

What comes in: the guards, and the tests beside this file. What goes out: `guards.txt`, where each guard stands with the
first test that noticed its loss; the exit code is 1 when one was lost unnoticed.

The law: nothing on disk is broken. A broken module is compiled from its changed syntax tree in a process of its own,
which a finder hands to whoever imports it; the test that noticed last time is asked first, then the module's own, then
all others. A guard whose loss cannot be noticed, because another one does the same, stands there with the reason,
written by a person.
"""

import ast
import contextlib
import io
import os
import signal
import sys
from collections.abc import Collection, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, ModuleType

import hypothesis  # noqa: F401  (here, so that each process that is forked has it)
import pytest

import exporter.model  # noqa: F401
from policy.guards import ENFORCER, Guard, broken, guards

HERE = Path(__file__).resolve().parent
LIST = HERE / "guards.txt"
REASON = "no test can: "
LOST = "nobody noticed"
LONGEST = 300
"""Seconds that the tests may take on a broken policy; a test that hangs is one that noticed."""
PROCESSES = 2
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Hypothesis was imported before pytest could rewrite it: that is the point of forking."""
SEARCHES = [str(path) for path in (HERE / "test_enumeration.py", HERE / "test_invariants.py") if path.exists()]
"""Slow, and one of them by chance: a test that says what is wrong is the better witness."""
HEAD = """\
# Each guard of the policy, and the first test that turns red without it. Written by `make guards`; of what stands here
# only the reasons behind "no test can" are written by hand. tests/policy/test_mutation.py holds it against the code.
"""


class _Broken(SourceFileLoader):
    """Loads one module from a tree instead of from its file."""

    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.get_filename(fullname), "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, guard: Guard) -> None:
        self._name, self._tree = guard.module, broken(guard)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        file = str(ENFORCER / f"{fullname.rpartition('.')[2]}.py")
        return spec_from_file_location(fullname, file, loader=_Broken(fullname, file, self._tree))


class _Red:
    """Remembers the first test that turned red; a module that cannot be imported counts."""

    def __init__(self) -> None:
        self.first = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.first = self.first or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.first = self.first or report.nodeid


def read(text: str) -> dict[Guard, str]:
    """Read the list: guards, and who notices, or why nobody can. Raises ValueError when a line stands alone."""
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


def red_anyway(_: None) -> str:
    """Run the tests on the whole policy, in a process of its own; say which is red: then nothing could be noticed."""
    return _run(_tests(()))


def noticed(task: tuple[Guard, str]) -> tuple[Guard, str]:
    """Run the tests on the policy without one guard, in a process of its own; say which turned red first."""
    guard, last = task
    sys.meta_path.insert(0, _Finder(guard))  # a KeyError here: somebody writes in the module at this moment
    signal.signal(signal.SIGALRM, _too_long)
    own = [str(path) for path in (HERE / f"test_{guard.where.split('.')[0]}.py",) if path.exists()]
    edges = [str(HERE / "test_edges.py")]
    for paths in ([str(HERE.parents[1] / last)] if last else [], own, edges, _tests(SEARCHES), list(SEARCHES)):
        signal.alarm(LONGEST)
        if paths and (first := _run(paths)):
            return guard, first
    return guard, LOST


def _tests(but: Collection[str]) -> list[str]:
    found = sorted(HERE.glob("test_*.py"))
    return [str(path) for path in found if path.name != "test_mutation.py" and str(path) not in but]


def _run(paths: list[str]) -> str:
    red = _Red()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *QUIET, *paths], plugins=[red])
    if code in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED}:
        return ""  # the test that noticed last time is gone
    return red.first if code != pytest.ExitCode.OK else ""


def _too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"longer than {LONGEST} s")


def main(arguments: Sequence[str]) -> int:
    """Break all guards, or those in whose place or text each of the arguments occurs; write the list."""
    before = read(LIST.read_text()) if LIST.exists() else {}
    everything = guards()
    asked = [one for one in everything if all(word in f"{one.where} {one.what}" for word in arguments)]
    asked = [one for one in asked if not before.get(one, "").startswith(REASON)]
    last = {guard: test for guard, test in before.items() if "::" in test}
    found: dict[Guard, str] = {}
    os.chdir(HERE.parents[1])
    with get_context("fork").Pool(PROCESSES, maxtasksperchild=1) as pool:
        if red := pool.apply(red_anyway, (None,)):
            print(f"{red} is red with all guards in place")
            return 2
        for guard, test in pool.imap_unordered(noticed, [(one, last.get(one, "")) for one in asked], chunksize=1):
            found[guard] = test
            told = {one: found.get(one) or before.get(one, LOST) for one in everything}
            LIST.write_text(written(told))  # at once: who stops this in the middle keeps what was found
            if test == LOST:
                print(f"{guard.where}: {guard.what}: {LOST}", flush=True)
    told = {one: found.get(one) or before.get(one, LOST) for one in everything}
    LIST.write_text(written(told))
    lost = sum(test == LOST for test in told.values())
    cannot = sum(test.startswith(REASON) for test in told.values())
    print(f"{len(told)} guards: {len(told) - lost - cannot} noticed, {cannot} that no test can notice, {lost} lost")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
