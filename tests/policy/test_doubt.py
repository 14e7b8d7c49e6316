"""
Doubt is per limit holder.

GREEDY comes in, far over its limit, MEEK, which is short of memory, and something doubtful. Doubt about others delays
nothing. Doubt about GREEDY itself leads to no action, and is shown.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from builders import pod, subject
from enforcer.policy.rules import EXEMPT, GRACE, Rules
from enforcer.policy.usage_bounds import overshoot
from enforcer.policy.vocabulary import Reason, State, Trigger
from exporter.accounts.accounting import account
from exporter.accounts.attribution import Attributed, Placed
from exporter.model import (
    Attribution,
    CgroupMemory,
    DeviceKey,
    Gpu,
    GpuProcess,
    GpuSample,
    GpuUuid,
    Memory,
    Owner,
    ProcessKind,
)
from policy.scenes import CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play

UNDISTURBED = 28
"""The round in which GREEDY is acted on when nothing disturbs."""
LONG = 180


def first_action(actors: Iterable[tuple[Actor, ...]], rules: Rules = UNHURRIED, **world: object) -> int | None:
    """Play a line of rounds; in which was the first action, and was it GREEDY's?"""
    play = Play(rules)
    for number, present in enumerate(actors, 1):
        if play.step(*present, **world).action is not None:  # type: ignore[arg-type]
            assert play.actions == ["evict team/greedy-1"]
            return number
    return None


# Others


def test_a_crash_looping_neighbour_is_no_shield() -> None:
    """A neighbour with another container id in each round: GREEDY is acted on in the same round as without it."""
    rounds = ((GREEDY, MEEK, Actor("crash-1", GIB, generation=number)) for number in range(40))
    assert first_action(rounds) == UNDISTURBED


def test_a_neighbour_that_comes_and_goes_is_no_shield() -> None:
    """A pod that is there in every second round, under a new UID each time."""
    rounds = (
        (GREEDY, MEEK, *((Actor("blink-1", GIB, uid=f"uid-{number}"),) if number % 2 else ())) for number in range(40)
    )
    assert first_action(rounds) == UNDISTURBED


@pytest.mark.fault(33)
@pytest.mark.parametrize("hidden", [1, 5, 8])
def test_a_hidden_process_is_no_shield(hidden: int) -> None:
    """Row 33: memory that no known process explains, next to an over-user, is shown elsewhere, and is no veto here."""
    assert first_action([(GREEDY, MEEK)] * 40, hidden={0: hidden * GIB}) == UNDISTURBED


@pytest.mark.fault(33)
def test_thirty_unattributed_gib_are_no_shield() -> None:
    """Row 33, in full: 30 GiB hidden, the over-user has 45, and its neighbour is short of 25."""
    greedy = replace(GREEDY, used=45 * GIB)
    assert first_action([(greedy, MEEK)] * 40, hidden={0: 30 * GIB}) == UNDISTURBED


@pytest.mark.fault(33)
def test_a_hidden_process_is_never_the_victim() -> None:
    """Row 33: 70 GiB are unattributed, and no known holder is over: nothing is ever done."""
    play = Play()
    play.steps(LONG, replace(GREEDY, used=GIB), MEEK, hidden={0: 70 * GIB})
    assert (play.actions, play.standing(GREEDY)) == ([], State.OK)


@pytest.mark.fault(26)
def test_a_neighbour_with_unknown_readings_is_no_shield() -> None:
    """Row 26 of a neighbour: its own N/A makes it unjudged; GREEDY is acted on as if nothing was."""
    unknown = Actor("na-1", None, limit=20 * GIB)
    assert first_action([(GREEDY, MEEK, unknown)] * 40) == UNDISTURBED


@pytest.mark.fault(31, 43)
@pytest.mark.parametrize("doubled", [1, 10, 30])
def test_a_forking_neighbour_is_no_shield_for_a_large_excess(doubled: int) -> None:
    """Rows 31, 43: the lists exceed the device's memory: GREEDY is over by more than that, whichever entry is wrong."""
    short = replace(MEEK, limit=79 * GIB)  # short of its due even if all that is wrong is its own
    assert first_action([(GREEDY, short)] * 40, listed_too_much=doubled * GIB) == UNDISTURBED


