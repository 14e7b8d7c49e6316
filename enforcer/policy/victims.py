"""
Whom to act on: nobody, or one.

What comes in: all subjects as judged, the history. What goes out: at most one action, and for each other subject that
is due the reason why not.

The law: **each guard alone holds the action back**, and the first that does is the reason. Of those whom nothing spares
one is taken, in a total order; the others wait for what its end shows. A rehearsal never delays an action.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from enforcer.policy import budgets
from enforcer.policy.contention import Needs, shortage
from enforcer.policy.evidence import Phase
from enforcer.policy.history import Action, History, InFlight, Moment, Spent
from enforcer.policy.judgement import Judged
from enforcer.policy.limit_holders import CaseKey
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import ON_A_CONTAINER, Mode, Reason, Trigger
from exporter.model import DeviceKey, Snapshot

_COST = "controller.kubernetes.io/pod-deletion-cost"
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class Scene:
    """What the choice is made from."""

    snapshot: Snapshot
    needs: Mapping[DeviceKey, Needs]
    rules: Rules
    history: History
    now: Moment


def choose(found: Sequence[Judged], scene: Scene) -> tuple[Action | None, dict[CaseKey, Reason]]:
    """Take the first of those whom nothing spares; name the reason of all others that are due."""
    reasons: dict[CaseKey, Reason] = {}
    ready: list[Judged] = []
    for one in found:
        if one.evidence is None or one.evidence.phase is not Phase.DUE:
            continue
        reason = refusal(one, scene)
        if reason is None:
            ready.append(one)
        else:
            reasons[one.case.key] = reason
    ready.sort(key=_order)
    reasons |= {one.case.key: Reason.QUEUED for one in ready[1:]}
    return (_action(ready[0], scene.now) if ready else None), reasons


def taken(history: History, action: Action, now: Moment) -> History:
    """Note that an action begins: its token is spent, and it is in flight."""
    token = Spent(now.boot, action.workload, action.dry)
    flight = InFlight(action, now.monotonic, token)
    history = replace(history, spent=(*history.spent, token))
    return replace(history, rehearsal=flight) if action.dry else replace(history, in_flight=flight)


def refusal(one: Judged, scene: Scene) -> Reason | None:
    """Say why a subject that is due is not acted on now."""
    case, rules, history, now = one.case, scene.rules, scene.history, scene.now
    dry = one.allowed.mode is Mode.DRY_RUN
    flight = history.rehearsal if dry else history.in_flight
    if one.allowed.held is not None:
        return one.allowed.held
    if not scene.snapshot.names_live:
        return Reason.NAMES_STALE
    if not case.owned:
        return Reason.OWNER_UNKNOWN  # the budget would be another one's
    if case.used is None or one.evidence is None or not one.evidence.over:
        return Reason.NOT_OVER_NOW
    if rules.trigger is Trigger.CONTENDED and shortage(case, scene.needs) <= 0:
        return Reason.NOT_CONTENDED
    if one.evidence.strikes <= rules.strikes - 1:
        return Reason.STRIKES
    if case.key in history.blocked and now.monotonic < history.blocked[case.key].until:
        return Reason.BLOCKED
    if now.monotonic - history.started < rules.hold_off:
        return Reason.HOLD_OFF
    if history.breakers:
        return Reason.BREAKER
    really = history.in_flight is not None and history.in_flight.action.key == case.key
    if flight is not None or really:  # what happens to it is not rehearsed
        return Reason.IN_FLIGHT
    if not dry and _too_soon(history, rules, now):
        return Reason.SPACING
    return budgets.exhausted(history.spent, case.workload, rules, now.boot, dry=dry)


def _too_soon(history: History, rules: Rules, now: Moment) -> bool:
    """Tell whether an action was a short time ago. Of one before a restart nobody knows when, but that it has ended."""
    real = [one for one in history.spent if not one.dry]
    if any(0 <= now.boot - one.at < rules.spacing for one in real):
        return True
    ended = history.started if history.ended_at is None and real else history.ended_at
    return ended is not None and now.monotonic - ended < rules.spacing


def _order(one: Judged) -> tuple[bool, int, int, int, float, CaseKey]:
    """Order victims: actions first, then the least important, the cheapest to lose, the farthest over, the youngest."""
    pod = one.case.pod
    priority, created = (pod.priority or 0, pod.created_at) if pod else (0, 0.0)
    excess = (one.case.used or 0) - (one.case.limit.memory or 0)
    cost = _number(pod.annotations.get(_COST, "")) if pod else 0
    return one.allowed.mode is Mode.DRY_RUN, priority, cost, -excess, -created, one.case.key


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER else 0


def _action(one: Judged, now: Moment) -> Action:
    case, rung, pod = one.case, one.allowed.rung, one.case.pod
    assert pod is not None  # noqa: S101  (who is unknown is protected)
    assert rung is not None  # noqa: S101  (who has no rung is held)
    return Action(
        case.key,
        case.limit,
        pod.namespace,
        pod.name,
        case.used or 0,
        rung,
        case.workload,
        one.evidence.since if one.evidence else now.monotonic,
        dry=one.allowed.mode is Mode.DRY_RUN,
        sole_user=case.sole_user if rung in ON_A_CONTAINER else None,
        allowance=one.allowance,
    )
