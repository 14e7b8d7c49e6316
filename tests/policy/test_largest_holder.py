"""
A limit that several containers or pods share: an action ends its largest holder.

Pods and claims with limits of their own, and what their containers hold, come in. What the action ends goes out, and
what is said of it.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from enforcer.journal.records import Planned
from enforcer.messages import document
from enforcer.policy.cases import cases
from enforcer.policy.history import Action, Moment, Result
from enforcer.policy.holder import Target
from enforcer.policy.last_look import Live, Spared, last_look
from enforcer.policy.rules import CONSENT, Rules
from enforcer.policy.vocabulary import Reason, Rung, State
from exporter.model import Container, ContainerKind, Subject
from policy.scenes import BEGIN, CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, snapshot

ENOUGH = 32
WHOLE = replace(GREEDY, scope="pod")
IDLE = replace(GREEDY, container="idle", used=0, limit=None)
SECOND = replace(GREEDY, container="second", used=GIB, limit=None)
KILLING = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL))
FENCING = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT))
NO_ID = Subject(GREEDY.pod_uid, "main", None)

FIRST = Actor("first-1", 30 * GIB, scope="claim", claim="team/shared")
OTHER = Actor("other-1", 20 * GIB, scope="claim", claim="team/shared")


# --- a pod's limit ---


@pytest.mark.parametrize(("rules", "rung"), [(KILLING, Rung.KILL), (FENCING, Rung.FENCE)])
@pytest.mark.parametrize("other", [IDLE, SECOND], ids=["idle", "smaller"])
def test_the_largest_container_is_acted_on(rules: Rules, rung: Rung, other: Actor) -> None:
    """The action names it, by name and generation; smaller containers of the pod are left alone."""
    action = Play(rules).until_action(other, WHOLE, MEEK)
    assert (action.rung, action.container, action.container_id) == (rung, "main", GREEDY.id)
    assert (action.key.container, action.limit.container, action.pod_uid) == ("", "", GREEDY.pod_uid)


def test_a_container_whose_usage_is_unknown_is_not_the_largest() -> None:
    """The largest one by what is certain: a process that is not measured shields no other container."""
    action = Play(KILLING).until_action(WHOLE, replace(SECOND, used=None), MEEK)
    assert action.container == "main"


@pytest.mark.parametrize("kind", [ContainerKind.INIT, ContainerKind.EPHEMERAL])
def test_init_and_ephemeral_containers_end_with_their_pod_only(kind: ContainerKind) -> None:
    """A ladder that only kills cannot act on them, and says so; one that evicts ends the pod."""
    play = Play(KILLING)
    play.steps(ENOUGH, replace(WHOLE, kind=kind), MEEK)
    assert (play.actions, play.reason(WHOLE)) == ([], Reason.CONTAINER_KIND)
    assert Play().until_action(replace(WHOLE, kind=kind), MEEK).rung is Rung.EVICT


def test_a_container_of_another_generation_or_of_no_known_one_is_no_victim() -> None:
    """The memory is of a container that was restarted since, or that Kubernetes does not name, or without an id."""
    restarted = snapshot([WHOLE, replace(WHOLE, generation=1, used=0)], 1.0)
    known = snapshot([WHOLE], 1.0)
    unnamed = replace(known, containers=(replace(known.containers[0], id=None),))
    sandboxed = replace(unnamed, usages=tuple(replace(usage, subject=NO_ID) for usage in known.usages))
    for seen in (restarted, replace(known, containers=()), unnamed, sandboxed):
        assert next(case.largest for case in cases(seen)) is None
    assert [case.largest for case in cases(known)] == [Target("main", GREEDY.id)]


def test_an_eviction_is_the_pod_s() -> None:
    """What ends the whole pod names no container."""
    action = Play().until_action(WHOLE, MEEK)
    assert (action.rung, action.container, action.container_id) == (Rung.EVICT, "", None)


@pytest.mark.parametrize("rules", [UNHURRIED, KILLING, FENCING], ids=["evict", "kill", "fence"])
def test_containers_that_take_turns_as_the_largest_delay_little(rules: Rules) -> None:
    """Two containers that swap a few bytes in each round: the pod is acted on all the same."""
    play = Play(rules)
    begun = play.monotonic
    while not play.actions and play.monotonic < begun + 600:
        turn = len(play.verdicts) % 2
        play.step(replace(WHOLE, used=30 * GIB + turn), replace(SECOND, used=30 * GIB + 1 - turn), MEEK)
    assert play.actions
    assert play.monotonic - begun <= 5 + 15 + 120 + 5


def test_a_pod_s_limit_and_an_eviction_ask_for_no_time_of_one_container() -> None:
    """A pod whose containers restart all the time is evicted as one whose containers do not."""
    play = Play()
    begun = play.monotonic
    while not play.actions and play.monotonic < begun + 600:
        play.step(replace(WHOLE, generation=len(play.verdicts)), MEEK)
    assert play.monotonic - begun == 5 + 135


def test_a_kill_by_a_pod_s_limit_asks_for_the_container_s_own_time() -> None:
    """The container that is to be killed was restarted: three readings, and 15 s of its own."""
    play = Play(KILLING)
    play.steps(27, WHOLE, MEEK)
    assert play.actions == []
    again = replace(WHOLE, generation=1)
    play.step(again, MEEK)
    begun = play.monotonic
    action = play.until_action(again, MEEK)
    assert action.container_id == again.id
    assert play.monotonic - begun == 15.0


def test_a_step_that_is_not_allowed_was_announced_as_held() -> None:
    """The warning says that no eviction follows without consent. A fence that follows later has its own grace."""
    play = Play(FENCING)
    play.until(State.GRACE, WHOLE, MEEK, namespaces={"team": {CONSENT: "observe"}})
    play.steps(30, WHOLE, MEEK, namespaces={"team": {CONSENT: "observe"}})
    assert (play.standing(WHOLE), play.actions) == (State.HELD, [])
    play.step(WHOLE, MEEK)
    freed = play.monotonic
    assert play.until_action(WHOLE, MEEK).rung is Rung.FENCE
    assert play.monotonic - freed == 120.0


def live(*actors: Actor, labels: Mapping[str, str] = CONSENTING) -> Live:
    """Let the API server describe the first actor's pod with these containers."""
    containers = tuple(Container(actor.pod_uid, actor.container, actor.id, actor.kind) for actor in actors)
    return Live(actors[0].named(), containers, "node", labels)


