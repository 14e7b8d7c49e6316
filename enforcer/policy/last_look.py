"""
The last look before an action.

The action comes in, a snapshot that was taken since it was decided, what the API server says at this moment, rules and
history. Why the action must not be taken goes out, or nothing.

The rule: all that justified the action is asked for again, of what is known now and of nothing that is remembered. A
pod that was replaced, or whose present declaration is not in the snapshot yet, is spared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from enforcer.policy.contention import justified
from enforcer.policy.decide import in_force, scene_of
from enforcer.policy.history import Action, History, Moment
from enforcer.policy.holds import InForce
from enforcer.policy.judgement import Judged, judge_all
from enforcer.policy.rules import FEWEST_INTERVALS, Rules
from enforcer.policy.victims import Scene, due, refusal
from enforcer.policy.vocabulary import ON_A_CONTAINER, Mode, Reason, Rung, Trigger
from exporter.model import Container, Pod, Snapshot

FRESH = 3.0
"""
Seconds that a reading, from the end of its round, or the server's answer may be old when the call is made.

The age bounds the time in which a pod can free its memory, or change its declaration, unnoticed before its action. A
replaced pod is not hit in any case: the call names the UID. The bound must exceed the time of a round and a request on
a busy machine, because a tenant can make the machine busy.
"""


class Spared(StrEnum):
    """Why an action that was decided is not taken, beyond the reasons for which none is decided."""

    POD_GONE = "pod_gone"
    OTHER_POD = "other_pod"
    OTHER_NODE = "other_node"
    OTHER_CONTAINER = "other_container"
    DECLARATION_CHANGED = "declaration_changed"
    SUBJECT_GONE = "subject_gone"
    NOT_DUE = "not_due"
    LOOK_FAILED = "look_failed"
    LOOK_TOO_OLD = "look_too_old"


@dataclass(frozen=True, slots=True)
class Live:
    """What the API server says: the pod of this name (None: there is none), and the labels of its namespace."""

    pod: Pod | None
    containers: tuple[Container, ...]
    node: str
    labels: Mapping[str, str]


def last_look(
    action: Action,
    live: Live,
    snapshot: Snapshot,
    *,
    rules: Rules,
    history: History,
    now: Moment,
    second: bool = False,
) -> Reason | Spared | None:
    """
    Say why `action` must not be taken; None: nothing speaks against it. `history` has it in flight.

    `second`: the look before SIGKILL, some time after SIGTERM was sent. The level began anew then, so that the holder
    has to be over in three readings since, and for the time between them.
    """
    pod = live.pod
    if pod is None:
        return Spared.POD_GONE
    if pod.uid != action.pod_uid:
        return Spared.OTHER_POD
    if live.node != snapshot.node:
        return Spared.OTHER_NODE
    present = {container.name: container.id for container in live.containers}
    if present.get(action.container) != action.container_id:
        return Spared.OTHER_CONTAINER
    known = snapshot.pods.get(pod.uid)
    if known is None:
        return Spared.SUBJECT_GONE
    later = snapshot.names_live and _later(known, pod)
    if not later and (known.labels, known.annotations) != (pod.labels, pod.annotations):
        return Spared.DECLARATION_CHANGED  # the limit was read from other ones
    if not now.monotonic - oldest(snapshot, rules) <= snapshot.monotonic <= now.monotonic:
        return Spared.LOOK_TOO_OLD
    seen = replace(snapshot, namespaces={**snapshot.namespaces, action.namespace: live.labels}, names_live=True)
    if not later:
        shown = replace(pod, workload_kind=known.workload_kind, workload=known.workload, reservation=known.reservation)
        containers = (*snapshot.containers, *live.containers)  # the last generation of a container is the present one
        seen = replace(seen, pods={**snapshot.pods, pod.uid: shown}, containers=containers)
    return _justified(action, seen, in_force(rules, seen), history, now, second=second)


def oldest(snapshot: Snapshot, rules: Rules) -> float:
    """Return the seconds since its beginning that a round may be old; older than `in_a_row` no reading counts."""
    return min(snapshot.duration + FRESH, rules.in_a_row)


def _justified(
    action: Action, seen: Snapshot, rules: Rules, history: History, now: Moment, *, second: bool
) -> Reason | Spared | None:
    """Judge the holder anew, as if its own action had not begun."""
    alone = replace(history, dry_flight=None) if action.dry else replace(history, in_flight=None)
    if second:  # SIGTERM began a new level, and with the old one the eviction was forgotten that had been blocked
        alone = replace(alone, done=alone.done | {(action.key, Rung.EVICT)})
    flight = history.in_flight
    mine = flight.token if flight is not None else None
    alone = replace(alone, spent=tuple(token for token in alone.spent if token != mine))
    everything, _ = judge_all(seen, rules, alone, now)
    judged = next((each for each in everything if each.case.key == action.key), None)
    if judged is None or judged.case.limit.pod_uid != action.pod_uid:
        return Spared.SUBJECT_GONE
    case = judged.case
    if action.rung is Rung.FENCE and (case.limit.memory or 0) > (action.limit.memory or 0):
        return Spared.DECLARATION_CHANGED  # the fence would be lower than the limit
    if action.rung in ON_A_CONTAINER and case.largest != action.largest:
        return Spared.OTHER_CONTAINER  # another container of the pod holds more by now
    if judged.shield is not None:
        return judged.shield
    if judged.allowed.held is not None:
        return judged.allowed.held
    if judged.allowed.rung is not action.rung or (judged.allowed.mode is Mode.DRY_RUN) is not action.dry:
        return Spared.NOT_DUE
    if case.unknown is not None:
        return case.unknown
    if not judged.over:
        return Reason.NOT_OVER_NOW
    scene = replace(scene_of(everything, seen, rules, alone, now), holds=InForce({}, now))
    if second:
        return _still_over(judged, scene, history)
    if not due(judged, now.monotonic, rules):
        return Spared.NOT_DUE
    assert judged.level is not None  # noqa: S101  (a holder without a level is not due)
    # The round of this look moves no level. What was announced was compared in the round that decided the action.
    why = refusal(judged.at(replace(judged.level, read_at=seen.monotonic)), scene)
    return None if why is None or why[0] is Reason.SPACING else why[0]


def _still_over(judged: Judged, scene: Scene, history: History) -> Reason | Spared | None:
    rules, case = scene.rules, judged.case
    if scene.settling is not None:
        return scene.settling
    if rules.trigger is Trigger.CONTENDED and not justified(case, scene.excess[case.limit.device], scene.needs):
        return Reason.NOT_CONTENDED
    if history.breakers:
        return Reason.BREAKER
    if history.in_flight is not None and history.in_flight.action.pod_uid == case.limit.pod_uid:
        return Reason.IN_FLIGHT
    level = judged.level
    if level is None or not level.enough_readings(judged.case.limit.device):
        return Reason.FEW_READINGS
    return None if level.seconds >= FEWEST_INTERVALS * rules.interval else Spared.NOT_DUE


def _later(known: Pod, shown: Pod) -> bool:
    """
    Tell whether the watch's pod is later than the server's answer, as it may be when the round comes after that.

    Otherwise a pod that is edited all the time, so that the two are never the same, would never be acted on. Versions
    of a resource are ordered as numbers: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions.
    """
    return known.version.isdecimal() and shown.version.isdecimal() and int(known.version) > int(shown.version)


def holds(action: Action, snapshot: Snapshot) -> bool | None:
    """Say whether the victim of `action` still holds memory of its device; None when the snapshot does not tell."""
    if action.device.uuid not in snapshot.gpus_read or not snapshot.pid_domain_proven:
        return None
    device = next((each for each in snapshot.devices if each.key == action.device), None)
    usages = [usage for usage in snapshot.usages if usage.device == action.device]
    if device is None or (device.containers is None and not usages):  # no list was read, and the kernel did not count
        return None
    held = [
        usage.memory_used
        for usage in usages
        if usage.subject.pod_uid == action.pod_uid
        and (not action.container or usage.subject.container_id == action.container_id)
    ]
    if any(held):
        return True
    return None if None in held else False
