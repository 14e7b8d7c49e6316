"""
What the driver says.

A device source answers for all GPUs or for some, and never raises for one lost GPU: a GPU that did not answer is
absent from `samples` or has `processes=None`, and a `Fault` says why. Only a source that cannot work at all raises
`DeviceError`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exporter.base.problem import Problem
from exporter.model import DeviceKey, Fault, GpuSample, GpuUuid, Memory, XidCounts
from exporter.model.vendors import SOURCES

NAMES = SOURCES
"""The sources that a config can name, by commas; `auto` is all that the node has. See `exporter.devices.finding`."""


class DeviceError(Problem):
    """The driver cannot be used at all; the message says what to do. The daemon ends with exit code 1 at start."""


class DriverReplacedError(DeviceError):
    """The driver was exchanged under us: only a new process can load the new library."""


class DriverAccessLostError(DeviceError):
    """The device files can no longer be opened, though they could before: a new container gets them back."""


@dataclass(frozen=True, slots=True)
class DevicesSample:
    """
    One answer of a device source.

    Attributes:
        present: every GPU that the driver counts, also those which did not answer (uuid to index).
        samples: the GPUs that were asked for and answered.
        sources_up: where several sources answered, whether each of them did, by name.
        xid_errors: of all GPUs, whoever was asked for; a counter never falls while the source is open.

    """

    present: Mapping[GpuUuid, int] = field(default_factory=dict)
    samples: tuple[GpuSample, ...] = ()
    faults: tuple[Fault, ...] = ()
    xid_errors: XidCounts = field(default_factory=dict)
    sources_up: Mapping[str, bool] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Whether the source answered as a whole, whatever became of one of its GPUs."""
        return not any(fault.incomplete and not fault.subject for fault in self.faults)


class DeviceSource(Protocol):
    """The seam to the driver. Calls are made one at a time; each returns before its deadline, whatever hangs."""

    name: str

    async def sample(self, only: Collection[GpuUuid] | None = None) -> DevicesSample:
        """Read everything about all GPUs, or about those in `only`: memory, process lists, utilization, health."""
        ...

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read device memory alone: some 12 microseconds a device, where the process lists take milliseconds."""
        ...

    async def close(self) -> None:
        """Let go of the driver, within a second even while a call hangs."""
        ...
