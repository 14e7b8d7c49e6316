"""
Breakers: what opens each, that it holds everything, and that only a person closes it.

Plays come in, in which one thing goes wrong. The open breakers go out, and whether GREEDY is acted on.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from enforcer.policy import breakers
from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment, Opened, Result
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, State
from exporter.model import Fault
from faults.marking import showing
from policy.scenes import CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, settled, snapshot

SHORT = replace(UNHURRIED, grace=30.0)
CHANGED = replace(SHORT, build="the next version")


def crowd(count: int, of: int) -> list[Actor]:
    """Return `of` pods with limits of a GiB, of which `count` hold four."""
    return [Actor(f"p{n}-1", (4 if n < count else 1) * GIB, limit=GIB, namespace=f"n{n}") for n in range(of)]


def blast_radius(play: Play) -> None:
    """Start another version, by whose limits half of the workloads are over."""
    play.rules = CHANGED
    play.steps(4, *crowd(3, 6))


class Unreadable:
    """Something in place of a snapshot's limits that no code expects."""

    def __iter__(self) -> Any:
        raise RuntimeError("what is this?")


def reported(which: Breaker) -> Callable[[Play], None]:
    """Open a breaker as the runtime does: what it says is not in any snapshot."""

    def open_(play: Play) -> None:
        opened = breakers.opened(play.history.breakers, which, play.now.boot, "because")
        play.history = replace(play.history, breakers=opened)

    return open_


def internal(play: Play) -> None:
    """Show the policy a snapshot that it cannot read."""
    seen = replace(snapshot([GREEDY, MEEK], play.monotonic + 5), limits=Unreadable())  # type: ignore[arg-type]
    play.monotonic += 5
    play.history, verdict = decide(seen, play.rules, play.history, play.now)
    play.verdicts.append(verdict)


OPENS: dict[Breaker, Callable[[Play], None]] = {
    Breaker.BLAST_RADIUS: blast_radius,
    Breaker.ATTRIBUTION: reported(Breaker.ATTRIBUTION),
    Breaker.INTERNAL: internal,
    Breaker.JOURNAL: reported(Breaker.JOURNAL),
}


def test_every_breaker_has_its_play() -> None:
    """A new breaker is not done before a play opens it."""
    assert OPENS.keys() == set(Breaker)


@pytest.mark.parametrize("which", showing(Breaker, {Breaker.ATTRIBUTION: (71,)}), ids=str)
def test_an_open_breaker_holds_everything_until_a_person_closes_it(which: Breaker) -> None:
    """Opened by its cause only. While it is open GREEDY is held, for hours. When it is closed GREEDY is acted on."""
    play = Play(SHORT)
    play.steps(70, MEEK)
    assert play.history.breakers == {}
    OPENS[which](play)
    play.step(GREEDY, MEEK)
    assert set(play.history.breakers) == {which}
    for _ in range(4):
        play.monotonic += 3600.0  # no rounds for an hour: the excess is counted anew
        play.steps(70, GREEDY, MEEK)
        assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.HELD, Reason.BREAKER)
    assert play.actions == []
    play.history = replace(play.history, breakers=breakers.closed(play.history.breakers, which))
    play.until_action(GREEDY, MEEK, most=30)
    assert play.history.breakers == {}


@pytest.mark.fault(62)
@pytest.mark.parametrize(
    ("over", "limited", "opens"),
    [(2, 2, False), (2, 4, False), (3, 6, True), (3, 7, False), (4, 7, True), (3, 3, True)],
)
def test_half_of_all_and_at_least_three(over: int, limited: int, opens: bool) -> None:
    """Row 62: after a change of ours, half of the workloads with limits, and never fewer than three."""
    play = Play(CHANGED, settled(SHORT))
    assert play.step(*crowd(over, limited)).blast == (over, limited)
    assert (Breaker.BLAST_RADIUS in play.steps(8, *crowd(over, limited)).breakers) is opens
    play.steps(20, *crowd(over, limited))  # twice as many as an action takes
    assert bool(play.actions) is not opens


def test_blast_counts_workloads_and_not_containers_or_pods() -> None:
    """One workload that is over with four pods of two containers each is one workload."""
    many = [
        replace(GREEDY, pod=f"w-{n}", container=name, used=4 * GIB, limit=2 * GIB) for n in range(4) for name in "ab"
    ]
    play = Play(CHANGED, settled(SHORT))
    assert play.step(*many, MEEK).blast == (1, 2)
    assert not play.steps(8, *many, MEEK).breakers


