"""
The accounts of one GPU: what each container holds of each leaf device, and what nobody explains.

What comes in: one GPU's placed entries and the peaks so far. What goes out: one account per leaf device, one usage per
container and device, the new peaks.

The law: **the accounts close.** attributed + ghost + host + unattributed = used, for each leaf device, whenever all of
it was measured. Device memory and process lists are read milliseconds apart, so a remainder below zero by up to
`TOLERANCE` is taken as 0 and told; beyond that the account does not close, and says so.
What the kernel counts for a container's cgroup stands in place of what its processes hold: it has each buffer once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.attribution import Attributed, Placed
from exporter.model import (
    Attribution,
    CgroupMemory,
    ContainerId,
    DeviceAccount,
    DeviceKey,
    Memory,
    ProcessUtilization,
    Subject,
    Usage,
)

TOLERANCE = 64 * 2**20
"""Bytes by which the lists may exceed the device's use: a few allocations between two reads."""

Peaks = Mapping[tuple[Subject, DeviceKey], int]
Counted = Mapping[Subject, CgroupMemory]

COUNTS_AS = {
    Attribution.CONTAINER: "attributed",
    Attribution.INHERITED: "attributed",
    Attribution.GHOST: "ghost",
    Attribution.HOST: "host",
}
"""Everything else is unattributed: a process is there, but no known container stands behind it."""

DOUBTFUL = {Attribution.UNPROVEN, Attribution.UNREADABLE, Attribution.CONTRADICTORY, Attribution.AMBIGUOUS}
"""Such a process may be anybody's: next to one, nobody is known to hold nothing."""


@dataclass(frozen=True, slots=True)
class GpuAccounts:
    """The accounts of one GPU's leaf devices, and the usages on them."""

    attributed: Attributed
    accounts: tuple[DeviceAccount, ...] = ()
    usages: tuple[Usage, ...] = ()
    capped: int = 0
    """Containers whose summed SM samples exceeded 100 % and were cut there."""
    processes: Mapping[Attribution, int] = field(default_factory=dict)


def account(
    attributed: Attributed, peaks: Peaks, allocated: Mapping[DeviceKey, Collection[Subject]] | None = None
) -> GpuAccounts:
    """
    Close the accounts of one GPU.

    Args:
        attributed: the placed entries.
        peaks: the most that each container was seen with before.
        allocated: leaf device to who was handed it; a container without a process there holds 0, and that is known.

    """
    placed = attributed.placed
    by_device: dict[DeviceKey, list[Placed]] = defaultdict(list)
    counts: dict[Attribution, int] = defaultdict(int)
    for entry in placed or ():
        by_device[entry.process.device].append(entry)
        counts[entry.attribution] += 1
    accounts: list[DeviceAccount] = []
    usages: list[Usage] = []
    capped = 0
    for device, memory, ratios in attributed.sample.gpu.leaves():
        counted = {subject: cgroup for (subject, on), cgroup in attributed.counted.items() if on == device}
        if placed is None:
            accounts.append(DeviceAccount(device, memory))
            usages += (_of_cgroup(subject, cgroup, peaks) for subject, cgroup in counted.items() if cgroup.used)
            continue
        entries = by_device[device]
        accounts.append(_balance(device, memory, entries, counted))
        holders = (allocated or {}).get(device, ())
        # NVML's statistics of processes are per GPU and end where MIG begins; there the instance's own figure serves.
        utilization = attributed.sample.utilization if device.gpu_instance is None else None
        instance_sm = ratios.sm if device.gpu_instance is not None else None
        for usage, cut in _usages(
            device,
            entries,
            counted,
            holders=holders,
            utilization=utilization,
            instance_sm=instance_sm,
            peaks=peaks,
        ):
            usages.append(usage)
            capped += cut
    return GpuAccounts(attributed, tuple(accounts), tuple(usages), capped, dict(counts))


def _balance(device: DeviceKey, memory: Memory | None, entries: Sequence[Placed], counted: Counted) -> DeviceAccount:
    held: dict[str, list[int | None]] = {"attributed": [], "ghost": [], "host": [], "unattributed": []}
    held["attributed"] += (cgroup.used for cgroup in counted.values())
    for entry in entries:
        if entry.subject in counted:
            continue
        held[COUNTS_AS.get(entry.attribution, "unattributed")].append(entry.process.memory)
    if any(entry.attribution is Attribution.UNPROVEN for entry in entries):
        return DeviceAccount(device, memory)
    attributed, ghost, host = (total(held[place]) for place in ("attributed", "ghost", "host"))
    open_entries = total(held["unattributed"])
    if memory is None or attributed is None or ghost is None or host is None or open_entries is None:
        return DeviceAccount(device, memory, attributed, ghost, host)
    rest = memory.used - attributed - ghost - host
    # The unattributed entries are part of the rest: they must fit into it like everything else.
    missing = max(0, open_entries - rest)
    if missing > TOLERANCE:
        return DeviceAccount(device, memory, attributed, ghost, host, closes=False)
    return DeviceAccount(device, memory, attributed, ghost, host, unattributed=max(0, rest), clamped=missing)


