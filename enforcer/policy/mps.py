"""
Which containers are clients of an MPS server.

What comes in: a snapshot. What goes out: by pod and container, the fact that says so.

The rule: each of three facts suffices. A declaration says so, and more than the pod's author vouches for it. The device
is shared by MPS, as the node's labels say. The driver lists a process of the container as an MPS client, and one of
another pod on the same device. The list alone never protects a pod that started an MPS server of its own. A container
that uses nothing of a device is no client there.
"""

from collections import defaultdict
from collections.abc import Mapping

from exporter.model import DeviceKey, PodUid, Sharing, Snapshot, Usage

DECLARED = "its pod declares a share of MPS"
SHARED = "the node shares the device by MPS"
LISTED = "the driver lists MPS clients of several pods on the device"

Clients = Mapping[PodUid, Mapping[str, str]]
"""By pod: container to the fact; the container is empty where the fact is about the whole pod."""


def clients(snapshot: Snapshot) -> Clients:
    """Find the MPS clients of a node."""
    shared = {device.key for device in snapshot.devices if device.sharing is Sharing.MPS}
    if not shared and not any(u.mps for u in snapshot.usages) and not any(limit.mps for limit in snapshot.limits):
        return {}  # as on most nodes
    listed: dict[DeviceKey, set[PodUid]] = defaultdict(set)
    for usage in snapshot.usages:
        if usage.mps:
            listed[usage.device].add(usage.subject.pod_uid)
    used = {(usage.subject.pod_uid, usage.device) for usage in snapshot.usages if _uses(usage)}
    found: dict[PodUid, dict[str, str]] = defaultdict(dict)
    for limit in snapshot.limits:
        if limit.mps and (limit.pod_uid, limit.device) in used:
            found[limit.pod_uid].setdefault(limit.container, DECLARED)
    for usage in filter(_uses, snapshot.usages):
        holder, device = usage.subject, usage.device
        if device in shared:
            found[holder.pod_uid].setdefault(holder.container, SHARED)
        elif usage.mps and len(listed[device]) > 1:
            found[holder.pod_uid].setdefault(holder.container, LISTED)
    return found


def _uses(usage: Usage) -> bool:
    return usage.memory_used != 0 or bool(usage.processes)
