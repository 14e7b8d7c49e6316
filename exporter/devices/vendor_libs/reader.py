"""
What a vendor's library can be asked, and one of its devices, read once.

What comes in: a reader, which knows one library, and a device that it opened. What goes out: a `GpuSample`.

The rule: memory and processes are read one right after the other, so that the accounts can close. A list that could not
be read, or may be cut, makes `processes` None: half a list would hide a process. What the library never gives is no
fault, and is said once (`exporter.check.vendors`, docs/devices.md).
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
from exporter.devices.vendor_libs.layouts import Listed
from exporter.devices.vendor_libs.native import Meanings, Native
from exporter.devices.vendor_libs.rows import Library
from exporter.model import (
    DeviceKey,
    Gpu,
    GpuInstance,
    GpuSample,
    GpuUuid,
    Health,
    Memory,
    ProcessKind,
    ProcessUtilization,
    Utilization,
)

H = TypeVar("H")
"""How a library names a device while it stays initialised."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a device is. `minor` is the number in the name of its device node."""

    uuid: GpuUuid
    model: str
    pci_bus_id: str = ""
    minor: int | None = None


class Reader(ABC, Generic[H]):
    """
    One library; `nodes` finds the processes that have the vendor's device nodes open.

    All methods run on its thread, and raise LibraryError. A reader implements the abstract methods. The other answers
    stand for a library that never gives them; a reader overrides those that its library can give.
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
        """Shut down, whatever the library says to that."""
        if self.end:
            with contextlib.suppress(LibraryError):
                self._library.call(self.end)

    def driver_version(self) -> str:
        """Give the version of the driver."""
        return ""

    @abstractmethod
    def indices(self) -> Sequence[int]:
        """List the devices that there are; a round begins."""

    @abstractmethod
    def open(self, index: int) -> H:
        """Open a device."""

    @abstractmethod
    def identify(self, handle: H, index: int) -> Identity:
        """Say what the device is."""

    @abstractmethod
    def memory(self, handle: H) -> Memory | None:
        """Read its memory; None where the library has no value."""

    @abstractmethod
    def processes(self, handle: H, total: int | None) -> Sequence[Listed] | None:
        """List the processes that hold some of `total` bytes; None where the library never lists them."""

    @abstractmethod
    def utilization(self, handle: H) -> Utilization:
        """Read how busy it is."""

    def process_utilization(self, handle: H) -> Sequence[ProcessUtilization] | None:  # noqa: ARG002
        """Read how busy each process keeps it; None where the library never tells."""
        return None

    def health(self, handle: H) -> Health:  # noqa: ARG002
        """Read power and temperature."""
        return Health()

    def instances(self, handle: H) -> tuple[GpuInstance, ...]:  # noqa: ARG002
        """List the parts that it is divided into: then these are the devices. Empty where it is whole."""
        return ()


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """A device that was opened and named."""

    index: int
    handle: Any
    identity: Identity


def read_device(reader: Reader[Any], device: NamedDevice, driver: str, now: float) -> GpuSample:
    """
    Read all about one device at the time `now` (Unix time).

    Raises DeviceLostError, LibraryGoneError, and CallError when it does not say whether it is divided.
    """
    handle, identity = device.handle, device.identity
    instances = reader.instances(handle)
    faults = DeviceFaults(f"{reader.title} {device.index}", identity.uuid)
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
    utilization = faults.figure(reader.utilization, handle) or Utilization()
    by_process = faults.figure(reader.process_utilization, handle)
    health = faults.figure(reader.health, handle) or Health()
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
            # Of a divided device the vendor calls the figure meaningless (Ascend).
            utilization=Utilization() if instances else utilization,
            health=health,
            instances=instances,
            minor=identity.minor,
        ),
        sampled_at=now,
        # No library here tells which part of a divided device a process is on.
        processes=None
        if listed is None or instances
        else merged(DeviceKey(identity.uuid), ((kind, process.pid, process.memory) for process in listed)),
        utilization=None if by_process is None or instances else tuple(by_process),
        faults=faults.all(),
        pids_proven=all(process.host for process in listed or ()),
    )