CHANGES_OF_OURS: dict[str, Rules] = {
    "version or catalogue": replace(SHORT, build="the next version"),
    "mode": replace(SHORT, mode=Mode.OBSERVE),
    "grace": replace(SHORT, grace=31.0),
}


@pytest.mark.fault(73)
@pytest.mark.parametrize("before", CHANGES_OF_OURS)
def test_each_change_of_ours_is_judged(before: str) -> None:
    """Row 73: half of the node is over when another version, mode or rule begins: the breaker opens, and no action."""
    play = Play(CHANGES_OF_OURS[before], settled(CHANGES_OF_OURS[before]))
    play.steps(40, *crowd(1, 6))
    play.history, play.rules = replace(play.history, in_flight=None), SHORT
    done = len(play.actions)
    play.steps(60, *crowd(3, 6))
    assert set(play.history.breakers) == {Breaker.BLAST_RADIUS}
    assert len(play.actions) == done


def test_another_driver_is_a_change_of_ours() -> None:
    """It may count otherwise."""
    play = Play(SHORT)
    play.step(*crowd(0, 6))
    verdict = play.steps(8, *crowd(3, 6), driver="590.10")
    assert set(verdict.breakers) == {Breaker.BLAST_RADIUS}


def test_pods_that_are_over_without_a_change_of_ours_open_nothing() -> None:
    """What pods do is no error of ours: all of them at once are acted on, one after the other."""
    play = Play(SHORT)
    play.steps(8, *crowd(0, 6))
    play.steps(60, *crowd(6, 6))
    assert play.history.breakers == {}
    assert play.actions


def test_a_change_is_judged_once() -> None:
    """Judged with one pod over, and vetted: pods that come over their limits later open nothing."""
    play = Play(CHANGED, settled(SHORT))
    play.steps(8, *crowd(1, 6))
    assert play.history.settled is not None
    assert play.history.settled.vetted
    play.steps(20, *crowd(6, 6))
    assert play.history.breakers == {}


def test_a_change_is_judged_when_the_hold_off_is_over() -> None:
    """Pods that correct themselves within the hold-off are no error: only what is over then counts."""
    held_off = replace(CHANGED, hold_off=60.0)
    play = Play(held_off, settled(SHORT))
    play.steps(11, *crowd(6, 6))
    assert play.history.breakers == {}
    corrected = Play(held_off, settled(SHORT))
    corrected.steps(11, *crowd(6, 6))
    corrected.steps(8, *crowd(0, 6))
    assert corrected.history.breakers == {}
    play.steps(8, *crowd(6, 6))
    assert set(play.history.breakers) == {Breaker.BLAST_RADIUS}


def test_a_namespace_that_cannot_be_read_delays_the_judgement_for_a_minute_at_most() -> None:
    """Its labels are waited for, since it may hold over-users that consent; then the others are judged without it."""
    readable = {f"n{n}": CONSENTING for n in range(5)}
    play = Play(CHANGED, settled(SHORT))
    play.steps(11, *crowd(1, 6), namespaces=readable)
    assert play.history.settled is not None
    assert not play.history.settled.vetted
    play.steps(2, *crowd(1, 6), namespaces=readable)
    assert play.history.settled.vetted


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        ({"facts": {"priority": 2_000_000_000}}, (0, 0)),
        ({"report_only": ("a hint",)}, (0, 0)),
        ({"namespace": "kube-system"}, (0, 0)),
        ({"limit": None, "undeclared": True}, (0, 0)),
        ({}, (1, 1)),
    ],
    ids=str,
)
def test_blast_counts_what_could_be_acted_on(change: dict[str, Any], counted: tuple[int, int]) -> None:
    """Protected pods, and limits that are only reported, say nothing about what enforcing would do."""
    play = Play(CHANGED, settled(SHORT))
    assert play.step(replace(GREEDY, **change)).blast == counted


def test_blast_counts_pods_that_wait_for_what_is_missing() -> None:
    """A node without its journal will act once it is there: its pods count."""
    lacking = replace(CHANGED, ceilings=(Ceiling(Mode.DRY_RUN, Reason.JOURNAL),))
    play = Play(lacking, settled(SHORT))
    assert play.step(GREEDY, MEEK).blast == (1, 2)


