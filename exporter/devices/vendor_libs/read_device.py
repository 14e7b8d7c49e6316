"""
One device, read once, whatever library tells of it.

What comes in: a reader, which knows one library, and a device that it opened. What goes out: a `GpuSample`.

The law: memory and processes are read one right after the other, so that the accounts can close. A list that could not
be read, or may be cut, makes `processes` None: half a list would hide somebody. What the library never gives is no
fault, and is said once (`exporter.check.vendors`, docs/devices.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from exporter.devices.vendor_libs.errors import CallError, LibraryError, UnsupportedError
from exporter.devices.vendor_libs.layouts import Listed
from exporter.devices.vendor_libs.native import Handle
from exporter.model import (
    DeviceKey,
    Fault,
    Gpu,
    GpuInstance,
    GpuProcess,
    GpuSample,
    GpuUuid,
    Health,
    Memory,
    ProcessKind,
    ProcessUtilization,
    Utilization,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a device is. `minor` is the number in the name of its device node."""

    uuid: GpuUuid
    model: str
    pci_bus_id: str = ""
    minor: int | None = None


class Reader(Protocol):
    """
    One library. Its methods run on its thread, and raise LibraryError.

    Attributes:
        name: of the source; `title` is how people call its devices.

    """

    name: str
    vendor: str
    title: str

    def start(self) -> None:
        """Load and initialise. May be called again after a loss."""

    def stop(self) -> None:
        """Shut down, whatever the library says to that."""

    def driver_version(self) -> str:
        """Give the version of the driver."""
        ...

    def indices(self) -> Sequence[int]:
        """List the devices that there are."""
        ...

    def open(self, index: int) -> Handle:
        """Open a device."""
        ...

    def identify(self, handle: Handle, index: int) -> Identity:
        """Say what the device is."""
        ...

    def memory(self, handle: Handle) -> Memory | None:
        """Read its memory; None where the library has no value."""
        ...

    def processes(self, handle: Handle, total: int | None) -> Sequence[Listed] | None:
        """List who holds memory of `total` bytes; None where the library never tells."""
        ...

    def utilization(self, handle: Handle) -> Utilization:
        """Read how busy it is."""
        ...

    def process_utilization(self, handle: Handle) -> Sequence[ProcessUtilization] | None:
        """Read how busy each process keeps it; None where the library never tells."""
        ...

    def health(self, handle: Handle) -> Health:
        """Read power and temperature."""
        ...

    def instances(self, handle: Handle) -> tuple[GpuInstance, ...]:
        """List the parts that it is divided into: the leaf devices, if there are any."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """A device that was opened and named."""

    index: int
    handle: Handle
    identity: Identity


class Asking:
    """Asks for figures one by one; collects what was refused. What the device does not have is nothing to speak of."""

    def __init__(self) -> None:
        self.unread: list[LibraryError] = []

    def __call__(self, question: Callable[[], T], otherwise: T) -> T:
        """Ask, and give `otherwise` when there is no answer."""
        try:
            return question()
        except UnsupportedError:
            return otherwise
        except CallError as error:
            self.unread.append(error)
            return otherwise


def read_device(reader: Reader, found: Found, driver: str, now: float) -> GpuSample:
    """
    Read all about one device at the time `now` (Unix time).

    Raises DeviceLostError, LibraryGoneError, and CallError when it does not say whether it is divided.
    """
    instances = reader.instances(found.handle)
    faults: list[Fault] = []

    def fault(error: LibraryError, what: str, *, incomplete: bool = True) -> None:
        message = f"{reader.title} {found.index}: {what}: {error}"
        faults.append(Fault("devices", error.reason, message, found.identity.uuid, incomplete=incomplete))

    ask = Asking()
    memory, listed = None, None
    try:
        memory = reader.memory(found.handle)
    except UnsupportedError:
        pass
    except CallError as error:
        fault(error, "memory could not be read")
    try:
        listed = reader.processes(found.handle, None if memory is None else memory.total)
    except UnsupportedError as error:
        fault(error, "processes could not be listed", incomplete=False)
    except CallError as error:
        fault(error, "processes could not be listed")
    utilization = ask(lambda: reader.utilization(found.handle), Utilization())
    by_process = ask(lambda: reader.process_utilization(found.handle), None)
    health = ask(lambda: reader.health(found.handle), Health())
    if ask.unread:
        words = "; ".join(map(str, ask.unread))
        message = f"{reader.title} {found.index}: figures are missing: {words}"
        faults.append(Fault("devices", "figures_unread", message, found.identity.uuid, incomplete=False))
    key = DeviceKey(found.identity.uuid)
    return GpuSample(
        gpu=Gpu(
            uuid=found.identity.uuid,
            index=found.index,
            model=found.identity.model,
            vendor=reader.vendor,
            pci_bus_id=found.identity.pci_bus_id,
            driver_version=driver,
            mig=bool(instances),
            memory=memory,
            # Of a divided device it is not said whose doing it is (Ascend: "meaningless").
            utilization=Utilization() if instances else utilization,
            health=health,
            instances=instances,
            minor=found.identity.minor,
        ),
        sampled_at=now,
        # Which part of a divided device a process is on, no library here tells.
        processes=None if listed is None or instances else _merged(key, listed),
        utilization=None if by_process is None or instances else tuple(by_process),
        faults=tuple(faults),
        pids_proven=all(each.host for each in listed or ()),
    )


def _merged(key: DeviceKey, listed: Sequence[Listed]) -> tuple[GpuProcess, ...]:
    """Make one entry for each number: what is listed twice is the same memory twice, so the maximum counts."""
    memory: dict[int, int | None] = {}
    for each in listed:
        known = memory.get(each.pid)
        memory[each.pid] = known if each.memory is None else max(each.memory, known or 0)
    return tuple(GpuProcess(key, pid, frozenset({ProcessKind.COMPUTE}), memory[pid]) for pid in sorted(memory))