def looked(play: Play, action: Action, *actors: Actor) -> Reason | Spared | None:
    """Take the last look a tenth of a second after the decision."""
    at = play.monotonic + 0.1
    mine = [actor for actor in actors if actor.pod == actors[0].pod]
    seen = snapshot(actors, at)
    return last_look(action, live(*mine), seen, rules=play.rules, history=play.history, now=Moment(at, at))


def test_another_container_that_became_the_largest_stops_the_action() -> None:
    """The last look spares a container that does not hold most any more; one that stays the largest is not spared."""
    play = Play(KILLING)
    action = play.until_action(WHOLE, SECOND, MEEK)
    assert looked(play, action, WHOLE, SECOND, MEEK) is None
    other = looked(play, action, replace(WHOLE, used=10 * GIB), replace(SECOND, used=30 * GIB), MEEK)
    assert other is Spared.OTHER_CONTAINER
    assert looked(play, action, replace(WHOLE, generation=1), SECOND, MEEK) is Spared.OTHER_CONTAINER


@pytest.mark.parametrize("rules", [KILLING, FENCING], ids=["kill", "fence"])
def test_the_journal_keeps_the_container(rules: Rules) -> None:
    """A daemon that starts anew looks for the same container, under the pod's limit."""
    action = Play(rules).until_action(WHOLE, MEEK)
    planned = Planned.of(action)
    assert (planned.container, planned.container_id, planned.key.container) == ("main", GREEDY.id, "")
    again = planned.restored()
    assert (again.victim, again.key, again.limit.container) == (Target("main", GREEDY.id), action.key, "")
    assert again.limit.scope == "pod"


@pytest.mark.parametrize("rules", [KILLING, FENCING], ids=["kill", "fence"])
def test_the_document_names_the_next_container(rules: Rules) -> None:
    """The JSON API says which container an action would end."""
    verdict = Play(rules).until(State.GRACE, WHOLE, MEEK)
    described = [document.standing(standing, 0.0, 0.0) for standing in verdict.standings if standing.pod == WHOLE.pod]
    assert [(each["container"], each["next_container"]) for each in described] == [("", "main")]


# --- a claim that several pods share ---


