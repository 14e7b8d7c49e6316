"""
Moore Threads GPUs, as MTML tells of them.

What comes in: devices by their index. What goes out: the answers of `reading.Reader`.

The law: MTML 2.2 has no call for the memory of a process, and an empty list in the vendor's NVML-shaped Python package
means that it cannot know. So nobody's memory is known here. Who has the device's node open is somebody on it: that
much is told, without bytes, where the descriptors of others may be read.

Sources: MooreThreads/mthreads-ml-py mtml_2.2.0.h, pymtml.py.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from exporter.devices.vendor_libs.errors import (
    CallError,
    InsufficientSizeError,
    InvalidArgumentError,
    LibraryError,
    LibraryGoneError,
    Meanings,
    NodesUnseenError,
    NoPermissionError,
    UnsupportedError,
)
from exporter.devices.vendor_libs.holders import OpenNodes
from exporter.devices.vendor_libs.layouts import Listed, balanced, ratio
from exporter.devices.vendor_libs.native import Handle, Native, known
from exporter.devices.vendor_libs.read_device import Identity
from exporter.model import GpuInstance, GpuUuid, Health, Memory, ProcessUtilization, Utilization

LIBRARIES = ("libmtml.so", "libmtml.so.2", "/usr/lib/x86_64-linux-gnu/libmtml.so", "/usr/local/musa/lib/libmtml.so")
NODES = ("mtgpu*",)
MEANINGS: Meanings = {
    1: LibraryGoneError,  # driver not loaded
    2: LibraryGoneError,  # the driver fails
    3: InvalidArgumentError,
    4: UnsupportedError,
    5: NoPermissionError,
    6: InsufficientSizeError,
}
_PLACE = struct.Struct("=32s")
_PCI_SIZE = 104
_UUID_SIZE = 48


@dataclass(frozen=True, slots=True)
class _Parts:
    """A device with its parts: MTML has an opaque object for each."""

    device: Handle
    memory: Handle | None
    gpu: Handle | None


class Mtml:
    """Reads the GPUs of this node; `nodes` finds who has their device nodes open."""

    name = "mtml"
    vendor = "mthreads"
    title = "Moore Threads GPU"

    def __init__(self, beat: Callable[[str], None], nodes: OpenNodes, names: Sequence[str] = LIBRARIES) -> None:
        self._library = Native(names, MEANINGS, beat)
        self._nodes = nodes
        self._session: Handle | None = None
        self._opened: dict[int, _Parts] = {}
        self._count = 0

    def start(self) -> None:
        """Load and initialise."""
        self._library.load()
        self._session = self._library.handle("mtmlLibraryInit")

    def stop(self) -> None:
        """Let go of the library, and of all that was opened through it."""
        session, self._session = self._session, None
        self._opened.clear()
        try:
            self._library.call("mtmlLibraryShutDown", session)
        except LibraryError:
            return

    def driver_version(self) -> str:
        """Give the version of the driver."""
        system = self._library.handle("mtmlLibraryInitSystem", self._session)
        try:
            return self._library.text("mtmlSystemGetDriverVersion", system, size=80)
        finally:
            known(lambda: self._library.call("mtmlLibraryFreeSystem", system), None)

    def indices(self) -> Sequence[int]:
        """Count the devices. With more or fewer than before an index may be another's: all are opened anew."""
        count = self._library.uint("mtmlLibraryCountDevice", self._session)
        if count != self._count:
            self._count = count
            self._opened.clear()  # not freed: what the library makes of an object whose device is gone is not known
        return range(count)

    def open(self, index: int) -> Handle:
        """Open a device and its parts; once, for each opening takes memory until it is freed."""
        if index not in self._opened:
            device = self._library.handle("mtmlLibraryInitDeviceByIndex", self._session, index)
            self._opened[index] = _Parts(
                device,
                known(lambda: self._library.handle("mtmlDeviceInitMemory", device), None),
                known(lambda: self._library.handle("mtmlDeviceInitGpu", device), None),
            )
        return Handle(self._opened[index])

    def identify(self, handle: Handle, index: int) -> Identity:
        """Name a device by its UUID."""
        device = _of(handle).device
        uuid = self._library.text("mtmlDeviceGetUUID", device, size=_UUID_SIZE)
        if not uuid:
            raise CallError("mtmlDeviceGetUUID", f"device {index} has no name")
        model = known(lambda: self._library.text("mtmlDeviceGetName", device, size=32), "")
        pci = known(lambda: self._library.structure("mtmlDeviceGetPciInfo", _PCI_SIZE, device), b"")
        place = pci[: _PLACE.size].split(b"\0")[0].decode("ascii", "replace")
        return Identity(GpuUuid(uuid), model or self.title, place, index)

    def memory(self, handle: Handle) -> Memory | None:
        """Read device memory."""
        if (memory := _of(handle).memory) is None:
            return None
        total = self._library.ulonglong("mtmlMemoryGetTotal", memory)
        return balanced("mtmlMemoryGetUsed", total, self._library.ulonglong("mtmlMemoryGetUsed", memory))

    def processes(self, handle: Handle, total: int | None) -> Sequence[Listed] | None:  # noqa: ARG002
        """List who has the device's node open; None where the library does not say which node it is."""
        device = _of(handle).device
        names = [
            known(partial(self._library.text, call, device, size=64), "")
            for call in ("mtmlDeviceGetRenderPath", "mtmlDeviceGetPrimaryPath", "mtmlDeviceGetGpuPath")
        ]
        if not any(names):
            return None
        nodes = self._nodes.numbers(self._nodes.below(PurePosixPath(name)) for name in names if name)
        if not nodes:
            raise NodesUnseenError("/dev", f"has none of {', '.join(filter(None, names))}: mount the host's")
        return tuple(Listed(pid, None, host=True) for pid in sorted(self._nodes.holders(nodes)))

    def utilization(self, handle: Handle) -> Utilization:
        """Read how busy the device is."""
        gpu = _of(handle).gpu
        return Utilization(busy=None if gpu is None else ratio(self._library.uint("mtmlGpuGetUtilization", gpu)))

    def process_utilization(self, handle: Handle) -> Sequence[ProcessUtilization] | None:  # noqa: ARG002
        """Say nothing: MTML tells of no process."""
        return None

    def health(self, handle: Handle) -> Health:
        """Read power (in milliwatts) and temperature."""
        parts = _of(handle)
        power = known(lambda: self._library.uint("mtmlDeviceGetPowerUsage", parts.device), None)
        heat = known(lambda: self._library.sint("mtmlGpuGetTemperature", parts.gpu), None) if parts.gpu else None
        return Health(
            power_watts=None if power is None or power >= _UNLIKELY else power / 1000,
            temperature_celsius=None if heat is None or not -100 < heat < 1000 else float(heat),  # noqa: PLR2004
        )

    def instances(self, handle: Handle) -> tuple[GpuInstance, ...]:  # noqa: ARG002
        """Say that it is whole: its virtual devices belong to virtual machines."""
        return ()


_UNLIKELY = 10_000_000
"""Milliwatts."""


def _of(handle: Handle) -> _Parts:
    assert isinstance(handle, _Parts)  # noqa: S101  (`open` made it)
    return handle
