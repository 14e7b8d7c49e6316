"""The counts of open findings may only fall, and an exception has a reason."""

from __future__ import annotations

from collections import Counter

import pytest

from prose import ledger
from prose.ledger import Excuse
from prose.linting import HERE, Finding

KNOWN = Counter({("a.md", "subject"): 2, ("b.md", "retired"): 1})


def findings(*counts: tuple[str, str, int]) -> list[Finding]:
    """As many findings of a rule in a file."""
    return [
        Finding(path, line, rule, "“who”", f"line {line} of it") for path, rule, n in counts for line in range(1, n + 1)
    ]


AS_KNOWN = findings(("a.md", "subject", 2), ("b.md", "retired", 1))


def test_what_is_known_passes() -> None:
    """Nothing has risen or fallen."""
    assert [*ledger.risen(AS_KNOWN, KNOWN), *ledger.fallen(AS_KNOWN, KNOWN)] == []


@pytest.mark.parametrize("more", [("a.md", "subject", 1), ("a.md", "retired", 1), ("new.md", "subject", 1)])
def test_a_new_finding_fails_and_is_listed(more: tuple[str, str, int]) -> None:
    """Also of a new rule in a known file, and in a new file."""
    message, *lines = ledger.risen([*AS_KNOWN, *findings(more)], KNOWN)
    assert message.startswith(f"{more[0]}: {more[1]}: ")
    assert f"  {more[0]}:1: {more[1]}: “who”" in lines


def test_what_was_fixed_is_taken_out() -> None:
    """Else another could come in its place."""
    fewer = findings(("a.md", "subject", 1))
    assert [line.partition(" ")[0] for line in ledger.fallen(fewer, KNOWN)] == ["a.md:", "b.md:"]
    assert ledger.read(ledger.written(ledger.lowered(fewer, KNOWN))) == {("a.md", "subject"): 1}


def test_lowering_takes_nothing_in() -> None:
    """What is new stays new."""
    assert ledger.lowered([*AS_KNOWN, *findings(("new.md", "subject", 3))], KNOWN) == KNOWN


def test_an_exception_is_for_a_line_and_a_rule() -> None:
    """One that covers nothing is named."""
    used, needless = Excuse("a.md", "subject", "line 2", "why"), Excuse("a.md", "retired", "line 2", "why")
    stay, unused = ledger.excused(AS_KNOWN, [used, needless])
    assert stay == [AS_KNOWN[0], AS_KNOWN[2]]
    assert unused == [needless]


def test_an_exception_without_a_reason_is_refused() -> None:
    """The file of this repository has them."""
    assert all(one.reason for one in ledger.excuses((HERE / "exceptions.yaml").read_text(encoding="utf-8")))
    with pytest.raises(TypeError, match="reason"):
        ledger.excuses("[{path: a.md, rule: subject, quote: x}]")
