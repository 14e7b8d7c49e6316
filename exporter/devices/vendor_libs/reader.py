"""
The interface to a vendor's library, and the reading of one of its devices.

What comes in: a reader, which knows one library, and a device that it opened. What goes out: a `GpuSample`.

The rule: process lists are read directly after the memory, so that the accounts can close. If a list could not be read,
or may be cut, `processes` is None: half a list would hide a process. A figure that the library never has is no fault,
and is reported once (`vendors` in `exporter.check.node`, docs/devices.md).
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from exporter.devices.device_faults import DeviceFaults
from exporter.devices.errors import CallError, LibraryError, UnsupportedError
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.process_list import merged
from exporter.devices.session import Beat
from exporter.devices.vendor_libs.layouts import Listed, health
from exporter.devices.vendor_libs.native import Meanings, Native
from exporter.devices.vendor_libs.rows import Library
from exporter.model import (
    ALL_ON,
    Collector,
    DeviceKey,
    Gpu,
    GpuInstance,
    GpuSample,
    GpuUuid,
    Memory,
    Off,
    ProcessKind,
    ProcessUtilization,
    Utilization,
)

H = TypeVar("H")
"""A library's handle of a device, valid while it stays initialised."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The lasting facts of a device. `minor` is the number in the name of its device node."""

    uuid: GpuUuid
    model: str
    pci_bus_id: str = ""
    minor: int | None = None


class Reader(ABC, Generic[H]):
    """
    One library; `nodes` finds the processes that have the vendor's device nodes open.

    All methods run on its thread, and raise LibraryError. A reader implements the abstract methods. The defaults of the
    other methods fit a library without these figures; a reader overrides those that its library has.
    """

    meanings: Meanings
    end: str = ""
    """The function that shuts the library down; empty where it has none."""

    def __init__(self, library: Library, beat: Beat, nodes: OpenNodes) -> None:
        self.vendor = library.vendor
        self.name = library.name
        self.title = library.title
        self._library = Native(library.libraries, self.meanings, beat)
        self._nodes = nodes

    def start(self) -> None:
        """Load and initialise. May be called again after a loss."""
        self._library.load()

    def stop(self) -> None:
        """Shut down, and ignore the library's errors."""
        if self.end:
            with contextlib.suppress(LibraryError):
                self._library.call(self.end)

    def driver_version(self) -> str:
        """Return the version of the driver."""
        return ""

    @abstractmethod
    def indices(self) -> Sequence[int]:
        """List the present devices. Called first in each round."""

    @abstractmethod
    def open(self, index: int) -> H:
        """Open a device."""

    @abstractmethod
    def identify(self, handle: H, index: int) -> Identity:
        """Return the lasting facts of the device."""

    @abstractmethod
    def memory(self, handle: H) -> Memory | None:
        """Read its memory; None where the library has no value."""

    @abstractmethod
    def processes(self, handle: H, total: int | None) -> Sequence[Listed] | None:
        """List the processes that hold some of `total` bytes; None where the library never lists them."""

    @abstractmethod
    def utilization(self, handle: H) -> Utilization:
        """Read the utilization of the device."""

    def process_utilization(self, handle: H) -> Sequence[ProcessUtilization] | None:  # noqa: ARG002
        """Read each process's utilization; None where the library never reports it."""
        return None

    def power(self, handle: H) -> float | None:  # noqa: ARG002
        """Read the power in watts; None where the library never reports it."""
        return None

    def temperature(self, handle: H) -> float | None:  # noqa: ARG002
        """Read the temperature in degrees Celsius; None where the library never reports it."""
        return None

    def instances(self, handle: H) -> tuple[GpuInstance, ...]:  # noqa: ARG002
        """List the parts of a divided device: they are then the devices. Empty where it is whole."""
        return ()


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """A device that was opened and named."""

    index: int
    handle: Any
    identity: Identity


def read_device(reader: Reader[Any], device: NamedDevice, driver: str, now: float, off: Off = ALL_ON) -> GpuSample:
    """
    Read the figures of one device at the time `now` (Unix time), without those of the collectors that are `off`.

    Raises DeviceLostError, LibraryGoneError, and CallError when it does not say whether it is divided.
    """
    handle, identity = device.handle, device.identity
    instances = reader.instances(handle)
    faults = DeviceFaults(f"{reader.title} {device.index}", identity.uuid, off)
    memory, listed = None, None
    try:
        memory = reader.memory(handle)
    except UnsupportedError:
        pass
    except CallError as error:
        faults.add(error, "memory could not be read")
    try:
        listed = reader.processes(handle, None if memory is None else memory.total)
    except CallError as error:
        supported = not isinstance(error, UnsupportedError)
        faults.add(error, "processes could not be listed", incomplete=supported)
    utilization = faults.collected(Collector.UTILIZATION, reader.utilization, handle) or Utilization()
    by_process = faults.collected(Collector.PROCESS_UTILIZATION, reader.process_utilization, handle)
    watts = faults.collected(Collector.POWER, reader.power, handle)
    degrees = faults.collected(Collector.TEMPERATURE, reader.temperature, handle)
    kind = ProcessKind.COMPUTE
    return GpuSample(
        gpu=Gpu(
            uuid=identity.uuid,
            index=device.index,
            model=identity.model,
            vendor=reader.vendor,
            pci_bus_id=identity.pci_bus_id,
            driver_version=driver,
            mig=bool(instances),
            memory=memory,
            # The vendor calls the figure of a divided device meaningless (Ascend).
            utilization=Utilization() if instances else utilization,
            health=health(watts, degrees),
            instances=instances,
            minor=identity.minor,
        ),
        sampled_at=now,
        # No library here reports the part of a divided device that a process is on.
        processes=None
        if listed is None or instances
        else merged(DeviceKey(identity.uuid), ((kind, process.pid, process.memory) for process in listed)),
        utilization=None if by_process is None or instances else tuple(by_process),
        faults=faults.all(),
        pids_proven=all(process.host for process in listed or ()),
    )
