"""
The last look before an action, and the second one before SIGKILL.

An action comes in, and what differs at the moment of the call: the API server's answer, the round, the history. Why the
action is not taken goes out, or nothing.

The rule: all that justified the action is asked for again. Where the server's answer and the watch differ about the
victim's pod, the later one counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from enforcer.policy.decide import decide
from enforcer.policy.history import Action, Hold, InFlight, Opened, Result, Spent
from enforcer.policy.last_look import FRESH, Live, Spared, holds, last_look
from enforcer.policy.vocabulary import Breaker, Mode, Place, Reason, Rung, Trigger
from enforcer.runtime.last_looks import LOOKS
from exporter.model import Container, Snapshot
from policy.scenes import BEGIN, CONSENTING, GIB, UNHURRIED, WALL, Actor, Play, snapshot
from policy.stage import Stage

HOG = Actor("hog-1", used=60 * GIB, limit=40 * GIB)
POOR = Actor("poor-1", used=10 * GIB, limit=40 * GIB)


@dataclass(frozen=True)
class Answer:
    """What is known of the pod: a resourceVersion, annotations, and how often its container was restarted."""

    version: str
    annotations: Mapping[str, str]
    generation: int = 0

    def of(self, actor: Actor) -> Actor:
        facts = {**actor.facts, "version": self.version, "annotations": self.annotations}
        return replace(actor, facts=facts, generation=self.generation)


class Editing(Stage):
    """A stage of pairs: the answer of the server, and what the watch knows in the round after it."""

    def __init__(self, *looks: tuple[Answer, Answer]) -> None:
        super().__init__(HOG, POOR)
        self.looks = list(looks)
        self.at["heard accepted"] = lambda: self.empty("hog-1")

    async def ask(self, action: Action) -> Live:
        answered, known = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        self.live, self.actors[0] = answered.of(HOG), known.of(HOG)
        return await super().ask(action)


def beat(version: str, count: int = 0) -> Answer:
    """An edit that means nothing."""
    return Answer(version, {"beat": str(count)})


async def test_a_pod_that_is_edited_all_the_time_is_acted_on() -> None:
    """The round comes after the answer, so the watch may know a later edit, which is no less true."""
    stage = Editing((beat("99"), beat("101", 1)))
    await stage.play()
    assert stage.script.count("asked") == stage.script.count("acted") == 1
    assert stage.script[-1] == "verified"


async def test_an_edit_has_the_time_of_two_looks_to_arrive() -> None:
    """An edit takes some milliseconds to arrive: another answer and another round, and then they agree."""
    stage = Editing((beat("101", 1), beat("99")), (beat("101", 1), beat("101", 1)))
    await stage.play()
    assert (stage.script.count("asked"), stage.script.count("acted")) == (2, 1)


@pytest.mark.parametrize(
    ("answered", "known"), [("101", "99"), ("100", "100"), ("b", "c"), ("", ""), ("99", ""), ("", "99")]
)
async def test_what_the_watch_knows_counts_only_where_it_is_later(answered: str, known: str) -> None:
    """The limit may have been read of what is no more; nor is anything later where versions are no numbers."""
    stage = Editing((beat(answered, 1), beat(known)))
    await stage.play(until=lambda: stage.results)
    assert stage.script.count("asked") == LOOKS and "acted" not in stage.script
    assert stage.script[-1] == "abandoned declaration_changed"


async def test_what_is_remembered_is_not_later() -> None:
    """While the names are not live the server's answer counts: versions go back where a cluster was restored."""
    stage = Editing((beat("99"), beat("101", 1)))
    stage.at["intended"] = lambda: stage.world.update(live=False)
    await stage.play(until=lambda: stage.results)
    assert stage.script[-1] == "abandoned declaration_changed" and "acted" not in stage.script


