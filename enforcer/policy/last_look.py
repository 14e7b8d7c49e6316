"""
The last look before an action.

What comes in: the action, a snapshot taken since it was decided, the API server's word of this moment, rules, history.
What goes out: why it must not be taken, or nothing.

The law: all that justified the action is asked for again, of what is known now and of nothing that is remembered. Who
is another by now is spared, and so is he of whom the snapshot does not know yet what he declares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from enforcer.policy.contention import needs
from enforcer.policy.evidence import Phase
from enforcer.policy.history import Action, History, Moment
from enforcer.policy.judgement import judge
from enforcer.policy.limit_holders import cases
from enforcer.policy.rules import Rules
from enforcer.policy.victims import Scene, refusal
from enforcer.policy.vocabulary import ON_A_CONTAINER, Mode, Reason, Rung
from exporter.model import Container, Pod, Snapshot

FRESH = 1.0
"""Seconds that the oldest part of a last look may be old when the call is made."""


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
    action: Action, live: Live, snapshot: Snapshot, *, rules: Rules, history: History, now: Moment
) -> Reason | Spared | None:
    """Say why `action` must not be taken, or rehearsed; None: nothing speaks against it. `history` has it in flight."""
    pod = live.pod
    if pod is None:
        return Spared.POD_GONE
    if pod.uid != action.pod_uid:
        return Spared.OTHER_POD
    if live.node != snapshot.node:
        return Spared.OTHER_NODE
    present = {one.name: one.id for one in live.containers}
    if action.container and present.get(action.container) != action.container_id:
        return Spared.OTHER_CONTAINER
    known = snapshot.pods.get(pod.uid)
    if known is None:
        return Spared.SUBJECT_GONE
    later = snapshot.names_live and _later(known, pod)
    if not later and (known.labels, known.annotations) != (pod.labels, pod.annotations):
        return Spared.DECLARATION_CHANGED  # the limit was read of others
    if not now.monotonic - FRESH <= snapshot.monotonic <= now.monotonic:
        return Spared.LOOK_TOO_OLD
    seen = replace(snapshot, namespaces={**snapshot.namespaces, action.namespace: live.labels}, names_live=True)
    if not later:
        told = replace(pod, workload_kind=known.workload_kind, workload=known.workload)
        others = (one for one in snapshot.containers if one.pod_uid != pod.uid)
        seen = replace(seen, pods={**snapshot.pods, pod.uid: told}, containers=(*others, *live.containers))
    everybody = cases(seen)
    case = next((one for one in everybody if one.key == action.key), None)
    if case is None:
        return Spared.SUBJECT_GONE
    if action.rung is Rung.FENCE and case.limit.memory is not None and case.limit.memory > (action.limit.memory or 0):
        return Spared.DECLARATION_CHANGED  # it would be lower than the limit
    alone = replace(history, ended_at=None, spent=())  # its own token is spent, and itself in flight
    alone = replace(alone, rehearsal=None) if action.dry else replace(alone, in_flight=None)
    if action.rung in ON_A_CONTAINER and case.sole_user != action.sole_user:
        return Spared.OTHER_CONTAINER  # another container of the pod uses the device by now, too
    judged = judge(case, seen, rules, alone, now)
    if judged.shield is not None:
        return judged.shield
    if judged.allowed.held is not None:
        return judged.allowed.held
    if judged.allowed.rung is not action.rung or (judged.allowed.mode is Mode.DRY_RUN) is not action.dry:
        return Spared.NOT_DUE
    if case.unknown is not None:
        return case.unknown
    if judged.evidence is None or judged.evidence.phase is not Phase.DUE:
        return Spared.NOT_DUE
    return refusal(judged, Scene(seen, needs(everybody, seen), rules, alone, now))


def _later(known: Pod, told: Pod) -> bool:
    """
    Tell whether the watch's word is later than the server's answer, as it may be when the round comes after that.

    Else whoever edits his pod all the time, so that the two are never the same, is never acted on. Versions of one
    resource are ordered as numbers: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions.
    """
    return known.version.isdecimal() and told.version.isdecimal() and int(known.version) > int(told.version)


def holds(action: Action, snapshot: Snapshot) -> bool | None:
    """Say whether the victim of `action` still holds memory of its device; None when the snapshot does not tell."""
    if action.device.uuid not in snapshot.gpus_read or not snapshot.pid_domain_proven:
        return None
    device = next((one for one in snapshot.devices if one.key == action.device), None)
    told = [usage for usage in snapshot.usages if usage.device == action.device]
    if device is None or (device.containers is None and not told):  # no list was read, nor did the kernel count (dmem)
        return None
    held = [
        usage.memory_used
        for usage in told
        if usage.subject.pod_uid == action.pod_uid
        and (not action.container or usage.subject.container_id == action.container_id)
    ]
    if any(held):
        return True
    return None if None in held else False
