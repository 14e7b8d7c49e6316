"""
The time after a change of ours: hold-off, and one look at the blast radius.

Plays that begin with a first start, other rules, another build or another driver come in. When the first action is
possible goes out, and whether the breaker opens.
"""

from dataclasses import replace

import pytest

from enforcer.policy import breakers
from enforcer.policy.history import History
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason
from policy.scenes import CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, settled

RULES = replace(UNHURRIED, hold_off=60.0, grace=0.0)
"""A holder is due after 15 s; nothing is done for 60 s after a change of ours."""


def first_start(rules: Rules = RULES) -> Play:
    """Start a daemon that knows nothing."""
    play = Play(rules)
    play.history = History()
    return play


def crowd(over: int, within: int, **facts: object) -> list[Actor]:
    """Make workloads over and within their limits, on one device that is not full."""
    loud = [Actor(f"loud{index}-1", 3 * GIB, limit=GIB, **facts) for index in range(over)]  # type: ignore[arg-type]
    calm = [Actor(f"calm{index}-1", GIB, limit=2 * GIB, **facts) for index in range(within)]  # type: ignore[arg-type]
    return [*loud, *calm]


def judged(play: Play) -> tuple[int, int]:
    """Return what was counted when the blast radius was judged: workloads over their limits, and those with limits."""
    return max((verdict.blast for verdict in play.verdicts), key=lambda blast: blast[1])


def vetted(play: Play) -> bool:
    return play.history.settled is not None and play.history.settled.vetted


def test_after_a_first_start_nothing_is_done_for_the_hold_off() -> None:
    """The level rises meanwhile: the action follows in the first round after it."""
    play = first_start()
    play.step(GREEDY, MEEK)
    begun = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - begun == RULES.hold_off
    assert vetted(play)


@pytest.mark.parametrize(
    "change",
    [replace(RULES, spacing=61.0), replace(RULES, build="another"), replace(RULES, interval=4.0, spacing=60.0)],
    ids=["a rule", "the build", "the interval"],
)
def test_another_configuration_or_build_is_held_off_once(change: Rules) -> None:
    """After the hold-off it is vetted, and the next action waits for nothing of this."""
    play = Play(RULES)
    play.steps(3, GREEDY, MEEK)
    play.rules = change
    play.step(GREEDY, MEEK)
    changed = play.monotonic
    assert not vetted(play)
    play.until_action(GREEDY, MEEK)
    assert RULES.hold_off <= play.monotonic - changed <= RULES.hold_off + 5.0
    assert vetted(play)


@pytest.mark.fault(30)
def test_another_driver_is_a_change() -> None:
    """Its numbers may mean something else: nothing is done for the hold-off, and the level goes on."""
    play = Play(RULES)
    play.steps(3, GREEDY, MEEK)
    play.step(GREEDY, MEEK, driver="590.10")
    changed = play.monotonic
    play.until_reason(Reason.HOLD_OFF, GREEDY, MEEK, driver="590.10")
    play.until_action(GREEDY, MEEK, driver="590.10")
    assert play.monotonic - changed == RULES.hold_off


def test_ceilings_and_a_gpu_that_does_not_answer_are_no_change() -> None:
    """A driver version that is missing for some rounds, and a mode that is lowered, hold nothing off."""
    play = Play(RULES)
    play.steps(3, GREEDY, MEEK)
    play.rules = replace(RULES, ceilings=(Ceiling(Mode.DRY_RUN, Reason.JOURNAL),))
    play.step(GREEDY, MEEK)
    play.rules = RULES
    play.step(gpus=0)
    assert vetted(play)
    play.until_action(GREEDY, MEEK, most=6)


def test_a_namespace_that_cannot_be_read_is_waited_for_and_then_not_any_more() -> None:
    """A minute after the hold-off (or warn_after, where that is longer) another tenant does not stop this one."""
    stranger = Actor("stranger-1", GIB, namespace="unread")
    play = first_start()
    play.step(GREEDY, stranger, namespaces={"team": CONSENTING})
    begun = play.monotonic
    play.until_reason(Reason.NAMESPACE_UNKNOWN, GREEDY, stranger, namespaces={"team": CONSENTING})
    play.until_action(GREEDY, stranger, namespaces={"team": CONSENTING})
    assert play.monotonic - begun == RULES.hold_off + 60.0


