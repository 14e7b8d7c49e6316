"""
Whether a neighbour is denied its due.

What comes in: the cases of one snapshot, one of them accused. What goes out: the bytes that its neighbours on the
device are certainly short of.

The law: only what is certain counts, so that doubt can spare and never convict. A neighbour whose use is unknown holds
at most what nobody else is known to hold; a neighbour above its own limit is denied nothing.
"""

from collections import defaultdict
from collections.abc import Iterable

from enforcer.cases import Case
from exporter.model import Device, DeviceKey, Snapshot


def shortage(accused: Case, everybody: Iterable[Case], snapshot: Snapshot) -> int:
    """
    Return the bytes by which what neighbours may still take exceeds what is free.

    0 or less: nobody is denied anything; also where there is no neighbour, or the device's memory is unknown.
    """
    device = accused.device
    if device is None or device.account.memory is None:
        return 0
    mine = accused.key.pod_uid
    entitled = _entitled((case for case in everybody if case.key.pod_uid != mine), device.key)
    owed = 0
    unknown = 0
    for limit, used in entitled:
        if used is None:
            unknown += limit
        else:
            owed += max(0, limit - used) if used <= limit else 0
    owed += max(0, unknown - _unexplained(device, snapshot))
    return owed - device.account.memory.free if owed > 0 else 0


def _entitled(neighbours: Iterable[Case], device: DeviceKey) -> list[tuple[int, int | None]]:
    """
    List limit and use of each neighbour once: a pod's own limit stands for those of its containers.

    A container that crashes and comes back is entitled all the time; of its generations the uses are added up.
    """
    pods: dict[str, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in neighbours:
        believed = case.limit.memory is not None and not case.limit.report_only and case.limit.scope != "process"
        if believed and case.limit.device == device and case.pod and not case.pod.terminating:
            pods[case.key.pod_uid or case.key.claim][case.key.container].append(case)
    found: list[tuple[int, int | None]] = []
    for containers in pods.values():
        for generations in [containers[""]] if "" in containers else containers.values():
            used = [case.used for case in generations]
            known = [one for one in used if one is not None]
            found.append((generations[0].limit.memory or 0, sum(known) if len(known) == len(used) else None))
    return found


def _unexplained(device: Device, snapshot: Snapshot) -> int:
    """Return the bytes of the device that no known reading explains: all that the unknown ones can hold together."""
    account = device.account
    known = sum(usage.memory_used or 0 for usage in snapshot.usages if usage.device == device.key)
    known += (account.ghost or 0) + (account.host or 0)
    return max(0, account.memory.used - known) if account.memory else 0