@pytest.mark.parametrize(
    ("later", "spared"),
    [
        (Answer("101", {"gpusteward.io/exempt": "true"}), "exempt"),
        (Answer("101", {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}), "third_party"),
        (Answer("101", {}, generation=1), "subject_gone"),
    ],
)
async def test_a_later_edit_spares_as_the_answer_does(later: Answer, spared: str) -> None:
    """What an edit between answer and round says is judged by, not what it replaced."""
    stage = Editing((beat("99"), later))
    stage.labels = {**stage.labels, "gpusteward.io/allow-pod-exemption": "true"}
    await stage.play(until=lambda: stage.results)
    assert stage.script[-1] == f"abandoned {spared}" and "acted" not in stage.script


@pytest.mark.parametrize(("limit", "called"), [(39, True), (41, True), (61, False)])
async def test_another_limit_below_the_usage_spares_nothing(limit: int, called: bool) -> None:
    """A limit that goes back and forth below the usage gains nothing by the moment of the last look either."""
    stage = Stage(HOG, POOR)
    stage.at["intended"] = lambda: stage.actors.__setitem__(0, replace(HOG, limit=limit * GIB))
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    await stage.play(200, until=lambda: stage.results)
    assert ("acted" in stage.script) is called


@pytest.mark.parametrize(("limit", "called"), [(39, True), (41, False)])
async def test_a_fence_is_not_lower_than_the_limit_is_now(limit: int, called: bool) -> None:
    """One for a smaller limit than the declared one is not set; one for a larger one is, and falls a round later."""
    stage = Stage(HOG, POOR, rules=replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE)))
    stage.at["intended"] = lambda: stage.actors.__setitem__(0, replace(HOG, limit=limit * GIB))
    await stage.play(until=lambda: {"acted", "abandoned declaration_changed"} & set(stage.script))
    assert ("acted" in stage.script) is called is ("abandoned declaration_changed" not in stage.script)


def test_memory_is_free_when_lists_were_read_and_it_is_in_none() -> None:
    """A round whose process lists could not be read proves neither that the pod holds memory nor the contrary."""
    play = Play()
    action = play.until_action(HOG, POOR)

    def unread(seen: Snapshot) -> Snapshot:
        return replace(seen, usages=(), devices=tuple(replace(one, containers=None) for one in seen.devices))

    gone = snapshot([POOR], BEGIN + 500)
    assert holds(action, snapshot([HOG, POOR], BEGIN + 500)) is True
    assert holds(action, gone) is False
    assert holds(action, unread(gone)) is None
    assert holds(action, replace(unread(gone), usages=gone.usages)) is False  # the kernel counts, without any list
    assert holds(action, replace(gone, devices=())) is None


def intended(rules: Any = UNHURRIED, *others: Actor, **world: Any) -> Play:
    """Play until an action on HOG is in flight."""
    play = Play(rules)
    play.until_action(HOG, POOR, *others, **world)
    return play


def looked(
    play: Play,
    *actors: Actor,
    live: Live | None = None,
    later: float = 0.5,
    lasted: float = 0.0,
    second: bool = False,
    **world: Any,
) -> Reason | Spared | None:
    """
    Look: the round is half a second younger than the decision, and nothing else differs unless it is said.

    The round is not due by the clock, like each round that a last look asks for (`exporter.rounds.sampler`).
    """
    action = next(verdict.action for verdict in reversed(play.verdicts) if verdict.action is not None)
    seen = replace(snapshot(actors or (HOG, POOR), play.monotonic + 0.5, **world), by_time=False, duration=lasted)
    now = replace(play.now, monotonic=play.monotonic + later, boot=play.now.boot + later)
    return last_look(action, live or said(), seen, rules=play.rules, history=play.history, now=now, second=second)


def said(actor: Actor = HOG, node: str = "node", labels: Mapping[str, str] = CONSENTING, **facts: Any) -> Live:
    """Make the API server's answer."""
    shown = replace(actor, facts={**actor.facts, **facts})
    return Live(shown.named(), (Container(shown.pod_uid, shown.container, shown.id),), node, labels)


