"""
What a verdict makes known to users, on their pods.

What comes in: a verdict, the one before it, and the snapshot that it was made of. What goes out: notices, as data.

The rule: from mode `warn` on, a pod learns that it is over its limit when its warning is asked for, and again while the
excess lasts. It learns once for each reason that its action is held, where waiting alone does not help. Only a warning
that an action really follows says so; see `sentences`.
"""

from collections.abc import Iterator, Mapping

from enforcer.messages.action_texts import TEXTS, EventReason
from enforcer.messages.events import EventType, Notice, Regarding
from enforcer.messages.sentences import acted, because, exceeded, held, obstacle
from enforcer.policy.history import Action, Moment, Result, Standing, Verdict
from enforcer.policy.vocabulary import Kind, Mode, Reason, State, Trigger
from exporter.limits.devices import device_name
from exporter.model import ContainerKind, PodUid, Snapshot

_SILENT = frozenset({State.EXEMPT, State.UNJUDGED})
"""States of pods that are left alone, and of those about which nothing is known."""
_API_AWAY = frozenset({Reason.NAMES_STALE, Reason.NAMESPACE_UNKNOWN})
"""The API server does not answer: an Event that says so could be written only when it is not true any more."""


def notices(verdict: Verdict, before: Verdict | None, snapshot: Snapshot, trigger: Trigger) -> Iterator[Notice]:
    """Warn each holder whose warning is asked for, repeat what lasts, and say once why an action is held."""
    warned = [one for one in verdict.standings if one.warned_at is not None and _is_read(one)]
    refused = [one for one in verdict.refusals if _is_read(one) and _is_news(one)]
    if not warned and not refused:
        return
    kinds = {(container.pod_uid, container.name): container.kind for container in snapshot.containers}
    asked = {one.key: one.warned_at for one in before.standings} if before else {}
    over = {one.key.holder for one in warned if one.over}
    for standing in warned:
        new = asked.get(standing.key) != standing.warned_at
        if not new and standing.reason in _API_AWAY:
            continue
        if standing.over or (new and standing.key.holder not in over):
            yield _warning(standing, trigger, snapshot, kinds, new=new)
    for standing in refused:
        assert standing.reason is not None  # noqa: S101  (checked above)
        text = held(standing, because(standing.reason, standing.detail))
        topic = f"{device_name(standing.device)} {standing.reason}"
        regarding = _regarding(standing, kinds)
        yield Notice(regarding, EventReason.HELD, text, snapshot.taken_at, topic, EventType.NORMAL)


def beginning(action: Action, grace: float, now: Moment, at: float) -> Notice | None:
    """Tell a user that the pod goes, while there still is a pod to tell it on."""
    event = TEXTS[action.rung].before
    if event is None:
        return None
    text = acted(event.note, action, since=now.monotonic - action.since, grace=grace)
    return _of_action(action, event.reason, text, at)


def ending(action: Action, result: Result, now: Moment, at: float, done: str = "") -> Notice | None:
    """Tell a user what was done, in the action's own words, where the pod is still there once the effect was seen."""
    event = TEXTS[action.rung].after
    if result is not Result.VERIFIED or event is None:
        return None
    text = acted(event.note, action, done, since=now.monotonic - action.since)
    return _of_action(action, event.reason, text, at)


_Kinds = Mapping[tuple[PodUid, str], ContainerKind]


def _is_read(standing: Standing) -> bool:
    """Tell whether there is something to say, and a pod to say it on."""
    known = standing.used is not None and standing.limit.memory is not None and bool(standing.pod)
    return known and standing.mode.rank >= Mode.WARN.rank and standing.state not in _SILENT


def _is_news(refused: Standing) -> bool:
    """Tell whether the reason is worth an Event: it does not end by itself, and the Event can be written meanwhile."""
    reason = refused.reason
    return reason is not None and reason.kind is not Kind.WAITING and reason not in _API_AWAY


def _warning(standing: Standing, trigger: Trigger, snapshot: Snapshot, kinds: _Kinds, *, new: bool) -> Notice:
    """Make the warning; the topic is what it announces, so that another announcement is written at once."""
    why = obstacle(standing)
    announced = f"{standing.rung} {standing.capacity:.0f}s {trigger}" if why is None else why[0]
    return Notice(
        _regarding(standing, kinds),
        EventReason.EXCEEDED,
        exceeded(standing, trigger),
        snapshot.taken_at,
        f"{device_name(standing.device)} {announced}",
        holder=standing.key.holder if new else None,
        warned_at=standing.warned_at or 0.0,
        lasting=not new,
    )


def _regarding(standing: Standing, kinds: _Kinds) -> Regarding:
    pod_uid = standing.limit.pod_uid  # the key of a claim that several pods share names none of them
    kind = kinds.get((pod_uid, standing.container), ContainerKind.REGULAR)
    return Regarding(standing.namespace, standing.pod, pod_uid, standing.container, kind)


def _of_action(action: Action, reason: EventReason, text: str, at: float) -> Notice:
    regarding = Regarding(action.namespace, action.pod, action.pod_uid, action.container)
    return Notice(regarding, reason, text, at, device_name(action.device))
