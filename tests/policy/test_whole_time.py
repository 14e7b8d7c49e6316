"""
A pod has the whole time that its warning announces, for itself: plays of the real policy that a review began.

Plays come in. Nothing goes out.
"""

from dataclasses import replace

from default_rules import default_rules
from enforcer.policy.rules import Ceiling
from enforcer.policy.vocabulary import Mode, Reason
from policy.scenes import GIB, GREEDY, Actor, Play, settled


def test_a_pod_is_not_warned_while_no_event_is_written_and_has_its_whole_grace_afterwards() -> None:
    """An unusable config, or another daemon, silences the Events: what was counted meanwhile announces nothing."""
    rules = default_rules(mode=Mode.ENFORCE, hold_off=0.0, confirm=True)
    silent = replace(rules, ceilings=(Ceiling(Mode.OBSERVE, Reason.NOT_OWNER, "another daemon"),))
    play = Play(silent)
    play.history = settled(rules)
    play.steps(60, GREEDY)
    play.rules = rules
    play.step(GREEDY)
    (level,) = play.history.levels.values()
    assert (level.seconds, play.actions) == (rules.warn_after, [])
    assert level.unheard_at is not None


def test_the_next_pod_of_a_claim_is_not_acted_on_for_the_pod_before_it() -> None:
    """A claim passes from a-0, which was over for two minutes, to a-1: a-1 has the whole time for itself."""
    play = Play()
    first = Actor("a-0", 20 * GIB, claim="team/shared", scope="claim")
    play.steps(25, first)
    begun = play.monotonic
    play.until_action(replace(first, pod="a-1"))
    assert play.monotonic - begun >= play.rules.warn_after + play.rules.grace


def test_an_announced_time_is_not_shortened_by_a_reload() -> None:
    """Announced after ten minutes and two: a reload without a warn_after brings no action before that."""
    rules = default_rules(mode=Mode.ENFORCE, hold_off=0.0, warn_after=600.0)
    play = Play(rules)
    begun = play.monotonic
    play.steps(125, GREEDY)
    play.rules = replace(rules, warn_after=0.0)
    play.until_action(GREEDY)
    assert play.monotonic - begun >= 600.0 + rules.grace


def test_an_excess_that_moves_from_device_to_device_is_acted_on() -> None:
    """Ten seconds on each of four GPUs in turn, over all the time: within twice the time of one GPU."""
    play = Play()
    begun = play.monotonic
    while not play.actions:
        turn = int((play.monotonic - begun) // 10.0) % 4
        actors = [replace(GREEDY, gpu=index, used=(20 if index == turn else 1) * GIB) for index in range(4)]
        play.step(*actors, gpus=4)
        assert play.monotonic - begun < 2 * (play.rules.warn_after + play.rules.grace)
