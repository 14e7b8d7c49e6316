"""
Breakers: what opens each, that it holds everything, and what closes it.

What comes in: plays in which one thing goes wrong. What goes out: the open breakers, and whether GREEDY is acted on.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from default_rules import default_rules
from enforcer.policy import breakers
from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment, Opened, Result
from enforcer.policy.vocabulary import Breaker, Mode, Reason, State
from exporter.model import Fault
from faults.marking import showing
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, snapshot

SHORT = replace(UNHURRIED, grace=30.0)
BROKEN = Fault("config", "config_invalid", "policy.grace: expected a duration")


def crowd(count: int, of: int) -> list[Actor]:
    """`of` pods of a GiB each, of which `count` hold four."""
    return [Actor(f"p{n}-1", (4 if n < count else 1) * GIB, limit=GIB, namespace=f"n{n}") for n in range(of)]


def blast_radius(play: Play) -> None:
    play.steps(4, *crowd(3, 6))


def effectiveness(play: Play) -> None:
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.STUCK)


def api(play: Play) -> None:
    for _ in range(3):
        play.until_action(GREEDY, MEEK)
        play.conclude(Result.REFUSED)


def attribution(play: Play) -> None:
    play.step(GREEDY, MEEK, proven=False)


def sampler(play: Play) -> None:
    play.step(GREEDY, MEEK)
    play.step(GREEDY, MEEK, driver="590.10")


def config(play: Play) -> None:
    play.step(GREEDY, MEEK, faults=(BROKEN,))


class Unreadable:
    """Something in place of a snapshot's limits that no code expects."""

    def __iter__(self) -> Any:
        raise RuntimeError("what is this?")


def journal(play: Play) -> None:
    """Not the policy's to open: whoever reads or writes the journal does."""
    opened = breakers.opened(play.history.breakers, Breaker.JOURNAL, play.now.boot, "damaged")
    play.history = replace(play.history, breakers=opened)


def internal(play: Play) -> None:
    seen = replace(snapshot([GREEDY, MEEK], play.monotonic + 5), limits=Unreadable())  # type: ignore[arg-type]
    play.monotonic += 5
    play.history, verdict = decide(seen, play.rules, play.history, play.now)
    play.verdicts.append(verdict)


OPENS: dict[Breaker, Callable[[Play], None]] = {
    Breaker.BLAST_RADIUS: blast_radius,
    Breaker.EFFECTIVENESS: effectiveness,
    Breaker.API: api,
    Breaker.ATTRIBUTION: attribution,
    Breaker.SAMPLER: sampler,
    Breaker.CONFIG: config,
    Breaker.INTERNAL: internal,
    Breaker.JOURNAL: journal,
}
BY_ITSELF = {Breaker.ATTRIBUTION: breakers.CLEAN, Breaker.SAMPLER: 300.0, Breaker.CONFIG: 0.0}
"""Seconds of good rounds after which a breaker closes; the others wait for a person."""


def test_every_breaker_has_its_play() -> None:
    """A new breaker is not done before a play opens it."""
    assert OPENS.keys() == set(Breaker)


SHOWN: dict[Breaker, tuple[int, ...]] = {
    Breaker.API: (10, 11),
    Breaker.EFFECTIVENESS: (45,),
    Breaker.CONFIG: (56,),
    Breaker.SAMPLER: (30,),
    Breaker.ATTRIBUTION: (71,),
}
"""Faults of docs/faults.md that a breaker's play shows."""


@pytest.mark.parametrize("which", showing(Breaker, SHOWN), ids=str)
def test_an_open_breaker_holds_everything_until_it_is_closed(which: Breaker) -> None:
    """Opened by its cause only; while it is open GREEDY is held; when it closes GREEDY is acted on."""
    play = Play(replace(SHORT, hold_off=300.0 if which is Breaker.SAMPLER else 0.0))
    play.monotonic += 1000.0
    play.step(MEEK, after=5.0)
    play.steps(70, MEEK)  # beyond any hold-off
    assert play.history.breakers == {}
    OPENS[which](play)
    done = len(play.actions)
    if which is not Breaker.CONFIG:
        play.step(GREEDY, MEEK)
    assert set(play.history.breakers) == {which}
    lasts = BY_ITSELF.get(which)
    if lasts is None:
        play.steps(60, GREEDY, MEEK)
        assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.HELD, Reason.BREAKER)
        assert len(play.actions) == done
        play.history = replace(play.history, breakers=breakers.closed(play.history.breakers, which))
    elif lasts:
        play.steps(int(lasts / 5) - 3, GREEDY, MEEK)
        assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.HELD, Reason.BREAKER)
        assert len(play.actions) == done
    play.until_action(GREEDY, MEEK, most=30)
    assert play.history.breakers == {}


