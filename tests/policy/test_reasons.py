"""
Each reason, reached through `decide`, with a twin in which one fact is another and the action does happen.

One scene comes in: GREEDY holds far more than it declares. A refusal with the expected reason goes out, and no action;
of the twin the eviction of GREEDY.

The rule: a member of `enforcer.policy.vocabulary.Reason` without an entry here fails.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from enforcer.policy.history import Hold, HoldKey, Opened, Result, Verdict
from enforcer.policy.rules import EXEMPT, Ceiling
from enforcer.policy.vocabulary import Breaker, Kind, Mode, Place, Reason, Rung, State, Trigger
from exporter.model import ContainerKind, Sharing
from faults.marking import showing
from policy.refusals import (
    ACTED_ON,
    ENOUGH,
    GRANTED,
    KILLING,
    LABELLED,
    SCENES,
    Scene,
    annotated,
    in_,
    on_hold,
    protected,
)
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, SHORT, UNHURRIED, WALL, Actor, Play, settled

SECOND = Actor("hungry-1", 20 * GIB, limit=4 * GIB, gpu=1)
OTHER_DUE = Actor("waiting-1", 2 * GIB, limit=70 * GIB, gpu=1)
FARTHER = replace(SECOND, used=79 * GIB, limit=GIB)
WITHIN = replace(GREEDY, used=8 * GIB)


def held_until(seconds: float) -> Play:
    """GREEDY is held back for so many seconds by a PodDisruptionBudget."""
    until: dict[HoldKey, Hold] = {(Place.POD, GREEDY.pod_uid, Reason.BLOCKED): Hold(BEGIN + seconds)}
    play = Play(history=replace(settled(), holds=until))
    play.until_reason(Reason.BLOCKED, GREEDY, MEEK)
    return play


def not_over_now(*, fact: bool) -> Play:
    """Due, and just now at its limit; or above it as before."""
    play = held_until(160.0)
    play.steps(6, WITHIN if fact else GREEDY, MEEK)
    return play


def few_readings(*, fact: bool) -> Play:
    """Due, within its limit for longer than six intervals, and over again in two rounds; or within for two rounds."""
    play = held_until(160.0)
    play.steps(8 if fact else 2, WITHIN, MEEK)
    play.steps(2 if fact else 6, GREEDY, MEEK)
    return play


def in_flight(*, fact: bool) -> Play:
    """Another pod's eviction has begun and is not confirmed; or it was."""
    play = Play(SHORT)
    play.until_action(SECOND, OTHER_DUE, gpus=2)
    if not fact:
        play.conclude(Result.ACCEPTED)
    play.verdicts.clear()
    play.steps(ENOUGH, GREEDY, MEEK, OTHER_DUE, gpus=2)
    return play


def spacing(*, fact: bool) -> Play:
    """Another pod's eviction was accepted ten seconds ago; or a minute and more."""
    play = Play()
    play.steps(2, SECOND, OTHER_DUE, gpus=2)
    play.until_action(SECOND, OTHER_DUE, GREEDY, MEEK, gpus=2)
    play.conclude(Result.ACCEPTED)
    play.verdicts.clear()
    play.steps(4 if fact else 20, OTHER_DUE, GREEDY, MEEK, gpus=2)
    return play


def queued(*, fact: bool) -> Play:
    """Another pod is due in the same round with a larger excess; or is not there."""
    play = Play()
    play.steps(28, GREEDY, MEEK, *((FARTHER, OTHER_DUE) if fact else ()), gpus=2)
    return play


def dry_run(*, fact: bool) -> Play:
    """The mode is dry-run: the same decision, and nothing is done; or it is enforce."""
    play = Play(replace(UNHURRIED, mode=Mode.DRY_RUN if fact else Mode.ENFORCE))
    play.until_action(GREEDY, MEEK)
    if fact:
        play.rehearse()
        play.steps(20, GREEDY, MEEK)
    return play


PLAYS: dict[Reason, Callable[..., Play]] = {
    Reason.NOT_OVER_NOW: not_over_now,
    Reason.FEW_READINGS: few_readings,
    Reason.IN_FLIGHT: in_flight,
    Reason.SPACING: spacing,
    Reason.QUEUED: queued,
    Reason.DRY_RUN: dry_run,
}
"""Scenes that change while they are played; without the `fact` GREEDY is evicted in the end."""


def recorded(play: Play, reason: Reason) -> list[State]:
    """Return the states with this reason of any pod but MEEK, each as often as it was reported as a change."""
    changed = [change.after for verdict in play.verdicts for change in verdict.changes]
    return [each.state for each in changed if each.key.pod_uid != MEEK.pod_uid and each.reason is reason]


def test_every_reason_has_a_scene() -> None:
    """A new reason is not done before a scene reaches it."""
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
    refused = [each.reason for verdict in play.verdicts for each in verdict.refusals]
    assert refused == ([reason] if state is State.HELD else [])
    assert play.actions == []


