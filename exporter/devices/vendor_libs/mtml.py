"""
Moore Threads GPUs, read through MTML.

What comes in: devices by their index. What goes out: the answers of `reader.Reader`.

The rule: MTML 2.2 has no call for the memory of a process. The vendor's Python package in NVML's shape returns an empty
list, which means "unknown". So the memory of every process is unknown here. A process that has the device's node open
is on the device: it is listed, without bytes, where the descriptors of other users may be read.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from exporter.devices import errors
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.session import Beat
from exporter.devices.vendor_libs.layouts import Listed, balanced, ratio, text
from exporter.devices.vendor_libs.native import Handle, Meanings, known
from exporter.devices.vendor_libs.reader import Identity, Reader
from exporter.devices.vendor_libs.rows import Library
from exporter.model import GpuUuid, Memory, Utilization

LIBRARY = Library(
    name="mtml",
    vendor="mthreads",
    title="Moore Threads GPU",
    libraries=("libmtml.so", "libmtml.so.2", "/usr/lib/x86_64-linux-gnu/libmtml.so", "/usr/local/musa/lib/libmtml.so"),
    nodes=("mtgpu*",),
    source="MooreThreads/mthreads-ml-py mtml_2.2.0.h, pymtml.py",
)

MEANINGS: Meanings = {
    1: errors.LibraryGoneError,  # driver not loaded
    2: errors.LibraryGoneError,  # the driver fails
    3: errors.InvalidArgumentError,
    4: errors.UnsupportedError,
    5: errors.NoPermissionError,
    6: errors.InsufficientSizeError,
}
_PLACE = 32
_PCI_SIZE = 104
_UUID_SIZE = 48


@dataclass(frozen=True, slots=True)
class _Parts:
    """A device with its parts: MTML has an opaque object for each."""

    device: Handle
    memory: Handle | None
    gpu: Handle | None


class Mtml(Reader[_Parts]):
    """Reads the GPUs of this node. None is divided: its virtual devices belong to virtual machines."""

    meanings = MEANINGS

    def __init__(self, library: Library, beat: Beat, nodes: OpenNodes) -> None:
        super().__init__(library, beat, nodes)
        self._session: Handle | None = None
        self._opened: dict[int, _Parts] = {}
        self._count = 0

    def start(self) -> None:
        """Load and initialise."""
        super().start()
        self._session = self._library.handle("mtmlLibraryInit")

    def stop(self) -> None:
        """Release the library, and all that was opened through it."""
        session, self._session = self._session, None
        self._opened.clear()
        with contextlib.suppress(errors.LibraryError):
            self._library.call("mtmlLibraryShutDown", session)

    def driver_version(self) -> str:
        """Return the version of the driver."""
        system = self._library.handle("mtmlLibraryInitSystem", self._session)
        try:
            return self._library.text("mtmlSystemGetDriverVersion", system, size=80)
        finally:
            known(self._library.call, "mtmlLibraryFreeSystem", system)

    def indices(self) -> Sequence[int]:
        """Count the devices. If the count changed, indices may have changed, and all devices are opened again."""
        count = self._library.uint("mtmlLibraryCountDevice", self._session)
        if count != self._count:
            self._count = count
            self._opened.clear()  # not freed: it is unknown how the library treats an object whose device is gone
        return range(count)

    def open(self, index: int) -> _Parts:
        """Open a device and its parts; only once, because each opening takes memory until it is freed."""
        if index not in self._opened:
            device = self._library.handle("mtmlLibraryInitDeviceByIndex", self._session, index)
            memory = known(self._library.handle, "mtmlDeviceInitMemory", device)
            self._opened[index] = _Parts(device, memory, known(self._library.handle, "mtmlDeviceInitGpu", device))
        return self._opened[index]

    def identify(self, handle: _Parts, index: int) -> Identity:
        """Name a device by its UUID."""
        uuid = self._library.text("mtmlDeviceGetUUID", handle.device, size=_UUID_SIZE)
        if not uuid:
            raise errors.CallError("mtmlDeviceGetUUID", f"device {index} has no name")
        model = known(self._library.text, "mtmlDeviceGetName", handle.device, size=32)
        pci = known(self._library.structure, "mtmlDeviceGetPciInfo", _PCI_SIZE, handle.device) or b""
        return Identity(GpuUuid(uuid), model or self.title, text(pci[:_PLACE]), index)

    def memory(self, handle: _Parts) -> Memory | None:
        """Read device memory."""
        if handle.memory is None:
            return None
        total = self._library.ulonglong("mtmlMemoryGetTotal", handle.memory)
        return balanced("mtmlMemoryGetUsed", total, self._library.ulonglong("mtmlMemoryGetUsed", handle.memory))

    def processes(self, handle: _Parts, total: int | None) -> Sequence[Listed] | None:  # noqa: ARG002
        """List the processes that have the device's node open; None where the library does not name the node."""
        calls = ("mtmlDeviceGetRenderPath", "mtmlDeviceGetPrimaryPath", "mtmlDeviceGetGpuPath")
        names = [name for call in calls if (name := known(self._library.text, call, handle.device, size=64))]
        if not names:
            return None
        nodes = self._nodes.numbers(self._nodes.below(PurePosixPath(name)) for name in names)
        if not nodes:
            raise errors.NodesUnseenError("/dev", f"has none of {', '.join(names)}: mount the host's")
        return tuple(Listed(pid, None, host=True) for pid in sorted(self._nodes.holders(nodes)))

    def utilization(self, handle: _Parts) -> Utilization:
        """Read the utilization of the device."""
        busy = None if handle.gpu is None else ratio(self._library.uint("mtmlGpuGetUtilization", handle.gpu))
        return Utilization(busy=busy)

    def power(self, handle: _Parts) -> float | None:
        """Read the power, which the library returns in milliwatts."""
        milliwatts = known(self._library.uint, "mtmlDeviceGetPowerUsage", handle.device)
        return None if milliwatts is None else milliwatts / 1000

    def temperature(self, handle: _Parts) -> float | None:
        """Read the temperature."""
        return known(self._library.sint, "mtmlGpuGetTemperature", handle.gpu) if handle.gpu else None
