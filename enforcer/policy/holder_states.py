"""
Where everybody stands, in the words of metrics, logs and pages.

What comes in: subjects as judged, and the reasons why they were not acted on. What goes out: standings, and what is
different from the last ones.

The law: a round that did not look at a subject's device changes nothing of what is said of it.
"""

from collections.abc import Iterable, Mapping

from enforcer.policy.evidence import Phase
from enforcer.policy.history import Change, History, Standing
from enforcer.policy.judgement import Judged
from enforcer.policy.limit_holders import CaseKey
from enforcer.policy.vocabulary import Reason, State


def standing(one: Judged, reasons: Mapping[CaseKey, Reason], history: History) -> Standing:
    """Say where a subject stands. `history` has the action of this round in flight, and the last standings."""
    case, evidence = one.case, one.evidence
    state, reason, detail = _state(one, reasons, history)
    excess = evidence is not None and evidence.phase is not Phase.OK
    return Standing(
        case.key,
        case.limit,
        case.namespace,
        case.pod.name if case.pod else "",
        case.used,
        state,
        reason,
        detail,
        one.allowed.mode,
        one.allowed.rung,
        since=evidence.since if evidence is not None and excess else None,
        due_at=evidence.due_at() if evidence is not None else None,
        over=evidence is not None and evidence.over,
        told_at=evidence.phase_from if state is State.GRACE and evidence is not None else None,
        spared=one.allowed.held,
        sole_user=case.sole_user,
        allowance=one.allowance,
    )


def changes(before: Mapping[CaseKey, Standing], after: Iterable[Standing]) -> tuple[Change, ...]:
    """Name the subjects whose state, or reason of it, or grace is another than before."""
    found = []
    for now in after:
        was = before.get(now.key)
        if was is None or (was.state, was.reason, was.told_at) != (now.state, now.reason, now.told_at):
            found.append(Change(was.state if was else None, now))
    return tuple(found)


def _state(one: Judged, reasons: Mapping[CaseKey, Reason], history: History) -> tuple[State, Reason | None, str]:
    key, evidence = one.case.key, one.evidence
    if history.in_flight is not None and history.in_flight.action.key == key:
        return State.ACTING, None, ""
    if one.shield is not None:
        return State.EXEMPT, one.shield, ""
    if evidence is None:
        return State.UNJUDGED, one.case.unknown or Reason.READING_GAP, "; ".join(one.case.limit.problems)
    before = history.standings.get(key)
    acted = before is not None and before.state is State.ACTING  # and acts no more, or the line above had said so
    if one.case.used is None and before is not None and not acted and evidence.phase is not Phase.OK:
        return before.state, before.reason, before.detail
    if evidence.phase is not Phase.DUE:
        return State(evidence.phase), None, ""
    reason = reasons.get(key)
    rehearsed = history.rehearsal is not None and history.rehearsal.action.key == key
    if reason is None or rehearsed:
        return State.DUE, None, ""
    return State.HELD, reason, ", ".join(history.breakers) if reason is Reason.BREAKER else one.allowed.detail
