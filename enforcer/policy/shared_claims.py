"""
Claims that several pods share: what they hold together, and which of them is acted on.

A snapshot comes in, with its usages by pod and device. For each claim and device the pods go out that share it, what
they hold by it, and the pod that an action would end.

The rule: **the pod that holds most is acted on**, of those that are neither protected nor ending already. Memory of a
protected pod, and of one that ends, is not counted against the others. Where the claim is exceeded only together with
pods that end, the largest of these is the one that is judged.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from enforcer.policy.usage_bounds import least
from exporter.model import DeviceKey, GpuUuid, Pod, PodUid, Scope, Snapshot, Usage, processes_of

Where = tuple[PodUid, GpuUuid, int | None]
"""A pod on a device. Plain values: to hash a DeviceKey takes longer than all the rest."""

_STAYS, _ENDS, _PROTECTED, _UNKNOWN = range(4)


@dataclass(slots=True)
class Claimed:
    """
    The pods that share a claim, and what they hold of one device by it; `victim` is the pod that is judged.

    `sure`: the usages of which it is known that they are of this claim.
    """

    pods: set[PodUid] = field(default_factory=set)
    usages: list[Usage] = field(default_factory=list)
    sure: list[Usage] = field(default_factory=list)
    low: int = 0
    high: int | None = None
    processes: tuple[int, ...] | None = None
    victim: PodUid | None = None


def claims_of(
    snapshot: Snapshot, usages: Mapping[Where, list[Usage]], spared: Callable[[Pod], bool]
) -> Mapping[tuple[str, DeviceKey], Claimed]:
    """Find the pods of each claim on each device; `spared` says which pods are protected."""
    claims: dict[tuple[str, DeviceKey], Claimed] = defaultdict(Claimed)
    limited: dict[tuple[str, DeviceKey], set[PodUid]] = defaultdict(set)
    bounds: dict[tuple[str, DeviceKey], int] = {}
    for limit in snapshot.limits:
        if limit.scope is Scope.CLAIM:
            claims[limit.claim, limit.device].pods.add(limit.pod_uid)
            limited[limit.claim, limit.device].add(limit.pod_uid)
            if limit.memory is not None:
                bound = bounds.get((limit.claim, limit.device), limit.memory)
                bounds[limit.claim, limit.device] = min(bound, limit.memory)
    for usage in snapshot.claim_usages:
        claimed = claims[f"{usage.namespace}/{usage.claim}", usage.device]
        pods = {subject.pod_uid for subject in usage.subjects}
        held = [
            each
            for uid in sorted(pods)
            for each in usages.get((uid, usage.device.uuid, usage.device.gpu_instance), ())
            if each.subject in usage.subjects
        ]
        claimed.usages, claimed.pods = held, claimed.pods | pods
        claimed.high = usage.memory_used
        # One unknown process hides nothing of the others: what is certainly held by this claim accuses.
        claimed.sure = [each for each in held if each.subject not in usage.doubtful]
        claimed.processes = processes_of(held) if held else None
    for key, pods in limited.items():
        claimed = claims[key]
        ranks = {uid: _last(snapshot.pods.get(uid), spared) for uid in claimed.pods | pods}
        by_pod = {uid: sum(least(each) for each in claimed.usages if each.subject.pod_uid == uid) for uid in pods}
        by_rank = [0, 0, 0, 0]
        for each in claimed.sure:
            by_rank[ranks[each.subject.pod_uid]] += least(each)
        staying, ending = by_rank[_STAYS] + by_rank[_UNKNOWN], by_rank[_ENDS]
        claimed.low = staying if len(claimed.pods) > 1 else sum(map(least, claimed.sure))
        judged = pods
        leaving = {uid for uid in pods if ranks[uid] == _ENDS}
        if leaving and staying <= bounds.get(key, 0) < staying + ending:
            claimed.low, judged = staying + ending, leaving
        claimed.victim = min(judged, key=lambda uid: (ranks[uid], -by_pod[uid], uid))
    return claims


def _last(pod: Pod | None, spared: Callable[[Pod], bool]) -> int:
    """Put pods that end already behind the others, and protected ones behind those."""
    return _UNKNOWN if pod is None else _PROTECTED if spared(pod) else _ENDS if pod.terminating else _STAYS
