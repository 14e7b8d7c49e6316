"""
Each word of refusal, reached through `decide`, with a twin in which one fact is another and the action does happen.

What comes in: one scene: GREEDY holds far more than it declares, MEEK is denied its due. What goes out: a refusal with
the expected reason, and no action; of the twin the eviction of GREEDY.

The law: a word of `enforcer.policy.vocabulary.Reason` without an entry here fails.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from default_rules import default_protection
from enforcer.policy.history import History, Opened, Result
from enforcer.policy.rules import EXEMPT
from enforcer.policy.vocabulary import Breaker, Reason, Rung, State, Trigger
from exporter.model import ContainerKind, Sharing
from faults.marking import showing
from policy.refusals import ENOUGH, GRANTED, LABELLED, SCENES, Scene, annotated, in_
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play

SECOND = Actor("hungry-1", 20 * GIB, limit=4 * GIB, gpu=1)
OTHER_DUE = Actor("waiting-1", 2 * GIB, limit=70 * GIB, gpu=1)


def gap(*, fact: bool) -> Play:
    """The first reading arrives when it is long past: a stall of ours."""
    play = Play()
    if not fact:
        play.steps(ENOUGH, GREEDY, MEEK)
        return play
    for _ in range(ENOUGH):
        play.stall = 60.0
        play.step(GREEDY, MEEK)
    return play


def not_over_now(*, fact: bool) -> Play:
    """Due all along, and alone; when a neighbour comes it is between its limit and the tolerance."""
    play = Play()
    play.until_reason(Reason.NOT_CONTENDED, GREEDY)
    play.step(replace(GREEDY, used=8 * GIB + 2**20) if fact else GREEDY, MEEK, hidden={0: 70 * GIB if fact else 0})
    return play


def blocked(*, fact: bool) -> Play:
    """A PodDisruptionBudget said no a moment ago; or an hour ago."""
    play = Play()
    play.until_action(GREEDY, MEEK)
    play.conclude(Result.BLOCKED)
    play.verdicts.clear()
    play.steps(1 if fact else 30, GREEDY, MEEK)
    return play


def in_flight(*, fact: bool) -> Play:
    """Somebody else's eviction has begun, and nobody knows how it ended; or that one is over, and new evidence came."""
    play = Play()
    play.until_action(SECOND, OTHER_DUE, gpus=2)
    if not fact:
        play.conclude(Result.VERIFIED)
    play.verdicts.clear()
    play.steps(ENOUGH, GREEDY, MEEK, OTHER_DUE, gpus=2)
    return play


def spacing(*, fact: bool) -> Play:
    """Somebody else's eviction ended ten seconds ago; or a minute and more."""
    play = Play()
    play.steps(27, SECOND, OTHER_DUE, gpus=2)
    play.steps(26, SECOND, OTHER_DUE, GREEDY, MEEK, gpus=2)
    play.conclude(Result.VERIFIED)
    play.verdicts.clear()
    play.steps(2 if fact else 20, OTHER_DUE, GREEDY, MEEK, gpus=2)
    return play


def queued(*, fact: bool) -> Play:
    """Another one is due in the same round, and farther over; or is not there."""
    farther = replace(SECOND, used=79 * GIB, limit=GIB)
    play = Play()
    play.steps(28, GREEDY, MEEK, *((farther, OTHER_DUE) if fact else ()), gpus=2)
    return play


PLAYS: dict[Reason, Callable[..., Play]] = {
    Reason.READING_GAP: gap,
    Reason.NOT_OVER_NOW: not_over_now,
    Reason.BLOCKED: blocked,
    Reason.IN_FLIGHT: in_flight,
    Reason.SPACING: spacing,
    Reason.QUEUED: queued,
}
"""Scenes that change while they are played; without the `fact` GREEDY is evicted in the end."""


def recorded(play: Play, reason: Reason) -> list[State]:
    """Name the states in which anybody but MEEK was told with this reason, each as often as it was told."""
    told = [change.after for verdict in play.verdicts for change in verdict.changes]
    return [one.state for one in told if one.key.pod_uid != MEEK.pod_uid and one.reason is reason]


def test_every_reason_has_a_scene() -> None:
    """A new word of refusal is not done before a scene reaches it."""
    assert SCENES.keys() | PLAYS.keys() == set(Reason)
    assert not SCENES.keys() & PLAYS.keys()