def test_without_a_change_nothing_speaks_against_the_action() -> None:
    """The twin of all rows below, for each step and for a dry run."""
    for rules in (
        UNHURRIED,
        replace(UNHURRIED, ladder=(Rung.KILL,)),
        replace(UNHURRIED, ladder=(Rung.FENCE,)),
        replace(UNHURRIED, mode=Mode.DRY_RUN),
    ):
        assert looked(intended(rules)) is None


ANSWERS: list[tuple[Live, Reason | Spared]] = [
    (Live(None, (), "", CONSENTING), Spared.POD_GONE),
    (said(replace(HOG, uid="uid-another")), Spared.OTHER_POD),
    (said(node="another-node"), Spared.OTHER_NODE),
    (said(replace(HOG, generation=1)), Spared.OTHER_CONTAINER),
    (said(annotations={"a": "b"}), Spared.DECLARATION_CHANGED),
    (said(labels={}), Reason.NO_CONSENT),
    (said(labels={"gpusteward.io/mode": "warn"}), Reason.MODE),
    (said(labels={"gpusteward.io/mode": "dry-run"}), Spared.NOT_DUE),
    (said(terminating=True), Reason.TERMINATING),
    (said(phase="Failed"), Reason.NOT_RUNNING),
    (said(priority=2_000_000_000), Reason.PRIORITY),
]


@pytest.mark.parametrize(("live", "why"), ANSWERS, ids=lambda value: str(value) if isinstance(value, str) else "")
def test_what_the_api_server_says_spares(live: Live, why: Reason | Spared) -> None:
    """The answer is from now: a pod that is another, ends, or is protected by now, and a consent that was withdrawn."""
    assert looked(intended(), live=live) == why


@pytest.mark.parametrize(
    ("actors", "world", "why"),
    [
        ((replace(HOG, used=30 * GIB), POOR), {}, Reason.NOT_OVER_NOW),
        ((replace(HOG, limit=70 * GIB), POOR), {}, Reason.NOT_OVER_NOW),
        ((replace(HOG, used=None), POOR), {}, Reason.READING_UNKNOWN),
        ((replace(HOG, used=0, limit=None), POOR), {}, Spared.SUBJECT_GONE),
        ((POOR,), {}, Spared.SUBJECT_GONE),
        ((HOG, POOR), {"read": ()}, Reason.READING_UNKNOWN),
        ((HOG, POOR), {"proven": False}, Reason.PID_DOMAIN),
        ((replace(HOG, report_only=("a hint",)), POOR), {}, Reason.REPORT_ONLY),
        ((HOG, POOR), {"live": False}, None),
    ],
)
def test_what_the_round_shows_spares(
    actors: tuple[Actor, ...], world: dict[str, Any], why: Reason | Spared | None
) -> None:
    """The usage is read anew. Names that are not live do not matter: the answer names this pod."""
    assert looked(intended(), *actors, **world) == why


@pytest.mark.parametrize(("later", "why"), [(0.5, None), (0.5 + FRESH, None), (0.51 + FRESH, Spared.LOOK_TOO_OLD)])
def test_a_round_is_three_seconds_old_at_most(later: float, why: Spared | None) -> None:
    """An older round says nothing about the moment of the call; neither does one from the future."""
    play = intended()
    assert looked(play, later=later) == why
    assert looked(play, later=0.4) == Spared.LOOK_TOO_OLD


@pytest.mark.parametrize(("lasted", "oldest"), [(4.0, 4.0 + FRESH), (12.0, 15.0), (60.0, 15.0)])
def test_a_long_round_is_three_seconds_old_from_its_end(lasted: float, oldest: float) -> None:
    """A driver that is slow for the pod's own GPU holds no action back, as long as its reading counts at all."""
    play = intended()
    assert looked(play, lasted=lasted, later=0.5 + oldest) is None
    assert looked(play, lasted=lasted, later=0.51 + oldest) is not None


