"""
A limit of a whole pod, of which only one container uses the device: `kill` and `fence` act on that container.

What comes in: pods with a limit of their own (gpushare, Koordinator), and what their containers hold. What goes out:
whom the action takes, and what is said of it.
"""

from dataclasses import replace

import pytest

from enforcer.journal.records import Planned
from enforcer.messages import document
from enforcer.messages.notices import ending, notices
from enforcer.policy.history import Result
from enforcer.policy.last_look import Spared
from enforcer.policy.limit_holders import Target, cases
from enforcer.policy.rules import CONSENT
from enforcer.policy.vocabulary import Reason, Rung, State, Trigger
from exporter.model import ContainerKind, ProcessKey, Subject
from policy.refusals import ENOUGH
from policy.scenes import CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, snapshot
from policy.stage import Stage

WHOLE = replace(GREEDY, scope="pod")
IDLE = replace(GREEDY, container="idle", used=0, limit=None)
SECOND = replace(GREEDY, container="second", used=GIB, limit=None)
KILLING = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL), trigger=Trigger.LIMIT)
FENCING = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT), trigger=Trigger.LIMIT)
ONE = 'container "main"'
NO_ID = Subject(GREEDY.pod_uid, "main", None)


@pytest.mark.parametrize(("rules", "rung"), [(KILLING, Rung.KILL), (FENCING, Rung.FENCE)])
def test_the_only_container_that_uses_the_device_is_acted_on(rules: object, rung: Rung) -> None:
    """The action names it, by name and generation; a container that holds nothing of the device changes nothing."""
    action = Play(rules).until_action(WHOLE, IDLE, MEEK)  # type: ignore[arg-type]
    assert (action.rung, action.container, action.container_id) == (rung, "main", GREEDY.id)
    assert (action.key.container, action.limit.container, action.pod_uid) == ("", "", GREEDY.pod_uid)


@pytest.mark.parametrize("other", [SECOND, replace(SECOND, used=None)], ids=["uses it", "may use it"])
def test_where_a_second_container_uses_the_device_none_is(other: Actor) -> None:
    """Whose excess it is nobody declared: the ladder that only kills has nothing to do."""
    play = Play(KILLING)
    play.steps(ENOUGH, WHOLE, other, MEEK)
    assert play.actions == []
    play = Play(FENCING)
    play.steps(ENOUGH, WHOLE, SECOND, MEEK)
    assert play.actions == ["evict team/greedy-1"]


def test_a_process_without_memory_uses_the_device_too() -> None:
    """A second container that has just begun there holds nothing yet."""
    seen = snapshot([WHOLE, IDLE], 1.0)
    begun = replace(seen.usages[1], processes=frozenset({ProcessKey(4711, 1)}))
    assert [case.sole_user for case in cases(seen)] == [Target("main", GREEDY.id)]
    assert [case.sole_user for case in cases(replace(seen, usages=(seen.usages[0], begun)))] == [None]


@pytest.mark.parametrize("kind", [ContainerKind.INIT, ContainerKind.EPHEMERAL])
def test_containers_that_are_left_alone_are_so_for_their_pod_s_limit_too(kind: ContainerKind) -> None:
    """An init or ephemeral container that alone uses the device is no victim."""
    play = Play(KILLING)
    play.steps(ENOUGH, replace(WHOLE, kind=kind), MEEK)
    assert (play.actions, play.reason(WHOLE)) == ([], Reason.NO_RUNG)


def test_a_container_of_another_generation_or_of_no_known_one_is_no_victim() -> None:
    """The memory is of a container that was restarted since, or of which Kubernetes tells nothing, or no id."""
    restarted = snapshot([WHOLE, replace(WHOLE, generation=1, used=0)], 1.0)
    known = snapshot([WHOLE], 1.0)
    unnamed = replace(known, containers=(replace(known.containers[0], id=None),))
    sandboxed = replace(unnamed, usages=tuple(replace(one, subject=NO_ID) for one in known.usages))
    for seen in (restarted, replace(known, containers=()), unnamed, sandboxed):
        assert next(case.sole_user for case in cases(seen)) is None
    assert [case.sole_user for case in cases(known)] == [Target("main", GREEDY.id)]


def test_an_eviction_is_the_pod_s() -> None:
    """What takes the whole pod names no container."""
    action = Play().until_action(WHOLE, MEEK)
    assert (action.rung, action.container, action.container_id) == (Rung.EVICT, "", None)