def test_no_blast_in_a_mode_that_does_not_act() -> None:
    """Where the mode is observe or warn there is nothing to stop; dry-run stops where enforce would."""
    for mode, opens in ((Mode.DRY_RUN, True), (Mode.ENFORCE, True), (Mode.OBSERVE, False), (Mode.WARN, False)):
        play = Play(replace(CHANGED, mode=mode), settled(SHORT))
        assert bool(play.steps(20, *crowd(6, 6)).breakers) is opens


@pytest.mark.fault(55, 63)
def test_a_change_of_units_hits_no_pod() -> None:
    """Rows 55, 63: a new version reads all limits a thousand times too small: a breaker, and no action."""
    fine = [Actor(f"p{n}-1", 4 * GIB, limit=16 * GIB, namespace=f"n{n}") for n in range(6)]
    play = Play(SHORT)
    play.steps(20, *fine)
    play.rules = CHANGED
    play.steps(60, *(replace(actor, limit=16 * 2**20) for actor in fine))
    assert play.actions == []
    assert set(play.history.breakers) == {Breaker.BLAST_RADIUS}


@pytest.mark.fault(10, 11, 45)
@pytest.mark.parametrize("result", [each for each in Result if each is not Result.REHEARSED], ids=str)
def test_no_end_of_an_action_opens_a_breaker(result: Result) -> None:
    """Rows 10, 11, 45: refusals, 403s and effects that were not seen concern their pod, however often they come."""
    play = Play(SHORT)
    for _ in range(5):
        play.until_action(GREEDY, MEEK)
        play.conclude(result)
    assert play.history.breakers == {}


@pytest.mark.fault(29, 30, 56)
@pytest.mark.parametrize(
    "world",
    [
        {"gpus": 2},
        {"gpus": 0},
        {"read": ()},
        {"divided": {0: ("MIG-a",)}},
        {"proven": False},
        {"live": False},
        {"faults": (Fault("config", "config_invalid", "policy.grace: expected a duration"),)},
        {"faults": (Fault("allocations", "kubelet_away", "the kubelet does not answer"),)},
    ],
    ids=str,
)
def test_what_ends_by_itself_opens_no_breaker(world: dict[str, Any]) -> None:
    """Rows 29, 30, 56: a GPU that came or went, a source that is silent, a config that is invalid: holds at most."""
    play = Play(SHORT)
    play.step(GREEDY, MEEK)
    play.steps(20, GREEDY, MEEK, **world)
    assert play.history.breakers == {}
    play.history = replace(play.history, in_flight=None, holds={})
    play.until_action(GREEDY, MEEK, most=40)


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
    """Opened again, it says since when, and why now."""
    first = breakers.opened({}, Breaker.JOURNAL, 10.0, "damaged")
    again = breakers.opened(first, Breaker.JOURNAL, 20.0, "full")
    assert again == {Breaker.JOURNAL: Opened(10.0, "full")}


def test_closing_one_breaker_closes_no_other() -> None:
    """A person closes what was looked at; closing what is not open changes nothing."""
    both = {which: Opened(1.0, "") for which in (Breaker.JOURNAL, Breaker.INTERNAL)}
    assert breakers.closed(both, Breaker.JOURNAL) == {Breaker.INTERNAL: Opened(1.0, "")}
    assert breakers.closed(both, Breaker.ATTRIBUTION) == both


def test_an_error_of_ours_is_no_action_and_is_reported() -> None:
    """`decide` does not raise; the breaker says which error it was."""
    play = Play(SHORT)
    internal(play)
    assert play.verdicts[-1].action is None
    assert play.history.breakers[Breaker.INTERNAL].detail == "RuntimeError: what is this?"


@pytest.mark.fault(61)
def test_breakers_outlive_the_daemon() -> None:
    """Row 61: a history that begins with an open breaker keeps it open."""
    play = Play(SHORT, History(breakers={Breaker.BLAST_RADIUS: Opened(0.0, "")}))
    play.steps(200, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.BREAKER)


def test_a_moment_that_does_not_pass_changes_nothing() -> None:
    """The same moment twice: the same states, and no action."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.until_action(GREEDY, MEEK)
    before = play.history
    verdict = play.step(GREEDY, MEEK, after=0.0)
    assert play.history is before
    assert verdict.action is None
    assert verdict.at == Moment(play.monotonic, play.monotonic)


@pytest.mark.parametrize(("over", "limited", "opens"), [(0, 0, False), (2, 0, False), (3, 0, True), (3, 6, True)])
def test_the_numbers_of_the_blast_radius(over: int, limited: int, opens: bool) -> None:
    """Three at least, and a half."""
    assert breakers.blast(over, limited) is opens
