"""
The facts of one pod's limits, from its resolution and its usage.

What comes in: the inventory, a resolution, usages, the policy's tolerance. What goes out: `Limit`s with their ceilings,
and declarations that cannot be used.

The rule: all functions are pure; `exporter.rounds.limits` decides when a pod is resolved.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from exporter.accounts.grouping import total
from exporter.accounts.sharing import newest_by_name
from exporter.limits import Resolution, ResolvedLimit, bypassed
from exporter.model import (
    DeclaredPod,
    DeviceKey,
    Held,
    Inventory,
    Limit,
    PodUid,
    Scope,
    Snapshot,
    Tolerance,
    Usage,
    processes_of,
    summands,
)


@dataclass(frozen=True, slots=True, order=True)
class Invalid:
    """
    A declaration that cannot be used.

    Attributes:
        container: empty if the declaration is for the whole pod, or names no container.
        row: of the catalogue, as docs/systems.md lists it; `key` is the key in the pod.
        text: as written, cut; `reason` says why it is invalid.

    """

    pod_uid: PodUid
    namespace: str
    pod: str
    container: str
    row: str
    key: str
    text: str
    reason: str


def with_held(inventory: Inventory) -> dict[PodUid, DeclaredPod]:
    """Add to each pod the devices that the kubelet handed to it; of two pods of one name, the newest has them."""
    meant = newest_by_name(inventory)
    held: dict[PodUid, list[Held]] = defaultdict(list)
    for handed in inventory.allocations:
        if (pod := meant.get((handed.namespace, handed.pod))) is not None:
            held[pod.uid].append(Held(handed.container, handed.resource, handed.device, handed.replicas))
    return {uid: replace(pod, held=tuple(held[uid])) if uid in held else pod for uid, pod in inventory.declared.items()}


def held_by_reservations(inventory: Inventory) -> Mapping[PodUid, list[DeviceKey]]:
    """List the devices that the kubelet handed to each reservation pod."""
    held: dict[PodUid, list[DeviceKey]] = defaultdict(list)
    if any(pod.reservation for pod in inventory.pods.values()):
        named = newest_by_name(inventory)
        for allocation in inventory.allocations:
            if (pod := named.get((allocation.namespace, allocation.pod))) is not None and pod.reservation:
                held[pod.uid].append(allocation.device)
    return held


def invalid_of(uid: PodUid, resolution: Resolution) -> frozenset[Invalid]:
    """Collect invalid declarations; one that applies to several devices counts once."""
    return frozenset(
        Invalid(
            uid,
            resolution.namespace,
            resolution.name,
            candidate.subject.container,
            candidate.row_name,
            candidate.key,
            candidate.text,
            candidate.excluded.removeprefix("invalid: "),
        )
        for limit in resolution.limits
        for candidate in limit.candidates
        if candidate.invalid and candidate.row is not None
    )


def _holding(limit: ResolvedLimit, usages: Iterable[Usage]) -> list[Usage]:
    """
    Return the usages that count against a limit of a container or a pod.

    For a container it is the generation with the largest usage, because the limit applies to each generation alone.
    """
    name = limit.subject.container
    mine = [u for u in usages if u.device == limit.device and name in {"", u.subject.container}]
    if not name:
        return summands(mine)
    known = [usage for usage in mine if usage.memory_used is not None]
    return sorted(known, key=lambda usage: usage.memory_used or 0)[-1:] if len(known) == len(mine) else mine


def fact_of(uid: PodUid, limit: ResolvedLimit) -> Limit:
    """Make the fact of a limit that has a device, still without its ceiling."""
    assert limit.device is not None  # noqa: S101  (`placed` gave it one)
    return Limit(
        pod_uid=uid,
        container=limit.subject.container,
        device=limit.device,
        memory=limit.bytes,
        system=limit.system,
        source=limit.source,
        scope=limit.scope,
        enforced_by=limit.enforced_by,
        claim=limit.subject.claim,
        compute=None if limit.compute is None else float(limit.compute),
        problems=limit.problems,
        undeclared=limit.undeclared,
        report_only=limit.report_only,
        mps=limit.mps,
        context=limit.context,
        headroom=limit.headroom,
    )


def with_usage(fact: Limit, limit: ResolvedLimit, usages: Iterable[Usage], tolerance: Tolerance | None) -> Limit:
    """Add to a fact what depends on the usages of its pod, or return the same one if that is as before."""
    ceiling, over = None, None
    if not (tolerance is None or fact.claim or fact.scope is Scope.PROCESS):  # for claims see `with_claims`
        held = _holding(limit, usages)
        ceiling = tolerance.ceiling(fact, processes_of(held))
        over = bypassed(limit, total(usage.memory_used for usage in held) if held else None, ceiling)
    unchanged = fact.ceiling == ceiling and fact.bypassed is over
    return fact if unchanged else replace(fact, ceiling=ceiling, bypassed=over)


def with_claims(snapshot: Snapshot, tolerance: Tolerance | None) -> Snapshot:
    """Add the ceilings of claims' limits: only the joined snapshot knows all containers of a claim."""
    if tolerance is None or not any(limit.claim for limit in snapshot.limits):
        return snapshot
    usages = {(usage.subject, usage.device): usage for usage in snapshot.usages}
    processes = {
        (f"{used.namespace}/{used.claim}", used.device): processes_of(
            usages[subject, used.device] for subject in used.subjects
        )
        for used in snapshot.claim_usages
    }
    limits = tuple(
        replace(limit, ceiling=tolerance.ceiling(limit, processes.get((limit.claim, limit.device))))
        if limit.claim
        else limit
        for limit in snapshot.limits
    )
    return replace(snapshot, limits=limits)
