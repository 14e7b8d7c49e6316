"""
What is said of each limit holder.

Cases as judged come in, and the reasons why they were not acted on. States go out, and what differs from the last ones.

The rule: a round that did not read a holder's device changes nothing that is said of it.
"""

from collections.abc import Iterable, Mapping

from enforcer.policy.history import Change, History, Standing
from enforcer.policy.holder import CaseKey
from enforcer.policy.judgement import Judged
from enforcer.policy.levels import capacity, prevents
from enforcer.policy.rules import Rules
from enforcer.policy.victims import Why
from enforcer.policy.vocabulary import Place, Reason, State

Reasons = Mapping[CaseKey, Why | None]
"""Of each case that is due, why it is not acted on; None where nothing prevents it."""


def standings(cases: Iterable[Judged], reasons: Reasons, history: History, rules: Rules) -> tuple[Standing, ...]:
    """Make the states. `history` has the action of this round, and the last states."""
    stopped: dict[str, Reason | None] = {}
    states = []
    for judged in cases:
        namespace = judged.case.namespace
        if namespace not in stopped:
            stopped[namespace] = _stopped(namespace, history, rules)
        states.append(_standing(judged, reasons, history, rules, stopped[namespace]))
    return tuple(states)


def changes(before: Mapping[CaseKey, Standing], after: Iterable[Standing]) -> tuple[Change, ...]:
    """Name the limit holders whose state, its reason, or whose warning is another than before."""
    result = []
    for now in after:
        was = before.get(now.key)
        if was is None:
            result.append(Change(None, now))
        elif was.state is not now.state or was.reason is not now.reason or was.warned_at != now.warned_at:
            result.append(Change(was.state, now))
    return tuple(result)


def _standing(judged: Judged, reasons: Reasons, history: History, rules: Rules, stopped: Reason | None) -> Standing:
    case, level = judged.case, judged.level
    state, reason, detail = _state(judged, reasons, history)
    part = level if judged.excess is not None else None
    return Standing(
        case.key,
        case.limit,
        case.namespace,
        case.pod.name if case.pod else "",
        case.used,
        state,
        reason,
        detail,
        judged.allowed.mode,
        judged.allowed.rung,
        over=bool(judged.over),
        since=part.since if part is not None else None,
        level=part.seconds if part is not None else 0.0,
        capacity=capacity(level, judged.grace, rules),
        warned_at=part.warned_at if part is not None else None,
        prevented=prevents(judged.shield) or judged.allowed.held or stopped,
        largest=case.largest,
        allowance=judged.allowance,
    )


def _stopped(namespace: str, history: History, rules: Rules) -> Reason | None:
    """Say what stops all actions in a namespace until something is changed: no action is announced meanwhile."""
    if history.breakers:
        return Reason.BREAKER
    if rules.budgets.node.most <= 0:
        return Reason.BUDGET_NODE
    if rules.budgets.namespace.most <= 0:
        return Reason.BUDGET_NAMESPACE
    now = history.at.monotonic if history.at is not None else 0.0
    for key in ((Place.NAMESPACE, namespace, Reason.NO_RIGHTS), (Place.NODE, "", Reason.UNAUTHORIZED)):
        hold = history.holds.get(key)
        if hold is not None and (hold.until is None or now < hold.until):
            return key[2]
    return None


def _state(judged: Judged, reasons: Reasons, history: History) -> tuple[State, Reason | None, str]:
    case, level = judged.case, judged.level
    if history.in_flight is not None and history.in_flight.action.key == case.key:
        return State.ACTING, None, ""
    if judged.shield is not None:
        return State.EXEMPT, judged.shield, ""
    if case.pending and case.unknown is not None and (before := history.standings.get(case.key)) is not None:
        return before.state, before.reason, before.detail
    if level is None or judged.excess is None:
        if judged.over is None:
            return State.UNJUDGED, case.unknown or Reason.READING_UNKNOWN, "; ".join(case.limit.problems)
        return State.OK, None, ""
    if case.key in reasons:
        why = reasons[case.key]
        dry = history.dry_flight is not None and history.dry_flight.action.key == case.key
        if why is None or (dry and why[0] is Reason.IN_FLIGHT):  # its own dry run keeps nothing from happening
            return State.DUE, None, ""
        if why[0] is Reason.DRY_RUN:
            return State.DUE, why[0], why[1]
        return State.HELD, why[0], why[1]
    return (State.OVER if level.warned_at is None else State.GRACE), None, ""
