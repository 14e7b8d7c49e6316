"""
What of the past still counts, one function at a time.

Histories that a play left behind, with one fact changed, come in. What is left of them goes out.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from enforcer.journal import levels_file
from enforcer.policy.carry_over import carried, remembered, restored, series_of
from enforcer.policy.cases import cases
from enforcer.policy.decide import decide
from enforcer.policy.history import Ended, History, Moment, Result, Spent
from enforcer.policy.holder import CaseKey, HolderKey
from enforcer.policy.judgement import judge_all
from enforcer.policy.levels import Level
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Place, Reason, Rung, State, Trigger
from exporter.model import Claim, ContainerId, DeviceKey, GpuUuid, PodUid, Snapshot
from policy.scenes import GIB, GREEDY, MEEK, SHORT, UNHURRIED, Actor, Play, settled, snapshot

SEEN = snapshot([GREEDY, MEEK], 1.0)
CASE, OTHER = cases(SEEN)
HOLDER = CASE.key.holder
CLAIM = HolderKey(PodUid(""), "", "team/shared")


def over(rounds: int = 3, rules: Rules = UNHURRIED) -> Play:
    """Play until GREEDY has a level."""
    play = Play(rules)
    play.steps(rounds, GREEDY, MEEK)
    assert set(play.history.levels) == {HOLDER}
    return play


def later(play: Play, *, slept: float = 0.0, **world: object) -> History:
    """Carry what the play left behind to its next round."""
    seen: Snapshot = snapshot([GREEDY, MEEK], play.monotonic + 5, **world)  # type: ignore[arg-type]
    return carried(play.history, seen, play.rules, Moment(play.monotonic + 5, play.monotonic + 5 + slept))


@pytest.mark.fault(23)
@pytest.mark.parametrize(("slept", "kept"), [(4.5, True), (5.0, True), (5.5, False)])
def test_a_machine_that_slept_for_longer_than_five_seconds_has_another_past(slept: float, *, kept: bool) -> None:
    """Boot time may run ahead of monotonic time by five seconds between two rounds; a second sleep is none."""
    assert bool(later(over(), slept=slept).levels) is kept


@pytest.mark.parametrize(("between", "counts"), [(Trigger.CONTENDED, True), (Trigger.LIMIT, False)])
def test_a_restart_after_the_other_trigger_is_no_abnormal_end(between: Trigger, *, counts: bool) -> None:
    """What was so before `trigger: limit` was written for a while says nothing of a container that restarts later."""
    neighbour = Actor("n-1", 8 * GIB, limit=16 * GIB)
    contended = replace(UNHURRIED, trigger=Trigger.CONTENDED)
    play = Play(contended)
    play.step(GREEDY, neighbour)
    play.rules = replace(contended, trigger=between)
    play.step(GREEDY, neighbour)
    play.rules = contended
    play.step(replace(GREEDY, used=GIB), replace(neighbour, generation=1))
    assert bool(play.history.ended) is counts


@pytest.mark.parametrize(("slept", "kept"), [(4.5, True), (3600.0, False)])
def test_a_neighbour_that_ended_abnormally_before_a_sleep_does_not_count(slept: float, *, kept: bool) -> None:
    """After a sleep it is unknown which later pod took its place."""
    play = over()
    play.history = replace(play.history, ended={(DeviceKey(GpuUuid("GPU-0")), PodUid("gone")): Ended(GIB, 1e9)})
    assert bool(later(play, slept=slept).ended) is kept


def test_a_second_round_after_a_sleep_is_an_ordinary_one() -> None:
    """The sleep is judged once: the levels that rise after it stay."""
    play = over(20)
    play.asleep = 3600.0
    play.step(GREEDY, MEEK)
    assert play.history.levels[HOLDER].seconds == 0.0
    play.step(GREEDY, MEEK)
    assert play.history.levels[HOLDER].seconds == 5.0


def test_process_numbers_that_are_not_proven_hold_the_node_for_ten_minutes() -> None:
    """The level is not erased; after the last doubt all actions wait until the accounts were clean for ten minutes."""
    play = over(26)
    play.step(GREEDY, MEEK, proven=False)
    doubted = play.monotonic
    assert (Place.NODE, "", Reason.PID_DOMAIN) in play.history.holds
    play.steps(20, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.PID_DOMAIN)
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - doubted == 600.0


# --- MIG instances that were made anew ---


@pytest.mark.fault(30)
@pytest.mark.parametrize("divided", [("MIG-a", "MIG-c"), ("MIG-a",), ("MIG-b", "MIG-a")], ids=str)
def test_an_instance_that_was_made_anew_starts_its_readings_anew(divided: tuple[str, ...]) -> None:
    """Under an old number there is another instance: its readings are forgotten, those of other GPUs are not."""
    play = over()
    device, elsewhere = DeviceKey(GpuUuid("GPU-0")), DeviceKey(GpuUuid("GPU-1"))
    level = play.history.levels[HOLDER]
    both = replace(level, excesses={device: level.excesses[device], elsewhere: level.excesses[device]})
    history = replace(play.history, levels={HOLDER: both}, parts={device: ("MIG-a", "MIG-b"), elsewhere: ("MIG-x",)})
    seen = snapshot([GREEDY, MEEK], play.monotonic + 5)

    def left(parts: tuple[str, ...]) -> set[DeviceKey]:
        (card,) = seen.devices
        now = Moment(play.monotonic + 5, play.monotonic + 5)
        after = carried(history, replace(seen, devices=(replace(card, mig_uuids=parts),)), UNHURRIED, now)
        assert after.levels[HOLDER].seconds == both.seconds
        return set(after.levels[HOLDER].excesses)

    assert left(("MIG-a", "MIG-b")) == {device, elsewhere}
    assert left(divided) == {elsewhere}
    assert left(()) == {device, elsewhere}, "a round that does not name the instances says nothing"


# --- counters ---


def test_seconds_above_the_limit_are_counted_between_two_readings_above_it() -> None:
    """Ten rounds above are nine intervals; a reading within, and one a long time later, count nothing."""
    play = Play()
    play.steps(10, GREEDY, MEEK)
    assert play.history.over_seconds == {series_of(CASE): 45.0}
    play.step(GREEDY, MEEK, after=15.0)
    assert play.history.over_seconds == {series_of(CASE): 60.0}
    play.step(GREEDY, MEEK, after=15.5)
    play.step(replace(GREEDY, used=GREEDY.limit), MEEK)
    play.step(GREEDY, MEEK)
    assert play.history.over_seconds == {series_of(CASE): 60.0}


def test_seconds_above_the_limit_of_an_early_round_are_counted_once() -> None:
    """The next round by the clock counts them: an early one moves no level."""
    play = Play()
    play.steps(10, GREEDY, MEEK)
    play.monotonic += 3.0
    early = replace(snapshot([GREEDY, MEEK], play.monotonic), by_time=False)
    play.history, _ = decide(early, play.rules, play.history, play.now)
    play.step(GREEDY, MEEK, after=2.0)
    assert play.history.over_seconds == {series_of(CASE): 50.0}


def test_seconds_above_the_limit_are_those_of_each_device() -> None:
    """A holder that is over on one GPU, and then on another one, too: the second counts from its own first reading."""
    here, there = replace(GREEDY, used=20 * GIB), replace(GREEDY, used=GIB, gpu=1)
    play = Play()
    play.steps(3, here, there, gpus=2)
    play.steps(2, here, replace(there, used=20 * GIB), gpus=2)
    assert {key[3].uuid: seconds for key, seconds in play.history.over_seconds.items()} == {"GPU-0": 20.0, "GPU-1": 5.0}


def test_the_seconds_of_a_pod_are_counted_as_long_as_there_is_one() -> None:
    """A round without its limit, or without any names, sets no counter back; its end does."""
    play, counted = Play(), {series_of(CASE): 5.0}
    play.steps(2, GREEDY, MEEK)
    play.step(replace(GREEDY, limit=None), MEEK)
    assert play.history.over_seconds == counted
    play.step(MEEK, live=False)
    assert play.history.over_seconds == counted
    play.step(MEEK)
    assert play.history.over_seconds == {}


def test_seconds_that_a_holder_is_due_are_counted_by_reason() -> None:
    """Each second from the round in which it was due until it is acted on, under the reason of that round."""
    play = Play(SHORT)
    play.steps(10, GREEDY, MEEK, namespaces={})
    begun = play.monotonic
    play.steps(6, GREEDY, MEEK, namespaces={})
    by_reason = {key[4]: seconds for key, seconds in play.history.due_seconds.items()}
    assert by_reason == {Reason.NAMESPACE_UNKNOWN: play.monotonic - begun}
    assert {key[:3] for key in play.history.due_seconds} == {("team", "greedy-1", "main")}


def test_due_seconds_of_a_pod_that_is_gone_are_dropped() -> None:
    """The counters hold no series of dead pods, also while no holder is due."""
    play = Play(SHORT)
    play.steps(12, GREEDY, MEEK, namespaces={})
    play.steps(60, replace(GREEDY, used=GIB), MEEK, namespaces={})
    assert play.history.due_seconds
    play.steps(2, MEEK, namespaces={})
    assert play.history.due_seconds == {}


def test_within_its_limit_a_holder_that_is_due_has_the_reason() -> None:
    """The alert on due seconds does not count what is waiting for the holder itself as unknown or evaded."""
    play = Play(replace(SHORT, spacing=5.0))
    play.steps(9, GREEDY, MEEK, namespaces={})
    play.steps(2, replace(GREEDY, used=GIB), MEEK)
    kinds = {key[4].kind if key[4] else None for key in play.history.due_seconds}
    assert kinds <= {Reason.NOT_OVER_NOW.kind, Reason.NAMESPACE_UNKNOWN.kind}


# --- what ends, and what a round only misses ---

_PENDING = replace(SEEN, containers=tuple(replace(container, id=None) for container in SEEN.containers))
_RESTARTED = replace(
    SEEN, containers=tuple(replace(container, id=ContainerId("anew")) for container in SEEN.containers)
)


@pytest.mark.parametrize(
    ("seen", "holder", "kept"),
    [
        (SEEN, HOLDER, True),
        (replace(SEEN, containers=()), HOLDER, True),
        (_RESTARTED, HOLDER, True),
        (replace(SEEN, pods={}, names_live=False), HOLDER, True),
        (replace(SEEN, pods={}), HOLDER, False),
        (SEEN, HolderKey(GREEDY.pod_uid, "", ""), True),
        (SEEN, CLAIM, True),  # claims are read after pods
        (replace(SEEN, claims=(Claim("team", "shared"),)), CLAIM, True),
        (replace(SEEN, claims=(Claim("team", "other"), Claim("other", "shared"))), CLAIM, False),
    ],
)
def test_a_round_that_misses_a_holder_forgets_no_level(seen: Snapshot, holder: HolderKey, *, kept: bool) -> None:
    """A level is forgotten only where live names say that the pod, or the claim, does not exist any more."""
    after = remembered(History(levels={holder: Level(1.0, seconds=9.0)}), [], {}, seen, UNHURRIED)
    assert set(after.levels) == ({holder} if kept else set())


_CLAIM_CASE = CaseKey(PodUid(""), "", ContainerId(""), "team/shared", "GPU-0")


@pytest.mark.parametrize(
    ("seen", "key", "kept"),
    [
        (SEEN, CASE.key, True),
        (_PENDING, CASE.key, True),
        (replace(SEEN, containers=()), CASE.key, True),
        (replace(_RESTARTED, names_live=False), CASE.key, True),
        (_RESTARTED, CASE.key, False),
        (replace(SEEN, pods={}), CASE.key, False),
        (SEEN, replace(CASE.key, container="", container_id=ContainerId("")), True),
        (replace(SEEN, claims=(Claim("team", "shared"),)), _CLAIM_CASE, True),
        (replace(SEEN, claims=(Claim("team", "other"),)), _CLAIM_CASE, False),
    ],
)
def test_a_round_that_misses_a_case_forgets_no_fence(seen: Snapshot, key: CaseKey, *, kept: bool) -> None:
    """A step is done for one generation: another generation of the container is fenced anew."""
    after = remembered(History(done=frozenset({(key, Rung.FENCE)})), [], {}, seen, UNHURRIED)
    assert after.done == (frozenset({(key, Rung.FENCE)}) if kept else frozenset())


@pytest.mark.parametrize(
    "missed",
    [
        {"live": False},
        {"read": []},
        {"namespaces": {}},
        {"strangers": ["greedy-1"]},
    ],
    ids=["names", "gpu", "labels", "pod"],
)
def test_rounds_that_miss_something_delay_by_their_own_length_at_most_twice(missed: Mapping[str, object]) -> None:
    """Ten such rounds in the middle of a grace: what was counted before is not lost."""
    play = Play()
    play.steps(15, GREEDY, MEEK)
    play.steps(10, GREEDY, MEEK, **missed)
    assert play.actions == []
    again = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - again <= 135.0 - 70.0 + (50.0 + 10.0) / 2 + 5.0


# --- a restart of the daemon ---


def anew(play: Play, levels: Mapping[HolderKey, Level]) -> Play:
    """Start a daemon anew half a minute later, with the levels that it finds on the disk."""
    other = Play(play.rules, settled(play.rules))
    other.monotonic = play.monotonic + 30.0
    other.history = restored(other.history, levels, other.now)
    return other


def test_restored_levels_go_on_where_they_were() -> None:
    """The gap counts as unknown, half of it is lost; three new readings are needed, and then the action follows."""
    before = over(27)
    play = anew(before, before.history.levels)
    play.step(GREEDY, MEEK)
    level = play.history.levels[HOLDER]
    assert (level.seconds, level.warned_at) == (130.0 - 17.5, before.history.levels[HOLDER].warned_at)
    begun = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - begun == 25.0


def test_a_restored_level_that_is_full_needs_three_readings() -> None:
    """However high it was: nothing is done before this daemon has seen the excess three times."""
    before = over(60, replace(UNHURRIED, grace=600.0))
    full = {HOLDER: replace(before.history.levels[HOLDER], seconds=615.0, due_at=before.monotonic)}
    play = anew(before, full)
    play.steps(2, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.FEW_READINGS)
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]


def test_levels_of_another_boot_are_not_restored() -> None:
    """Their times are later than ours."""
    before = over(20)
    late = replace(before.history.levels[HOLDER], read_at=before.monotonic + 1e6)
    assert anew(before, {HOLDER: late}).history.levels == {}


def test_what_the_new_daemon_counted_meanwhile_is_kept() -> None:
    """The levels are found after the first rounds: the readings since the start are this daemon's."""
    before = over(27)
    play = Play(history=settled())
    play.monotonic = before.monotonic + 10.0
    play.steps(3, GREEDY, MEEK)
    play.history = restored(play.history, before.history.levels, play.now)
    level = play.history.levels[HOLDER]
    assert (level.seconds, level.over, level.read_at) == (130.0, True, play.monotonic)
    assert level.excesses[CASE.limit.device].readings == 3
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.parametrize(("rounds", "level"), [(0, 0.0), (2, 15.0)])
def test_a_limit_that_was_raised_while_the_daemon_was_away_has_a_grace_of_its_own(
    rounds: int, level: float, tmp_path: Path
) -> None:
    """What was counted against the old limit is none of the new one's, and what was counted since then stays."""
    before = Play()
    before.steps(27, replace(GREEDY, used=20 * GIB), MEEK)
    file = levels_file.path_of(tmp_path / "journal")
    kept = levels_file.saved(before.history, "boot")
    assert kept is not None
    tmp_path.chmod(0o700)
    levels_file.write(file, kept)
    read = levels_file.read(file)
    assert read is not None
    play = Play(history=settled())
    play.monotonic = before.monotonic + 10.0
    raised = replace(GREEDY, limit=30 * GIB)
    for _ in range(rounds):
        play.step(raised, MEEK)
    play.history = restored(play.history, read.restored(), play.now)
    play.step(raised, MEEK)
    assert play.history.levels[HOLDER].seconds == level
    begun = play.monotonic
    play.until_action(raised, MEEK)
    assert play.monotonic - begun == 135.0 - level


