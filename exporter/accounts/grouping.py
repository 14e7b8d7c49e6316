"""
The entries of one GPU's process lists by device and container, with their sums.

What comes in: placed entries. What goes out: a `Group` for each device.

The rule: unknown is not zero: one entry without a figure makes the sum of its container unknown. The sums are made once
for an attribution. While nothing changes on a GPU, its rounds share the attribution and the sums.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from exporter.accounts.attribution import Placed
from exporter.model import Attribution, DeviceKey, PodUid, ProcessKey, ProcessKind, Subject

_Number = TypeVar("_Number", int, float)

COUNTS_AS = {
    Attribution.CONTAINER: "attributed",
    Attribution.INHERITED: "attributed",
    Attribution.GHOST: "ghost",
    Attribution.HOST: "host",
}
"""Every other entry is unattributed: the process exists, but belongs to no known container."""

DOUBTFUL = {Attribution.UNPROVEN, Attribution.UNREADABLE, Attribution.CONTRADICTORY, Attribution.AMBIGUOUS}
"""Such a process may belong to any container. While one is listed, no container is known to hold 0 bytes."""


@dataclass(frozen=True, slots=True)
class Members:
    """
    The processes of one container on one device.

    Attributes:
        entries: as listed.
        keys: the living processes.
        pids: of the processes, and as listed, in order. Statistics name processes on all drivers, the lists threads
            on some.
        used: bytes; None if one is unknown.
        at_least: known bytes that surely belong to the container.
        sure: the same where it is not all of the container's memory, else None; None, too, if nothing is measured.
        by_process: bytes of each process, sorted; empty where one is unknown.
        mps: one of them is a client of MPS.

    """

    entries: tuple[Placed, ...] = ()
    keys: frozenset[ProcessKey] = frozenset()
    pids: tuple[int, ...] = ()
    used: int | None = 0
    at_least: int = 0
    sure: int | None = None
    by_process: tuple[int, ...] = ()
    mps: bool = False

    @classmethod
    def of(cls, entries: Sequence[Placed]) -> "Members":
        """Sum up."""
        keys = frozenset(entry.key for entry in entries if entry.key is not None)
        return cls(
            tuple(entries),
            keys,
            tuple(sorted({key.pid for key in keys} | {entry.process.pid for entry in entries})),
            total(entry.process.memory for entry in entries),
            _at_least(entries),
            _sure(entries),
            _by_process(entries),
            any(ProcessKind.MPS in entry.process.kinds for entry in entries),
        )


NO_MEMBERS = Members()


@dataclass(frozen=True, slots=True)
class Group:
    """
    The entries of one device.

    Attributes:
        members: by container.
        pods: those that have an entry whose container is unknown.
        others: bytes of the entries of no container, by where they count: ghost, host, unattributed.
        nobodys: there is an entry of no container.
        doubtful: one of the entries may belong to any container.
        unproven: the PIDs are not known to be the host's.

    """

    members: Mapping[Subject, Members] = field(default_factory=dict)
    pods: frozenset[PodUid] = frozenset()
    others: Mapping[str, int | None] = field(default_factory=dict)
    nobodys: bool = False
    doubtful: bool = False
    unproven: bool = False


NOBODY = Group()


@dataclass(frozen=True, slots=True)
class Groups:
    """The devices of a GPU, and how many entries have each attribution."""

    by_device: Mapping[DeviceKey, Group]
    counts: Mapping[Attribution, int]


def grouped(placed: Iterable[Placed]) -> Groups:
    """Group and sum up the entries of a GPU."""
    by_device: dict[DeviceKey, list[Placed]] = defaultdict(list)
    counts: dict[Attribution, int] = defaultdict(int)
    for entry in placed:
        by_device[entry.process.device].append(entry)
        counts[entry.attribution] += 1
    return Groups({device: _group(entries) for device, entries in by_device.items()}, dict(counts))


def _group(entries: Iterable[Placed]) -> Group:
    by_subject: dict[Subject, list[Placed]] = defaultdict(list)
    others: dict[str, list[int | None]] = defaultdict(list)
    kinds = set()
    for entry in entries:
        kinds.add(entry.attribution)
        if entry.subject is not None:
            by_subject[entry.subject].append(entry)
        else:
            others[COUNTS_AS.get(entry.attribution, "unattributed")].append(entry.process.memory)
    return Group(
        {subject: Members.of(mine) for subject, mine in by_subject.items()},
        frozenset(subject.pod_uid for subject in by_subject if not subject.container),
        {place: total(sizes) for place, sizes in others.items()},
        bool(others),
        not DOUBTFUL.isdisjoint(kinds),
        Attribution.UNPROVEN in kinds,
    )


def _by_process(members: Iterable[Placed]) -> tuple[int, ...]:
    """List the bytes of each process, sorted; empty where one is unknown. An entry of a dead process counts alone."""
    sizes: dict[object, int] = defaultdict(int)
    for number, member in enumerate(members):
        if member.process.memory is None:
            return ()
        sizes[number if member.key is None else member.key] += member.process.memory
    return tuple(sorted(sizes.values()))


def _at_least(members: Iterable[Placed]) -> int:
    """Sum up the known bytes that surely belong to the container."""
    sizes = (m.process.memory if m.process.memory_sure is None else m.process.memory_sure for m in members)
    return sum(size for size in sizes if size is not None)


def _sure(members: Sequence[Placed]) -> int | None:
    """
    Sum up the bytes that surely belong to the container.

    None if that is all of its memory, because none can be shared, or if none of its processes is measured.
    """
    processes = [member.process for member in members]
    if all(process.memory_sure is None and process.memory is not None for process in processes):
        return None
    return _at_least(members) if any(process.memory is not None for process in processes) else None


def total(parts: Iterable[_Number | None]) -> _Number | None:
    """Sum up; one unknown part makes the sum unknown."""
    result: _Number = 0
    for part in parts:
        if part is None:
            return None
        result += part
    return result
