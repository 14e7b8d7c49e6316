"""
Cambricon MLUs, read through CNDev.

What comes in: devices by their index. What goes out: the answers of `reader.Reader`.

The rule: one library has two units. Device memory is in MiB, that of a process in KiB. Most structures begin with the
version that the caller uses; a library that does not know version 6 is asked in version 5.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from exporter.devices import errors
from exporter.devices.vendor_libs.layouts import (
    KIB,
    UNKNOWN,
    Listed,
    balanced,
    listed,
    mebibytes,
    pci_address,
    ratio,
    text,
    written,
)
from exporter.devices.vendor_libs.native import Meanings, known
from exporter.devices.vendor_libs.reader import Identity, Reader
from exporter.devices.vendor_libs.rows import Library
from exporter.model import GpuUuid, Memory, ProcessUtilization, Utilization

LIBRARY = Library(
    name="cndev",
    vendor="cambricon",
    title="Cambricon MLU",
    libraries=("libcndev.so", "/usr/local/neuware/lib64/libcndev.so"),
    nodes=("cambricon_dev*",),
    source="Cambricon/mlu-exporter pkg/cndev/include/cndev.h",
)

T = TypeVar("T")

MEANINGS: Meanings = {
    1: errors.LibraryGoneError,  # no driver
    2: errors.LibraryGoneError,  # an old driver
    3: errors.OtherVersionError,
    4: errors.LibraryGoneError,  # not initialised
    5: errors.InvalidArgumentError,
    6: errors.DeviceLostError,  # no such device
    9: errors.InsufficientSizeError,
    10: errors.UnsupportedError,
    13: errors.NoPermissionError,
    18: errors.DeviceLostError,  # the device has a problem
}
VERSIONS = (6, 5)
PREFIX = "MLU-"
"""The prefix of the UUID in the ids of the vendor's device plugin."""

_CARDS = struct.Struct("@iI")
_UUID = struct.Struct("@i37s")
_UUID_SIZE = 56
_MEMORY = struct.Struct("@qqq")  # MiB: total, used, reserved; 176 bytes with the rest
_MEMORY_SIZE = 176
_PROCESS = struct.Struct("@iIQQ")  # version, pid, KiB of the device's memory, KiB of virtual memory
_UTILIZATION = struct.Struct("@ii")
_UTILIZATION_SIZE = 328
_BY_PROCESS = struct.Struct("@iI5I")  # version, pid, percent: cores, JPU, decoder, encoder, memory
_PCI = struct.Struct("@IIHHIIII")
_PCI_SIZE = 64


class Cndev(Reader[int]):
    """
    Reads the MLUs of this node.

    Its devices are whole, also where they have sMLU instances. `cndevGetAllSMluInstanceInfo` would report the limit and
    the usage of each instance. But the process list is the card's, and names no instance. The ids of the device plugin
    name none either: `MLU-<uuid>-<profile>-<n>` counts the profile's shares. Only in dynamic mode a pod's annotation
    has the instance. With instances as devices, no container's usage would be known. With the card as device, each
    container has the usage of its processes. The driver's version is one per device, and not read. The structures of
    power and temperature changed too often to be believed untested.
    """

    meanings = MEANINGS
    end = "cndevRelease"

    def start(self) -> None:
        """Load and initialise."""
        super().start()
        self._library.call("cndevInit", 0)

    def indices(self) -> Sequence[int]:
        """Count the devices."""
        return range(self._versioned("cndevGetDeviceCount", _CARDS)[1])

    def open(self, index: int) -> int:
        """Open a device."""
        return self._library.sint("cndevGetDeviceHandleByIndex", index)

    def identify(self, handle: int, index: int) -> Identity:
        """Name a device by its UUID, as the vendor's device plugin does."""
        _, raw = self._versioned("cndevGetUUID", _UUID, handle, size=_UUID_SIZE)
        if not (uuid := text(raw)):
            raise errors.CallError("cndevGetUUID", f"device {index} has no name")
        uuid = uuid if uuid.startswith(PREFIX) else PREFIX + uuid
        name = known(self._library.chars, "cndevGetCardNameStringByDevId", handle) or ""
        return Identity(GpuUuid(uuid), f"Cambricon {name}".strip(), known(self._pci, handle) or "", index)

    def memory(self, handle: int) -> Memory | None:
        """Read device memory."""
        function = "cndevGetMemoryUsageV2"
        figures = self._library.fields(function, _MEMORY, size=_MEMORY_SIZE, after=(handle,))
        return balanced(function, *map(mebibytes, figures))

    def processes(self, handle: int, total: int | None) -> Sequence[Listed]:
        """List the processes that hold memory. Their PIDs are the host's: the vendor's own exporter needs hostPID."""
        function = "cndevGetProcessInfo"
        return tuple(
            listed(function, pid, None if used in UNKNOWN else used * KIB, total, host=True)
            for _, pid, used, _ in self._list(function, _PROCESS, handle)
            if pid
        )

    def utilization(self, handle: int) -> Utilization:
        """Read the average utilization of the cores."""
        _, cores = self._versioned("cndevGetDeviceUtilizationInfo", _UTILIZATION, handle, size=_UTILIZATION_SIZE)
        return Utilization(busy=ratio(cores))

    def process_utilization(self, handle: int) -> Sequence[ProcessUtilization] | None:
        """Read each process's utilization of cores, memory, encoder and decoder."""
        return tuple(
            ProcessUtilization(
                pid, sm=ratio(cores), memory_controller=ratio(memory), encoder=ratio(enc), decoder=ratio(dec)
            )
            for _, pid, cores, _, dec, enc, memory in self._list("cndevGetProcessUtilization", _BY_PROCESS, handle)
            if pid
        )

    def _versioned(self, function: str, layout: struct.Struct, *handle: int, size: int = 0) -> tuple[Any, ...]:
        return _newest(lambda version: self._library.fields(function, layout, size=size, after=handle, head=version))

    def _list(self, function: str, entry: struct.Struct, handle: int) -> list[tuple[int, ...]]:
        """Read an array through (count, entries, handle); its first entry holds the version."""

        def ask(room: int, count: ctypes.c_uint) -> bytes:
            size, answer = room * entry.size, ctypes.byref(count)
            return _newest(
                lambda version: self._library.structure(function, size, answer, after=(handle,), head=version)
            )

        after, count, room = self._library.growing(function, ask)
        end = written(after)
        if (
            count > room
            or end > count * entry.size + (0 if count else 4)
            or (count and end <= (count - 1) * entry.size)
        ):
            raise errors.LayoutError(function, f"{count} entries end at byte {end}, not at {count * entry.size}")
        return [entry.unpack_from(after, at * entry.size) for at in range(count)]

    def _pci(self, handle: int) -> str:
        *_, domain, bus, device, function = self._library.fields(
            "cndevGetPCIeInfoV2", _PCI, size=_PCI_SIZE, after=(handle,)
        )
        return pci_address(domain, bus, device, function)


def _newest(ask: Callable[[int], T]) -> T:
    """Ask in the newest version that the library knows."""
    for version in VERSIONS:
        try:
            return ask(version)
        except (errors.OtherVersionError, errors.InvalidArgumentError) as error:
            refused = error
    raise refused
