"""What users read about each action."""

import pytest

from enforcer.messages.action_texts import TEXTS, EventReason
from enforcer.messages.notices import beginning, ending
from enforcer.policy.history import Moment, Result
from enforcer.policy.vocabulary import Rung
from journals import action


@pytest.mark.parametrize("rung", Rung)
def test_each_action_has_its_texts(rung: Rung) -> None:
    """Each says what it will, would or may do; each but the notice has one Event of its own."""
    texts = TEXTS[rung]
    assert len({texts.next, texts.would, texts.may}) == 3
    assert [texts.before, texts.after].count(None) == (2 if rung is Rung.NOTIFY else 1)


@pytest.mark.parametrize("rung", sorted(set(Rung) - {Rung.NOTIFY}))
def test_each_event_can_be_written(rung: Rung) -> None:
    """An action has one Event: before the action where it ends the pod, else once its effect was seen."""
    acting, now = action(rung=rung), Moment(monotonic=500.0, boot=500.0)
    told = [beginning(acting, 30.0, now, 0.0), ending(acting, Result.VERIFIED, now, 0.0)]
    (notice,) = [notice for notice in told if notice is not None]
    assert "{" not in notice.note
    assert notice.reason not in {EventReason.EXCEEDED, EventReason.HELD, EventReason.INVALID}
    assert ending(acting, Result.FAILED, now, 0.0) is None
    assert ending(acting, Result.ACCEPTED, now, 0.0) is None, "accepted is not seen"