def test_a_daemon_that_is_started_anew_does_not_fence_twice() -> None:
    """Its first rounds know no limits yet; the fence that the journal names stands all the same."""
    rules = replace(UNHURRIED, ladder=(Rung.FENCE, Rung.EVICT))
    play = Play(rules, replace(settled(rules), done=frozenset({(CASE.key, Rung.FENCE)})))
    play.step(live=False)
    play.step(replace(GREEDY, limit=None), MEEK)
    assert play.until_action(GREEDY, MEEK).rung is Rung.EVICT


def test_a_token_of_this_very_moment_is_too_soon() -> None:
    """The spacing begins with the action before, which an earlier daemon may have begun at the same second."""
    free = Play()
    free.until_action(GREEDY, MEEK)
    spent = Spent(free.now.boot, ("elsewhere", "Deployment", "other"))
    play = Play(history=replace(settled(), spent=(spent,)))
    play.steps(len(free.verdicts), GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.SPACING)


# --- the restart of a container ---


@pytest.mark.fault(38)
def test_a_restarted_container_keeps_the_level_and_must_be_over_itself() -> None:
    """It comes back with as much: three readings and 15 s later it is acted on, not a whole grace later."""
    play = Play()
    play.steps(27, GREEDY, MEEK)
    again = replace(GREEDY, generation=1)
    play.step(again, MEEK)
    begun = play.monotonic
    assert (play.standing(again), play.actions) == (State.GRACE, [])
    action = play.until_action(again, MEEK)
    assert action.container_id == again.id or action.rung is Rung.EVICT
    assert play.monotonic - begun == 15.0


