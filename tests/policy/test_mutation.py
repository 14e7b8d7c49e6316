"""The list of guards is whole: each stands in it, with a test that notices its loss or the reason why none can."""

import ast
import re
from pathlib import Path

import pytest

from pace import spread
from policy.guards import Guard, broken, guards, source
from policy.mutation import LIST, LOST, REASON, read, written

KNOWN = read(LIST.read_text(encoding="utf-8"))
ROOT = Path(__file__).resolve().parents[2]


def test_each_guard_of_the_code_is_listed_and_no_other() -> None:
    """A guard that is new, gone or changed wants `make guards`, which finds the test that notices its loss."""
    there = guards()
    names = set(there)
    assert [one for one in there if one not in KNOWN] == []
    assert [one for one in KNOWN if one not in names] == []
    assert len(there) == len(names) > 300


def test_no_guard_can_be_lost_unnoticed() -> None:
    """Each guard has a test that turns red without it, or a reason, written by a person, why no test can."""
    assert [guard for guard, noticed in KNOWN.items() if noticed == LOST] == []
    for guard, noticed in KNOWN.items():
        assert noticed.startswith(REASON) or "::" in noticed, guard
        assert len(noticed) > len(REASON) + 20 or "::" in noticed, guard


def test_the_tests_that_are_listed_exist() -> None:
    """A test that was renamed or taken away notices nothing any more."""
    there: dict[str, set[str]] = {}
    for noticed in {one for one in KNOWN.values() if "::" in one}:
        path, *names = re.sub(r"\[.*", "", noticed, flags=re.DOTALL).split("::")
        if path not in there:
            text = (ROOT / path).read_text(encoding="utf-8")
            there[path] = set(re.findall(r"^\s*(?:async )?(?:def|class) (\w+)", text, re.MULTILINE))
            there[path] |= set(re.findall(r"^(\w+) = ", text, re.MULTILINE))
        assert there[path].issuperset(names), noticed


@pytest.mark.parametrize("module", ["levels", "judgement", "outcomes", "settling"])
def test_each_guard_is_broken_by_itself(module: str) -> None:
    """Breaking a guard changes its module, and no two guards are broken by the same change. CI breaks each."""
    there = [guard for guard in guards() if guard.module == f"enforcer.policy.{module}"]
    assert len(there) > 10
    changed = [ast.dump(broken(guard)) for guard in spread(there, 4)]
    assert ast.dump(ast.parse(source(module))) not in changed
    assert len(changed) == len(set(changed))


def test_a_guard_that_is_not_there_cannot_be_broken() -> None:
    """A name that no guard has is an error, not a module without a change."""
    with pytest.raises(KeyError):
        broken(Guard("levels.weigh", "if the moon is full: never"))


def test_the_list_is_read_as_it_is_written() -> None:
    """What is written is what is read; a line that belongs to no guard is refused."""
    assert read(written(KNOWN)) == KNOWN
    with pytest.raises(ValueError, match="belongs to no guard"):
        read("    tests/policy/test_x.py::test_y\n")
