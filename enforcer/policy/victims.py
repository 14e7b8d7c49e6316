"""
Chooses the limit holder to act on: one, or none.

What comes in: all judged cases, and the history. What goes out: at most one action, and for each other due holder the
reason why it is not acted on.

The rule: **each guard alone holds the action back**, and the first that does is the reason. The holder that has been
over its limit for longest comes first. Pods whose action failed take turns with the others, namespace by namespace. So
a pod that cannot be acted on does not delay the next one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from enforcer.policy import budgets
from enforcer.policy.contention import Needs, justified
from enforcer.policy.history import Action, History, InFlight, Moment
from enforcer.policy.holder import CaseKey
from enforcer.policy.holds import InForce
from enforcer.policy.judgement import Judged, victim_of
from enforcer.policy.levels import full
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import ON_A_CONTAINER, Mode, Place, Reason, Rung, Trigger
from exporter.model import DeviceKey, Snapshot

_ORDER = {rung: place for place, rung in enumerate(Rung)}
_DRY_RUN, _CONTENDED = Mode.DRY_RUN, Trigger.CONTENDED  # to look up a member takes long


@dataclass(frozen=True, slots=True)
class Scene:
    """
    The data from which the holder is chosen.

    Attributes:
        needs: by device, what neighbours may still take; empty where the trigger does not ask.
        excess: by device, the bytes by which all holders together are over.
        settling: why nothing is done yet after a change of ours; None: the change is settled.

    """

    snapshot: Snapshot
    rules: Rules
    history: History
    now: Moment
    holds: InForce
    needs: Mapping[DeviceKey, Needs]
    excess: Mapping[DeviceKey, int]
    settling: Reason | None = None


Why = tuple[Reason, str]


def due(judged: Judged, at: float, rules: Rules) -> bool:
    """Tell whether the level of a holder is full, this device has a part in it, and so has what would be ended."""
    level = judged.level
    if level is None or judged.excess is None or victim_of(judged) != level.victim:
        return False
    return full(level, at, judged.grace, judged.allowed.written or Mode.OBSERVE, rules)


def choose(cases: Sequence[Judged], scene: Scene) -> tuple[Action | None, dict[CaseKey, Why | None]]:
    """Take the first of the holders that nothing holds back; name the reason (or None, for it) for each that is due."""
    reasons: dict[CaseKey, Why | None] = {}
    ready: list[Judged] = []
    for judged in cases:
        if judged.shield is not None or not due(judged, scene.now.monotonic, scene.rules):
            continue
        why = reasons[judged.case.key] = refusal(judged, scene)
        if why is None:
            ready.append(judged)
    first = _first(ready, scene)
    reasons |= {judged.case.key: (Reason.QUEUED, "") for judged in ready if judged is not first}
    return (_action(first, scene.now) if first is not None else None), reasons


def taken(history: History, action: Action, now: Moment, time: float) -> History:
    """Note that an action begins. A dry run takes no token; `time` is Unix time."""
    if action.dry:
        return replace(history, dry_flight=InFlight(action, now.monotonic))
    spent, token = budgets.taken(history.spent, now.boot, action.workload, time)
    return replace(history, spent=spent, in_flight=InFlight(action, now.monotonic, token))


def refusal(judged: Judged, scene: Scene) -> Why | None:
    """Say why a holder that is due is not acted on now, and the particulars."""
    case, rules, history, now = judged.case, scene.rules, scene.history, scene.now
    dry = judged.allowed.mode is _DRY_RUN
    if judged.allowed.held is not None:
        return judged.allowed.held, judged.allowed.detail
    if case.unknown is not None:
        return case.unknown, ""
    if not judged.over:
        return Reason.NOT_OVER_NOW, ""
    if judged.level is None or not judged.level.enough_readings(case.limit.device):
        return Reason.FEW_READINGS, ""
    announced = judged.level.terms
    if announced is None or judged.allowed.rung is None or announced.rung is None:
        return Reason.QUEUED, ""
    if _ORDER[judged.allowed.rung] > _ORDER[announced.rung]:
        return Reason.QUEUED, "a gentler step follows first, on another device"
    if not scene.snapshot.names_live:
        return Reason.NAMES_STALE, ""
    if rules.trigger is _CONTENDED and not justified(case, scene.excess[case.limit.device], scene.needs):
        return Reason.NOT_CONTENDED, ""
    if history.breakers:
        return Reason.BREAKER, ", ".join(sorted(history.breakers))
    if scene.settling is not None:
        return scene.settling, ""
    if (hold := _hold(judged, scene, dry=dry)) is not None:
        return hold
    if (history.dry_flight if dry else history.in_flight) is not None:
        return Reason.IN_FLIGHT, ""
    if history.in_flight is not None and history.in_flight.action.pod_uid == case.limit.pod_uid:
        return Reason.IN_FLIGHT, ""
    if not dry and (spent := budgets.exhausted(history.spent, case, rules, now.boot)) is not None:
        return spent, ""
    # The last look asks for all but this, and nothing may hide behind it: its level is of its own round.
    if not dry and _too_soon(history, rules, now):
        return Reason.SPACING, ""
    if judged.level.read_at < scene.snapshot.monotonic:  # what was announced was not compared with what is so now
        return Reason.QUEUED, "the next regular round decides"
    return None


def _hold(judged: Judged, scene: Scene, *, dry: bool) -> Why | None:
    case, holds = judged.case, scene.holds
    pod = holds.on(Place.POD, case.limit.pod_uid, dry=dry)
    if pod is not None:
        return pod
    return None if dry else holds.on(Place.NAMESPACE, case.namespace) or holds.on(Place.NODE, "")


def _too_soon(history: History, rules: Rules, now: Moment) -> bool:
    """Tell whether an action was a short time ago: the newest token, also one of an earlier daemon, tells."""
    if any(0 <= now.boot - token.at < rules.spacing for token in history.spent):
        return True
    return history.ended_at is not None and now.monotonic - history.ended_at < rules.spacing


def _first(ready: Sequence[Judged], scene: Scene) -> Judged | None:
    real = [judged for judged in ready if judged.allowed.mode is not Mode.DRY_RUN]
    if not real:
        return min(ready, key=_longest, default=None)
    history = scene.history
    tried = [judged for judged in real if judged.case.limit.pod_uid in history.tried]
    fresh = [judged for judged in real if judged.case.limit.pod_uid not in history.tried]
    if tried and (history.retry_next or not fresh):
        return min(tried, key=lambda judged: _turn(judged, history))
    order = _importance if scene.rules.trigger is Trigger.CONTENDED else _longest
    return min(fresh, key=order)


def _turn(judged: Judged, history: History) -> tuple[float, float, float, int, CaseKey]:
    """Order by the turns of the namespaces, and by those of their pods."""
    namespace, pod = judged.case.namespace, judged.case.limit.pod_uid
    return history.turns.get(namespace, 0.0), history.tried.get(pod, 0.0), *_longest(judged)


def _longest(judged: Judged) -> tuple[float, int, CaseKey]:
    """Order by the time since when the holder was first due, the longest first, then by excess."""
    since = judged.level.place_at if judged.level is not None else None
    return since if since is not None else float("inf"), -excess_of(judged), judged.case.key


def _importance(judged: Judged) -> tuple[float, int, CaseKey]:
    """Order by priority, the lowest first, then by excess."""
    pod = judged.case.pod
    return float(pod.priority or 0) if pod else 0.0, -excess_of(judged), judged.case.key


def excess_of(judged: Judged) -> int:
    """Return the bytes by which the holder is certainly above its limit and its allowance."""
    return max(0, judged.case.low - (judged.case.limit.memory or 0) - judged.allowance) if judged.over else 0


def _action(judged: Judged, now: Moment) -> Action:
    case, level, rung, pod = judged.case, judged.level, judged.allowed.rung, judged.case.pod
    assert level is not None  # noqa: S101  (a holder without a level is not due)
    assert pod is not None  # noqa: S101  (an unknown pod is protected)
    assert rung is not None  # noqa: S101  (a holder without a step is held)
    return Action(
        case.key,
        case.limit,
        pod.namespace,
        pod.name,
        case.low,
        rung,
        case.workload,
        level.since if level.since is not None else now.monotonic,
        dry=judged.allowed.mode is Mode.DRY_RUN,
        largest=case.largest if rung in ON_A_CONTAINER else None,
        allowance=judged.allowance,
    )
