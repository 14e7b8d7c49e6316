"""
One case, judged by itself: when a reading counts, and for what.

Cases of a snapshot, what is remembered of their holder, and the moments of snapshot and look come in. Judged cases and
levels go out.
"""

from dataclasses import replace

import pytest

from enforcer.policy.history import Moment
from enforcer.policy.holder import HolderKey
from enforcer.policy.holds import held
from enforcer.policy.judgement import judge_all
from enforcer.policy.levels import Level
from enforcer.policy.rules import Ceiling
from enforcer.policy.vocabulary import Mode, Place, Reason, State
from exporter.model import Context
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, settled, snapshot

HOLDER = HolderKey(GREEDY.pod_uid, "main", "")
BEFORE = Level(BEGIN, over=True, seconds=5.0, since=BEGIN - 5, victim=GREEDY.id)


def level(taken: float, looked: float, before: Level | None = BEFORE) -> Level | None:
    """Judge GREEDY by a snapshot of one moment, at another one."""
    history = settled() if before is None else replace(settled(), levels={HOLDER: before})
    _, levels = judge_all(snapshot([GREEDY, MEEK], taken), UNHURRIED, history, Moment(looked, looked))
    return levels.get(HOLDER)


@pytest.mark.parametrize("early", [0.0, 0.1])
def test_a_reading_that_is_not_later_adds_nothing(early: float) -> None:
    """What was read at the moment of the last reading, or before it, is known."""
    assert level(BEGIN - early, BEGIN + 1) is BEFORE
    later = level(BEGIN + 5, BEGIN + 5)
    assert later is not None
    assert (later.read_at, later.seconds) == (BEGIN + 5, 10.0)


def test_a_round_that_movement_asked_for_moves_no_level() -> None:
    """Its moment depends on what tenants do. It shows who is over, and the next round by the clock counts."""
    seen = replace(snapshot([GREEDY, MEEK], BEGIN + 5), by_time=False)
    judged, levels = judge_all(
        seen, UNHURRIED, replace(settled(), levels={HOLDER: BEFORE}), Moment(BEGIN + 5, BEGIN + 5)
    )
    assert levels[HOLDER] is BEFORE
    assert [each.over for each in judged] == [True, False]


@pytest.mark.parametrize(("late", "counts"), [(15.0, True), (15.1, False), (-15.0, True), (-15.1, False)])
def test_a_snapshot_counts_for_15_s(late: float, *, counts: bool) -> None:
    """A snapshot that is looked at later shows another time, and does not count. Nor does one from a clock ahead."""
    assert (level(BEGIN + 5, BEGIN + 5 + late, None) is not None) is counts


def test_a_stale_snapshot_leads_to_no_action() -> None:
    """A holder that is due is not acted on by a snapshot that waited, and by the next fresh one it is."""
    play = Play(replace(UNHURRIED, hold_off=0.0))
    play.history = held(play.history, Place.NODE, "", Reason.REFUSED, play.now, seconds=149.0)
    play.steps(29, GREEDY, MEEK)
    assert play.reason(GREEDY) == Reason.REFUSED
    play.stall = 15.1
    play.step(GREEDY, MEEK)
    assert play.actions == []
    play.until_action(GREEDY, MEEK, most=10)


def test_each_holder_is_judged_by_itself() -> None:
    """Nothing of another holder enters a level: the same readings give the same one, whatever is there besides."""
    alone, crowded = Play(), Play()
    others = [replace(GREEDY, pod=f"other-{n}", used=9 * GIB) for n in range(5)]
    for index in range(10):
        alone.step(replace(GREEDY, used=20 * GIB))
        crowded.step(replace(GREEDY, used=20 * GIB), *others[: index % 6], hidden={0: index * GIB})
    assert alone.history.levels[HOLDER] == crowded.history.levels[HOLDER]


def test_an_early_round_that_reads_one_of_two_gpus_leaves_the_level_of_a_holder_on_both() -> None:
    """The next full round reads all of its devices; a holder on the GPU that was read is judged at once."""
    both = [replace(GREEDY, gpu=0), replace(GREEDY, gpu=1, used=2 * GIB)]
    here = replace(GREEDY, pod="here-1")
    play = Play()
    play.steps(3, *both, here, gpus=2)
    before = play.history.levels[HOLDER]
    play.step(*both, here, gpus=2, after=2.0, read=[0], read_ago=2.0)
    assert play.history.levels[HOLDER] == before
    assert play.history.levels[HolderKey(here.pod_uid, "main", "")].seconds == 12.0
    states = {
        standing.key.uuid: standing.state for standing in play.verdicts[-1].standings if standing.pod == "greedy-1"
    }
    assert states == {"GPU-0": State.OVER, "GPU-1": State.OK}
    play.step(*both, here, gpus=2, after=3.0)
    assert play.history.levels[HOLDER].seconds == 15.0


