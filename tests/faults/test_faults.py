"""The table of faults: complete, written in the program's words, and each row shown by a test."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from faults.book import PAGE, Book, Ended, Kept, marked, marked_files, missing, page, read, step_of, write
from faults.marking import showing
from faults.plugin import COLLECTED, FILES
from faults.rows import FAULTS, Step

Run = Callable[..., pytest.RunResult]
ROOT = Path(__file__).parents[2]
SOURCES = [file.read_text() for half in ("exporter", "enforcer") for file in (ROOT / half).rglob("*.py")]
SOURCES += [f'"{name}"' for name in re.findall(r"alert: (\w+)", (ROOT / "alerts" / "policy.yaml").read_text())]
WORDS = sorted({word for row in FAULTS.values() for word in re.findall(r"`([^`]+)`", row.follows)})


@pytest.fixture(scope="module")
def tests(request: pytest.FixtureRequest) -> Book:
    """All tests that are marked, as they are collected: by this run, where it collected each of their files."""
    config = request.config
    single = any("::" in word for word in config.args)
    files = {file.relative_to(ROOT).as_posix() for file in marked_files()}
    if single or not files <= config.stash[FILES]:
        return marked()
    return {test: kept for test, kept in sorted(config.stash[COLLECTED].items()) if test.partition("::")[0] in files}


def test_all_faults_are_there() -> None:
    """Numbers 1 to 74, each fault once, each with what follows and with a step at which a test shows that."""
    assert list(FAULTS) == list(range(1, 75))
    assert len({row.fault for row in FAULTS.values()}) == len(FAULTS)
    assert all(
        row.fault and row.follows and row.steps == tuple(sorted(set(row.steps), key=list(Step).index))
        for row in FAULTS.values()
    )


@pytest.mark.parametrize("word", WORDS)
def test_each_word_is_the_program_s(word: str) -> None:
    """What the table calls a refusal, an end, a fault or an alert, the program or its alerts call so, too."""
    assert any(f'"{word}"' in source for source in SOURCES)


def test_every_step_of_every_fault_has_a_test(tests: Book) -> None:
    """If all marked tests pass, nothing is missing; whether they do, `make test` says at its end."""
    assert list(missing({test: replace(kept, ended=Ended.PASSED) for test, kept in tests.items()})) == []


def test_the_page_is_written_from_the_marks(tests: Book) -> None:
    """After a change of marks or of the table: `make golden`."""
    assert PAGE.read_text() == page(tests)


def test_no_marked_test_is_in_another_file(request: pytest.FixtureRequest) -> None:
    """Of all tests that this run collected: a file without marks of its own may import marked examples."""
    files = {file.relative_to(ROOT).as_posix() for file in marked_files()}
    marked_tests = {test for test, kept in request.config.stash[COLLECTED].items() if kept.rows}
    assert {test for test in marked_tests if test.partition("::")[0] not in files} == set()


def test_a_file_that_imports_marked_examples_is_read(tmp_path: Path) -> None:
    """Also through another file; a file that imports something else is not."""
    texts = {
        "a/test_marked.py": "EXAMPLES = showing(...)",
        "a/test_importing.py": "from a.test_marked import EXAMPLES",
        "a/scenes.py": "from a.test_importing import EXAMPLES",
        "b/test_by_scenes.py": "from a.scenes import EXAMPLES",
        "b/test_other.py": "from pathlib import Path",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [file.relative_to(tmp_path).as_posix() for file in marked_files(tmp_path)]
    assert found == ["a/test_importing.py", "a/test_marked.py", "b/test_by_scenes.py"]


@pytest.mark.parametrize("ended", [Ended.COLLECTED, Ended.SKIPPED, Ended.FAILED])
def test_what_was_not_passed_shows_nothing(tests: Book, ended: Ended) -> None:
    """Of each fault: if its tests of one step were not run, skipped or failed, that step is missing, and no other."""
    passed = {test: replace(kept, ended=Ended.PASSED) for test, kept in tests.items() if kept.rows}
    for number, row in FAULTS.items():
        its_own = {test: kept for test, kept in passed.items() if number in kept.rows}
        for step in row.steps:
            without = {
                test: replace(kept, ended=ended) if step_of(test) is step else kept for test, kept in its_own.items()
            }
            (line,) = (one for one in missing(without) if one.startswith(f"{number}. "))
            assert f"not shown as {step}: tests/" in line and f"({ended})" in line


def test_one_that_passed_is_enough() -> None:
    """A fault whose tests were skipped but for one was shown; and one may have no test at all, which is said."""
    book: Book = {
        "tests/policy/test_x.py::test_a[1]": Kept(Ended.SKIPPED, (40,)),
        "tests/policy/test_x.py::test_a[2]": Kept(Ended.PASSED, (40,)),
    }
    told = list(missing(book))
    assert not [line for line in told if line.startswith("40. ")]
    (line,) = (line for line in told if line.startswith("24. "))
    assert line.endswith("not shown as decided: no test of it was collected")


EXAMPLE = """
import pytest

