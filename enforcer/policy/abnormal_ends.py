"""
Neighbours that ended abnormally while their device was nearly full.

What was so in the round before and the present snapshot come in. The table of these neighbours goes out, and what they
are still in need of.

The rule: a pod ended abnormally when its phase became Failed, or one of its containers came back in a new generation. A
pod that was being deleted, or that was over its own limit, did not. It counts for ten minutes with its limit, less what
it holds now. It stops to count when its own limit is seen on the device again, or when a later pod of its workload has
one there. A workload that fails again and again counts once, because its pods may have followed one another.
"""

from collections.abc import Iterator, Mapping

from enforcer.policy.entitlements import Entitlement, known_bytes
from enforcer.policy.history import Ended, Lives, Workload
from exporter.model import Device, DeviceKey, Pod, PodUid, Snapshot

COUNTS = 600.0
"""Seconds for which a neighbour that ended abnormally counts."""
NEARLY_FULL = 0.9
"""Used share of a device from which on an allocation of a neighbour may have failed."""
BEFORE = 60.0
"""Seconds before the failure was seen: a pod of the workload that was made later takes the failed pod's place."""

Table = Mapping[tuple[DeviceKey, PodUid], Ended]
Entitlements = Mapping[tuple[DeviceKey, str], Entitlement]


def ended(before: Table, past: Lives, snapshot: Snapshot, now: float) -> Table:
    """
    Carry the table to the present round.

    Args:
        before: the table.
        past: `lived` of the round before.
        snapshot: of this round.
        now: monotonic seconds.

    """
    table = {key: entry for key, entry in before.items() if now < entry.until and not _well(snapshot.pods.get(key[1]))}
    if not snapshot.names_live:
        return table
    present = {(each.pod_uid, each.name): each.id for each in snapshot.containers}  # the present generation is the last
    back = {key[0] for key, id_ in past.generations.items() if present.get(key) not in {None, id_}}
    full = past.full | _full(snapshot)
    for (device, uid), limit in past.entitled.items():
        pod = snapshot.pods.get(uid)
        if pod is None or pod.terminating or device not in full:
            continue
        if pod.phase == "Failed" or uid in back:
            table[device, uid] = Ended(limit, now + COUNTS, workload_of(pod))
    return table


def lived(before: Lives, entitlements: Entitlements, snapshot: Snapshot) -> Lives:
    """Keep of this round what `ended` needs in the next one."""
    if not snapshot.names_live:
        return before  # remembered names say nothing of what happens now
    entitled = {
        (device, PodUid(owner)): each.limit
        for (device, owner), each in entitlements.items()
        if owner in each.pods and not each.over
    }
    pods = {uid for _, uid in entitled}
    kept = {key: id_ for key, id_ in before.generations.items() if key[0] in pods}
    present = {(each.pod_uid, each.name): each.id for each in snapshot.containers if each.id is not None}
    return Lives({**kept, **present}, entitled, _full(snapshot))


def still_short(
    table: Table, entitlements: Entitlements, snapshot: Snapshot, now: float
) -> Iterator[tuple[DeviceKey, PodUid, int]]:
    """Yield what pods that ended abnormally are still in need of: device, pod and bytes."""
    held = known_bytes(snapshot)
    owners = {(device, uid) for (device, _), each in entitlements.items() for uid in each.pods}
    newest: dict[tuple[DeviceKey, Workload], float] = {}
    for device, uid in owners:
        if (pod := snapshot.pods.get(uid)) is not None:
            key = device, workload_of(pod)
            newest[key] = max(newest.get(key, 0.0), pod.created_at)
    most: dict[tuple[DeviceKey, Workload], tuple[int, PodUid]] = {}
    for (device, uid), entry in table.items():
        seen_at = snapshot.taken_at - (now - (entry.until - COUNTS))
        replaced = newest.get((device, entry.workload), 0.0) > seen_at - BEFORE
        if now >= entry.until or (device, uid) in owners or replaced:
            continue
        need = max(0, entry.need - held.get((device, uid), 0))
        most[device, entry.workload] = max(most.get((device, entry.workload), (0, uid)), (need, uid))
    for (device, _), (need, uid) in most.items():
        yield device, uid, need


def workload_of(pod: Pod) -> Workload:
    """Return namespace, kind and name of a pod's top controller; of a bare pod its own."""
    return (pod.namespace, pod.workload_kind, pod.workload) if pod.workload else (pod.namespace, "Pod", pod.name)


def _well(pod: Pod | None) -> bool:
    """Tell whether a pod has no need any more: it succeeded, or was deleted before it failed."""
    return pod is not None and (pod.phase == "Succeeded" or (pod.terminating and pod.phase != "Failed"))


def _full(snapshot: Snapshot) -> frozenset[DeviceKey]:
    return frozenset(device.key for device in snapshot.devices if _nearly_full(device))


def _nearly_full(device: Device) -> bool:
    memory = device.account.memory
    return memory is not None and memory.total > 0 and memory.used + memory.reserved >= NEARLY_FULL * memory.total
