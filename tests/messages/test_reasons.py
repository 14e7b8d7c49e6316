"""Reasons in words."""

from enforcer.policy.vocabulary import Reason


def test_each_reason_has_words_of_its_own() -> None:
    """Words of two reasons must tell them apart."""
    assert len({reason.words for reason in Reason}) == len(Reason)


def test_words_go_on_from_but() -> None:
    """Each is half a sentence: it stands behind "but", before a full stop, and on one line."""
    for words in (reason.words for reason in Reason):
        assert words.isprintable(), words
        assert not words.endswith("."), words
        first = words.split()[0]
        assert first.islower() or first in {"MIG", "Kubernetes"}, words
        assert len(words) < 90, words