def test_a_breaker_names_itself() -> None:
    """Who is held by a breaker is told by which."""
    play = Play(
        SHORT, History(breakers={Breaker.API: Opened(BEGIN, None, "403"), Breaker.SAMPLER: Opened(BEGIN, None, "")})
    )
    verdict = play.until(State.HELD, GREEDY, MEEK)
    assert [one.detail for one in verdict.standings if one.pod == GREEDY.pod] == ["api, sampler"]


@pytest.mark.fault(62)
@pytest.mark.parametrize(
    ("over", "limited", "opens"),
    [(2, 2, False), (2, 4, False), (3, 6, True), (3, 7, False), (4, 7, True), (3, 3, True)],
)
def test_half_of_all_and_at_least_three(over: int, limited: int, opens: bool) -> None:
    """Row 62: half of the pods with limits, and never fewer than three, that are told at once."""
    play = Play(SHORT)
    verdict = play.steps(8, *crowd(over, limited))
    assert (Breaker.BLAST_RADIUS in verdict.breakers) is opens
    assert verdict.blast == (over, limited)
    verdict = play.steps(60, *crowd(over, limited))
    assert not (opens and play.actions)


def test_blast_counts_pods_and_not_containers() -> None:
    """One pod that is over with four containers is one pod."""
    many = [replace(GREEDY, container=f"c{n}", used=10 * GIB, limit=2 * GIB) for n in range(4)]
    play = Play(SHORT)
    verdict = play.steps(8, *many, MEEK)
    assert verdict.blast == (1, 2)
    assert not verdict.breakers


@pytest.mark.fault(73)
def test_blast_counts_any_excess_when_acting_begins() -> None:
    """Row 73: half of the node is over when enforcing begins: the breaker opens in the first round."""
    play = Play(replace(SHORT, mode=Mode.OBSERVE))
    assert not play.steps(40, *crowd(3, 6)).breakers
    play.rules = SHORT
    assert set(play.step(*crowd(3, 6)).breakers) == {Breaker.BLAST_RADIUS}


def test_no_blast_in_a_mode_that_does_not_act() -> None:
    """Who only observes or warns has nothing to stop; a rehearsal stops where the play would."""
    for mode in (Mode.DRY_RUN, Mode.ENFORCE):
        play = Play(replace(SHORT, mode=mode))
        assert set(play.steps(8, *crowd(6, 6)).breakers) == {Breaker.BLAST_RADIUS}
    for mode in (Mode.OBSERVE, Mode.WARN):
        play = Play(replace(SHORT, mode=mode))
        assert not play.steps(40, *crowd(6, 6)).breakers


@pytest.mark.fault(55, 63)
def test_limits_that_were_all_lowered_at_once_hit_nobody() -> None:
    """Rows 55, 63: a change of units makes everybody an over-user in one round: a breaker, and no action."""
    fine = [Actor(f"p{n}-1", 4 * GIB, limit=16 * GIB, namespace=f"n{n}") for n in range(6)]
    play = Play(SHORT)
    play.steps(20, *fine)
    play.steps(60, *(replace(one, limit=16 * 2**20) for one in fine))
    assert play.actions == []
    assert set(play.history.breakers) == {Breaker.BLAST_RADIUS}


def test_two_refusals_are_not_three() -> None:
    """An answer that is no refusal begins the count anew."""
    play = Play(SHORT)
    for result in (Result.REFUSED, Result.REFUSED, Result.VERIFIED, Result.REFUSED, Result.REFUSED):
        play.until_action(GREEDY, MEEK)
        play.conclude(result)
    assert not play.history.breakers


