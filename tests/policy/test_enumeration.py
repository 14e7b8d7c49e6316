"""All traces up to a length: an action is requested only if the first law allows it, and if the second demands it."""

import os

import pytest

from pace import quick
from policy.enumeration import ALONE, TWO, Law, by_the_law, enumerate_all

LENGTH = int(os.environ.get("GPUSTEWARD_TRACES", "5"))
"""Of the traces; 5 takes a few seconds. `make test` looks at those of 6 as well."""
BESIDE = 4 if quick() else 5
"""Of the traces beside another holder: `make test` looks at those of 5."""


def test_all_traces_obey_the_law_and_none_misses_it() -> None:
    """In each trace of eight events the policy acts when its law, worded again, says so, and at no other step."""
    found = enumerate_all(LENGTH)
    assert found.wrong == []
    assert found.traces == len(ALONE) ** LENGTH
    assert (found.traces, found.acted) == by_the_law(LENGTH)
    assert found.acted > 0, "no trace is long enough to say anything"


def test_whatever_happens_to_another_one_the_victim_waits_for_two_requests_at_most() -> None:
    """Usage that comes and goes, beside a holder that was due earlier and whose actions end in any way."""
    found = enumerate_all(BESIDE, alphabet=TWO, others=True)
    assert found.wrong == []
    assert found.traces == len(TWO) ** BESIDE
    assert found.acted > 0, "no trace is long enough to say anything"


def test_what_is_continued_as_one_is_one() -> None:
    """Traces that are merged, because their histories are the same, are as many and act as often as each for itself."""
    few = ("over", "within", "unknown", "failed")
    alone, merged = enumerate_all(4, alphabet=few, merged=False), enumerate_all(4, alphabet=few)
    assert alone.wrong == merged.wrong == []
    assert (alone.traces, alone.acted) == (merged.traces, merged.acted) == by_the_law(4, few)
    assert merged.decided < alone.decided


@pytest.mark.parametrize(
    ("events", "acts"),
    [
        ("over over over", True),
        ("over over within", False),
        ("over over shielded", False),
        ("over over unknown over over", False),
        ("over over unknown over over over", True),
        ("over over paused over", False),
        ("over within over over", False),
        ("over within over over over", True),
        ("over over over over within over", False),
        ("over over restarted over", False),
        ("over over restarted over over", True),
        ("over over over over", False),
        ("over over over failed", True),
        ("over over over accepted", False),
        ("over over over accepted over over", True),
    ],
)
def test_the_law_worded_again_is_what_one_would_say(events: str, acts: bool) -> None:
    """The automaton that the policy is held against says of plain stories what a person says: whether the last acts."""
    law, acted = Law(), False
    for event in events.split():
        law, acted = law.after(event)
    assert acted is acts