ELSEWHERE = ("elsewhere", "Deployment", "other")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"breakers": {Breaker.JOURNAL: Opened(BEGIN, "full")}}, Reason.BREAKER),
        ({"levels": {}}, Spared.NOT_DUE),
        ({"holds": {(Place.POD, HOG.pod_uid, Reason.FAILED): Hold(None)}}, None),
        ({"spent": (Spent(BEGIN + 50.0, ELSEWHERE),) * 100}, Reason.BUDGET_NODE),
        ({"spent": (Spent(BEGIN + 139.0, ELSEWHERE),) * 100}, Reason.BUDGET_NODE),
        ({"spent": (Spent(BEGIN + 139.0, ELSEWHERE),)}, None),
        ({"ended_at": BEGIN + 139.0}, None),
    ],
    ids=["breaker", "level", "hold", "budget", "budget and spacing", "token", "spacing"],
)
def test_what_has_changed_in_the_policy_spares(change: dict[str, Any], why: Reason | Spared | None) -> None:
    """A breaker, a level, a budget. Holds and the spacing were answered when the action was decided."""
    play = intended()
    play.history = replace(play.history, **change)
    assert looked(play) == why


def test_a_level_that_has_fallen_since_the_decision_spares() -> None:
    """The next round by the clock came between decision and call, and showed that nothing is due any more."""
    play = intended()
    levels = {holder: replace(level, due_at=None) for holder, level in play.history.levels.items()}
    play.history = replace(play.history, levels=levels)
    assert looked(play) == Spared.NOT_DUE


def test_the_action_s_own_token_and_flight_do_not_hold_it_back() -> None:
    """The last token of the node is the action's own."""
    rules = replace(UNHURRIED, budgets=replace(UNHURRIED.budgets, node=replace(UNHURRIED.budgets.node, most=1)))
    assert looked(intended(rules)) is None


def test_another_mode_by_now_ends_the_action() -> None:
    """The operator wrote warn since the decision, or another ladder."""
    play = intended()
    play.rules = replace(UNHURRIED, mode=Mode.WARN)
    assert looked(play) == Reason.MODE
    play.rules = replace(UNHURRIED, ladder=(Rung.KILL,))
    assert looked(play) == Spared.NOT_DUE


def test_another_container_of_the_pod_holds_more_by_now() -> None:
    """A kill names its victim: the container that was largest when it was decided must still be."""
    whole, other = replace(HOG, scope="pod", used=40 * GIB), replace(HOG, container="b", used=GIB, limit=None)
    play = Play(replace(UNHURRIED, ladder=(Rung.KILL,)))
    action = play.until_action(whole, other)
    assert action.container == "main"
    grown = replace(other, used=39 * GIB), replace(whole, used=5 * GIB)
    containers = tuple(Container(each.pod_uid, each.container, each.id) for each in grown)
    live = replace(said(whole), containers=containers)
    assert looked(play, *grown, live=live) == Spared.OTHER_CONTAINER


def killed(readings: int) -> Play:
    """Send SIGTERM to HOG, which stays over in so many readings."""
    play = intended(replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL)))
    play.conclude(Result.ACCEPTED)
    if readings:
        play.steps(readings, HOG, POOR)
    return play


@pytest.mark.parametrize(
    ("readings", "why"),
    [(0, Reason.FEW_READINGS), (1, Reason.FEW_READINGS), (2, Reason.FEW_READINGS), (3, None), (12, None)],
)
def test_sigkill_needs_three_readings_since_sigterm(readings: int, why: Reason | None) -> None:
    """The level began anew with SIGTERM; a process that frees its memory while it ends is not killed."""
    assert looked(killed(readings), second=True) == why