def test_namespaces_must_be_readable_for_warn_after() -> None:
    """One that is readable from the end of the hold-off on delays by warn_after."""
    other = Actor("other-1", GIB, namespace="late")
    spaces = {"team": CONSENTING, "late": CONSENTING}
    play = first_start()
    play.step(GREEDY, other, namespaces={"team": CONSENTING})
    begun = play.monotonic
    while play.monotonic - begun < RULES.hold_off:
        play.step(GREEDY, other, namespaces={"team": CONSENTING})
    play.step(GREEDY, other, namespaces=spaces)
    readable = play.monotonic
    play.until_action(GREEDY, other, namespaces=spaces)
    assert play.monotonic - readable == RULES.warn_after


# --- the blast radius ---


@pytest.mark.parametrize(
    ("over", "within", "opens"),
    [(2, 0, False), (3, 0, True), (3, 3, True), (3, 4, False), (4, 4, True), (10, 11, False)],
)
def test_three_workloads_and_half_of_them(over: int, within: int, *, opens: bool) -> None:
    """So many over their limits after a change of ours: more likely an error of ours."""
    actors = crowd(over, within)
    play = first_start()
    play.steps(20, *actors)
    assert (Breaker.BLAST_RADIUS in play.history.breakers) is opens
    assert bool(play.actions) is not opens
    assert judged(play) == (over, over + within)
    assert vetted(play)


def test_the_blast_radius_is_judged_once() -> None:
    """When the change is settled nothing that pods do opens the breaker, however many exceed their limits."""
    play = first_start()
    play.steps(20, *crowd(0, 6))
    assert vetted(play)
    play.steps(20, *crowd(6, 0))
    assert Breaker.BLAST_RADIUS not in play.history.breakers
    assert play.actions


def test_a_person_closes_the_breaker_and_it_stays_closed() -> None:
    """After a person has looked the excess is theirs: the actions follow, and nothing is counted again."""
    play = first_start()
    actors = crowd(4, 0)
    play.steps(40, *actors)
    assert (play.actions, play.reason(actors[0])) == ([], Reason.BREAKER)
    play.history = replace(play.history, breakers=breakers.closed(play.history.breakers, Breaker.BLAST_RADIUS))
    play.steps(5, *actors)
    assert len(play.actions) == 1
    assert play.history.breakers == {}


def test_containers_of_one_workload_count_once() -> None:
    """Three pods of one Deployment are one workload."""
    play = first_start()
    pods = [replace(actor, facts={"workload": "one"}) for actor in crowd(4, 0)]
    play.steps(20, *pods)
    assert (judged(play), play.history.breakers) == ((1, 1), {})


@pytest.mark.parametrize(
    ("facts", "world"),
    [
        ({"facts": {"priority": 2_000_000_000}}, {}),
        ({"report_only": ("a hint",)}, {}),
        ({}, {"namespaces": {"team": {}}}),
        ({}, {"namespaces": {"team": {"gpusteward.io/mode": "observe"}}}),
    ],
    ids=["protected", "only reported", "no consent", "observed"],
)
def test_only_workloads_that_could_be_acted_on_count(facts: dict[str, object], world: dict[str, object]) -> None:
    """Pods that an operator left out of enforcement neither open the breaker nor hide that others would."""
    play = first_start()
    play.steps(20, *crowd(5, 1, **facts), **world)
    assert (judged(play), play.history.breakers) == ((0, 0), {})


def test_workloads_that_were_over_and_are_not_now_do_not_count() -> None:
    """The blast radius is what is over at the moment at which it is judged."""
    play = first_start()
    play.steps(11, *crowd(6, 0))
    play.steps(5, *[replace(actor, used=GIB) for actor in crowd(6, 0)])
    assert vetted(play)
    assert play.history.breakers == {}


def test_a_restart_with_the_saved_state_is_no_change() -> None:
    """The blast radius was judged by the earlier daemon: many pods over their limits open nothing."""
    play = Play(RULES, settled(RULES))
    play.steps(20, *crowd(5, 0))
    assert play.history.breakers == {}
    assert play.actions
