"""
Cambricon MLUs, read through CNDev.

What comes in: devices by their index. What goes out: the answers of `reader.Reader`.

The rule: two units in one library. Device memory is in MiB, that of a process in KiB. Most structures begin with the
version that the caller speaks; a library that does not know version 6 is asked in version 5.
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
    18: errors.DeviceLostError,  # in problem
}
VERSIONS = (6, 5)
PREFIX = "MLU-"
"""Before the UUID in the ids of the vendor's device plugin."""

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

    Its devices are whole, also where they have sMLU instances. `cndevGetAllSMluInstanceInfo` would tell what each may
    and does hold. But the list of processes is the card's and names none, nor do the ids of the device plugin
    (`MLU-<uuid>-<profile>-<n>` counts the profile's shares; a pod's annotation has the instance, in dynamic mode
    alone). With instances for devices no container would hold anything that is known; on the card each holds what its
    processes do. The driver's version is one of each device, and not read. The structures of power and temperature
    changed too often to be believed unseen.
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
        """List the processes that hold memory. The exporter of the vendor needs hostPID: they are of its namespace."""
        function = "cndevGetProcessInfo"
        return tuple(
            listed(function, pid, None if used in UNKNOWN else used * KIB, total, host=True)
            for _, pid, used, _ in self._list(function, _PROCESS, handle)
            if pid
        )

    def utilization(self, handle: int) -> Utilization:
        """Read how busy the cores are on average."""
        _, cores = self._versioned("cndevGetDeviceUtilizationInfo", _UTILIZATION, handle, size=_UTILIZATION_SIZE)
        return Utilization(busy=ratio(cores))

    def process_utilization(self, handle: int) -> Sequence[ProcessUtilization] | None:
        """Read how busy each process keeps cores, memory, encoder and decoder."""
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
        """Read an array through (count, entries, handle); the version stands in its first entry."""

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
    """Ask in the newest version that the library speaks."""
    for version in VERSIONS:
        try:
            return ask(version)
        except (errors.OtherVersionError, errors.InvalidArgumentError) as error:
            refused = error
    raise refused