def test_sigkill_follows_a_blocked_eviction() -> None:
    """
    The kill of `when_blocked: kill` goes on to SIGKILL, although SIGTERM began a new level.

    Otherwise an init that does not handle SIGTERM would never end, as most shells do not in a container.
    """
    play = intended(replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.EVICT, Rung.KILL), kill_when_blocked=True))
    play.conclude(Result.BLOCKED)
    assert play.until_action(HOG, POOR).rung is Rung.KILL
    play.conclude(Result.ACCEPTED)
    play.monotonic += 0.5
    between = replace(snapshot((HOG, POOR), play.monotonic), by_time=False)  # as each second above the limit
    play.history, _ = decide(between, play.rules, play.history, play.now)
    play.steps(6, HOG, POOR)
    assert not play.history.done, "that round raises no level, so a new excess begins at the eviction"
    assert looked(play, second=True) is None
    play.rules = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.EVICT))
    assert looked(play, second=True) == Spared.NOT_DUE, "the operator took `kill` out of the ladder"


@pytest.mark.parametrize(
    ("actors", "change", "why"),
    [
        ((replace(HOG, used=GIB), POOR), {}, Reason.NOT_OVER_NOW),
        ((replace(HOG, used=None), POOR), {}, Reason.READING_UNKNOWN),
        ((POOR,), {}, Spared.SUBJECT_GONE),
        ((HOG, POOR), {"breakers": {Breaker.ATTRIBUTION: Opened(BEGIN, "")}}, Reason.BREAKER),
        ((HOG, POOR), {"spent": (Spent(BEGIN, ELSEWHERE, WALL),) * 1000}, None),
    ],
    ids=["within", "unknown", "gone", "breaker", "budget"],
)
def test_the_second_look_spares_as_the_first_does(
    actors: tuple[Actor, ...], change: dict[str, Any], why: Reason | Spared | None
) -> None:
    """Usage, pod and breakers are asked for again; SIGKILL takes no new token."""
    play = killed(6)
    play.history = replace(play.history, **change)
    assert looked(play, *actors, second=True) == why


def test_no_sigkill_while_another_action_on_the_pod_is_in_flight() -> None:
    """One thing at a time is done to a pod. An action on another pod spares none: SIGKILL would not be tried again."""
    play = killed(6)
    action = next(verdict.action for verdict in play.verdicts if verdict.action is not None)
    here = replace(action, key=replace(action.key, uuid="GPU-9"))
    elsewhere = replace(here, limit=replace(here.limit, pod_uid=POOR.pod_uid))
    for other, why in ((here, Reason.IN_FLIGHT), (elsewhere, None)):
        play.history = replace(play.history, in_flight=InFlight(other, play.monotonic))
        assert looked(play, second=True) == why


def test_a_fence_does_not_go_below_a_limit_that_was_raised() -> None:
    """The declared limit is above the one of the decision, and the usage above both."""
    play = intended(replace(UNHURRIED, ladder=(Rung.FENCE,)))
    assert looked(play, replace(HOG, limit=41 * GIB), POOR) == Spared.DECLARATION_CHANGED
    assert looked(play, replace(HOG, limit=39 * GIB), POOR) is None


def test_a_limit_of_another_pod_is_not_judged() -> None:
    """Another pod of a shared claim holds most by now: the action was decided for this one."""
    claim = {"scope": "claim", "claim": "team/shared", "limit": 8 * GIB}
    large, small = (Actor(f"s{n}-1", used * GIB, **claim) for n, used in ((1, 10), (2, 4)))  # type: ignore[arg-type]
    play = Play()
    play.until_action(large, small)
    assert looked(play, large, small, live=said(large)) is None
    assert (
        looked(play, replace(large, used=GIB), replace(small, used=12 * GIB), live=said(large)) == Spared.SUBJECT_GONE
    )


def test_sigkill_waits_for_the_hold_off_of_other_rules() -> None:
    """A reload between SIGTERM and SIGKILL: nothing is done until the change is settled."""
    play = killed(6)
    assert play.history.settled is not None
    anew = replace(play.history.settled, since=play.monotonic, vetted=False)
    play.rules = replace(play.rules, hold_off=300.0)
    play.history = replace(play.history, settled=replace(anew, rules=play.rules))
    assert looked(play, second=True) == Reason.HOLD_OFF