def test_the_largest_pod_of_a_claim_is_evicted() -> None:
    """The claim's limit is exceeded by both together: the one that holds most goes, and the claim begins anew."""
    play = Play()
    assert play.until_action(OTHER, FIRST, MEEK).pod == "first-1"
    play.conclude(Result.ACCEPTED)
    assert play.history.levels == {}
    play.steps(10, replace(OTHER, used=6 * GIB), MEEK)
    assert play.standing(OTHER) is State.OK


@pytest.mark.parametrize("pods", [2, 3, 6])
@pytest.mark.parametrize("rounds", [1, 2, 7, 26])
def test_pods_that_take_turns_as_the_largest_of_a_claim_are_acted_on(pods: int, rounds: int) -> None:
    """Each of n pods may have its own time: the first action comes within n times the usual time."""
    play, largest = Play(), dict[int, float]()
    begun = play.monotonic
    while not play.actions and play.monotonic < begun + 3600:
        turn = len(play.verdicts) // rounds % pods
        largest[turn] = largest.get(turn, 0.0) + play.rules.interval
        sharers = (Actor(f"sharer{each}-1", 10 * GIB, scope="claim", claim="team/shared") for each in range(pods))
        play.step(*(replace(one, used=10 * GIB + (each == turn)) for each, one in enumerate(sharers)), MEEK)
    assert play.actions == [f"evict team/sharer{turn}-1"]
    assert largest[turn] >= 15 + 120, "and none before it was the largest for its own warning and grace"
    assert play.monotonic - begun <= pods * (15 + 120 + 2 * play.rules.interval)


def test_a_terminating_pod_of_a_claim_is_not_asked_for_the_others_sake() -> None:
    """The largest pod ends already: the pod that stays, within the limit by itself, is left alone."""
    small = replace(OTHER, used=6 * GIB)
    play = Play()
    play.steps(20, FIRST, small, MEEK)
    play.steps(60, replace(FIRST, facts={"terminating": True}), small, MEEK)
    assert play.actions == []
    (state,) = [one for one in play.verdicts[-1].standings if one.claim]
    assert (state.pod, state.reason) == (FIRST.pod, Reason.TERMINATING), "the pod that ends is the one that is held"


def test_a_terminating_pod_of_a_claim_does_not_shield_the_pod_that_stays() -> None:
    """What stays exceeds the limit by itself: it is acted on after its own time."""
    play = Play()
    play.steps(20, FIRST, OTHER, MEEK)
    ends = replace(FIRST, facts={"terminating": True})
    play.step(ends, OTHER, MEEK)
    begun = play.monotonic
    action = play.until_action(ends, OTHER, MEEK)
    assert action.pod == "other-1"
    assert play.monotonic - begun >= 135.0


def test_a_protected_pod_of_a_claim_shields_no_other_pod() -> None:
    """The largest pod has a priority that protects it: the next one is acted on, and says that it is the next one."""
    play = Play()
    protected = replace(FIRST, facts={"priority": 2_000_000_000})
    action = play.until_action(protected, OTHER, MEEK)
    assert action.pod == "other-1"


def test_a_pod_that_joins_a_claim_is_warned_itself_and_has_the_whole_time() -> None:
    """A newcomer that is larger than the others is not acted on for what the claim was over before it came."""
    play = Play(replace(UNHURRIED, budgets=UNHURRIED.budgets))
    play.steps(27, OTHER, MEEK)
    assert play.actions == []
    play.step(FIRST, OTHER, MEEK)
    joined = play.monotonic
    (level,) = play.history.levels.values()
    assert level.warned_at == joined
    action = play.until_action(FIRST, OTHER, MEEK)
    assert action.pod == "first-1"
    assert play.monotonic - joined >= 135.0


def test_a_claim_on_two_devices_with_another_largest_pod_on_each() -> None:
    """An action concerns the pod that was over for its own time: the other device's largest pod has its own."""
    here = [replace(FIRST, gpu=0), replace(OTHER, gpu=0, used=GIB)]
    there = [replace(FIRST, gpu=1, used=GIB), replace(OTHER, gpu=1)]
    play = Play()
    action = play.until_action(*here, *there, gpus=2)
    assert (action.pod, action.device.uuid) == ("first-1", "GPU-0")
    play = Play()
    within = [replace(actor, used=GIB) for actor in here]
    action = play.until_action(*within, *there, gpus=2)
    assert (action.pod, action.device.uuid) == ("other-1", "GPU-1")


