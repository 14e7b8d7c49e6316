"""
Each guard alone holds an action back.

A holder that would be acted on comes in, and one thing that is otherwise. The reason why it is not acted on goes out.
"""

from dataclasses import replace
from typing import Any

import pytest

from default_rules import default_rules
from enforcer.policy.decide import scene_of
from enforcer.policy.history import Hold, InFlight, Opened, Spent
from enforcer.policy.holds import InForce
from enforcer.policy.judgement import Judged, judge_all
from enforcer.policy.levels import Level
from enforcer.policy.rules import Budget
from enforcer.policy.victims import Scene, choose, due, refusal
from enforcer.policy.vocabulary import Breaker, Mode, Place, Reason, Rung, Trigger
from exporter.model import PodUid
from policy.scenes import GREEDY, MEEK, UNHURRIED, Play, snapshot

AT_ONCE = replace(UNHURRIED, warn_after=0.0, grace=0.0)
ANOTHER = PodUid("another")


def ready() -> tuple[Judged, Level, Scene]:
    """Play until GREEDY is acted on, and judge that round as if it were not yet."""
    play = Play(AT_ONCE)
    before = play.history
    while not play.actions:
        before = play.history
        play.step(GREEDY, MEEK)
    seen = snapshot([GREEDY, MEEK], play.monotonic)
    judged, _ = judge_all(seen, play.rules, before, play.now)
    level = judged[0].level
    assert level is not None
    return judged[0], level, scene_of(judged, seen, play.rules, before, play.now)


JUDGED, LEVEL, SCENE = ready()
assert LEVEL.terms is not None
CASE, NOW, HISTORY = JUDGED.case, SCENE.now, SCENE.history
POD = (Place.POD, GREEDY.pod_uid)


def flight(pod: PodUid = ANOTHER) -> InFlight:
    """Make an action that is in flight, on this pod."""
    action, _ = choose([JUDGED], SCENE)
    assert action is not None
    return InFlight(replace(action, limit=replace(action.limit, pod_uid=pod)), NOW.monotonic)


def held(*place: object) -> dict[str, Any]:
    """Hold a place."""
    return {"holds": InForce({(*place, Reason.REFUSED): Hold(None)}, NOW)}  # type: ignore[dict-item]


def with_history(**changes: Any) -> dict[str, Any]:
    """Change the history of the scene."""
    return {"history": replace(HISTORY, **changes)}


def spent(*ages: float, workload: str = "other", **changes: Any) -> tuple[Spent, ...]:
    """Make tokens that were taken so many seconds ago."""
    return tuple(Spent(NOW.boot - age, ("team", "Deployment", workload), **changes) for age in ages)


def test_nothing_holds_it_back() -> None:
    """The holder that each case below changes in one thing would be acted on."""
    assert due(JUDGED, NOW.monotonic, AT_ONCE)
    assert refusal(JUDGED, SCENE) is None
    action, reasons = choose([JUDGED], SCENE)
    assert (action is not None, reasons) == (True, {CASE.key: None})


@pytest.mark.parametrize(
    ("judged", "scene", "reason"),
    [
        ({"allowed": replace(JUDGED.allowed, held=Reason.MODE)}, {}, Reason.MODE),
        ({"case": replace(CASE, unknown=Reason.READING_UNKNOWN)}, {}, Reason.READING_UNKNOWN),
        ({"over": False}, {}, Reason.NOT_OVER_NOW),
        ({"over": None}, {}, Reason.NOT_OVER_NOW),
        ({"level": None}, {}, Reason.FEW_READINGS),
        ({"level": replace(LEVEL, excesses={})}, {}, Reason.FEW_READINGS),
        ({"level": replace(LEVEL, terms=None)}, {}, Reason.QUEUED),
        ({"level": replace(LEVEL, terms=replace(LEVEL.terms, rung=None))}, {}, Reason.QUEUED),
        ({"level": replace(LEVEL, terms=replace(LEVEL.terms, rung=Rung.FENCE))}, {}, Reason.QUEUED),
        ({"allowed": replace(JUDGED.allowed, rung=None)}, {}, Reason.QUEUED),
        ({"level": replace(LEVEL, read_at=NOW.monotonic - 1.0)}, {}, Reason.QUEUED),
        ({}, {"snapshot": replace(SCENE.snapshot, names_live=False)}, Reason.NAMES_STALE),
        ({}, {"rules": replace(AT_ONCE, trigger=Trigger.CONTENDED), "excess": {CASE.limit.device: 1}}, "contended"),
        ({}, with_history(breakers={Breaker.JOURNAL: Opened(0.0, "")}), Reason.BREAKER),
        ({}, {"settling": Reason.HOLD_OFF}, Reason.HOLD_OFF),
        ({}, held(*POD), Reason.REFUSED),
        ({}, held(Place.NAMESPACE, "team"), Reason.REFUSED),
        ({}, held(Place.NODE, ""), Reason.REFUSED),
        ({}, with_history(in_flight=flight()), Reason.IN_FLIGHT),
        ({}, with_history(spent=spent(59.9)), Reason.SPACING),
        ({}, with_history(ended_at=NOW.monotonic - 59.9), Reason.SPACING),
        ({}, {"rules": replace(AT_ONCE, budgets=replace(AT_ONCE.budgets, node=Budget(0, 1.0)))}, Reason.BUDGET_NODE),
    ],
)
def test_each_guard_alone_holds_an_action_back(judged: dict[str, Any], scene: dict[str, Any], reason: str) -> None:
    """Whatever else would allow the action: one reason is enough, and it is the one that is shown."""
    why = refusal(replace(JUDGED, **judged), replace(SCENE, **scene))
    assert why is not None
    assert why[0] == (Reason.NOT_CONTENDED if reason == "contended" else reason)