@pytest.mark.fault(31)
@pytest.mark.parametrize("listed", [0, 20])
def test_a_forking_neighbour_that_the_kernel_counts_is_no_shield(listed: int) -> None:
    """
    The kernel counts 20 GiB of a neighbour's cgroup, and a process that has ended is listed with 20 GiB.

    They are the same bytes, so no one's usage is in doubt. The twin: the neighbour's own process is listed with them.
    Then the lists are wrong by 20 GiB.
    """
    key, greedy, forking = DeviceKey(GpuUuid("GPU-0")), subject(pod("greedy")), subject(pod("forking"))
    entries = (
        (40, Attribution.CONTAINER, greedy),
        (20, Attribution.GHOST, None),
        (listed, Attribution.CONTAINER, forking),
    )
    placed = tuple(
        Placed(GpuProcess(key, pid, frozenset(ProcessKind), size * GIB), attribution, whose)
        for pid, (size, attribution, whose) in enumerate(entries)
    )
    sample = GpuSample(Gpu(key.uuid, 0, "fake", memory=Memory(80 * GIB, 20 * GIB)), 0.0, (), ())
    counted = {(forking, key): CgroupMemory(Owner(), key, 20 * GIB)}
    found = account(Attributed(sample, placed, counted), {})
    (closed,) = found.accounts
    assert overshoot(closed, sum(usage.memory_used or 0 for usage in found.usages)) == listed * GIB


@pytest.mark.fault(31)
def test_doubt_that_could_change_the_excess_holds_back() -> None:
    """The twin: over by 12 GiB, and 13 GiB of the lists are wrong: it may be GREEDY's figure that is."""
    small = replace(GREEDY, used=20 * GIB)
    full = Actor("full-1", 56 * GIB, limit=56 * GIB)
    assert first_action([(small, MEEK, full)] * 60, listed_too_much=13 * GIB) is None
    assert first_action([(small, MEEK, full)] * 60, listed_too_much=11 * GIB) == UNDISTURBED


@pytest.mark.fault(31)
def test_an_unknown_neighbour_does_not_hide_that_the_lists_are_wrong() -> None:
    """A neighbour's N/A makes no figure certain: the lists of the known exceed the device's use."""
    small = replace(GREEDY, used=20 * GIB)
    others = (Actor("full-1", 58 * GIB, limit=58 * GIB), MEEK, Actor("na-1", None))
    assert first_action([(small, *others)] * 60, listed_too_much=13 * GIB) is None


def test_doubt_that_could_change_the_need_holds_back() -> None:
    """A neighbour with unknown usage, whose need is all that justifies an action, may hold what nothing explains."""
    contended = replace(UNHURRIED, trigger=Trigger.CONTENDED)
    greedy, unknown = replace(GREEDY, used=40 * GIB), Actor("na-1", None, limit=35 * GIB)
    assert first_action([(greedy, unknown)] * 60, contended, hidden={0: 35 * GIB}) is None
    assert first_action([(greedy, unknown)] * 60, contended, hidden={0: 5 * GIB}) is None  # 30 short, 35 free
    acted = first_action([(replace(greedy, used=50 * GIB), unknown)] * 60, contended, hidden={0: 5 * GIB})
    assert acted == UNDISTURBED


@pytest.mark.fault(28)
def test_another_gpu_that_fails_is_another_gpu() -> None:
    """Row 28: of two GPUs one is not read for minutes: on the other everything goes on."""
    elsewhere = Actor("else-1", 70 * GIB, gpu=1)
    play = Play()
    play.until_action(GREEDY, MEEK, elsewhere, gpus=2, read=(0,))
    assert (play.round, play.actions) == (UNDISTURBED, ["evict team/greedy-1"])
    assert (play.standing(elsewhere), play.reason(elsewhere)) == (State.UNJUDGED, Reason.READING_UNKNOWN)


