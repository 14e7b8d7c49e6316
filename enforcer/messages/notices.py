"""
What is told of a verdict: to users on their pods, and to operators in the log.

What comes in: a verdict, and the snapshot that it was made of. What goes out: notices and log lines, as data.

The law: each change of a standing is told once, to whom it concerns. Users are told from mode `warn` on, and only what
they can do something about: that they are over, and why that is held. Nobody is threatened with what would not follow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from enforcer.messages.events import EventReason, EventType, Notice, Regarding
from enforcer.messages.reasons import WORDS
from enforcer.messages.sentences import Excess, duration, evicted, exceeded, fenced, held, killed, reported
from enforcer.policy.history import Action, Moment, Result, Standing, Verdict
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
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
"""Reasons that are gone within minutes: the log has them, a user can do nothing about them."""


@dataclass(frozen=True, slots=True)
class Line:
    """A log line: a dotted name, and its data."""

    event: str
    data: Mapping[str, object] = field(default_factory=dict)
    warning: bool = False


def notices(verdict: Verdict, snapshot: Snapshot) -> Iterator[Notice]:
    """Tell users what changed for them."""
    kinds = {(one.pod_uid, one.name): one.kind for one in snapshot.containers}
    for change in verdict.changes:
        now = change.after
        if now.mode.rank < Mode.WARN.rank or now.used is None or now.limit is None or not now.pod:
            continue
        kind = kinds.get((now.key.pod_uid, now.container), ContainerKind.REGULAR)
        regarding = Regarding(now.namespace, now.pod, now.key.pod_uid, now.container, kind)
        device = device_name(now.device)
        excess = Excess(now.container, device, now.used, now.limit, now.declared)
        if now.state is State.GRACE:
            left = None if now.due_at is None else max(0.0, now.due_at - verdict.at.monotonic)
            if now.spared is None or now.spared is Reason.MODE:
                text = exceeded(excess, now.mode, now.rung, left)
            else:
                text = reported(excess, WORDS[now.spared])
            yield Notice(regarding, EventReason.EXCEEDED, text, snapshot.taken_at, topic=device)
        elif now.state is State.HELD and now.reason is not None and now.reason not in PASSING:
            why = f"{WORDS[now.reason]}{f' ({now.detail})' if now.detail else ''}"
            text = held(excess, now.rung, why) if now.rung else reported(excess, why)
            topic = f"{device} {now.reason}"
            yield Notice(regarding, EventReason.HELD, text, snapshot.taken_at, topic, EventType.NORMAL)


def ending(action: Action, result: Result, detail: str, now: Moment, at: float) -> Notice | None:
    """Tell a user how an action on its pod ended, where there is something to tell."""
    device = device_name(action.device)
    excess = Excess(action.container, device, action.used, action.limit, action.declared)
    regarding = Regarding(action.namespace, action.pod, action.pod_uid, action.container)
    over = now.monotonic - action.since
    if result is Result.VERIFIED and action.rung is Rung.FENCE:
        return Notice(regarding, EventReason.FENCED, fenced(excess, None), at, topic=device)
    if result is Result.VERIFIED and action.rung is Rung.KILL:
        return Notice(regarding, EventReason.KILLED, killed(excess, over), at, topic=device)
    if result is Result.BLOCKED:
        why = f"{WORDS[Reason.BLOCKED]}{f' ({detail})' if detail else ''}"
        return Notice(regarding, EventReason.HELD, held(excess, action.rung, why), at, f"{device} blocked")
    return None


def beginning(action: Action, grace: float, now: Moment, at: float) -> Notice | None:
    """Tell a user that his pod is evicted, while there still is a pod to tell it on."""
    if action.rung is not Rung.EVICT:
        return None
    device = device_name(action.device)
    excess = Excess(action.container, device, action.used, action.limit, action.declared)
    regarding = Regarding(action.namespace, action.pod, action.pod_uid, action.container)
    text = evicted(excess, now.monotonic - action.since, grace)
    return Notice(regarding, EventReason.EVICTED, text, at, topic=device)


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
    return {
        "namespace": now.namespace,
        "pod": now.pod,
        "container": now.container,
        "device": device_name(now.device),
        "used": now.used,
        "limit": now.limit,
        "mode": now.mode,
        "over_for": over,
    }


def _of(action: Action, verdict: Verdict) -> dict[str, object]:
    return {
        "action": action.rung,
        "namespace": action.namespace,
        "pod": action.pod,
        "pod_uid": action.pod_uid,
        "container": action.container,
        "device": device_name(action.device),
        "used": action.used,
        "limit": action.limit,
        "over_for": duration(verdict.at.monotonic - action.since),
    }