@pytest.mark.fault(1, 2)
def test_good(): pass

@pytest.mark.fault(3)
def test_bad(): raise AssertionError

@pytest.fixture
def breaks():
    yield
    raise AssertionError

@pytest.mark.fault(4)
def test_bad_at_its_end(breaks): pass

@pytest.mark.fault(5)
@pytest.mark.skip
def test_not_here(): pass

@pytest.mark.parametrize("which", [pytest.param("one", marks=pytest.mark.fault(6)), "two"])
def test_some(which): pass

def test_of_nothing(): pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest on a file of its own, with our plugin alone."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    pytester.makeini("[pytest]\nmarkers = fault(*rows): of a table\n")

    def run_(*words: str, text: str = EXAMPLE) -> pytest.RunResult:
        pytester.makepyfile(test_it=text)
        mine = ("--rootdir", pytester.path, "-p", "no:cacheprovider", "-p", "faults.plugin")
        return pytester.runpytest_inprocess(*mine, *(("-p", "xdist") if "-n" in words else ()), *words)

    return run_


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one", "workers"])
def test_a_run_keeps_book(tmp_path: Path, run: Run, workers: tuple[str, ...]) -> None:
    """How each marked test ended, its set-up and its end included; alone and with workers."""
    book = tmp_path / "book.json"
    assert run("--faults", str(book), *workers).ret is pytest.ExitCode.TESTS_FAILED
    ended = {test.partition("::")[2]: (kept.ended, kept.rows) for test, kept in read(book).items() if kept.rows}
    assert ended == {
        "test_good": (Ended.PASSED, (1, 2)),
        "test_bad": (Ended.FAILED, (3,)),
        "test_bad_at_its_end": (Ended.FAILED, (4,)),
        "test_not_here": (Ended.SKIPPED, (5,)),
        "test_some[one]": (Ended.PASSED, (6,)),
    }


def test_a_second_run_says_what_it_ran_and_leaves_the_rest(tmp_path: Path, run: Run) -> None:
    """The two halves of `make test` write one book; what a run did not come to is what it was, or is collected."""
    book = tmp_path / "book.json"
    run("--faults", str(book), "-k", "good")
    assert {kept.ended for test, kept in read(book).items() if "good" not in test} == {Ended.COLLECTED}
    run("--faults", str(book), "-k", "not good")
    assert {test.partition("::")[2]: kept.ended for test, kept in read(book).items() if kept.rows} == {
        "test_good": Ended.PASSED,
        "test_bad": Ended.FAILED,
        "test_bad_at_its_end": Ended.FAILED,
        "test_not_here": Ended.SKIPPED,
        "test_some[one]": Ended.PASSED,
    }
    run("--faults", str(book), "-k", "good", text=EXAMPLE.replace("test_good(): pass", "test_good(): 1 / 0"))
    assert read(book)["test_it.py::test_good"].ended is Ended.FAILED


@pytest.mark.parametrize("mark", ["fault(0)", "fault(75)", "fault()", "fault(1, step='seen')", "fault('1')"])
def test_a_mark_that_names_no_fault_is_refused(run: Run, mark: str) -> None:
    """Wherever it stands: a fault that is not in the table cannot be shown."""
    done = run(text=EXAMPLE.replace("fault(3)", mark))
    assert done.ret is pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines("*names no faults*")


def test_the_command_says_what_is_missing(tmp_path: Path, tests: Book) -> None:
    """Exit code 1 and a line for each step that no test showed; 0 when all were."""
    book = tmp_path / "book.json"
    told = {}
    for ended in (Ended.PASSED, Ended.COLLECTED):
        write(book, {test: replace(kept, ended=ended) for test, kept in tests.items()})
        command = [sys.executable, "-m", "faults", str(book)]
        told[ended] = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True, check=False)
    assert (told[Ended.PASSED].returncode, told[Ended.COLLECTED].returncode) == (0, 1)
    assert told[Ended.PASSED].stdout.startswith("all 74 faults of docs/faults.md were shown")
    assert len(told[Ended.COLLECTED].stdout.splitlines()) == sum(len(row.steps) for row in FAULTS.values())


def test_only_examples_that_there_are_can_be_marked() -> None:
    """A name that was changed is noticed where the mark stands."""
    marks = [[mark.args for mark in one.marks] for one in showing("ab", {"b": (1, 2)})]
    assert marks == [[], [(1, 2)]]
    with pytest.raises(AssertionError, match="no such example"):
        showing("ab", {"c": (1,)})