def test_a_restarted_container_that_keeps_its_limit_is_not_acted_on() -> None:
    """The level falls; the memory of the earlier generation is not its own."""
    play = Play()
    play.steps(20, GREEDY, MEEK)
    meek = replace(GREEDY, generation=1, used=2 * GIB)
    play.steps(100, meek, MEEK)
    assert (play.actions, play.history.levels) == ([], {})
    assert play.standing(meek) is State.OK


def test_a_container_that_crashes_all_the_time_is_acted_on() -> None:
    """Half a minute over its limit, ten seconds away, again and again: a restart is no way out."""
    play = Play()
    begun = play.monotonic
    while not play.actions and play.monotonic < begun + 900:
        generation, phase = divmod(len(play.verdicts), 8)
        actors = [replace(GREEDY, generation=generation)] if phase < 6 else []
        gone = replace(GREEDY, generation=generation, used=0, limit=GREEDY.limit)
        play.step(*(actors or [gone]), MEEK)
    assert play.actions
    assert play.monotonic - begun <= 400.0


def test_an_accepted_action_starts_the_levels_of_its_pod_anew() -> None:
    """All limit holders of the pod, and no other pod's."""
    sibling = replace(GREEDY, container="second", used=9 * GIB)
    other = replace(GREEDY, pod="other-1", used=0, limit=8 * GIB)
    play = Play()
    small = replace(GREEDY, used=30 * GIB)
    loud = replace(other, used=20 * GIB)
    play.until_action(small, sibling, loud, MEEK)
    play.conclude(Result.ACCEPTED)
    assert play.actions == ["evict team/greedy-1"]
    assert {key.pod_uid for key in play.history.levels} == {other.pod_uid}


