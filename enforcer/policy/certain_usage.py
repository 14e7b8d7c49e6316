"""
What may be held against somebody, where buffers are shared.

What comes in: a snapshot, in which some containers hold bytes that others hold, too (`Usage.memory_sure`: DRM drivers
count a shared buffer in each process that has it). What goes out: the snapshot as the policy judges it.

The law: **nobody is convicted by bytes that may be another's, and nobody looks needier than it is.** Where both the
certain and the reported bytes are on one side of the limit, that side counts; where the limit lies between them, what
is held is unknown. Pure; where nothing is shared (NVIDIA, dmem, KFD) the snapshot itself goes out.
"""

from collections import defaultdict
from dataclasses import replace

from exporter.model import ClaimUsage, DeviceKey, Limit, PodUid, Snapshot, Usage


def certain(snapshot: Snapshot) -> Snapshot:
    """Leave in each usage the bytes that decide, or None where none do."""
    shared = [one for one in snapshot.usages if _shared(one)]
    if not shared:
        return snapshot
    limits: dict[tuple[PodUid, DeviceKey], list[Limit]] = defaultdict(list)
    for limit in snapshot.limits:
        limits[limit.pod_uid, limit.device].append(limit)
    usages = tuple(
        _certain(one, limits[one.subject.pod_uid, one.device]) if one in shared else one for one in snapshot.usages
    )
    return replace(snapshot, usages=usages, claim_usages=tuple(_claim(one, shared) for one in snapshot.claim_usages))


def _shared(usage: Usage) -> bool:
    return usage.memory_sure is not None and usage.memory_sure != usage.memory_used


def _certain(usage: Usage, limits: list[Limit]) -> Usage:
    used, sure = usage.memory_used, usage.memory_sure
    assert sure is not None  # noqa: S101  (`_shared`)
    if used is None:
        return usage
    amounts = [one.memory for one in limits if one.memory is not None]
    alone = all(one.container == usage.subject.container for one in limits)  # a pod's, a claim's names none
    if alone and all(used <= amount for amount in amounts):
        return usage
    if alone and all(sure > amount for amount in amounts):
        return replace(usage, memory_used=sure)
    return replace(usage, memory_used=None)


def _claim(usage: ClaimUsage, shared: list[Usage]) -> ClaimUsage:
    """Of a claim whose holders share buffers nothing is certain."""
    doubtful = any(one.device == usage.device and one.subject in usage.subjects for one in shared)
    return replace(usage, memory_used=None) if doubtful else usage
