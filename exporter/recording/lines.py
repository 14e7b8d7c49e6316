"""
The lines of a recording: one schema for the writer and the reader.

What comes in: a recorded round and the numbers of its parts, or a line that was read and the parts on the shelf. What
goes out: structs that msgspec writes as one line of JSON each, or the round again.

The rule: a file names its format first. An unchanged part (an inventory, a list of processes, an answer of the kernel)
is written once, and rounds refer to it by its number. A round can refer only to parts on the shelf. Writer and reader
clear the shelf by the same rule, so both hold the same parts. A new field gets a default and no new format. A new
meaning gets a new format.

Facts of the model are written without change. `RoundLine` and `RoundGpu` have the fields of `RecordedRound` and
`GpuSample`; some fields have other types here. All fields are copied by name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import asdict

from exporter.base.problem import Problem
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
"""Parts that stay after a round. A round of 16 GPUs, the most per machine, refers to 34 parts and changes few."""
LONGEST = 16 << 20
"""Bytes of a line: the inventory of a thousand pods takes 2 MB."""


class RecordingError(Problem):
    """A recording cannot be written or read; the message has the place and the reason."""

    fix = "use a complete file of `gpusteward record`"


class Header(msgspec.Struct, frozen=True, tag="header", tag_field="line", kw_only=True):
    """
    The first line.

    Attributes:
        gpusteward_recording: the format.
        program: version of gpusteward that wrote it.
        started_at: Unix time; `interval` in seconds, between full rounds on average.
        first_seen: first-seen values at the start, by pod UID; see `exporter.limits.first_seen`.

    """

    gpusteward_recording: int
    program: str
    node: str
    started_at: float
    interval: float
    anonymized: bool = False
    first_seen: Mapping[str, list[dict[str, str | int | None]]] = msgspec.field(default_factory=dict)


class InventoryPart(msgspec.Struct, frozen=True, tag="inventory", tag_field="line"):
    """An inventory. Its `sharing` is a list, because keys in JSON can only be text."""

    number: int
    inventory: Inventory
    sharing: list[tuple[DeviceKey, Sharing, int]]

    @classmethod
    def of(cls, number: int, inventory: Inventory) -> "InventoryPart":
        """Make the part; `sharing` becomes a list."""
        sharing = [(key, kind, replicas) for key, (kind, replicas) in inventory.sharing.items()]
        return cls(number, replace(inventory, sharing={}), sharing)

    @property
    def value(self) -> Inventory:
        """The inventory again."""
        return replace(self.inventory, sharing={key: (kind, replicas) for key, kind, replicas in self.sharing})


class HostPart(msgspec.Struct, frozen=True, tag="host", tag_field="line"):
    """A question to the kernel, with its answer."""

    number: int
    value: HostRead = msgspec.field(name="host")


class ProcessesPart(msgspec.Struct, frozen=True, tag="processes", tag_field="line"):
    """The process lists of a GPU."""

    number: int
    value: tuple[GpuProcess, ...] = msgspec.field(name="processes")


class XidsPart(msgspec.Struct, frozen=True, tag="xids", tag_field="line"):
    """The XID errors of all GPUs: mostly zeros, and mostly unchanged."""

    number: int
    value: XidCounts = msgspec.field(name="xid_errors")


class RoundGpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU's answer in a round. `processes` is the number of the part with its lists; None if they were not read."""

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

    @classmethod
    def of(cls, sample: GpuSample, processes: int | None) -> "RoundGpu":
        """Replace the process lists by the number of their part."""
        return cls(**{**_fields(sample), "processes": processes})

    def sample(self, parts: Mapping[int, Any]) -> GpuSample:
        """Return the sample with its process lists from the shelf."""
        processes = None if self.processes is None else parts[self.processes]
        return GpuSample(**{**asdict(self), "processes": processes})


class RoundLine(msgspec.Struct, frozen=True, tag="round", tag_field="line", omit_defaults=True):
    """
    A round. It follows the parts that it refers to: `inventory`, `hosts`, `xids`, and the `processes` of its GPUs.

    `by_time` is absent if it is as in version 0.1: there only full rounds were due by the clock.
    """

    number: int
    taken_at: float
    monotonic: float
    duration: float
    inventory: int
    hosts: list[int] = msgspec.field(default_factory=list)
    only: list[GpuUuid] | None = None
    present: Mapping[GpuUuid, int] = msgspec.field(default_factory=dict)
    samples: list[RoundGpu] = msgspec.field(default_factory=list, name="gpus")
    faults: tuple[Fault, ...] = ()
    xid_errors: int | None = msgspec.field(default=None, name="xids")
    by_time: bool | None = None

    @classmethod
    def of(cls, recorded: RecordedRound, **parts: Any) -> "RoundLine":
        """Make the line; `parts` are the numbers for `inventory`, `hosts` and `xid_errors`, and the `samples`."""
        only = None if recorded.only is None else sorted(recorded.only)
        by_time = None if recorded.by_time is (only is None) else recorded.by_time
        return cls(**{**_fields(recorded), "only": only, "by_time": by_time, **parts})

    def named(self) -> Iterator[int]:
        """Yield the numbers of the parts that this round refers to."""
        yield self.inventory
        yield from self.hosts
        if self.xid_errors is not None:
            yield self.xid_errors
        yield from (gpu.processes for gpu in self.samples if gpu.processes is not None)

    def fits(self, parts: Mapping[int, Any]) -> bool:
        """Tell whether each part that this round refers to is of the right kind. Raises KeyError if one is missing."""
        lists = (parts[gpu.processes] for gpu in self.samples if gpu.processes is not None)
        return (
            isinstance(parts[self.inventory], Inventory)
            and all(isinstance(parts[number], HostRead) for number in self.hosts)
            and (self.xid_errors is None or isinstance(parts[self.xid_errors], dict))
            and all(isinstance(processes, tuple) for processes in lists)
        )

    def recorded(self, parts: Mapping[int, Any]) -> RecordedRound:
        """Return the round with its parts from the shelf. Raises KeyError if one is missing."""
        restored = {
            "inventory": parts[self.inventory],
            "hosts": tuple(parts[number] for number in self.hosts),
            "only": None if self.only is None else frozenset(self.only),
            "samples": tuple(gpu.sample(parts) for gpu in self.samples),
            "xid_errors": {} if self.xid_errors is None else parts[self.xid_errors],
            "by_time": self.only is None if self.by_time is None else self.by_time,
        }
        return RecordedRound(**{**asdict(self), **restored})


Part: TypeAlias = InventoryPart | HostPart | ProcessesPart | XidsPart
Line: TypeAlias = Header | Part | RoundLine


class Shelf(dict[int, Any]):
    """The parts that rounds can refer to, by number: the last written or used ones."""

    def after(self, line: RoundLine) -> None:
        """Mark the round's parts as used, and remove the longest unused ones. Raises KeyError if one is missing."""
        for number in line.named():
            self[number] = self.pop(number)
        for number in list(self)[:-SHELF]:
            del self[number]


def _fields(facts: Any) -> dict[str, Any]:
    return {field.name: getattr(facts, field.name) for field in fields(facts)}
