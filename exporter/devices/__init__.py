"""
Device sources: the readings of the drivers.

A device source answers for all GPUs or for some, and never raises for one lost GPU. A GPU that did not answer is absent
from `samples` or has `processes=None`, and a `Fault` says why. Only a source that cannot work at all raises
`DeviceError`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exporter.base.problem import Problem
from exporter.model import DeviceKey, Fault, GpuSample, GpuUuid, HostSample, Memory, XidCounts
from exporter.model.vendors import SOURCES

NAMES = SOURCES
"""
The sources that a config can name, with commas; `auto` is all sources of the node.

See `exporter.devices.finding`.
"""


Identify = Callable[[Collection[int]], HostSample]
"""Reads the processes behind raw PIDs, and may block."""


class DeviceError(Problem):
    """The driver cannot be used at all; the message says what to do. The daemon ends with exit code 1 at start."""


class DriverReplacedError(DeviceError):
    """The driver was replaced while the daemon ran: only a new process can load the new library."""


class DriverAccessLostError(DeviceError):
    """The device files can no longer be opened, though they could before: a new container can open them again."""


@dataclass(frozen=True, slots=True)
class DevicesSample:
    """
    One answer of a device source.

    Attributes:
        present: every GPU that the driver counts, also those that did not answer (UUID to index).
        samples: the GPUs that were asked for and answered.
        sources_up: by name, whether each source answered; empty for a single source.
        xid_errors: of all GPUs, also those not asked for; a counter never falls while the source is open.
        host: the processes in the lists, if the source identified them.

    """

    present: Mapping[GpuUuid, int] = field(default_factory=dict)
    samples: tuple[GpuSample, ...] = ()
    faults: tuple[Fault, ...] = ()
    xid_errors: XidCounts = field(default_factory=dict)
    sources_up: Mapping[str, bool] = field(default_factory=dict)
    host: HostSample | None = None

    @property
    def pids(self) -> frozenset[int]:
        """All raw PIDs in the process lists."""
        return frozenset(process.pid for sample in self.samples for process in sample.processes or ())

    @property
    def answered(self) -> bool:
        """Whether the source answered as a whole; a fault of a single GPU does not count."""
        return not any(fault.incomplete and not fault.subject for fault in self.faults)


class DeviceSource(Protocol):
    """
    The interface to a driver.

    Calls are made one at a time; each returns before its deadline, even if the driver hangs.
    """

    name: str

    async def sample(self, only: Collection[GpuUuid] | None = None, identify: Identify | None = None) -> DevicesSample:
        """
        Read everything about all GPUs, or about those in `only`: memory, process lists, utilization, health.

        A source whose thread may block uses it to `identify` the processes: to wake another one takes as long as 50 of
        them. The others leave that to the caller.
        """
        ...

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read device memory alone: some 12 microseconds per device, while the process lists take milliseconds."""
        ...

    async def close(self) -> None:
        """Release the driver, within a second even while a call hangs."""
        ...
