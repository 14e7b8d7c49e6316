"""
The devices that are read between two full rounds.

What comes in: a snapshot. What goes out: crowded devices, and suspect GPUs.

The rule: a device is *crowded* if several containers share it and it is nearly full, because a neighbour's next
allocation may fail. A GPU is *suspect* for a minute after a limit holder was seen above its ceiling on it. That holds
also if one pod has the GPU alone. The minute covers the pauses of a holder that is over now and then. Without it, the
fast readings would happen only during its excess.
"""

from collections import defaultdict
from collections.abc import Iterator

from exporter.model import DeviceKey, GpuUuid, Sharing, Snapshot

NEARLY_FULL = 0.9
"""Used share of a device above which a neighbour's next allocation may fail."""

REMEMBERED = 60.0
"""Seconds for which a GPU is suspect after an excess."""
_Name = tuple[str, str, str, int | None]
"""Pod and container, or namespace and claim; and the device."""
_SHARED = frozenset({Sharing.TIME_SLICING, Sharing.MPS, Sharing.DRA, Sharing.SHARED})


class Suspects:
    """Remembers the GPUs on which an excess was seen within the last minute."""

    def __init__(self) -> None:
        self._until: dict[GpuUuid, float] = {}

    def see(self, snapshot: Snapshot) -> None:
        """Note the excesses of a snapshot. The time is proportional to its limits and usages."""
        for key in _exceeded(snapshot):
            self._until[key.uuid] = snapshot.monotonic + REMEMBERED

    def at(self, now: float) -> frozenset[GpuUuid]:
        """Return the suspect GPUs at this monotonic time in seconds."""
        if self._until:
            self._until = {uuid: until for uuid, until in self._until.items() if now < until}
        return frozenset(self._until)


def crowded(snapshot: Snapshot | None) -> frozenset[DeviceKey]:
    """Return the devices that are nearly full, and shared by several containers or set up to be shared."""
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
    Yield the devices on which a limit holder certainly holds more than its ceiling.

    The limit applies to each generation of a container alone. Unknown usage counts as 0.
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
