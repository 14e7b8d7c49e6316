"""
Whether a neighbour is denied its due.

What comes in: the cases of one snapshot, then one of them, accused. What goes out: the bytes that its neighbours on
the device are certainly short of.

The law: only what is certain counts, so that doubt can spare and never convict. A neighbour whose use is unknown holds
at most what nobody else is known to hold, one whose use is known by half that much besides, and one whose use is in
doubt all of what the lists say; a neighbour above its own limit is denied nothing, and neither is one that has ended.
Each device is added up once for all that are accused on it: a node of thousands of containers, all over, is judged in
the time of a node where nobody is.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from enforcer.policy.limit_holders import Case, listed, overshoot
from exporter.model import ContainerKind, DeviceKey, Scope, Snapshot

_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class Needs:
    """
    What the subjects on one device may still take, in bytes, by pod (by claim where several pods share it).

    Attributes:
        owed: limit less use, where the use is known.
        unmeasured: the same of those whose use is not known, or not all of it; they hold at most `unexplained` besides.

    """

    free: int
    unexplained: int
    owed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unmeasured: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    all_owed: int = 0
    all_unmeasured: int = 0


def needs(everybody: Iterable[Case], snapshot: Snapshot) -> Mapping[DeviceKey, Needs]:
    """Add up what each pod may still take of each device whose memory is known."""
    explained = listed(snapshot)
    found: dict[DeviceKey, Needs] = {}
    doubt: dict[DeviceKey, int] = {}
    partial = {device.key for device in snapshot.devices if device.account.partial}
    for device in snapshot.devices:
        account = device.account
        if account.memory is not None:
            known = explained[device.key] + (account.ghost or 0) + (account.host or 0)
            found[device.key] = Needs(account.memory.free, max(0, account.memory.used - known))
            doubt[device.key] = overshoot(account, explained[device.key])
    for (device_key, pod), subjects in _entitled(everybody).items():
        need = found.get(device_key)
        if need is None:
            continue
        for generations in subjects:
            limit = generations[0].limit.memory or 0
            used = [case.used for case in generations]
            most = 0 if None in used else sum((one or 0) + doubt[device_key] for one in used)
            rest = max(0, limit - most)
            if None in used or device_key in partial:
                need.unmeasured[pod] += rest
                need.all_unmeasured += rest
            else:
                need.owed[pod] += rest
                need.all_owed += rest
    return found


def shortage(accused: Case, on: Mapping[DeviceKey, Needs]) -> int:
    """
    Return the bytes by which what neighbours may still take exceeds what is free.

    0 or less: nobody is denied anything; also where there is no neighbour, or the device's memory is unknown.
    """
    need = on.get(accused.limit.device)
    if need is None:
        return 0
    mine = accused.key.pod_uid
    unmeasured = need.all_unmeasured - need.unmeasured.get(mine, 0)
    owed = need.all_owed - need.owed.get(mine, 0) + max(0, unmeasured - need.unexplained)
    return owed - need.free if owed > 0 else 0


def _entitled(everybody: Iterable[Case]) -> dict[tuple[DeviceKey, str], Iterable[list[Case]]]:
    """
    Find the subjects of each pod on each device, in all their generations.

    A pod's own limit stands for those of its containers. A container that crashes and comes back is entitled all the
    time; an init container of a running pod has ended, and its pod's other containers have what it had.
    """
    pods: dict[tuple[DeviceKey, str], dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in everybody:
        pod = case.pod
        if pod is None or pod.terminating or pod.phase in _ENDED:
            continue
        ended = case.kind is ContainerKind.INIT and pod.phase == "Running"
        limit = case.limit
        believed = limit.memory is not None and not limit.report_only and limit.scope is not Scope.PROCESS
        if believed and not ended:
            pods[limit.device, case.key.pod_uid or case.key.claim][case.key.container].append(case)
    return {where: [one[""]] if "" in one else one.values() for where, one in pods.items()}
