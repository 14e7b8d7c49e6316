"""All traces up to a length: nobody is acted on but by the law, and everybody is who by the law is due."""

import os

import pytest

from policy.enumeration import EVENTS, Law, by_the_law, enumerate_all

LENGTH = int(os.environ.get("GPUSTEWARD_TRACES", "5"))
"""Of the traces; 5 takes a second, each event more 2.7 times as long. `make test` looks at those of 6 as well."""


def test_all_traces_obey_the_law_and_none_misses_it() -> None:
    """In each trace of nine events the policy acts when its law, told a second time, says so, and at no other step."""
    found = enumerate_all(LENGTH)
    assert found.wrong == []
    assert found.traces == len(EVENTS) ** LENGTH
    assert (found.traces, found.acted) == by_the_law(LENGTH)
    assert found.acted > 0, "no trace is long enough to say anything"


def test_what_is_gone_on_with_as_one_is_one() -> None:
    """Traces that are merged, because their histories are the same, are as many and act as often as each for itself."""
    few = ("over", "between", "unknown", "ended")
    alone, merged = enumerate_all(4, alphabet=few, merged=False), enumerate_all(4, alphabet=few)
    assert alone.wrong == merged.wrong == []
    assert (alone.traces, alone.acted) == (merged.traces, merged.acted) == by_the_law(4, few)
    assert merged.decided < alone.decided


@pytest.mark.parametrize(
    ("events", "acts"),
    [
        ("over over over over", True),
        ("over over over within", False),
        ("over over over shielded", False),
        ("over over over sated over", True),
        ("over over over unknown over", False),
        ("over over over unknown over over", True),
        ("over over over paused over", False),
        ("over within over over over", False),
        ("over between over over over over", True),
        ("over over over over between over", False),
        ("over over over restarted over over", False),
        ("over over over over over over", False),
        ("over over over over ended over", False),
    ],
)
def test_the_law_told_again_is_what_one_would_say(events: str, acts: bool) -> None:
    """The automaton that the policy is held against says of plain stories what a person says: whether the last acts."""
    law, acted = Law(), False
    for event in events.split():
        law, acted = law.after(event)
    assert acted is acts
