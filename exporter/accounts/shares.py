"""
Which share of a device each container was handed.

What comes in: a device, its allocations, the pods and limits of the snapshot. What goes out: shares by container and
resource.

The rule: **each part of a device is handed out once.** The shares of one resource add up to 1 at most, except where the
kubelet itself hands a device out twice.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from exporter.accounts.sharing import ENDED
from exporter.model import Allocation, Device, Holder, Sharing, Snapshot

Shares = Mapping[Holder, Mapping[str, float]]
"""By container and resource: the share of the device that the container was handed, 0 to 1."""


def shares(device: Device, allocations: Iterable[Allocation]) -> Shares:
    """
    Say which share of the device the kubelet handed to each container.

    Of a device in replicas it is the share of the replicas. A claim (DRA) hands the whole device to all containers
    that use it, so they share it evenly: the snapshot does not say how much of the device a claim consumes.
    """
    handed: dict[Holder, dict[str, float]] = defaultdict(dict)
    for one in allocations:
        mine = handed[one.namespace, one.pod, one.container]
        mine[one.resource] = mine.get(one.resource, 0) + one.replicas
    for mine in handed.values():
        for resource, replicas in mine.items():
            by_claim = device.sharing is Sharing.DRA
            mine[resource] = 1 / len(handed) / len(mine) if by_claim else min(1.0, replicas / max(1, device.replicas))
    return handed


def handed_on(snapshot: Snapshot, device: Device, handed: Shares) -> Shares:
    """
    Give each container of a system that reserves devices its part, and leave the rest to the reservation pod.

    KAI and Run:ai take a whole GPU from the kubelet for a pod of their own. A container's part is what it declared of
    the device's memory. Declarations that exceed the device are scaled down.
    """
    memory = device.account.memory
    if memory is None or not memory.total:
        return handed
    reserving = _reserving(snapshot, handed)
    if not reserving:
        return handed
    after: dict[Holder, Mapping[str, float]] = dict(handed)
    for holder, system in reserving.items():
        found = _declared(snapshot, device, system)
        parts = {to: declared / memory.total for to, declared in found.items() if to not in handed}
        given = 1 / max(1.0, sum(parts.values()))
        for to, part in parts.items():
            after[to] = {resource: share * part * given for resource, share in handed[holder].items()}
        rest = 1 - given * sum(parts.values())
        after[holder] = {resource: share * rest for resource, share in handed[holder].items()}
    return after


def _reserving(snapshot: Snapshot, handed: Shares) -> Mapping[Holder, str]:
    """Name the reservation pods among those that hold a device, and their systems."""
    if not handed:
        return {}
    systems = {(pod.namespace, pod.name): pod.reservation for pod in snapshot.pods.values() if pod.reservation}
    return {holder: systems[holder[:2]] for holder in handed if holder[:2] in systems}


def _declared(snapshot: Snapshot, device: Device, system: str) -> Mapping[Holder, int]:
    """Return what running containers declared of the device in the words of that system, in bytes."""
    found: dict[Holder, int] = {}
    for limit in snapshot.limits:
        if limit.device == device.key and limit.system == system and limit.container and limit.memory:
            pod = snapshot.pods.get(limit.pod_uid)
            if pod is not None and pod.phase not in ENDED and not pod.reservation:
                found[pod.namespace, pod.name, limit.container] = limit.memory
    return found
