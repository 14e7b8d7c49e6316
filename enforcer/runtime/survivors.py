"""
Processes of a victim that live on under another owner.

What comes in: an action and snapshots. What goes out: the victim's processes, and later the pod that has one of them.

The rule: a process is one number with one start time. If the accounts give a victim's process to another pod, they
named the wrong pod then, or they do now.
"""

from enforcer.policy.history import Action
from exporter.model import PodUid, ProcessKey, Snapshot


def processes_of(action: Action, snapshot: Snapshot) -> frozenset[ProcessKey]:
    """Name the processes that use a device on behalf of the victim's pod."""
    return frozenset().union(*(usage.processes for usage in snapshot.usages if usage.subject.pod_uid == action.pod_uid))


def elsewhere(known: frozenset[ProcessKey], action: Action, snapshot: Snapshot) -> tuple[ProcessKey, PodUid] | None:
    """Find one of these processes in the usage of another pod."""
    for usage in snapshot.usages:
        if usage.subject.pod_uid != action.pod_uid and (shared := usage.processes & known):
            return min(shared), usage.subject.pod_uid
    return None