def test_a_device_on_which_the_earlier_daemon_saw_no_excess_keeps_its_own() -> None:
    """The holder is over on another GPU since the start: both excesses count."""
    before = over(27)
    play = Play(history=settled())
    play.monotonic = before.monotonic + 10.0
    play.steps(3, replace(GREEDY, gpu=1), MEEK, gpus=2)
    play.history = restored(play.history, before.history.levels, play.now)
    readings = {key.uuid: each.readings for key, each in play.history.levels[HOLDER].excesses.items()}
    assert readings == {"GPU-0": 0, "GPU-1": 3}


def test_levels_may_be_restored_before_the_first_snapshot() -> None:
    """Then nothing of ours is settled yet; otherwise the earlier daemon judged the blast radius."""
    levels = over(20).history.levels
    assert restored(History(), levels, Moment(1e6, 1e6)).settled is None
    found = restored(settled(), levels, Moment(1e6, 1e6)).settled
    assert found is not None
    assert found.vetted


def test_what_was_tried_is_forgotten_with_the_excess() -> None:
    """A pod without a level was tried in an excess that is over."""
    history = History(tried={GREEDY.pod_uid: 1.0}, turns={"team": 1.0})
    within = snapshot([replace(GREEDY, used=GIB)], 1.0)
    judged, levels = judge_all(within, UNHURRIED, history, Moment(1.0, 1.0))
    for cases_ in ([], judged):
        assert remembered(history, cases_, levels, SEEN, UNHURRIED).tried == {}
    kept = remembered(history, [], {HOLDER: Level(1.0, seconds=9.0)}, SEEN, UNHURRIED)
    assert (kept.tried, kept.turns) == (history.tried, history.turns)