@pytest.mark.fault(29, 30)
@pytest.mark.parametrize(
    ("world", "opens"),
    [
        ({"driver": "590.10"}, True),  # upgraded under us
        ({"gpus": 2}, True),  # one more
        ({"gpus": 0}, True),  # gone
        ({"read": ()}, False),  # not read this round
        ({"divided": {0: ("MIG-a",)}}, False),  # how one GPU is divided is the past of that GPU alone
        ({}, False),
    ],
    ids=str,
)
def test_devices_that_are_others_than_before(world: dict[str, Any], opens: bool) -> None:
    """Rows 29, 30: a device that came, went or has another driver opens `sampler`, one that was not read does not."""
    play = Play(replace(SHORT, hold_off=60.0))
    play.step(GREEDY, MEEK)
    verdict = play.step(GREEDY, MEEK, **world)
    assert (set(verdict.breakers) == {Breaker.SAMPLER}) is opens


@pytest.mark.parametrize("hide", ["unattributed", "unknown", "crash", "overshoot"])
def test_nothing_that_a_pod_does_opens_a_breaker(hide: str) -> None:
    """A pod hides, crashes, forks, for minutes: no breaker, which would be a shield."""
    play = Play(SHORT)
    for generation in range(80):
        other = Actor("bad-1", None if hide == "unknown" else GIB, limit=20 * GIB, generation=generation)
        world: dict[str, Any] = {}
        if hide == "unattributed":
            world = {"hidden": {0: 30 * GIB}}
        if hide == "overshoot":
            world = {"listed_too_much": 10 * GIB}
        play.step(replace(GREEDY, used=40 * GIB), other if hide == "crash" else replace(other, generation=0), **world)
    assert play.history.breakers == {}


def test_a_breaker_that_is_open_keeps_its_beginning() -> None:
    """Opened again, it tells since when, and why now."""
    first = breakers.opened({}, Breaker.API, 10.0, "403")
    again = breakers.opened(first, Breaker.API, 20.0, "401")
    assert again == {Breaker.API: Opened(10.0, None, "401")}


def test_an_error_of_ours_is_no_action_and_told() -> None:
    """INV-18: `decide` does not raise; the breaker says which error it was."""
    play = Play(SHORT)
    internal(play)
    assert play.verdicts[-1].action is None
    assert play.history.breakers[Breaker.INTERNAL].detail == "RuntimeError: what is this?"


@pytest.mark.fault(61)
def test_breakers_outlive_the_daemon() -> None:
    """INV-8, row 61: a history that begins with an open breaker keeps it open."""
    play = Play(
        default_rules(mode=Mode.ENFORCE, hold_off=0.0), History(breakers={Breaker.BLAST_RADIUS: Opened(0.0, None, "")})
    )
    play.steps(200, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.BREAKER)


def test_a_moment_that_does_not_pass_changes_nothing() -> None:
    """The same moment twice: the same standings, and no action."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.until_action(GREEDY, MEEK)
    before = play.history
    verdict = play.step(GREEDY, MEEK, after=0.0)
    assert play.history is before
    assert verdict.action is None
    assert verdict.at == Moment(play.monotonic, play.monotonic)


def test_no_other_fault_is_one_of_the_config() -> None:
    """A kubelet that does not answer is no reason to doubt the rules."""
    away = Fault("allocations", "kubelet_away", "the kubelet does not answer")
    for faults, open_ in (((away,), set()), ((away, BROKEN), {Breaker.CONFIG})):
        seen = snapshot([GREEDY], 1.0, faults=faults)
        after = breakers.after({}, seen, 1.0, gpus_changed=False, hold_off=0.0)
        assert set(after) == open_
        assert [one.detail for one in after.values()] == [BROKEN.message] * len(open_)


@pytest.mark.parametrize(("boot", "stays"), [(99.9, True), (100.0, False)])
def test_a_breaker_closes_at_its_moment(boot: float, *, stays: bool) -> None:
    """Open until 100 s is closed at 100 s."""
    known = {Breaker.SAMPLER: Opened(0.0, 100.0, "")}
    after = breakers.after(known, snapshot([], 1.0), boot, gpus_changed=False, hold_off=0.0)
    assert bool(after) is stays
