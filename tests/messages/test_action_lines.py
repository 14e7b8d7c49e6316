"""One action in a sentence."""

from dataclasses import replace

import pytest

from enforcer.messages.action_lines import RESULTS, action_line
from enforcer.policy.history import Result
from enforcer.policy.vocabulary import Rung
from journals import action

AT = 1_795_464_101.0
EVICTED = action(rung=Rung.EVICT)


def test_an_eviction_is_said_with_time_pod_usage_limit_and_result() -> None:
    """The time is UTC; the container, its usage and its limit are those of the choice."""
    text = action_line(EVICTED, AT, Result.VERIFIED, "gone after 3 s")
    assert text.startswith(f"2026-11-23T20:01:41Z: gpusteward evicted pod {EVICTED.namespace}/{EVICTED.pod}, because ")
    assert f'container "{EVICTED.container}" used ' in text
    assert "more than its limit of " in text
    assert text.endswith("; the effect was seen (verified: gone after 3 s)")


@pytest.mark.parametrize(
    ("result", "dry", "words"),
    [
        (None, False, "began to evict pod"),
        (Result.ACCEPTED, False, "evicted pod"),
        (Result.LINGERS, False, "evicted pod"),
        (Result.UNKNOWN, False, "tried to evict pod"),
        (Result.BLOCKED, False, "tried to evict pod"),
        (None, True, "would evict pod"),
        (Result.REHEARSED, True, "would evict pod"),
    ],
)
def test_only_what_was_done_is_said_to_be_done(result: Result | None, words: str, *, dry: bool) -> None:
    """A request in flight, one that did nothing, and a dry run evicted no pod."""
    assert f"gpusteward {words} " in action_line(replace(EVICTED, dry=dry), AT, result)


def test_a_kill_names_the_container() -> None:
    """Only the container is ended, not its pod."""
    acting = action(rung=Rung.KILL)
    words = f'gpusteward killed container "{acting.container}" of pod {acting.namespace}/{acting.pod}, because '
    assert words in action_line(acting, AT, Result.VERIFIED)


@pytest.mark.parametrize("result", Result)
def test_each_result_has_words(result: Result) -> None:
    """A result that is harmless says that nothing was done, and no other one does."""
    assert RESULTS[result].startswith("nothing was done") is result.harmless
