"""
Whether neighbours are short of memory.

The cases of one snapshot come in, then one accused case. The bytes that its neighbours on the device are certainly
short of go out, and whether these justify an action against the accused.

The rule: only what is certain counts, so that doubt can spare and never convict. A neighbour needs its limit less the
most that it may hold. Where usage is unknown, the bytes that no known process explains count once against all such
needs together. Memory of a pod that is being deleted counts as free for a while. Each device is added up once, however
many limit holders are accused on it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from enforcer.policy.abnormal_ends import Table, still_short
from enforcer.policy.entitlements import entitlements, known_bytes
from enforcer.policy.limit_holders import Case
from enforcer.policy.usage_bounds import listed
from exporter.model import DeviceKey, PodUid, Snapshot, summands

TO_END = 60.0
"""Seconds beyond a pod's own grace for which its memory counts as free while the pod is being deleted."""
LONGEST_END = 600.0
"""Seconds after which memory of a pod that is being deleted does not count as free, whatever its grace."""
ENOUGH = 0.5
"""Of the shortage: smaller excesses, all together, justify no action, because their end would help little."""


@dataclass(slots=True)
class Needs:
    """
    What the holders on one device may still take, in bytes, by owner: a pod, or a claim that several pods share.

    Attributes:
        free: bytes that are free, or will be soon.
        unexplained: bytes that no known process explains; holders with unknown usage hold at most these besides.
        owed: what is left of a limit for certain.
        unmeasured: what else is left of it, where nothing that is unexplained is the owner's.
        shared: the claims that each pod shares with others.

    """

    free: int
    unexplained: int
    owed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unmeasured: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    shared: dict[PodUid, set[str]] = field(default_factory=lambda: defaultdict(set))
    all_owed: int = 0
    all_unmeasured: int = 0

    def add(self, owner: str, owed: int, unmeasured: int = 0) -> None:
        """Add what is left for one owner."""
        self.owed[owner] += owed
        self.unmeasured[owner] += unmeasured
        self.all_owed += owed
        self.all_unmeasured += unmeasured


def needs(
    cases: Iterable[Case], snapshot: Snapshot, ended: Table, deleted: Mapping[PodUid, float], now: float
) -> Mapping[DeviceKey, Needs]:
    """
    Add up what each owner may still take of each device whose memory is known.

    Args:
        cases: of the snapshot.
        snapshot: of this round.
        ended: neighbours that ended abnormally (`abnormal_ends`).
        deleted: monotonic seconds at which each pod was first seen terminating.
        now: monotonic seconds.

    """
    explained = listed(snapshot)
    by_device: dict[DeviceKey, Needs] = {}
    for device in snapshot.devices:
        account = device.account
        if account.memory is not None:
            known = explained.get(device.key, 0) + (account.ghost or 0) + (account.host or 0)
            by_device[device.key] = Needs(account.memory.free, max(0, account.memory.used - known))
    _free_soon(by_device, snapshot, deleted, now)
    entitled = entitlements(cases, snapshot)
    for (place, owner), each in entitled.items():
        if (need := by_device.get(place)) is not None:
            need.add(owner, each.owed, each.unmeasured)
            if owner not in each.pods:
                for uid in each.pods:
                    need.shared[uid].add(owner)
    for place, uid, amount in still_short(ended, entitled, snapshot, now):
        if (need := by_device.get(place)) is not None:
            need.add(uid, amount)
    return by_device


def shortage(case: Case, needs: Mapping[DeviceKey, Needs]) -> int:
    """
    Return the bytes by which what neighbours may still take exceeds what is free.

    0 or less: no neighbour is denied anything. The same holds without neighbours, and where the device's memory is
    unknown. Another container of the accused pod is no neighbour, and neither is a claim that the pod shares.
    """
    need = needs.get(case.limit.device)
    if need is None:
        return 0
    pod = case.limit.pod_uid
    mine = {pod} | need.shared.get(pod, set())
    unmeasured = need.all_unmeasured - sum(need.unmeasured.get(owner, 0) for owner in mine)
    owed = need.all_owed - sum(need.owed.get(owner, 0) for owner in mine) + max(0, unmeasured - need.unexplained)
    return owed - need.free


def justified(case: Case, excess: int, needs: Mapping[DeviceKey, Needs]) -> bool:
    """
    Tell whether the shortage of its neighbours justifies an action against the accused.

    `excess`: bytes by which all limit holders on the device together are over their limits.
    """
    short = shortage(case, needs)
    return short > 0 and excess >= ENOUGH * short


def _free_soon(
    by_device: Mapping[DeviceKey, Needs], snapshot: Snapshot, deleted: Mapping[PodUid, float], now: float
) -> None:
    """
    Count as free what pods that are being deleted hold: until their grace and a minute are over, ten minutes at most.

    A deleted pod with unknown usage may hold everything that is unexplained.
    """
    going = {
        uid
        for uid, pod in snapshot.pods.items()
        if pod.terminating and now - deleted.get(uid, now) < min(pod.grace_seconds + TO_END, LONGEST_END)
    }
    partial = {device.key for device in snapshot.devices if device.account.partial}
    for (device, uid), amount in known_bytes(snapshot).items():
        if uid in going and (need := by_device.get(device)) is not None:
            need.free += amount
    for usage in summands(snapshot.usages):
        need = by_device.get(usage.device)
        open_ = usage.memory_used is None or usage.device in partial
        if need is not None and open_ and usage.subject.pod_uid in going:
            need.free, need.unexplained = need.free + need.unexplained, 0


__all__ = ["Needs", "justified", "needs", "shortage"]
