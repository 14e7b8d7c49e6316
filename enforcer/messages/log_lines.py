"""
What a verdict makes known to operators, in the log.

What comes in: a verdict, and the one before it. What goes out: log lines, as data.

The rule: each change of a state is one line, and a warning where a pod may lose something or a person is needed. Keys
carry their units, values are numbers; both are those of the JSON API.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from enforcer.policy.history import Action, Holding, Standing, Verdict
from enforcer.policy.vocabulary import Kind, State
from exporter.limits.devices import device_name


@dataclass(frozen=True, slots=True)
class Line:
    """A log line: a dotted name, and its data."""

    event: str
    data: Mapping[str, object] = field(default_factory=dict)
    warning: bool = False


def lines(verdict: Verdict, before: Verdict | None) -> Iterator[Line]:
    """Tell operators what changed."""
    for change in verdict.changes:
        yield from _of_state(change.after, change.before)
    if (action := verdict.action) is not None:
        yield Line("enforcer.dry_run" if action.dry else "enforcer.acting", _of_action(action, verdict), warning=True)
    known = before.breakers if before else {}
    for breaker, opened in verdict.breakers.items():
        if breaker not in known:
            yield Line("enforcer.breaker_opened", {"breaker": breaker, "detail": opened.detail}, warning=True)
    for breaker in known.keys() - verdict.breakers.keys():
        yield Line("enforcer.breaker_closed", {"breaker": breaker})
    if before is None or before.mode is not verdict.mode:
        yield Line("enforcer.mode", {"mode": verdict.mode})


def _of_state(now: Standing, was: State | None) -> Iterator[Line]:
    if was is None and now.state in (State.OK, State.UNJUDGED, State.EXEMPT):
        return  # a pod that comes and is within its limit makes no line
    data = {
        "namespace": now.namespace,
        "pod": now.pod,
        **_amounts(now),
        "mode": now.mode,
        "over_seconds": round(now.level, 1),
        "capacity_seconds": round(now.capacity, 1),
    }
    if now.state is State.HELD:
        kind = now.reason.kind if now.reason else None
        why = {"reason": now.reason, "kind": kind, "detail": now.detail}
        yield Line("enforcer.held", {**data, **why}, warning=kind is not Kind.WAITING)
    elif now.state is State.GRACE:
        prevented = {"prevented": now.prevented} if now.prevented else {}
        falling = was in (State.DUE, State.HELD, State.ACTING)
        yield Line("enforcer.grace", {**data, **prevented}, warning=not falling)
    elif now.state in (State.OVER, State.DUE):
        yield Line(f"enforcer.{now.state}", {**data, **({"reason": now.reason} if now.reason else {})})
    elif now.state is State.OK and was is not State.OVER:
        yield Line("enforcer.ok", data)
    elif now.state in (State.EXEMPT, State.UNJUDGED) and was is not State.OK:
        yield Line(f"enforcer.{now.state}", {**data, "reason": now.reason})


def _of_action(action: Action, verdict: Verdict) -> dict[str, object]:
    level = next((one.level for one in verdict.standings if one.key == action.key), None)
    return {
        "action": action.rung,
        "namespace": action.namespace,
        "pod": action.pod,
        "pod_uid": action.pod_uid,
        **_amounts(action),
        "over_seconds": None if level is None else round(level, 1),
    }


def _amounts(holding: Holding) -> dict[str, object]:
    return {
        "container": holding.container,
        "device": device_name(holding.device),
        "used_bytes": holding.used,
        "limit_bytes": holding.limit.memory,
    }