def test_a_gpu_that_was_not_read_for_long_is_unknown() -> None:
    """Only a reading of a short time ago is waited for: over on the other GPU still counts."""
    both = [replace(GREEDY, gpu=0), replace(GREEDY, gpu=1, used=2 * GIB)]
    play = Play()
    play.steps(3, *both, gpus=2)
    play.step(*both, gpus=2, read=[0])
    assert play.history.levels[HOLDER].seconds == 15.0
    play.step(*both, gpus=2, read=[1])
    assert play.history.levels[HOLDER].over is True, "unknown, and close to a known reading: nothing changes"
    play.step(*both, gpus=2, read=[1])
    assert (play.history.levels[HOLDER].over, play.history.levels[HOLDER].seconds) == (None, 10.0)


@pytest.mark.parametrize(
    ("facts", "kept"),
    [({"phase": "Succeeded"}, True), ({"priority": 2_000_000_000}, False), ({"config_hash": "0123"}, False)],
    ids=["ended for now", "priority", "static"],
)
def test_a_protected_holder_has_no_level(facts: dict[str, object], *, kept: bool) -> None:
    """What an operator protects starts at 0 when the protection ends; what only waits goes on, lower."""
    play = Play()
    play.steps(10, GREEDY, MEEK)
    play.step(replace(GREEDY, facts=facts), MEEK)
    play.step(replace(GREEDY, facts=facts), MEEK)
    known = play.history.levels.get(HOLDER)
    assert (known is not None) is kept
    assert known is None or known.seconds == 40.0
    play.step(GREEDY, MEEK)
    assert (play.history.levels[HOLDER].seconds > 0) is kept


def test_a_pod_that_kubernetes_does_not_name_keeps_its_level_and_is_not_acted_on() -> None:
    """A round without its name is one that says nothing of it."""
    play = Play()
    play.steps(26, GREEDY, MEEK)
    play.step(GREEDY, MEEK, strangers=[GREEDY.pod])
    assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.EXEMPT, Reason.POD_UNKNOWN)
    play.until_action(GREEDY, MEEK, most=6)


def test_a_usage_that_is_not_known_is_neither_over_nor_within() -> None:
    """A context that was not seen adds nothing to the context allowance."""
    unseen = replace(GREEDY, used=None, context=Context.EXCLUDED)
    now = Moment(BEGIN, BEGIN)
    (judged,), levels = judge_all(snapshot([unseen], BEGIN), UNHURRIED, settled(), now)
    assert (judged.over, judged.allowance, levels) == (None, 0, {})


@pytest.mark.parametrize(
    "other",
    [replace(GREEDY, gpu=1, limit=None, undeclared=True), replace(GREEDY, gpu=1, generation=-1)],
    ids=["no limit", "an earlier generation"],
)
def test_what_binds_nothing_any_more_has_no_part_in_a_level(other: Actor) -> None:
    """A device without a limit, and what an earlier generation still holds, neither raise a level nor keep it."""
    play = Play()
    play.steps(10, GREEDY, gpus=2)
    play.steps(4, other, replace(GREEDY, used=GIB), gpus=2)
    assert play.history.levels[HOLDER].seconds == 45.0 - 3 * 2.5


@pytest.mark.parametrize(
    "unjudged",
    [replace(GREEDY, limit=None, problems=("not a number",)), replace(GREEDY, facts={"phase": ""})],
    ids=["limit", "phase"],
)
def test_a_stop_while_a_holder_is_not_judged_is_not_forgotten(unjudged: Actor) -> None:
    """An operator stops the node for one round in which the limit is invalid, or the pod not running: warned anew."""
    play = Play()
    play.steps(10, GREEDY, MEEK)
    warned_at = play.history.levels[HOLDER].warned_at
    rules, play.rules = play.rules, replace(play.rules, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),))
    play.step(unjudged, MEEK)
    play.rules = rules
    assert play.history.levels[HOLDER].warned_at == warned_at
    play.step(GREEDY, MEEK)
    assert play.history.levels[HOLDER].warned_at == play.monotonic
    assert play.history.levels[HOLDER].seconds == rules.warn_after


def test_a_limit_that_disappears_lowers_the_level_and_does_not_erase_it() -> None:
    """A round that misses the declaration delays an action by a bounded time."""
    play = Play()
    play.steps(20, GREEDY, MEEK)
    play.steps(2, replace(GREEDY, limit=None), MEEK)
    play.step(GREEDY, MEEK)
    assert play.history.levels[HOLDER].seconds == 95.0 - 7.5
    invalid = replace(GREEDY, limit=None, problems=("not a number",))
    play.steps(2, invalid, MEEK)
    assert play.history.levels[HOLDER].seconds < 95.0 - 7.5


def test_a_snapshot_that_is_not_later_is_not_judged() -> None:
    """An older snapshot may contradict what is newer: the verdict is the last one's states, and no action."""
    play = Play()
    play.steps(3, GREEDY, MEEK)
    before = play.history
    play.step(after=-1.0)
    assert play.history is before
    assert [standing.pod for standing in play.verdicts[-1].standings] == ["greedy-1", "meek-1"]


def test_nothing_is_judged_of_a_holder_that_was_never_over() -> None:
    """Holders within their limits cost no memory."""
    play = Play()
    play.steps(5, MEEK)
    assert play.history.levels == {}
