"""
The real sharing of a device: how many pods are on it, whatever the kubelet allocated.

What comes in: the inventory, the usages, the limits. What goes out: pods per device, and the sharing.

The rule: **the kubelet's "whole" is not exclusive use.** A reservation pod, a device plugin beside NVIDIA's, and
`NVIDIA_VISIBLE_DEVICES=all` put several pods on a GPU that the kubelet allocated as a whole. A device is exclusive only
while at most one pod holds it, uses it, or declares a limit on it. A reservation pod that uses nothing does not count,
nor does a pod that has ended and left no memory. Unknown usage counts: it is not zero.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from exporter.model import DeviceKey, Inventory, Limit, Pod, PodUid, Sharing, Usage

ENDED = frozenset({"Succeeded", "Failed"})

Places = frozenset[tuple[PodUid, DeviceKey]]
"""Pods on devices."""


def newest_by_name(inventory: Inventory) -> Mapping[tuple[str, str], Pod]:
    """
    Name the pod that the kubelet means by a namespace and a name: the kubelet gives no UIDs.

    Of two pods of one name it is the newest that is not terminating. The kubelet frees the devices of a pod before it
    allocates them again.
    """
    newest: dict[tuple[str, str], Pod] = {}
    for pod in inventory.pods.values():
        known = newest.get((pod.namespace, pod.name))
        if known is None or (not pod.terminating, pod.created_at) > (not known.terminating, known.created_at):
            newest[pod.namespace, pod.name] = pod
    return newest


def occupied(usages: Iterable[Usage]) -> Places:
    """List the pods that certainly use a device: their memory or a living process of theirs is on it."""
    return frozenset((usage.subject.pod_uid, usage.device) for usage in usages if usage.memory_used or usage.processes)


def only_reserves(pod: Pod | None, device: DeviceKey, occupants: Places) -> bool:
    """Say whether a pod only reserves the device: it is a reservation pod, and uses nothing of the device."""
    return pod is not None and bool(pod.reservation) and (pod.uid, device) not in occupants


def pods_on(inventory: Inventory, usages: Iterable[Usage], limits: Iterable[Limit]) -> Mapping[DeviceKey, int]:
    """Count the different pods on each device."""
    usages = tuple(usages)
    occupants = occupied(usages)
    named = newest_by_name(inventory)
    claimed = {(usage.subject.pod_uid, usage.device) for usage in usages}
    for allocation in inventory.allocations:
        if (holder := named.get((allocation.namespace, allocation.pod))) is not None:
            claimed.add((holder.uid, allocation.device))
    claimed |= {
        (limit.pod_uid, limit.device) for limit in limits if limit.memory is not None or limit.compute is not None
    }
    counts: dict[DeviceKey, int] = defaultdict(int)
    for uid, device in claimed:
        pod = inventory.pods.get(uid)
        present = pod is not None and pod.phase not in ENDED and not pod.reservation
        counts[device] += present or (uid, device) in occupants
    return counts


def sharing_of(handed_out: Sharing, pods: int) -> Sharing:
    """Correct the kubelet's sharing by the number of pods on the device; `none`: the kubelet names no sharing."""
    alone = pods <= 1 or handed_out not in {Sharing.EXCLUSIVE, Sharing.NONE}
    return handed_out if alone else Sharing.SHARED
