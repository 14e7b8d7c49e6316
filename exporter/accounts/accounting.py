"""
The accounts of one GPU: usage per container and device, ghost memory and unattributed memory.

What comes in: one GPU's placed entries and the peaks so far. What goes out: one account per device, one usage per
container and device, the new peaks.

The rule: **the accounts close.** attributed + ghost + host + unattributed = used, for each device whose parts were all
measured. Device memory and process lists are read milliseconds apart. A remainder below zero by up to `TOLERANCE`
therefore counts as 0, and is reported. Beyond that, the account is marked as not closing. The kernel's count for a
container's cgroup replaces the sum over its processes, because it counts each buffer once. If that count is below the
memory that the processes surely hold, buffers were charged to another cgroup. Then only the sure part counts. If the
device has no room for an entry of no container, the entry is part of what such counts have beyond the lists. Unknown is
not zero: a container that may hold memory outside the lists has no figure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from exporter.accounts.attribution import Attributed
from exporter.accounts.grouping import NO_MEMBERS, NOBODY, Group, Groups, Members, grouped, total
from exporter.model import (
    Attribution,
    CgroupMemory,
    ContainerId,
    DeviceAccount,
    DeviceKey,
    Fault,
    Gpu,
    GpuSample,
    Memory,
    ProcessUtilization,
    Subject,
    Usage,
)

TOLERANCE = 64 * 2**20
"""Bytes by which the lists may exceed the device's usage: a few allocations between two readings."""

Peaks = Mapping[tuple[Subject, DeviceKey], int]
Counted = Mapping[Subject, CgroupMemory]


@dataclass(frozen=True, slots=True)
class GpuAccounts:
    """The accounts of one GPU's devices, and the usages on them."""

    attributed: Attributed
    accounts: tuple[DeviceAccount, ...] = ()
    usages: tuple[Usage, ...] = ()
    capped: int = 0
    """Containers whose summed SM samples exceeded 100 % and were cut there."""
    processes: Mapping[Attribution, int] = field(default_factory=dict)

    @property
    def sample(self) -> GpuSample:
        """The GPU's readings."""
        return self.attributed.sample