def test_a_second_container_that_comes_and_goes_delays_nothing_for_ever() -> None:
    """Fence and eviction take turns as what would follow: the harsher one that was told needs no other grace."""
    play = Play(FENCING)
    play.until(State.GRACE, WHOLE, MEEK)
    began = play.monotonic
    while not play.actions and play.monotonic < began + 3 * FENCING.grace:
        play.step(WHOLE, *([SECOND] if len(play.verdicts) % 4 < 2 else []), MEEK)
    assert play.actions in (["evict team/greedy-1"], ["fence team/greedy-1"])
    assert play.monotonic - began <= 1.2 * FENCING.grace


def test_a_gentler_action_in_a_mode_that_does_nothing_is_told_anew() -> None:
    """A namespace that withdraws its consent meanwhile, or a mode that changes, still begins another grace."""
    play = Play(FENCING)
    play.until(State.GRACE, WHOLE, SECOND, MEEK)
    play.steps(20, WHOLE, SECOND, MEEK)
    play.step(WHOLE, MEEK, namespaces={"team": {**CONSENTING, CONSENT: "dry-run"}})
    began = play.monotonic
    assert play.until_action(WHOLE, MEEK).rung is Rung.FENCE
    assert play.monotonic - began >= FENCING.grace


def test_who_was_told_that_nothing_follows_has_a_grace_before_a_fence() -> None:
    """An eviction that its namespace does not allow was told as held; the fence that then follows is another matter."""
    play = Play(FENCING)
    play.until(State.GRACE, WHOLE, SECOND, MEEK, namespaces={"team": {}})
    play.steps(20, WHOLE, SECOND, MEEK, namespaces={"team": {}})
    began = play.monotonic
    assert play.until_action(WHOLE, MEEK, namespaces={"team": {}}).rung is Rung.FENCE
    assert play.monotonic - began >= FENCING.grace


def test_a_harsher_action_than_was_told_has_a_grace_of_its_own() -> None:
    """Who was told of a fence is not evicted when that grace is over, because a second container uses the device."""
    play = Play(FENCING)
    play.until(State.GRACE, WHOLE, MEEK)
    play.steps(10, WHOLE, MEEK)
    play.step(WHOLE, SECOND, MEEK)
    began = play.monotonic
    play.until_action(WHOLE, SECOND, MEEK)
    assert play.monotonic - began >= FENCING.grace


async def test_a_second_container_that_starts_before_the_action_stops_it() -> None:
    """The last look sees it: nobody is killed, and the end says why."""
    stage = Stage(WHOLE, MEEK, rules=KILLING)
    stage.at["intended"] = lambda: stage.actors.append(SECOND)
    await stage.play()
    assert "acted" not in stage.script
    assert stage.script[-1] == f"abandoned {Spared.OTHER_CONTAINER}"


async def test_a_container_that_was_replaced_meanwhile_is_spared() -> None:
    """The server tells another generation of the victim than the one that held the memory."""
    stage = Stage(WHOLE, MEEK, rules=KILLING)
    stage.live = replace(WHOLE, generation=1)
    await stage.play()
    assert "acted" not in stage.script
    assert stage.script[-1] == f"abandoned {Spared.OTHER_CONTAINER}"


@pytest.mark.parametrize("rules", [KILLING, FENCING], ids=["kill", "fence"])
def test_the_journal_keeps_the_container(rules: object) -> None:
    """A daemon that begins anew looks for the same container, under the pod's limit."""
    action = Play(rules).until_action(WHOLE, MEEK)  # type: ignore[arg-type]
    planned = Planned.of(action)
    assert (planned.container, planned.container_id, planned.key.container) == ("main", GREEDY.id, "")
    again = planned.restored()
    assert (again.victim, again.key, again.limit.container) == (Target("main", GREEDY.id), action.key, "")
    assert again.limit.scope == "pod"


def test_whoever_is_told_reads_which_container_it_will_be() -> None:
    """The warning is the pod's, and names the container; so is the end's, on the container's own Event."""
    for rules, following in ((FENCING, f"the driver will refuse {ONE} more"), (KILLING, f"{ONE} will be killed")):
        play = Play(rules)
        verdict = play.until(State.GRACE, WHOLE, MEEK)
        (notice,) = notices(verdict, snapshot([WHOLE, MEEK], play.monotonic))
        assert notice.note.startswith("The pod uses ")
        assert following in notice.note
        described = [document.standing(one, 0.0) for one in verdict.standings if one.pod == WHOLE.pod]
        assert [(one["container"], one["next_container"]) for one in described] == [("", "main")]
    action = play.until_action(WHOLE, MEEK)
    ended = ending(action, Result.VERIFIED, "", play.now, 0.0)
    assert ended is not None
    assert ended.regarding.container == "main"
    assert ended.note.startswith('Container "main" uses ')
    assert "its pod's limit" in ended.note
