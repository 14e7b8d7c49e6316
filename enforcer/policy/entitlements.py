"""
What pods may still take of a device.

The cases of one snapshot and the snapshot come in. For each device and owner, the limit and what is left of it go out.
An owner is a pod, or a claim that several pods share.

The rule: the limit of a pod or a claim stands for the limits of its containers. A pod that has a limit of its own and
limits of its claims may take the smaller amount. What is left is the limit less the most that the owner may hold. An
owner above its limit has nothing left. Owners that have ended, or are being deleted, may take nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from enforcer.policy.limit_holders import Case
from exporter.model import ContainerKind, DeviceKey, PodUid, Scope, Snapshot

HAS_ENDED = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that has ended."""


@dataclass(frozen=True, slots=True)
class Entitlement:
    """
    What one owner may hold of one device.

    Attributes:
        pods: the owner, or the pods that share it.
        limit: bytes.
        owed: bytes of the limit that are left for certain.
        unmeasured: further bytes that are left, where nothing of what is unknown is the owner's.
        over: the owner certainly holds more than its limit.

    """

    pods: frozenset[PodUid]
    limit: int
    owed: int
    unmeasured: int
    over: bool = False


@dataclass(slots=True)
class _Limits:
    """The limits of one owner on one device; the cases of one container's generations stand together."""

    of_pod: list[Case] = field(default_factory=list)
    claims: dict[str, Case] = field(default_factory=dict)
    containers: dict[str, list[Case]] = field(default_factory=lambda: defaultdict(list))


def entitlements(cases: Iterable[Case], snapshot: Snapshot) -> Mapping[tuple[DeviceKey, str], Entitlement]:
    """Find what each owner may hold of each device, by device and owner (the pod's UID or the claim's name)."""
    sharers = _sharers(snapshot)
    known = known_bytes(snapshot)
    unnamed: dict[tuple[DeviceKey, PodUid], int] = defaultdict(int)
    for usage in snapshot.usages:  # several of a pod, if several of its containers are not known
        if not usage.subject.container:
            unnamed[usage.device, usage.subject.pod_uid] += usage.memory_used or 0
    partial = {device.key for device in snapshot.devices if device.account.partial}
    living = {uid for uid, pod in snapshot.pods.items() if not pod.terminating and pod.phase not in HAS_ENDED}
    owners: dict[tuple[DeviceKey, str], _Limits] = defaultdict(_Limits)
    shared: set[tuple[DeviceKey, PodUid]] = set()
    for case in cases:
        limit, key = case.limit, case.key
        if limit.memory is None or limit.report_only or limit.scope is Scope.PROCESS:
            continue
        if not key.pod_uid:  # a claim that several pods share
            pods = sharers.get((limit.device, key.claim), frozenset())
            if pods & living:
                owners[limit.device, key.claim].claims[key.claim] = case
                shared |= {(limit.device, uid) for uid in pods}
            continue
        if key.pod_uid not in living:
            continue
        mine = owners[limit.device, key.pod_uid]
        if key.claim:
            mine.claims[key.claim] = case
        elif not key.container:
            mine.of_pod.append(case)
        elif case.kind is not ContainerKind.INIT or snapshot.pods[key.pod_uid].phase != "Running":
            mine.containers[key.container].append(case)
    result = {}
    for (device, owner), limits in owners.items():
        if (device, owner) in shared:
            continue  # the claim stands for it
        pods = sharers[device, owner] if (device, owner) in sharers else frozenset({PodUid(owner)})
        held = sum(known.get((device, uid), 0) for uid in pods)
        entitlement = _entitlement(
            limits, pods, held, unnamed.get((device, PodUid(owner)), 0), partial=device in partial
        )
        if entitlement is not None:
            result[device, owner] = entitlement
    return result


def known_bytes(snapshot: Snapshot) -> Mapping[tuple[DeviceKey, PodUid], int]:
    """Add up what the containers of each pod are known to hold of each device."""
    sums: dict[tuple[DeviceKey, PodUid], int] = defaultdict(int)
    for usage in snapshot.usages:
        sums[usage.device, usage.subject.pod_uid] += usage.memory_used or 0
    return sums


def _sharers(snapshot: Snapshot) -> Mapping[tuple[DeviceKey, str], frozenset[PodUid]]:
    """List the pods that share each claim on each device."""
    pods: dict[tuple[DeviceKey, str], set[PodUid]] = defaultdict(set)
    for limit in snapshot.limits:
        if limit.claim:
            pods[limit.device, limit.claim].add(limit.pod_uid)
    return {key: frozenset(uids) for key, uids in pods.items()}


def _entitlement(
    limits: _Limits, pods: frozenset[PodUid], held: int, unnamed: int, *, partial: bool
) -> Entitlement | None:
    """
    Make one owner's entitlement.

    Args:
        limits: of the owner.
        pods: the owner, or the pods that share it.
        held: bytes that they are known to hold.
        unnamed: the bytes of these of which it is not known which container of the pod holds them.
        partial: the lists do not show all of the device.

    """
    amounts = [
        _sum(pods, ([case] for case in cases), held, partial=partial)
        for cases in (limits.of_pod, list(limits.claims.values()))
        if cases
    ]
    if not amounts and limits.containers:
        each = _sum(pods, limits.containers.values(), None, partial=partial)
        amounts = [replace(each, unmeasured=max(0, each.unmeasured - unnamed))]
    if len(amounts) <= 1:
        return amounts[0] if amounts else None
    left = min(amount.owed + amount.unmeasured for amount in amounts)
    sure = not any(amount.unmeasured for amount in amounts)
    return Entitlement(
        pods,
        min(amount.limit for amount in amounts),
        left if sure else 0,
        0 if sure else left,
        any(amount.over for amount in amounts),
    )


def _sum(pods: frozenset[PodUid], holders: Iterable[list[Case]], held: int | None, *, partial: bool) -> Entitlement:
    """
    Add up limits, and what is left of them.

    Of a holder whose usage is not certain, `held` is known; None where the generations of a container tell.
    """
    limit = owed = unmeasured = 0
    over = False
    for generations in holders:
        amount = generations[0].limit.memory or 0
        highs = [case.high for case in generations]
        known = sum(high or 0 for high in highs)
        limit += amount
        over = over or sum(case.low for case in generations) > amount
        if None not in highs and not partial:
            owed += max(0, amount - known)
        else:
            unmeasured += max(0, amount - (known if held is None else held))
    return Entitlement(pods, limit, owed, unmeasured, over)