def account(
    attributed: Attributed,
    peaks: Peaks,
    allocated: Mapping[DeviceKey, Collection[Subject]] | None = None,
    groups: Groups | None = None,
) -> GpuAccounts:
    """
    Close the accounts of one GPU.

    Args:
        attributed: the placed entries.
        peaks: the highest usage seen so far, per container and device.
        allocated: the containers to which the kubelet allocated each device. One without a process there holds 0.
        groups: of the placed entries, if they are known from an earlier round.
    """
    placed = attributed.placed
    groups = groups or grouped(placed or ())
    accounts: list[DeviceAccount] = []
    usages: list[Usage] = []
    capped, short = 0, 0
    for device, memory, ratios in attributed.sample.gpu.leaves():
        group = groups.by_device.get(device, NOBODY)
        on_it = _OnDevice.of(attributed, device, group, (allocated or {}).get(device, ()))
        if placed is None:
            accounts.append(DeviceAccount(device, memory))
            usages += (_of_cgroup(subject, cgroup, peaks) for subject, cgroup in on_it.counted.items() if cgroup.used)
            continue
        balance = _balance(on_it, memory)
        accounts.append(replace(balance, partial=True) if attributed.sample.partial else balance)
        short += len(on_it.short)
        # NVML reports utilization by process per GPU, and never with MIG. There the instance's own figure is used.
        utilization = attributed.sample.utilization if device.gpu_instance is None else None
        instance_sm = ratios.sm if device.gpu_instance is not None else None
        for usage, cut in _usages(on_it, utilization=utilization, instance_sm=instance_sm, peaks=peaks):
            usages.append(usage)
            capped += cut
    if short:
        faults = (*attributed.sample.faults, _charged_elsewhere(attributed.sample.gpu, short))
        attributed = replace(attributed, sample=replace(attributed.sample, faults=faults))
    return GpuAccounts(attributed, tuple(accounts), tuple(usages), capped, groups.counts)


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """
    The readings of one device.

    Attributes:
        by_subject: the containers that were handed the device or hold memory of it, with their known processes.
        counted: the kernel's counts by cgroup that are believed.
        short: the kernel's counts that are below the memory that the container surely holds.
        sees_all: no process is missing from the lists, and no unseen process may belong to any container.
    """

    attributed: Attributed
    device: DeviceKey
    group: Group
    by_subject: Mapping[Subject, Members]
    counted: Counted
    short: Counted
    sees_all: bool

    @classmethod
    def of(cls, attributed: Attributed, device: DeviceKey, group: Group, holders: Iterable[Subject]) -> "_OnDevice":
        """Collect the containers of a device, and compare the kernel's counts with the lists."""
        counted = {subject: cgroup for (subject, on), cgroup in attributed.counted.items() if on == device}
        using = (subject for subject, cgroup in counted.items() if cgroup.used)
        by_subject = {**dict.fromkeys((*holders, *using), NO_MEMBERS), **group.members}
        short = {
            subject: cgroup
            for subject, cgroup in counted.items()
            if by_subject.get(subject, NO_MEMBERS).at_least > cgroup.used + TOLERANCE
        }
        believed = {subject: cgroup for subject, cgroup in counted.items() if subject not in short}
        sees_all = not (attributed.anybodys or group.doubtful or attributed.sample.partial)
        return cls(attributed, device, group, by_subject, believed, short, sees_all)

    def lists(self, subject: Subject) -> bool:
        """
        Say whether a container's processes are known.

        While some may be missing, an empty list is not known to be empty.
        """
        complete = self.sees_all and subject.pod_uid not in self.group.pods
        return self.attributed.knows(subject) and (complete or bool(self.by_subject[subject].entries))

    def with_pod(self, subject: Subject) -> bool:
        """Say whether all that is not known of a container is which processes of its pod are its own."""
        unlisted = not self.by_subject[subject].entries and subject.pod_uid in self.group.pods
        return unlisted and self.sees_all and self.attributed.knows(subject)

    @property
    def beyond_lists(self) -> int:
        """
        Bytes that the kernel counts for containers, and that none of their known processes surely holds.

        A dead PID or an unreadable process may be of such a container. Then the count has its memory already.
        """
        members = self.group.members
        return sum(
            max(0, cgroup.used - members.get(subject, NO_MEMBERS).at_least) for subject, cgroup in self.counted.items()
        )


def _balance(on_it: _OnDevice, memory: Memory | None) -> DeviceAccount:
    device, counts = on_it.device, [cgroup.used for cgroup in on_it.counted.values()]
    if on_it.group.unproven:
        return DeviceAccount(device, memory)
    listed = [members for subject, members in on_it.group.members.items() if subject not in on_it.counted]
    unseen = any(subject not in on_it.counted and not on_it.attributed.knows(subject) for subject in on_it.by_subject)
    attributed = None if unseen else total((*counts, *(members.used for members in listed)))
    ghost, host, open_entries = (on_it.group.others.get(place, 0) for place in ("ghost", "host", "unattributed"))
    inside = on_it.beyond_lists
    if memory is not None and ghost is not None:
        # Also where a container's memory is unknown: the policy takes off each usage what the known parts exceed.
        known = sum(counts) + sum(members.at_least if members.used is None else members.used for members in listed)
        again = min(ghost, inside, max(0, known + (host or 0) + ghost - memory.used))
        ghost, inside = ghost - again, inside - again
    if memory is None or attributed is None or ghost is None or host is None or open_entries is None:
        return DeviceAccount(device, memory, attributed, ghost, host)
    rest = memory.used - attributed - ghost - host
    # The unattributed entries are part of the rest, or of a count, and must fit into these, too.
    missing = max(0, max(0, open_entries - inside) - rest)
    if missing > TOLERANCE:
        return DeviceAccount(device, memory, attributed, ghost, host, closes=False)
    return DeviceAccount(device, memory, attributed, ghost, host, unattributed=max(0, rest), clamped=missing)