def test_a_pod_that_was_told_of_a_fence_is_not_evicted_by_what_another_pod_of_the_claim_was_told() -> None:
    """A fence that cannot be set leads to an eviction, of which each pod of the claim is warned itself."""
    play = Play(FENCING)
    play.steps(10, FIRST, OTHER)  # warned of a fence
    then = [replace(FIRST, used=GIB), OTHER]
    action = play.until_action(*then)
    assert (action.pod, action.rung) == ("other-1", Rung.FENCE)
    play.conclude(Result.IMPOSSIBLE)
    play.steps(3, *then)
    told = play.monotonic
    action = play.until_action(FIRST, replace(OTHER, used=GIB))
    assert (action.pod, action.rung) == ("first-1", Rung.EVICT)
    assert play.monotonic - told >= FENCING.grace


@pytest.mark.parametrize("gpu", [0, 1])
@pytest.mark.parametrize("answer", [Result.ACCEPTED, Result.BLOCKED])
def test_the_largest_of_each_device_of_a_claim_is_acted_on(gpu: int, answer: Result) -> None:
    """One pod comes back after each eviction, or cannot be evicted: another one on another GPU does not outlive it."""
    back = replace(FIRST, gpu=gpu, used=70 * GIB)
    stays = [replace(OTHER, gpu=1 - gpu, used=60 * GIB)]
    play = Play()
    assert play.until_action(back, *stays, gpus=2).pod == "first-1"
    play.conclude(answer)
    assert play.until_action(back, *stays, gpus=2).pod == "other-1"
    assert play.monotonic - BEGIN <= 140.0 + 60.0


def test_memory_of_a_claim_that_moves_between_devices_and_pods_accuses_no_newcomer() -> None:
    """Device 0 is over by one pod for long; then device 1 by another pod: that one has its whole time."""
    play = Play()
    first = [replace(FIRST, gpu=0), replace(OTHER, gpu=0, used=GIB)]
    quiet = [replace(FIRST, gpu=1, used=GIB), replace(OTHER, gpu=1, used=GIB)]
    play.steps(27, *first, *quiet, gpus=2)
    assert play.actions == []
    calm = [replace(FIRST, gpu=0, used=GIB), replace(OTHER, gpu=0, used=GIB)]
    loud = [replace(FIRST, gpu=1, used=GIB), replace(OTHER, gpu=1)]
    play.step(*calm, *loud, gpus=2)
    moved = play.monotonic
    assert play.until_action(*calm, *loud, gpus=2).pod == "other-1"
    assert play.monotonic - moved >= 135.0


def test_an_init_container_whose_eviction_was_blocked_is_evicted_later() -> None:
    """A kill cannot follow, so the eviction is requested again: one that was blocked once is no shield for life."""
    play = Play(replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.EVICT, Rung.KILL), kill_when_blocked=True))
    init = replace(WHOLE, kind=ContainerKind.INIT)
    assert play.until_action(init, MEEK).rung is Rung.EVICT
    play.conclude(Result.BLOCKED)
    assert play.until_action(init, MEEK).rung is Rung.EVICT


def test_a_blocked_eviction_of_one_pod_of_a_claim_lets_no_other_pod_be_killed() -> None:
    """The pod that holds most next is asked to go itself, whatever `when_blocked` says."""
    first = Actor("first-1", 30 * GIB, scope="claim", claim="team/shared")
    other = Actor("other-1", 20 * GIB, scope="claim", claim="team/shared")
    play = Play(replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.EVICT, Rung.KILL), kill_when_blocked=True))
    assert play.until_action(first, other, MEEK).pod == "first-1"
    play.conclude(Result.BLOCKED)
    action = play.until_action(replace(first, used=10 * GIB), replace(other, used=25 * GIB), MEEK)
    assert (action.pod, action.rung) == ("other-1", Rung.EVICT)


def test_a_container_that_restarts_gains_no_time_for_its_claim() -> None:
    """The pod was warned, and not one generation of its container: restarts are no shield, where the step is a kill."""
    play = Play(KILLING)
    begun = play.monotonic
    play.steps(20, FIRST, MEEK)
    again = replace(FIRST, generation=1)
    action = play.until_action(again, MEEK)
    assert (action.rung, action.container_id) == (Rung.KILL, again.id)
    assert play.monotonic - begun == 5 + 135
