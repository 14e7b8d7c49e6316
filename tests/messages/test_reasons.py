"""Reasons in words."""

import pytest

from enforcer.messages.reasons import WORDS
from enforcer.policy.vocabulary import Reason


def test_each_reason_has_its_words_and_no_other() -> None:
    """A new reason without words would end a round with an error; words of two reasons must tell them apart."""
    assert WORDS.keys() == set(Reason)
    assert len(set(WORDS.values())) == len(WORDS)


@pytest.mark.parametrize("reason", Reason)
def test_words_go_on_from_but(reason: Reason) -> None:
    """Each is half a sentence: it stands behind "but", before a full stop, and on one line."""
    words = WORDS[reason]
    assert words.isprintable()
    assert not words.endswith(".")
    first = words.split()[0]
    assert first.islower() or first in {"MIG", "Kubernetes"}, words
    assert len(words) < 90
