"""
What a verdict makes known: to users on their pods, and to operators in the log.

What comes in: a verdict, and the snapshot that it was made of. What goes out: notices and log lines, as data.

The rule: each change of a state is reported once. From mode `warn` on, users learn what they can change: that a
container is over its limit, and why the action is held. No notice announces an action that would not follow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from enforcer.messages.action_texts import TEXTS, EventReason
from enforcer.messages.events import EventType, Notice, Regarding
from enforcer.messages.sentences import acted, because, duration, exceeded, held, reported
from enforcer.policy.history import Action, Holding, Moment, Result, Standing, Verdict
from enforcer.policy.vocabulary import Mode, Reason, State
from exporter.limits.devices import device_name
from exporter.model import ContainerKind, Snapshot

PASSING = frozenset(
    {
        Reason.IN_FLIGHT,
        Reason.SPACING,
        Reason.QUEUED,
        Reason.NOT_OVER_NOW,
        Reason.HOLD_OFF,
        Reason.NAMES_STALE,
        Reason.OWNER_UNKNOWN,
    }
)
"""Reasons that pass within minutes. The log has them; a user cannot change them."""


@dataclass(frozen=True, slots=True)
class Line:
    """A log line: a dotted name, and its data."""

    event: str
    data: Mapping[str, object] = field(default_factory=dict)
    warning: bool = False


def notices(verdict: Verdict, snapshot: Snapshot) -> Iterator[Notice]:
    """Tell users what changed for them."""
    kinds = {(container.pod_uid, container.name): container.kind for container in snapshot.containers}
    for change in verdict.changes:
        now = change.after
        if now.mode.rank < Mode.WARN.rank or now.used is None or now.limit.memory is None or not now.pod:
            continue
        kind = kinds.get((now.key.pod_uid, now.container), ContainerKind.REGULAR)
        regarding = Regarding(now.namespace, now.pod, now.key.pod_uid, now.container, kind)
        device = device_name(now.device)
        if now.state is State.GRACE:
            left = None if now.due_at is None else max(0.0, now.due_at - verdict.at.monotonic)
            if now.spared is None or now.spared is Reason.MODE:
                text = exceeded(now, now.mode, now.rung, left)
            else:
                text = reported(now, now.spared.words)
            yield Notice(regarding, EventReason.EXCEEDED, text, snapshot.taken_at, topic=device)
        elif now.state is State.HELD and now.reason is not None and now.reason not in PASSING:
            why = because(now.reason, now.detail)
            text = held(now, now.rung, why) if now.rung else reported(now, why)
            topic = f"{device} {now.reason}"
            yield Notice(regarding, EventReason.HELD, text, snapshot.taken_at, topic, EventType.NORMAL)


def beginning(action: Action, grace: float, now: Moment, at: float) -> Notice | None:
    """Tell a user that the pod goes, while there still is a pod to tell it on."""
    event = TEXTS[action.rung].before
    if event is None:
        return None
    text = acted(event.note, action, over=now.monotonic - action.since, grace=grace)
    return _of_action(action, event.reason, text, at)


def ending(action: Action, result: Result, detail: str, now: Moment, at: float) -> Notice | None:
    """Tell a user how an action on the pod ended, where there is something to tell."""
    event = TEXTS[action.rung].after
    if result is Result.VERIFIED and event is not None:
        text = acted(event.note, action, over=now.monotonic - action.since)
        return _of_action(action, event.reason, text, at)
    if result is Result.BLOCKED:
        text = held(action, action.rung, because(Reason.BLOCKED, detail))
        return _of_action(action, EventReason.HELD, text, at, " blocked")
    return None


def _of_action(action: Action, reason: EventReason, text: str, at: float, topic: str = "") -> Notice:
    regarding = Regarding(action.namespace, action.pod, action.pod_uid, action.container)
    return Notice(regarding, reason, text, at, f"{device_name(action.device)}{topic}")


def lines(verdict: Verdict, before: Verdict | None) -> Iterator[Line]:
    """Tell operators what changed."""
    for change in verdict.changes:
        now = change.after
        if change.before is None and now.state in (State.OK, State.UNJUDGED, State.EXEMPT):
            continue  # whoever comes in good order makes no line
        data = _data(now, verdict)
        if now.state is State.HELD:
            yield Line("enforcer.held", {**data, "reason": now.reason, "detail": now.detail}, warning=True)
        elif now.state is State.GRACE:
            yield Line("enforcer.grace", data, warning=True)
        elif now.state in (State.OVER, State.DUE):
            yield Line(f"enforcer.{now.state}", data)
        elif now.state is State.OK and change.before is not State.OVER:
            yield Line("enforcer.ok", data)
        elif now.reason is not None and change.before not in (None, State.OK):
            yield Line(f"enforcer.{now.state}", {**data, "reason": now.reason})
    if verdict.action is not None:
        yield Line(
            "enforcer.rehearsed" if verdict.action.dry else "enforcer.acting",
            _of(verdict.action, verdict),
            warning=True,
        )
    known = before.breakers if before else {}
    for breaker, opened in verdict.breakers.items():
        if breaker not in known:
            yield Line("enforcer.breaker_opened", {"breaker": breaker, "detail": opened.detail}, warning=True)
    for breaker in known.keys() - verdict.breakers.keys():
        yield Line("enforcer.breaker_closed", {"breaker": breaker})
    if before is None or before.mode is not verdict.mode:
        yield Line("enforcer.mode", {"mode": verdict.mode})


def _data(now: Standing, verdict: Verdict) -> dict[str, object]:
    over = None if now.since is None else duration(verdict.at.monotonic - now.since)
    return {"namespace": now.namespace, "pod": now.pod, **_amounts(now), "mode": now.mode, "over_for": over}


def _of(action: Action, verdict: Verdict) -> dict[str, object]:
    return {
        "action": action.rung,
        "namespace": action.namespace,
        "pod": action.pod,
        "pod_uid": action.pod_uid,
        **_amounts(action),
        "over_for": duration(verdict.at.monotonic - action.since),
    }


def _amounts(holding: Holding) -> dict[str, object]:
    return {
        "container": holding.container,
        "device": device_name(holding.device),
        "used": holding.used,
        "limit": holding.limit.memory,
    }
