"""Each reason says whose doing it is, so that an alert can tell what a person chose from what nobody did."""

import pytest

from enforcer.policy.vocabulary import REASONS_OF, Reason


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_one_kind(reason: Reason) -> None:
    assert [kind for kind, reasons in REASONS_OF.items() if reason in reasons] == [reason.kind]