def test_sigkill_needs_a_neighbour_that_is_short_where_the_trigger_asks() -> None:
    """With the trigger `contended` the shortage may have ended since SIGTERM."""
    rules = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL), trigger=Trigger.CONTENDED)
    play, needy = Play(rules), replace(POOR, used=GIB)
    play.until_action(HOG, needy)
    play.conclude(Result.ACCEPTED)
    play.steps(6, HOG, needy)
    assert looked(play, HOG, needy, second=True) is None
    assert looked(play, HOG, replace(needy, limit=10 * GIB), second=True) == Reason.NOT_CONTENDED
    assert looked(play, HOG, second=True) == Reason.NOT_CONTENDED


def test_a_round_that_movement_asked_for_counts_no_reading_for_sigkill() -> None:
    """The level is 0 since SIGTERM, and such a round raises none: the holder is over, and nothing is counted."""
    play = killed(0)
    action = next(verdict.action for verdict in play.verdicts if verdict.action is not None)
    seen = replace(snapshot((HOG, POOR), play.monotonic + 0.5), by_time=False)
    now = replace(play.now, monotonic=play.monotonic + 0.5, boot=play.now.boot + 0.5)
    why = last_look(action, said(), seen, rules=play.rules, history=play.history, now=now, second=True)
    assert why == Reason.FEW_READINGS


@pytest.mark.parametrize(
    ("live", "why"),
    [
        (said(labels={}), Reason.NO_CONSENT),
        (said(labels={"gpusteward.io/mode": "warn"}), Reason.MODE),
        (said(labels={"gpusteward.io/mode": "dry-run"}), Spared.NOT_DUE),
        (said(priority=2_000_000_000), Reason.PRIORITY),
        (said(replace(HOG, generation=1)), Spared.OTHER_CONTAINER),
    ],
)
def test_sigkill_needs_all_that_sigterm_needed(live: Live, why: Reason | Spared) -> None:
    """A consent that was withdrawn since, a pod that is protected by now, a container that was restarted."""
    assert looked(killed(6), live=live, second=True) == why


def test_a_gentler_step_by_now_ends_the_action() -> None:
    """The operator took `kill` out of the ladder since the decision, or since SIGTERM: the pod is evicted instead."""
    killing = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL))
    play = intended(killing)
    play.rules = UNHURRIED
    assert looked(play) == Spared.NOT_DUE
    play = killed(6)
    play.rules = UNHURRIED
    assert looked(play, second=True) == Spared.NOT_DUE


def test_its_own_token_does_not_hide_a_budget_that_is_used_up() -> None:
    """Other tokens have used the budget up since the decision."""
    play = intended()
    others = (Spent(BEGIN + 50.0, ELSEWHERE),) * 100
    play.history = replace(play.history, spent=(*others, *play.history.spent))
    assert looked(play) == Reason.BUDGET_NODE


def test_what_is_still_held_is_the_victim_s_on_its_device() -> None:
    """Not another GPU's, pod's, container's or generation's; nothing is known where the round did not read it."""
    victim = replace(HOG, gpu=1)
    action = Play().until_action(victim, POOR, gpus=2)

    def held(*actors: Actor, action: Action = action, **world: Any) -> bool | None:
        seen = snapshot((*actors, POOR), BEGIN + 500, gpus=2, **world)
        first, second = seen.devices
        return holds(action, replace(seen, devices=(replace(first, containers=None), second)))

    assert held(victim) is True
    assert held(victim, read=(0,)) is None
    assert held(victim, proven=False) is None
    assert held(replace(victim, used=None)) is None
    others = (HOG, replace(victim, pod="other-1"), replace(victim, container="b"), replace(victim, generation=1))
    assert [held(other) for other in others] == [False] * 4
    assert held() is False
    of_pod = Play().until_action(replace(victim, scope="pod"), POOR, gpus=2)
    assert [held(other, action=of_pod) for other in others] == [False, False, True, True]