def test_without_any_of_these_facts_greedy_is_evicted_once() -> None:
    """The twin of all scenes: the same play without the fact ends in the one eviction that each of them prevents."""
    assert Scene().play().actions == ["evict team/greedy-1"]


SHOWN: dict[Reason, tuple[int, ...]] = {
    Reason.OTHER_GENERATION: (20,),
    Reason.READING_UNKNOWN: (26,),
    Reason.MPS: (34,),
    Reason.ALLOCATIONS_STALE: (36,),
    Reason.LIMIT_INVALID: (63,),
    Reason.TERMINATING: (65,),
    Reason.NOT_RUNNING: (66,),
    Reason.PID_DOMAIN: (71,),
}
"""Faults of docs/faults.md that a scene shows."""


@pytest.mark.parametrize("reason", showing(SCENES, SHOWN), ids=str)
def test_one_fact_holds_the_action_back(reason: Reason) -> None:
    """One fact is another than in the twin: nothing is done, and the refusal is recorded once, with this reason."""
    state, scene = SCENES[reason]
    play = scene.play()
    assert recorded(play, reason) == [state], play.verdicts[-1].standings
    refused = [one.reason for verdict in play.verdicts for one in verdict.refusals]
    assert refused == ([reason] if state is State.HELD else [])
    assert play.actions == []


@pytest.mark.parametrize("reason", showing(PLAYS, {Reason.READING_GAP: (25,)}), ids=str)
def test_a_moment_holds_the_action_back(reason: Reason) -> None:
    """It is not the moment: the refusal is recorded with this reason; when the moment has passed the action follows."""
    refused, twin = PLAYS[reason](fact=True), PLAYS[reason](fact=False)
    assert recorded(refused, reason) == [State.UNJUDGED if reason is Reason.READING_GAP else State.HELD]
    assert "evict team/greedy-1" not in refused.actions
    assert twin.actions[-1:] == ["evict team/greedy-1"]


@pytest.mark.parametrize(
    ("reason", "scene"),
    [
        (Reason.EXEMPT, Scene(annotated(annotations={EXEMPT: "true"}))),
        (Reason.EXEMPT, Scene(annotated(annotations={EXEMPT: "false"}), world={"namespaces": GRANTED})),
        (Reason.PRIORITY, Scene(annotated(priority=1_999_999_999))),
        (Reason.LABEL, Scene(annotated(labels={"tier": "silver"}), rules=LABELLED)),
        (Reason.NAMESPACE, in_("kubeflow")),
        (Reason.CONTAINER_KIND, Scene(replace(GREEDY, kind=ContainerKind.SIDECAR))),
        (Reason.MPS, Scene(rules=replace(UNHURRIED, mps=Rung.EVICT), world={"sharing": Sharing.MPS})),
        (
            Reason.THIRD_PARTY,
            Scene(
                annotated(annotations={"karpenter.sh/do-not-disrupt": "true"}),
                rules=replace(UNHURRIED, protect=default_protection(third_party=False)),
            ),
        ),
        (
            Reason.DAEMON_SET,
            Scene(
                annotated(controller_kind="DaemonSet"),
                rules=replace(UNHURRIED, protect=default_protection(daemon_sets=False)),
            ),
        ),
        (
            Reason.BARE_POD,
            Scene(annotated(controller_kind=""), rules=replace(UNHURRIED, protect=default_protection(bare_pods=False))),
        ),
        (Reason.NOT_CONTENDED, Scene(others=(), rules=replace(UNHURRIED, trigger=Trigger.LIMIT))),
        (Reason.CLAIM_SHARED, Scene(replace(GREEDY, scope="claim", claim="team/own"))),
        (
            Reason.UNVERIFIED_BACKEND,
            Scene(rules=replace(UNHURRIED, trusted_vendors=frozenset({"amd"})), world={"vendor": "amd"}),
        ),
        (Reason.BREAKER, Scene(history=History(breakers={Breaker.SAMPLER: Opened(BEGIN, BEGIN + 60, "moved")}))),
    ],
    ids=lambda one: str(one) if isinstance(one, Reason) else "",
)
def test_what_almost_protects_does_not(reason: Reason, scene: Scene) -> None:
    """One fact short of the reason (no grant, one below the priority, lifted by the operator): it is acted on."""
    play = scene.play()
    assert play.actions == [f"evict {scene.greedy.namespace}/greedy-1"], play.verdicts[-1].standings
    assert reason not in {one.reason for one in play.verdicts[-1].standings}
