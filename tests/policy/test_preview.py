"""
The preview: what enforcing would hit right now.

What comes in: one snapshot. What goes out: who would be acted on, and who not, without waiting for any grace.
"""

from dataclasses import replace

import pytest

from default_rules import default_rules
from enforcer.policy.preview import preview
from enforcer.policy.rules import Ceiling
from enforcer.policy.vocabulary import Mode, Reason, State
from policy.refusals import SCENES
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, snapshot

DELAYS = {
    Reason.STRIKES,
    Reason.HOLD_OFF,
    Reason.BREAKER,
    Reason.MODE,
    Reason.STOPPED,
    Reason.NOT_OWNER,
    Reason.NOT_ARMED,
    Reason.JOURNAL,
    Reason.ADMISSION,
}
"""What only delays, or what the preview leaves out of account. A budget of 0 does not only delay."""


@pytest.mark.parametrize("mode", Mode, ids=str)
def test_it_asks_what_enforcing_would_do_whatever_the_mode(mode: Mode) -> None:
    """In each mode, below each ceiling, in the first round: GREEDY would be evicted, MEEK is not mentioned."""
    rules = default_rules(mode=mode, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),))
    seen = preview(snapshot([GREEDY, MEEK], BEGIN), rules)
    assert [(one.pod, one.state, one.mode) for one in seen.would] == [("greedy-1", State.DUE, Mode.ENFORCE)]
    assert (seen.held, seen.over, seen.limited, seen.trips) == ((), 1, 2, False)


@pytest.mark.parametrize("reason", SCENES, ids=str)
def test_what_spares_for_good_is_asked_and_what_delays_is_not(reason: Reason) -> None:
    """Each reason: who is protected or unjudged is not mentioned, who is held is held, and delays promise too much."""
    state, scene = SCENES[reason]
    seen = preview(snapshot([scene.greedy, *scene.others], BEGIN, **scene.world), scene.rules)
    told = {one.reason for one in seen.held}
    if reason in DELAYS:
        assert (len(seen.would), told) == (1, set())
    elif state is State.HELD:
        assert (seen.would, told) == ((), {reason})
    else:
        assert (seen.would, told) == ((), set())


def test_whoever_is_acted_on_was_in_the_preview() -> None:
    """A preview of the snapshot in which somebody is acted on names it."""
    play = Play(replace(UNHURRIED, grace=30.0))
    action = play.until_action(GREEDY, MEEK)
    seen = preview(snapshot([GREEDY, MEEK], play.monotonic), play.rules)
    assert action.key in {one.key for one in seen.would}


@pytest.mark.fault(73)
def test_it_says_that_the_breaker_would_open() -> None:
    """Row 73: half of the node would be hit: the breaker would open instead."""
    crowd = [Actor(f"p{n}-1", 4 * GIB, limit=GIB) for n in range(3)] + [MEEK, replace(MEEK, pod="meek-2")]
    seen = preview(snapshot(crowd, BEGIN), UNHURRIED)
    assert (seen.over, seen.limited, seen.trips) == (3, 5, True)
    fewer = preview(snapshot(crowd[1:], BEGIN), UNHURRIED)
    assert (fewer.over, fewer.limited, fewer.trips) == (2, 4, False)


def test_a_gpu_that_was_not_read_in_this_round_was_read_before() -> None:
    """An early round that read another GPU does not hide who is over on this one."""
    assert len(preview(snapshot([GREEDY, MEEK], BEGIN, read=()), UNHURRIED).would) == 1


def test_an_empty_node_has_an_empty_preview() -> None:
    """Nobody there: nothing to hit, and nothing breaks."""
    seen = preview(snapshot([], BEGIN), default_rules())
    assert (seen.would, seen.held, seen.over, seen.limited, seen.trips) == ((), (), 0, 0, False)
