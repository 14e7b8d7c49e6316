"""Each reason has a kind, so that an alert can separate what a person chose from what no person chose."""

from enforcer.policy.vocabulary import REASONS_OF, Reason


def test_each_reason_has_one_kind() -> None:
    kinds = {reason: [kind for kind, reasons in REASONS_OF.items() if reason in reasons] for reason in Reason}
    assert kinds == {reason: [reason.kind] for reason in Reason}
