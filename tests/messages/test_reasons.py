"""Reasons in words."""

import pytest

from enforcer.policy.vocabulary import Reason


def test_each_reason_has_words_of_its_own() -> None:
    """Words of two reasons must tell them apart."""
    assert len({reason.words for reason in Reason}) == len(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_words_go_on_from_but(reason: Reason) -> None:
    """Each is half a sentence: it stands behind "but", before a full stop, and on one line."""
    words = reason.words
    assert words.isprintable()
    assert not words.endswith(".")
    first = words.split()[0]
    assert first.islower() or first in {"MIG", "Kubernetes"}, words
    assert len(words) < 90