def _usages(
    on_it: _OnDevice, *, utilization: tuple[ProcessUtilization, ...] | None, instance_sm: float | None, peaks: Peaks
) -> Iterable[tuple[Usage, bool]]:
    device = on_it.device
    everybody = on_it.sees_all and not on_it.group.nobodys
    alone = everybody and sum(not on_it.with_pod(subject) for subject in on_it.by_subject) == 1
    by_pid = None if utilization is None else {sample.pid: sample for sample in utilization}
    for subject, members in on_it.by_subject.items():
        cgroup, short = on_it.counted.get(subject), on_it.short.get(subject)
        known, before, kernel = on_it.lists(subject), peaks.get((subject, device)), cgroup or short
        keys, mps = members.keys, members.mps
        if cgroup is None and not known:
            sure = short.used if short else members.at_least or None
            unknown = Usage(subject, device, None, before, processes=keys, memory_sure=sure, listed=False, mps=mps)
            yield replace(unknown, with_pod=on_it.with_pod(subject)), False
            continue
        used = cgroup.used if cgroup else members.used
        kernel_peak = kernel.peak if kernel else None
        peak = max((size for size in (before, used, kernel_peak) if size is not None), default=None)
        busy = None if by_pid is None or not known else [by_pid[pid] for pid in members.pids if pid in by_pid]
        raw_sm = None if busy is None else total(sample.sm for sample in busy)
        yield (
            Usage(
                subject,
                device,
                used,
                peak,
                sm=min(1.0, raw_sm) if raw_sm is not None else instance_sm if alone and known else None,
                encoder=None if busy is None else _at_most_one(total(sample.encoder for sample in busy)),
                decoder=None if busy is None else _at_most_one(total(sample.decoder for sample in busy)),
                processes=keys,
                memory_sure=None if cgroup else short.used if short else members.sure,
                kernel_limit=kernel.limit if kernel else None,
                listed=known,
                mps=mps,
                process_memory=members.by_process if known else (),
            ),
            raw_sm is not None and raw_sm > 1.0,
        )


def _of_cgroup(subject: Subject, cgroup: CgroupMemory, peaks: Peaks) -> Usage:
    """Make the usage of a container of which only the kernel's count is known, and no process."""
    peak = max(cgroup.used, cgroup.peak or 0, peaks.get((subject, cgroup.device)) or 0)
    return Usage(subject, cgroup.device, cgroup.used, peak, kernel_limit=cgroup.limit, listed=False)


def _charged_elsewhere(gpu: Gpu, containers: int) -> Fault:
    message = (
        f"GPU {gpu.index} ({gpu.pci_bus_id}): the kernel counts less for the cgroups of {containers} "
        f"container{'' if containers == 1 else 's'} (dmem) than their processes hold. Memory from before the "
        "controller was enabled, or moved by the kernel, is charged elsewhere. Usage is taken from the process lists; "
        "limits are judged by the kernel's lower count"
    )
    return Fault("accounts", "dmem_short", message, gpu.uuid, incomplete=False)


def _at_most_one(ratio: float | None) -> float | None:
    return None if ratio is None else min(1.0, ratio)


def new_peaks(before: Peaks, usages: Iterable[Usage], known: Collection[ContainerId] | None) -> Peaks:
    """
    Keep the peaks of the containers that are seen now, and of those that still exist and hold nothing.

    `known`: the containers that still exist; None while that is unknown.
    """
    kept = {entry: peak for entry, peak in before.items() if known is None or entry[0].container_id in known}
    seen = {(usage.subject, usage.device): usage.memory_peak for usage in usages if usage.memory_peak is not None}
    return {**kept, **seen}
