"""An exception is for one line and one rule, has a reason, and is needed."""

from __future__ import annotations

import pytest

from prose import exceptions
from prose.exceptions import Exempt
from prose.linting import HERE, Finding

FOUND = [
    *(Finding("a.md", line, "subject", "“who”", f"line {line} of it") for line in (1, 2)),
    Finding("b.md", 1, "retired", "“leaf”", "line 1 of it"),
]


def test_an_exception_is_for_a_line_and_a_rule() -> None:
    """One that covers nothing is named."""
    used, needless = Exempt("a.md", "subject", "line 2", "why"), Exempt("a.md", "retired", "line 2", "why")
    stay, unused = exceptions.applied(FOUND, [used, needless])
    assert stay == [FOUND[0], FOUND[2]]
    assert unused == [needless]


def test_an_exception_without_a_reason_is_refused() -> None:
    """The file of this repository has them."""
    assert all(one.reason for one in exceptions.read((HERE / "exceptions.yaml").read_text(encoding="utf-8")))
    with pytest.raises(TypeError, match="reason"):
        exceptions.read("[{path: a.md, rule: subject, quote: x}]")