def test_a_fence_of_a_claim_that_is_judged_stands() -> None:
    """The list of claims misses it in this round, and its limit is there."""
    sharer = replace(GREEDY, scope="claim", claim="team/shared")
    seen = replace(snapshot([sharer, MEEK], 1.0), claims=(Claim("team", "other"),))
    judged, levels = judge_all(seen, UNHURRIED, History(), Moment(1.0, 1.0))
    done = frozenset({(next(each.case.key for each in judged if each.case.key.claim), Rung.FENCE)})
    assert remembered(History(done=done), judged, levels, seen, UNHURRIED).done == done


def test_a_pod_is_deleted_from_the_round_that_first_shows_it() -> None:
    """Not from the round that first showed the pod; and no longer once the pod is gone."""
    play = over()
    assert play.history.deleted == {}
    ends = replace(GREEDY, facts={"terminating": True})
    play.step(ends, MEEK)
    begun = play.monotonic
    play.steps(3, ends, MEEK)
    assert play.history.deleted == {GREEDY.pod_uid: begun}
    play.step(MEEK)
    assert play.history.deleted == {}


@pytest.mark.parametrize(("gap", "counted"), [(30.0, 30.0), (30.1, 0.0)])
def test_a_gap_of_more_than_two_slow_rounds_is_no_time_that_a_holder_was_due(gap: float, counted: float) -> None:
    """The daemon does not know what was so while it stood still."""
    play = Play(SHORT)
    play.until_reason(Reason.NAMESPACE_UNKNOWN, GREEDY, MEEK, namespaces={})
    before = sum(play.history.due_seconds.values())
    play.step(GREEDY, MEEK, after=gap, namespaces={})
    assert sum(play.history.due_seconds.values()) - before == counted
