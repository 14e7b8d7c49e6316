"""Each reason says whose doing it is, so that an alert can tell what a person chose from what nobody did."""

import pytest

from enforcer.policy.vocabulary import _KINDS, Kind, Reason


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_a_kind(reason: Reason) -> None:
    assert reason.kind in Kind


def test_no_reason_has_two_kinds() -> None:
    assert len(_KINDS) == len(Reason)
