"""
How much containers use of a device, at least and at most.

Usages of a snapshot come in. Bytes go out.

The rule: where the process lists exceed the device's memory by so many bytes, so many are taken off the low end.
Buffers that may be shared (DRM drivers count them in each process) are in the high end only.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from exporter.model import DeviceAccount, DeviceKey, GpuUuid, Snapshot, Usage


def listed(snapshot: Snapshot, *, parts: bool = False) -> Mapping[DeviceKey, int]:
    """
    Add up what containers are known to hold of each device; containers with unknown usage hold more.

    `parts`: with what is measured of these.
    """
    sums: dict[tuple[GpuUuid, int | None], int] = defaultdict(int)
    for usage in snapshot.usages:
        key, used = usage.device, usage.memory_used
        sums[key.uuid, key.gpu_instance] += (least(usage) if parts else 0) if used is None else used
    return defaultdict(int, {DeviceKey(*key): amount for key, amount in sums.items()})


def overshoot(account: DeviceAccount, held: int) -> int:
    """
    Return the bytes by which the process lists exceed the device's use: so much of any one figure may be wrong.

    `held` by containers, as far as it is known: one neighbour's unknown process must not hide what the others' say.
    """
    if account.memory is None:
        return 0
    return max(account.clamped, held + (account.ghost or 0) + (account.host or 0) - account.memory.used, 0)


def least(usage: Usage) -> int:
    """Return the bytes of a usage that are certain."""
    return (usage.memory_used if usage.memory_sure is None else usage.memory_sure) or 0


def interval(usages: Sequence[Usage], doubt: int) -> tuple[int, int | None]:
    """Return what these usages come to at least and at most. Of an unknown usage the measured processes are certain."""
    low, high, known = 0, 0, bool(usages)
    for usage in usages:
        low += least(usage)
        if usage.memory_used is None:
            known = False
        else:
            high += usage.memory_used
    return max(0, low - doubt), high if known else None
