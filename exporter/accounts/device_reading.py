"""
What one reading of a device adds to its sums: its memory in parts, and what each container holds of it.

What comes in: the snapshot of a round, and the interval of rounds. What goes out: a `Reading` of each device.

The rule: **the parts of a device's memory are its capacity**, also where the accounts have a gap.

- Used memory that no figure explains is `unknown`: for example of a container that has a process without a figure. The
  figures of its neighbours count all the same.
- The lists are read some milliseconds after the memory. If they hold more than was used, the rest is taken off `free`.
- Accounts that do not close contradict themselves. All used memory is then `unknown`, and no container holds any of it.
- Containers have the names of their labels, because their counters have. Those of a pod without a name are `unknown`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from exporter.accounts.shares import Shares, handed_on, shares
from exporter.model import (
    NANOSECONDS,
    Allocation,
    DeviceAccount,
    DeviceKey,
    Holder,
    Memory,
    MemoryPart,
    Snapshot,
    Usage,
)

Amounts = Mapping[Holder, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """
    One reading of a device.

    Attributes:
        at: nanoseconds on the monotonic clock.
        index: of its GPU.
        device: what the device was: its capacity in bytes, and the MIG UUIDs. Ids of MIG instances are reused.
        parts: bytes; together the capacity. Empty for a GPU without memory of its own.
        memory: bytes of each container whose memory is known; together the part `containers`.
        sm: utilization of each container that the driver reports it of, 0 to 1.
        shares: what each container was handed.

    """

    at: int
    index: int
    device: tuple[int, tuple[str, ...]]
    parts: Mapping[MemoryPart, int] = field(default_factory=dict)
    memory: Amounts = field(default_factory=dict)
    sm: Mapping[Holder, float] = field(default_factory=dict)
    shares: Shares = field(default_factory=dict)

    @property
    def holders(self) -> Collection[Holder]:
        """The containers that this reading says anything about, each once, always in the same order."""
        return dict.fromkeys((*self.memory, *self.sm, *self.shares)).keys()


def readings(snapshot: Snapshot, interval: float) -> Iterator[tuple[DeviceKey, Reading]]:
    """Yield the devices that were read in the snapshot's round, and whose memory is known; `interval` in seconds."""
    usages: dict[DeviceKey, list[Usage]] = defaultdict(list)
    for usage in snapshot.usages:
        usages[usage.device].append(usage)
    allocations: dict[DeviceKey, list[Allocation]] = defaultdict(list)
    for allocation in snapshot.allocations:
        allocations[allocation.device].append(allocation)
    for device in snapshot.devices:
        key, memory = device.key, device.account.memory
        if key.uuid not in snapshot.gpus_read or (memory is None and not device.gpu.unified):
            continue
        held, sm = _held(snapshot, usages[key])
        parts, held = divided(device.account, memory, held) if memory is not None else ({}, {})
        yield (
            key,
            Reading(
                moment(device.sampled_at, snapshot, interval),
                device.gpu.index,
                (memory.total if memory else 0, device.mig_uuids),
                parts,
                held,
                sm,
                handed_on(snapshot, device, shares(device, allocations[key])),
            ),
        )


def moment(sampled_at: float, snapshot: Snapshot, interval: float) -> int:
    """
    Give the time of a reading on the monotonic clock, in nanoseconds.

    A reading has a Unix time, mostly some milliseconds after that of its round. A clock that jumps in between moves it
    by one interval at most, and the next reading makes up for that.
    """
    later = min(max(sampled_at - snapshot.taken_at, 0.0), interval)
    return round((snapshot.monotonic + later) * NANOSECONDS)


def divided(account: DeviceAccount, memory: Memory, held: Amounts) -> tuple[Mapping[MemoryPart, int], Amounts]:
    """Divide a device's memory into its parts. `held` by containers is returned, or nothing if it cannot be true."""
    containers, ghost, host = sum(held.values()), account.ghost or 0, account.host or 0
    reserved = min(memory.reserved, memory.total)
    if account.attributed is None or account.unattributed is None:
        unattributed = 0
        unknown = max(0, memory.used - containers - ghost - host)
    else:
        unattributed = account.unattributed
        unknown = max(0, account.attributed - containers)
    free = memory.total - reserved - containers - ghost - host - unattributed - unknown
    if not account.closes or free < 0:
        unknown = min(memory.used, memory.total - reserved)
        containers = ghost = host = unattributed = 0
        free, held = memory.total - reserved - unknown, {}
    parts = (containers, ghost, host, unattributed, reserved, free, unknown)
    return dict(zip(MemoryPart, parts, strict=True)), held


def _held(snapshot: Snapshot, usages: Iterable[Usage]) -> tuple[Amounts, Mapping[Holder, float]]:
    """Sum memory and SM utilization by name: two generations of a container have the same name for a while."""
    memory: dict[Holder, int] = defaultdict(int)
    sm: dict[Holder, float] = defaultdict(float)
    for usage in usages:
        if (pod := snapshot.pods.get(usage.subject.pod_uid)) is None:
            continue
        holder = pod.namespace, pod.name, usage.subject.container
        if usage.memory_used is not None:
            memory[holder] += usage.memory_used
        if usage.sm is not None:
            sm[holder] = min(1.0, sm[holder] + usage.sm)
    return memory, sm