@pytest.mark.parametrize(
    ("scene", "reason"),
    [
        (with_history(spent=spent(59.9)), Reason.SPACING),
        ({"rules": replace(AT_ONCE, budgets=replace(AT_ONCE.budgets, node=Budget(0, 1.0)))}, Reason.BUDGET_NODE),
    ],
)
def test_between_two_regular_rounds_the_reason_stays(scene: dict[str, Any], reason: Reason) -> None:
    """Such rounds come each second above a limit, and each change of the reason is a line of the log."""
    between = replace(JUDGED, level=replace(LEVEL, read_at=NOW.monotonic - 1.0))
    assert refusal(between, replace(SCENE, **scene)) == (reason, "")


@pytest.mark.parametrize(
    ("judged", "scene"),
    [
        ({"level": replace(LEVEL, terms=replace(LEVEL.terms, rung=Rung.KILL))}, {}),
        ({}, {"rules": replace(AT_ONCE, trigger=Trigger.LIMIT), "needs": {}}),
        ({}, held(Place.POD, "another")),
        ({}, held(Place.NAMESPACE, "another")),
        ({}, with_history(dry_flight=flight())),
        ({}, with_history(spent=spent(60.0))),
        ({}, with_history(ended_at=NOW.monotonic - 60.0)),
    ],
)
def test_what_concerns_another_one_holds_nothing_back(judged: dict[str, Any], scene: dict[str, Any]) -> None:
    """A gentler step than announced, another pod's hold, a dry run in flight and a spacing that is over."""
    assert refusal(replace(JUDGED, **judged), replace(SCENE, **scene)) is None


DRY = replace(JUDGED, allowed=replace(JUDGED.allowed, mode=Mode.DRY_RUN))


@pytest.mark.parametrize(
    ("scene", "reason"),
    [
        ({}, None),
        (held(*POD), Reason.REFUSED),
        (held(Place.NAMESPACE, "team"), None),
        (held(Place.NODE, ""), None),
        (with_history(in_flight=flight()), None),
        (with_history(in_flight=flight(GREEDY.pod_uid)), Reason.IN_FLIGHT),
        (with_history(dry_flight=flight()), Reason.IN_FLIGHT),
        (with_history(ended_at=NOW.monotonic), None),
        ({"rules": replace(AT_ONCE, budgets=default_rules().budgets)}, None),
    ],
)
def test_a_dry_run_waits_for_its_own_pod_and_for_other_dry_runs(scene: dict[str, Any], reason: Reason | None) -> None:
    """Spacing, budgets, holds of the node and actions on other pods are about what is really done."""
    why = refusal(DRY, replace(SCENE, **scene))
    assert (why[0] if why else None) == reason


@pytest.mark.parametrize(
    "change",
    [
        {"level": None},
        {"excess": None},
        {"level": replace(LEVEL, victim="another", own={"another": 60.0})},
        {"level": replace(LEVEL, due_at=None)},
        {"level": replace(LEVEL, own={})},
        {"shield": Reason.NAMESPACE},
    ],
    ids=["no level", "another device", "another victim", "level not full", "no time of its own", "protected"],
)
def test_what_is_not_due_is_neither_acted_on_nor_refused(change: dict[str, Any]) -> None:
    """A holder without a full level, and a protected one, have no reason and no action."""
    judged = replace(JUDGED, **change)
    assert due(judged, NOW.monotonic, AT_ONCE) is ("shield" in change)
    assert choose([judged], SCENE) == (None, {})


def test_a_token_from_the_future_makes_no_spacing() -> None:
    """A journal of another boot may name a later time: it takes a token, and delays nothing for ever."""
    assert refusal(JUDGED, replace(SCENE, **with_history(spent=spent(-1.0)))) is None
    assert refusal(JUDGED, replace(SCENE, **with_history(spent=spent(0.0)))) == (Reason.SPACING, "")


def test_an_action_tells_since_when() -> None:
    """Where a restored level lacks its begin, the action reports now as the begin."""
    action, _ = choose([replace(JUDGED, level=replace(LEVEL, since=None))], SCENE)
    assert action is not None
    assert action.since == NOW.monotonic
