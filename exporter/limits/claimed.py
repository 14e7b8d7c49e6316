"""
The usage of each device of a claim, summed over the containers that share the claim.

What comes in: the declarations of this node's pods, their claims, usages, devices. What goes out: one `ClaimUsage` for
each claim and device.

The rule: memory is never assigned to a claim by guess. If a container holds two claims on one device, the usage of both
claims is unknown. The same applies to a pod whose containers cannot be told apart.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from exporter.limits.decoders.claims import where_of
from exporter.limits.decoding import DeclarationError, locate
from exporter.limits.devices import LeafDevice
from exporter.limits.row_texts import used, using
from exporter.model import Claim, ClaimedDevice, ClaimUsage, DeclaredPod, DeviceKey, PodUid, Usage, summands

Holder = tuple[PodUid, str]
"""A pod and the name of one of its containers."""


def claim_usages(
    declared: Mapping[PodUid, DeclaredPod],
    claims: Iterable[Claim],
    usages: Iterable[Usage],
    devices: Iterable[LeafDevice],
) -> tuple[ClaimUsage, ...]:
    """Sum the usage of each claim's containers on its devices; each container counts once per claim."""
    claims, devices = tuple(claims), tuple(devices)
    if not claims:
        return ()
    holders: dict[tuple[str, str, DeviceKey], set[Holder]] = {}
    held: dict[tuple[Holder, DeviceKey], set[tuple[str, str]]] = defaultdict(set)
    for uid, pod in declared.items():
        for claim in used(pod, claims):
            for claimed in claim.devices:
                if (device := _leaf(claimed, devices)) is None:
                    continue
                mine = {(uid, container.name) for container in using(pod, claim, (claimed,))}
                holders.setdefault((claim.namespace, claim.name, device), set()).update(mine)
                for holder in mine:
                    held[holder, device].add((claim.namespace, claim.name))
                if mine:
                    held[(uid, ""), device].add((claim.namespace, claim.name))
    by_holder: dict[tuple[Holder, DeviceKey], list[Usage]] = defaultdict(list)
    for usage in summands(usages):
        by_holder[(usage.subject.pod_uid, usage.subject.container), usage.device].append(usage)
    sums = []
    for (namespace, name, device), containers in sorted(holders.items(), key=str):
        # Outside a sandboxed pod its containers cannot be told apart: the processes count as the pod's.
        pods = {(uid, "") for uid, _ in containers}
        counted = [usage for holder in sorted(containers | pods) for usage in by_holder.get((holder, device), ())]
        clear = {holder for holder in containers | pods if len(held[holder, device]) == 1}
        subjects = frozenset(usage.subject for usage in counted)
        doubtful = frozenset(each for each in subjects if (each.pod_uid, each.container) not in clear)
        amount = _sum(counted) if containers <= clear and not doubtful else None
        sums.append(ClaimUsage(namespace, name, device, amount, subjects, doubtful))
    return tuple(sums)


def _leaf(claimed: ClaimedDevice, devices: tuple[LeafDevice, ...]) -> DeviceKey | None:
    try:
        return locate(where_of(claimed), devices).key
    except DeclarationError:
        return None


def _sum(usages: list[Usage]) -> int | None:
    """Add up; the sum is unknown if one part is unknown, or if there is no usage at all."""
    total = 0
    for usage in usages:
        if usage.memory_used is None:
            return None
        total += usage.memory_used
    return total if usages else None