# Its own


@pytest.mark.fault(26)
def test_unknown_for_ever_is_never_acted_on_and_always_shown() -> None:
    """Row 26: N/A memory all the time: no action, and `unjudged` with its reason in each round, for an alert."""
    play = Play()
    for _ in range(LONG):
        play.step(replace(GREEDY, used=None), MEEK)
        assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.UNJUDGED, Reason.READING_UNKNOWN)
    assert play.actions == []


@pytest.mark.fault(26)
def test_one_process_that_is_not_measured_hides_nothing_of_the_others() -> None:
    """Row 26: the measured processes of the container are above its limit alone: it is acted on as ever."""
    assert first_action([(replace(GREEDY, used=None, sure=70 * GIB), MEEK)] * 40) == UNDISTURBED


@pytest.mark.fault(26)
def test_measured_processes_within_the_limit_prove_nothing() -> None:
    """Row 26: the one that is not measured may hold anything: neither over nor within, and that is shown."""
    play, partly = Play(), replace(GREEDY, used=None, sure=GREEDY.limit)
    play.steps(LONG, partly, MEEK)
    assert (play.actions, play.standing(partly), play.reason(partly)) == ([], State.UNJUDGED, Reason.READING_UNKNOWN)


@pytest.mark.fault(31)
def test_lists_that_are_wrong_doubt_the_measured_processes_too() -> None:
    """Over by 12 GiB, and 13 GiB of the lists are wrong: it may be the measured process that is."""
    partly, full = replace(GREEDY, used=None, sure=20 * GIB), Actor("full-1", 56 * GIB, limit=56 * GIB)
    assert first_action([(partly, MEEK, full)] * 60, listed_too_much=13 * GIB) is None
    assert first_action([(partly, MEEK, full)] * 60, listed_too_much=11 * GIB) == UNDISTURBED


@pytest.mark.fault(26)
def test_one_flaky_reading_now_and_then_delays_and_does_not_spare() -> None:
    """One N/A in five minutes: it is acted on, some rounds later."""
    flaky = replace(GREEDY, used=None)
    for bad in range(1, 28, 3):
        rounds = [(flaky if number % 60 == bad else GREEDY, MEEK) for number in range(1, 80)]
        acted = first_action(rounds)
        assert acted is not None
        assert UNDISTURBED < acted <= UNDISTURBED + bad, bad


def test_a_holder_that_is_unknown_in_each_second_round_is_not_acted_on() -> None:
    """Half of its readings are unknown: nothing says what was so between two, so nothing is ever due."""
    play = Play()
    for number in range(LONG):
        play.step(replace(GREEDY, used=None) if number % 2 else GREEDY, MEEK)
    assert play.actions == []
    assert {State.OVER, State.UNJUDGED} >= {play.standing(GREEDY)}
    reasons = {change.after.reason for verdict in play.verdicts for change in verdict.changes}
    assert Reason.READING_UNKNOWN in reasons


@pytest.mark.fault(25)
def test_no_answer_is_not_an_answer_of_zero() -> None:
    """Unknown is not within: one unknown reading changes nothing, and a long time lowers the level."""
    play = Play()
    play.until(State.GRACE, GREEDY, MEEK)
    play.steps(5, GREEDY, MEEK)
    (before,) = play.history.levels.values()
    play.step(replace(GREEDY, used=None), MEEK)
    assert play.standing(GREEDY) is State.GRACE
    assert [level.seconds for level in play.history.levels.values()] == [before.seconds]
    play.steps(3, replace(GREEDY, used=None), MEEK)
    assert [level.seconds < before.seconds for level in play.history.levels.values()] == [True]
    assert play.actions == []


# What it declares