def _usages(
    device: DeviceKey,
    entries: Sequence[Placed],
    counted: Counted,
    *,
    holders: Iterable[Subject],
    utilization: tuple[ProcessUtilization, ...] | None,
    instance_sm: float | None,
    peaks: Peaks,
) -> Iterable[tuple[Usage, bool]]:
    using = (subject for subject, cgroup in counted.items() if cgroup.used)
    by_subject: dict[Subject, list[Placed]] = {subject: [] for subject in (*holders, *using)}
    for entry in entries:
        if entry.subject is not None:
            by_subject.setdefault(entry.subject, []).append(entry)
    alone = len(by_subject) == 1 and all(entry.subject is not None for entry in entries)
    doubtful = any(entry.attribution in DOUBTFUL for entry in entries)
    by_pid = None if utilization is None else {sample.pid: sample for sample in utilization}
    for subject, members in by_subject.items():
        cgroup = counted.get(subject)
        if doubtful and not members and cgroup is None:
            yield Usage(subject, device, None, peaks.get((subject, device))), False
            continue
        used = cgroup.used if cgroup else total(member.process.memory for member in members)
        told = cgroup.peak if cgroup else None
        peak = max((known for known in (peaks.get((subject, device)), used, told) if known is not None), default=None)
        keys = frozenset(member.key for member in members if member.key is not None)
        # The statistics name processes on all drivers, the lists name threads on some: ask by both numbers.
        pids = {key.pid for key in keys} | {member.process.pid for member in members}
        busy = None if by_pid is None else [by_pid[pid] for pid in sorted(pids) if pid in by_pid]
        raw_sm = None if busy is None else _added(sample.sm for sample in busy)
        yield (
            Usage(
                subject,
                device,
                used,
                peak,
                sm=min(1.0, raw_sm) if raw_sm is not None else instance_sm if alone else None,
                encoder=None if busy is None else _at_most_one(_added(sample.encoder for sample in busy)),
                decoder=None if busy is None else _at_most_one(_added(sample.decoder for sample in busy)),
                processes=keys,
                memory_sure=None if cgroup else _sure(members),
                kernel_limit=cgroup.limit if cgroup else None,
            ),
            raw_sm is not None and raw_sm > 1.0,
        )


def _of_cgroup(subject: Subject, cgroup: CgroupMemory, peaks: Peaks) -> Usage:
    """Tell what a container holds while nobody knows by which processes."""
    peak = max(cgroup.used, cgroup.peak or 0, peaks.get((subject, cgroup.device)) or 0)
    return Usage(subject, cgroup.device, cgroup.used, peak, kernel_limit=cgroup.limit, listed=False)


def _sure(members: Sequence[Placed]) -> int | None:
    """Sum up what is surely the container's own; None where nothing can be shared, so that all of it is."""
    processes = [member.process for member in members]
    if all(process.memory_sure is None for process in processes):
        return None
    return total(process.memory if process.memory_sure is None else process.memory_sure for process in processes)


def _added(parts: Iterable[float | None]) -> float | None:
    """Sum up; one unknown part makes the sum unknown."""
    result: float = 0
    for part in parts:
        if part is None:
            return None
        result += part
    return result


def _at_most_one(ratio: float | None) -> float | None:
    return None if ratio is None else min(1.0, ratio)


def total(parts: Iterable[int | None]) -> int | None:
    """Sum up; one unknown part makes the sum unknown."""
    result = 0
    for part in parts:
        if part is None:
            return None
        result += part
    return result


def new_peaks(before: Peaks, usages: Iterable[Usage], known: Collection[ContainerId]) -> Peaks:
    """Carry the peaks on: of who is seen now, and of containers that still exist while they hold nothing."""
    kept = {entry: peak for entry, peak in before.items() if entry[0].container_id in known}
    seen = {(usage.subject, usage.device): usage.memory_peak for usage in usages if usage.memory_peak is not None}
    return {**kept, **seen}