@pytest.mark.parametrize("reason", PLAYS, ids=str)
def test_a_moment_holds_the_action_back(reason: Reason) -> None:
    """It is not the moment: the refusal is recorded with this reason; when the moment has passed the action follows."""
    refused, twin = PLAYS[reason](fact=True), PLAYS[reason](fact=False)
    assert recorded(refused, reason) == [State.DUE if reason is Reason.DRY_RUN else State.HELD]
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
        (Reason.NOT_RUNNING, Scene(annotated(phase="Pending"))),
        (Reason.CONTAINER_KIND, Scene(replace(GREEDY, kind=ContainerKind.INIT))),
        (Reason.MPS, Scene(rules=replace(SHORT, mps=Rung.EVICT), world={"sharing": Sharing.MPS})),
        (Reason.THIRD_PARTY, Scene(annotated(annotations={"karpenter.sh/do-not-disrupt": "true"}))),
        (
            Reason.THIRD_PARTY,
            replace(
                protected(annotated(annotations={"karpenter.sh/do-not-disrupt": "true"}), third_party=False),
                world={"namespaces": GRANTED},
            ),
        ),
        (Reason.DAEMON_SET, Scene(annotated(controller_kind="DaemonSet"))),
        (Reason.BARE_POD, Scene(annotated(controller_kind=""))),
        (Reason.NOT_CONTENDED, Scene(others=())),
        (Reason.NOT_CONTENDED, Scene(rules=replace(SHORT, trigger=Trigger.CONTENDED))),
        (
            Reason.UNVERIFIED_BACKEND,
            Scene(rules=replace(SHORT, trusted_vendors=frozenset({"amd"})), world={"vendor": "amd"}),
        ),
        (Reason.BACK_OFF, Scene(past={"spent": (ACTED_ON,) * 5})),
        (Reason.BACK_OFF, Scene(annotated(created_at=WALL - 5.0), past={"spent": (ACTED_ON,)})),
        (Reason.NO_RIGHTS, on_hold(Reason.NO_RIGHTS, Place.NAMESPACE, "elsewhere")),
        (Reason.REFUSED, on_hold(Reason.REFUSED, Place.POD, MEEK.pod_uid)),
        (Reason.LAST_LOOK, on_hold(Reason.LAST_LOOK, until=BEGIN + 40.0)),
    ],
    ids=lambda value: str(value) if isinstance(value, Reason) else "",
)
def test_what_almost_holds_does_not(reason: Reason, scene: Scene) -> None:
    """One fact short of the reason (no grant, one below the priority, another namespace's hold): it is acted on."""
    play = scene.play()
    assert play.actions == [f"evict {scene.greedy.namespace}/greedy-1"], play.verdicts[-1].standings
    assert reason not in {each.reason for each in play.verdicts[-1].standings}


def last_reason(scene: Scene) -> str | None:
    play = scene.play()
    assert play.actions == []
    return play.reason(scene.greedy)


class Spared(NamedTuple):
    """What spares a pod by choice."""

    report_only: tuple[str, ...] = ()
    annotations: dict[str, str] = {}  # noqa: RUF012  (never changed)


CHOSEN = {
    Reason.REPORT_ONLY: Spared(report_only=("a hint",)),
    Reason.THIRD_PARTY: Spared(annotations={"karpenter.sh/do-not-disrupt": "true"}),
}
UNCHOSEN = [each for each, (state, _) in SCENES.items() if state is State.HELD and each.kind is not Kind.CHOSEN]
PAIRS = [
    (chosen, other)
    for chosen in CHOSEN
    for other in UNCHOSEN
    if (chosen, other) != (Reason.THIRD_PARTY, Reason.NAMESPACE_UNKNOWN)  # the annotation counts by those labels only
]


@pytest.mark.parametrize(("chosen", "other"), PAIRS)
def test_what_was_chosen_is_named_before_all_else(chosen: Reason, other: Reason) -> None:
    """A pod that an operator or a declaration spares is no alert: its reason is named before one of another kind."""
    _, scene = SCENES[other]
    spared = CHOSEN[chosen]
    world = {**scene.world, **({"namespaces": GRANTED} if spared.annotations else {})}
    facts = {**scene.greedy.facts, "annotations": spared.annotations}
    greedy = replace(scene.greedy, facts=facts, report_only=spared.report_only)
    assert last_reason(replace(scene, greedy=greedy, world=world)) == chosen


def test_a_ceiling_that_an_operator_wrote_is_named_before_what_is_missing() -> None:
    """The stop file is there, and the journal cannot be written: stopped."""
    ceilings = (Ceiling(Mode.OBSERVE, Reason.JOURNAL), Ceiling(Mode.OBSERVE, Reason.STOPPED))
    for order in (ceilings, ceilings[::-1]):
        assert last_reason(Scene(rules=replace(SHORT, ceilings=order))) == Reason.STOPPED


def test_a_reason_of_the_namespace_s_own_dry_run_is_none() -> None:
    """A namespace that wrote dry-run is carried out as a dry run; a node that lacks something holds instead."""
    dry = {"team": {"gpusteward.io/mode": "dry-run"}}
    assert Scene(world={"namespaces": dry}).play().actions == ["evict team/greedy-1 (dry)"]
    lacking = replace(SHORT, ceilings=(Ceiling(Mode.DRY_RUN, Reason.JOURNAL),))
    assert last_reason(Scene(rules=lacking)) == Reason.JOURNAL


def test_the_reason_of_an_open_breaker_names_it() -> None:
    """The detail says which breakers are open."""
    opened = {which: Opened(BEGIN, "why") for which in (Breaker.JOURNAL, Breaker.ATTRIBUTION)}
    play = Scene(past={"breakers": opened}).play()
    assert [each.detail for each in play.verdicts[-1].standings if each.state is State.HELD] == ["attribution, journal"]


def test_the_reason_of_a_hold_has_its_detail() -> None:
    """What set the hold says the particulars."""
    hold = {(Place.NAMESPACE, "team", Reason.NO_RIGHTS): Hold(None, "RoleBinding gpusteward is missing")}
    last: Verdict = Scene(past={"holds": hold}).play().verdicts[-1]
    held = [each.detail for each in last.standings if each.state is State.HELD]
    assert held == ["RoleBinding gpusteward is missing"]


def test_a_killing_ladder_kills() -> None:
    """The twin of the scenes with a ladder that only kills."""
    assert Scene(rules=KILLING).play().actions == ["kill team/greedy-1"]