def limits(*gib: float | None) -> list[tuple[Actor, ...]]:
    """GREEDY with these limits, one a round, over and over."""
    return [(replace(GREEDY, limit=None if one is None else int(one * GIB)), MEEK) for one in gib * (LONG // len(gib))]


@pytest.mark.fault(57)
def test_toggling_between_two_limits_that_it_exceeds_gains_nothing() -> None:
    """8 GiB and 9 GiB in turn, with 70 held: acted on in the same round as ever."""
    assert first_action(limits(8, 9)) == UNDISTURBED
    assert first_action(limits(8, 8, 8, 60)) == UNDISTURBED


def test_toggling_the_declaration_off_is_seen_in_its_state() -> None:
    """In each second round nothing is declared: no action follows from that, and its state is never `ok`."""
    play = Play()
    states = set()
    for present in limits(8, None):
        play.step(*present)
        states.add(play.standing(GREEDY))
    assert play.actions == []
    assert states == {State.OVER, None}


def test_a_limit_that_turns_invalid_is_shown() -> None:
    """A declaration that cannot be read in each second round: no action, and `limit_invalid` is shown each time."""
    play = Play()
    for number in range(60):
        actor = replace(GREEDY, limit=None, problems=("8 what?",)) if number % 2 else GREEDY
        play.step(actor, MEEK)
    shown = [change.after.reason for verdict in play.verdicts for change in verdict.changes]
    assert play.actions == []
    assert shown.count(Reason.LIMIT_INVALID) == 30


def test_toggling_the_grace_annotation_gains_nothing() -> None:
    """An announced grace is never shortened, and one that the namespace does not allow is never longer."""
    asking = replace(GREEDY, facts={"annotations": {GRACE: "30"}})
    longer = replace(GREEDY, facts={"annotations": {GRACE: "3600"}})
    toggling = [(asking, MEEK), (longer, MEEK)] * 30
    assert first_action([(GREEDY, MEEK)] * 4 + toggling) == UNDISTURBED
    assert first_action([(asking, MEEK)] * 3 + [(GREEDY, MEEK)] + toggling) == UNDISTURBED, "the warning says which"


def test_toggling_an_exemption_that_was_not_granted_gains_nothing() -> None:
    """`gpusteward.io/exempt` counts for nothing without its namespace, however often it comes and goes."""
    claiming = replace(GREEDY, facts={"annotations": {EXEMPT: "true"}})
    assert first_action([(claiming, MEEK), (GREEDY, MEEK)] * 30) == UNDISTURBED


def test_toggling_a_granted_exemption_is_the_administrator_s_doing() -> None:
    """The twin: in a namespace that lets its pods exempt themselves it protects, and is shown."""
    play = Play()
    labels = {"team": {**CONSENTING, "gpusteward.io/allow-pod-exemption": "true"}}
    for number in range(120):
        facts: dict[str, object] = {"annotations": {EXEMPT: "true"}} if number % 20 == 0 else {}
        play.step(replace(GREEDY, facts=facts), MEEK, namespaces=labels)
    assert play.actions == []
    assert Reason.EXEMPT in {one.after.reason for verdict in play.verdicts for one in verdict.changes}


@pytest.mark.fault(57)
@pytest.mark.parametrize(("limit", "acted"), [(9, UNDISTURBED), (4, UNDISTURBED), (60, UNDISTURBED), (70, None)])
def test_a_limit_that_is_raised_or_lowered_in_the_middle_of_a_grace(limit: int, acted: int | None) -> None:
    """Row 57: a holder that was above the new limit all the time was warned rightly; one within it is not over."""
    assert first_action([(GREEDY, MEEK)] * 15 + [(replace(GREEDY, limit=limit * GIB), MEEK)] * 60) == acted


@pytest.mark.fault(57)
def test_a_limit_that_the_excess_seen_so_far_did_not_exceed_voids_it() -> None:
    """Row 57: 20 GiB when it was warned, 70 now, and the limit is raised to 30: from the beginning."""
    before, after = replace(GREEDY, used=20 * GIB), replace(GREEDY, limit=30 * GIB)
    full = Actor("full-1", 50 * GIB, limit=60 * GIB)
    short = Actor("meek-1", 2 * GIB, limit=40 * GIB)
    assert first_action([(before, full, short)] * 15 + [(after, short)] * 60) == 15 + UNDISTURBED


# Restarts and other generations


@pytest.mark.fault(38)
def test_a_restart_in_the_middle_of_a_grace_gains_no_new_grace() -> None:
    """Row 38: the level is the container's, not its generation's: a crash loop is no shield."""
    rounds = [(GREEDY, MEEK)] * 20 + [(replace(GREEDY, generation=1), MEEK)] * 40
    acted = first_action(rounds)
    assert acted is not None
    assert UNDISTURBED <= acted <= UNDISTURBED + 3


@pytest.mark.fault(38)
def test_a_restart_at_the_end_of_a_grace_must_be_over_itself() -> None:
    """Row 38: the new generation is acted on when it was over for a while itself, and not at its first reading."""
    rounds = [(GREEDY, MEEK)] * 27 + [(replace(GREEDY, generation=1), MEEK)] * 40
    acted = first_action(rounds)
    assert acted is not None
    assert UNDISTURBED + 3 <= acted <= UNDISTURBED + 6


@pytest.mark.fault(17)
def test_the_same_name_with_another_uid_is_another_holder() -> None:
    """Row 17: a StatefulSet's pod is made anew in the middle of a grace: from the beginning."""
    assert first_action([(GREEDY, MEEK)] * 20 + [(replace(GREEDY, uid="uid-new"), MEEK)] * 40) == 20 + UNDISTURBED


@pytest.mark.fault(17)
def test_two_pods_of_one_name_are_two() -> None:
    """Row 17: the old one terminates while the new one runs, both hold memory: only the living one is acted on."""
    old = replace(GREEDY, used=40 * GIB, facts={"terminating": True})
    new = replace(GREEDY, used=30 * GIB, uid="uid-new")
    play = Play()
    action = play.until_action(new, old, MEEK)
    assert action.pod_uid == "uid-new"
    assert (play.standing(old), play.reason(old)) == (State.HELD, Reason.TERMINATING)


@pytest.mark.fault(43)
def test_memory_that_moves_among_its_processes_is_still_its_own() -> None:
    """Row 43: the limit holder is the container: one that forks holds the same sum."""
    assert first_action((replace(GREEDY, used=(60 + n % 9) * GIB), MEEK) for n in range(40)) == UNDISTURBED


# How it holds it


@pytest.mark.fault(39)
def test_memory_that_is_freed_in_time() -> None:
    """Row 39: free in the last round of the grace, and from then on: nothing is done, and its state is ok again."""
    play = Play()
    play.steps(27, GREEDY, MEEK)
    play.steps(60, replace(GREEDY, used=8 * GIB), MEEK)
    assert (play.actions, play.standing(GREEDY)) == ([], State.OK)


@pytest.mark.fault(39)
def test_memory_that_is_freed_for_one_round_is_not_freed() -> None:
    """The twin of row 39: freed in the last round of the grace, and taken again: acted on a little later."""
    low = (replace(GREEDY, used=8 * GIB), MEEK)
    acted = first_action([(GREEDY, MEEK)] * 27 + [low] + [(GREEDY, MEEK)] * 40)
    assert acted is not None
    assert UNDISTURBED < acted <= UNDISTURBED + 4


@pytest.mark.fault(40)
@pytest.mark.parametrize("trigger", Trigger, ids=str)
@pytest.mark.parametrize("low", [8 * GIB, 8 * GIB + 2**20])
def test_oscillating_around_the_limit_is_never_due(low: int, trigger: Trigger) -> None:
    """Row 40: above in each second round: never in two rounds on end, so no warning follows, and no action."""
    play = Play(replace(UNHURRIED, trigger=trigger))
    within, over = replace(GREEDY, used=low), replace(GREEDY, used=70 * GIB)
    for number in range(LONG):
        play.step(within if number % 2 else over, MEEK)
    assert play.actions == []
    assert State.GRACE not in {one.after.state for verdict in play.verdicts for one in verdict.changes}
