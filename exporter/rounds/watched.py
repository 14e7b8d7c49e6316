"""
Which devices are read between two full rounds.

A snapshot comes in. The devices on which something may soon go wrong go out, and the GPUs on which something does now.

The rule: a device is *crowded* when several containers share it and it is nearly full, because the next allocation of a
neighbour may fail. A GPU is *suspect* for a minute after a limit holder (a container, a pod or a claim) was seen above
its ceiling there, also where one pod has it for itself. The minute bridges the pauses of a holder that is over now and
then: read fast only while it is over, the readings would be in step with it.
"""

from collections import defaultdict
from collections.abc import Iterator

from exporter.model import DeviceKey, GpuUuid, Sharing, Snapshot

NEARLY_FULL = 0.9
"""Used share of a device from which on a neighbour's next allocation may fail."""

REMEMBERED = 60.0
"""Seconds after an excess for which its GPU is suspect."""
_Name = tuple[str, str, str, int | None]
"""Pod and container, or namespace and claim; and the device."""
_SHARED = frozenset({Sharing.TIME_SLICING, Sharing.MPS, Sharing.DRA, Sharing.SHARED})


class Suspects:
    """Remembers on which GPUs an excess was seen within the last minute."""

    def __init__(self) -> None:
        self._until: dict[GpuUuid, float] = {}

    def see(self, snapshot: Snapshot) -> None:
        """Take a snapshot. The time is proportional to its limits and usages."""
        for key in _exceeded(snapshot):
            self._until[key.uuid] = snapshot.monotonic + REMEMBERED

    def at(self, now: float) -> frozenset[GpuUuid]:
        """Name the GPUs, at these monotonic seconds."""
        if self._until:
            self._until = {uuid: until for uuid, until in self._until.items() if now < until}
        return frozenset(self._until)


def crowded(snapshot: Snapshot | None) -> frozenset[DeviceKey]:
    """Name the devices that are shared by several containers, or made to be shared, and nearly full."""
    keys = set()
    for device in snapshot.devices if snapshot else ():
        shared = device.sharing in _SHARED or device.replicas > 1
        memory = device.account.memory
        if device.sharing is Sharing.EXCLUSIVE or memory is None or memory.total == 0:
            continue
        if (shared or (device.containers or 0) > 1) and memory.used + memory.reserved >= NEARLY_FULL * memory.total:
            keys.add(device.key)
    return frozenset(keys)


def _exceeded(snapshot: Snapshot) -> Iterator[DeviceKey]:
    """
    Name the devices on which a limit holder is known to hold more than its ceiling.

    Each generation of a container is held to the limit by itself. Bytes that are unknown count as none.
    """
    ceilings = [(limit, limit.ceiling) for limit in snapshot.limits if limit.ceiling is not None]
    if not ceilings:
        return
    # Keys of plain strings and numbers: to hash a DeviceKey takes longer than all the rest.
    containers: dict[_Name, int] = {}
    pods: dict[_Name, int] = defaultdict(int)
    for usage in snapshot.usages:
        if used := usage.memory_used:
            subject, key = usage.subject, usage.device
            name = subject.pod_uid, subject.container, key.uuid, key.gpu_instance
            containers[name] = max(containers.get(name, 0), used)
            pods[subject.pod_uid, "", key.uuid, key.gpu_instance] += used
    claims: dict[_Name, int] = {
        (held.namespace, held.claim, held.device.uuid, held.device.gpu_instance): held.memory_used or 0
        for held in snapshot.claim_usages
    }
    for limit, ceiling in ceilings:
        key = limit.device
        if limit.claim:
            namespace, _, claim = limit.claim.partition("/")
            sure = claims.get((namespace, claim, key.uuid, key.gpu_instance), 0)
        else:
            holders = containers if limit.container else pods
            sure = holders.get((limit.pod_uid, limit.container, key.uuid, key.gpu_instance), 0)
        if sure > ceiling:
            yield key
