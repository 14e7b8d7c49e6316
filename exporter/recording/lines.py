"""
The lines of a recording.

What comes in: nothing. What goes out: structs that msgspec writes as one line of JSON each, and reads again.

The law: a file tells its format first. A part that stays as it was (an inventory, a list of processes, an answer of the
kernel) is written once and named by its number. Only parts on the shelf can be named, and writer and reader clear it by
the same rule, so that neither side remembers more. Fields that are new get a default and no new format; a new meaning
gets a new format.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from exporter.model import (
    CgroupMemory,
    DeviceKey,
    Fault,
    Gpu,
    GpuProcess,
    GpuSample,
    GpuUuid,
    Inventory,
    Owner,
    ProcessUtilization,
    Sharing,
    XidCounts,
)
from exporter.recording.answers import HostRead, RecordedRound

FORMAT = 1
SHELF = 256
"""Parts that stay after a round. One of 16 GPUs, the most that a machine has, names 34 and changes few of them."""
LONGEST = 16 << 20
"""Bytes of a line: the inventory of a thousand pods takes 2 MB."""


class RecordingError(Exception):
    """A recording cannot be written or read; the message says where and why."""


class Header(msgspec.Struct, frozen=True, tag="header", tag_field="line", kw_only=True):
    """
    The first line.

    Attributes:
        gpusteward_recording: the format.
        program: version of gpusteward that wrote it.
        started_at: Unix time; `interval` in seconds, between full rounds.
        first_seen: what was known of earlier declarations at the start, by pod UID; see `exporter.limits.first_seen`.

    """

    gpusteward_recording: int
    program: str
    node: str
    started_at: float
    interval: float
    anonymized: bool = False
    first_seen: Mapping[str, list[dict[str, str | int | None]]] = msgspec.field(default_factory=dict)


class InventoryPart(msgspec.Struct, frozen=True, tag="inventory", tag_field="line"):
    """An inventory. Its `sharing` is a list, because JSON has no other keys than text."""

    number: int
    inventory: Inventory
    sharing: list[tuple[DeviceKey, Sharing, int]]

    @classmethod
    def of(cls, number: int, inventory: Inventory) -> "InventoryPart":
        """Take an inventory apart."""
        sharing = [(key, kind, replicas) for key, (kind, replicas) in inventory.sharing.items()]
        return cls(number, replace(inventory, sharing={}), sharing)

    def whole(self) -> Inventory:
        """Put it together again."""
        return replace(self.inventory, sharing={key: (kind, replicas) for key, kind, replicas in self.sharing})


class HostPart(msgspec.Struct, frozen=True, tag="host", tag_field="line"):
    """An answer of the kernel."""

    number: int
    host: HostRead


class ProcessesPart(msgspec.Struct, frozen=True, tag="processes", tag_field="line"):
    """The process lists of a GPU."""

    number: int
    processes: tuple[GpuProcess, ...]


class XidsPart(msgspec.Struct, frozen=True, tag="xids", tag_field="line"):
    """The XID errors of all GPUs: mostly zeros, and mostly as they were."""

    number: int
    xid_errors: XidCounts


class RoundGpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU's answer in a round; `processes` is the number of the part with its lists, None when they were not read."""

    gpu: Gpu
    sampled_at: float
    processes: int | None = None
    utilization: tuple[ProcessUtilization, ...] | None = None
    dropped_utilization: int = 0
    faults: tuple[Fault, ...] = ()
    cgroups: tuple[CgroupMemory, ...] = ()
    pids_proven: bool = True
    partial: bool = False
    unseen: tuple[Owner, ...] = ()


class RoundLine(msgspec.Struct, frozen=True, tag="round", tag_field="line", omit_defaults=True):
    """A round, after the parts that it names: `inventory`, `hosts`, `xids`, and the `processes` of its GPUs."""

    number: int
    taken_at: float
    monotonic: float
    duration: float
    inventory: int
    hosts: list[int] = msgspec.field(default_factory=list)
    only: list[GpuUuid] | None = None
    present: dict[GpuUuid, int] = msgspec.field(default_factory=dict)
    gpus: list[RoundGpu] = msgspec.field(default_factory=list)
    faults: tuple[Fault, ...] = ()
    xids: int | None = None

    def named(self) -> Iterator[int]:
        """Yield the numbers of the parts that this round names."""
        yield self.inventory
        yield from self.hosts
        if self.xids is not None:
            yield self.xids
        yield from (one.processes for one in self.gpus if one.processes is not None)

    def whole(self, parts: "Shelf") -> RecordedRound:
        """Put the round together again, all of whose parts are on the shelf."""
        return RecordedRound(
            self.number,
            self.taken_at,
            self.monotonic,
            self.duration,
            None if self.only is None else frozenset(self.only),
            self.present,
            tuple(
                GpuSample(
                    one.gpu,
                    one.sampled_at,
                    None if one.processes is None else parts[one.processes],
                    one.utilization,
                    one.dropped_utilization,
                    one.faults,
                    one.cgroups,
                    one.pids_proven,
                    one.partial,
                    one.unseen,
                )
                for one in self.gpus
            ),
            self.faults,
            tuple(parts[number] for number in self.hosts),
            parts[self.inventory],
            {} if self.xids is None else parts[self.xids],
        )


Part: TypeAlias = InventoryPart | HostPart | ProcessesPart | XidsPart
Line: TypeAlias = Header | Part | RoundLine


class Shelf:
    """The parts that can be named, by number: those which were written or named last."""

    def __init__(self) -> None:
        self._parts: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, number: int) -> bool:
        return number in self._parts

    def __getitem__(self, number: int) -> Any:
        return self._parts[number]

    def put(self, number: int, part: Any) -> None:
        """Lay a new part on it."""
        self._parts[number] = part

    def after(self, line: RoundLine) -> None:
        """Note what a round named, and clear away what was not named for longest. Raises KeyError for what is gone."""
        for number in line.named():
            self._parts[number] = self._parts.pop(number)
        for number in list(self._parts)[:-SHELF]:
            del self._parts[number]
