"""
Cambricon MLUs, as CNDev tells of them.

What comes in: devices by their index. What goes out: the answers of `reading.Reader`.

The law: two units in one library. Device memory is in MiB, that of a process in KiB. Most structures begin with the
version that the caller speaks; a library that does not know version 6 is asked in version 5.

Sources: Cambricon/mlu-exporter pkg/cndev/include/cndev.h.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence

from exporter.devices.vendor_libs.errors import (
    CallError,
    DeviceLostError,
    InsufficientSizeError,
    InvalidArgumentError,
    LayoutError,
    LibraryError,
    LibraryGoneError,
    Meanings,
    NoPermissionError,
    OtherVersionError,
    UnsupportedError,
)
from exporter.devices.vendor_libs.layouts import (
    KIB,
    UNKNOWN,
    Listed,
    balanced,
    listed,
    mebibytes,
    ratio,
    written,
)
from exporter.devices.vendor_libs.native import ATTEMPTS, ROOM, Handle, Native, known
from exporter.devices.vendor_libs.read_device import Identity
from exporter.model import GpuInstance, GpuUuid, Health, Memory, ProcessUtilization, Utilization

LIBRARIES = ("libcndev.so", "/usr/local/neuware/lib64/libcndev.so")
NODES = ("cambricon_dev*",)
MEANINGS: Meanings = {
    1: LibraryGoneError,  # no driver
    2: LibraryGoneError,  # an old driver
    3: OtherVersionError,
    4: LibraryGoneError,  # not initialised
    5: InvalidArgumentError,
    6: DeviceLostError,  # no such device
    9: InsufficientSizeError,
    10: UnsupportedError,
    13: NoPermissionError,
    18: DeviceLostError,  # in problem
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


class Cndev:
    """Reads the MLUs of this node."""

    name = "cndev"
    vendor = "cambricon"
    title = "Cambricon MLU"

    def __init__(self, beat: Callable[[str], None], names: Sequence[str] = LIBRARIES) -> None:
        self._library = Native(names, MEANINGS, beat)

    def start(self) -> None:
        """Load and initialise."""
        self._library.load()
        self._library.call("cndevInit", 0)

    def stop(self) -> None:
        """Let go of the library."""
        try:
            self._library.call("cndevRelease")
        except LibraryError:
            return

    def driver_version(self) -> str:
        """Say nothing: the figure is one of each device, and not read."""
        return ""

    def indices(self) -> Sequence[int]:
        """Count the devices."""
        return range(_CARDS.unpack_from(self._versioned("cndevGetDeviceCount", _CARDS.size))[1])

    def open(self, index: int) -> Handle:
        """Open a device."""
        return Handle(self._library.sint("cndevGetDeviceHandleByIndex", index))

    def identify(self, handle: Handle, index: int) -> Identity:
        """Name a device by its UUID, as the vendor's device plugin does."""
        after = self._versioned("cndevGetUUID", _UUID_SIZE, handle, ends=_UUID.size)
        uuid = _UUID.unpack_from(after)[1].split(b"\0")[0].decode("ascii", "replace")
        if not uuid:
            raise CallError("cndevGetUUID", f"device {index} has no name")
        name = known(lambda: self._library.chars("cndevGetCardNameStringByDevId", handle), "")
        pci = known(lambda: self._pci(handle), "")
        uuid = uuid if uuid.startswith(PREFIX) else PREFIX + uuid
        return Identity(GpuUuid(uuid), f"Cambricon {name}".strip(), pci, index)

    def memory(self, handle: Handle) -> Memory | None:
        """Read device memory."""
        function = "cndevGetMemoryUsageV2"
        after = self._library.structure(function, _MEMORY_SIZE, after=(handle,))
        if not _MEMORY.size <= written(after) <= _MEMORY_SIZE:
            raise LayoutError(function, f"{written(after)} bytes were written, not {_MEMORY_SIZE}")
        return balanced(function, *(mebibytes(value) for value in _MEMORY.unpack_from(after)))

    def processes(self, handle: Handle, total: int | None) -> Sequence[Listed]:
        """List who holds memory. The exporter of the vendor needs hostPID: the numbers are those of its namespace."""
        function = "cndevGetProcessInfo"
        return tuple(
            listed(function, pid, None if used in UNKNOWN else used * KIB, total, host=True)
            for _, pid, used, _ in self._array(function, _PROCESS, handle)
            if pid
        )

    def utilization(self, handle: Handle) -> Utilization:
        """Read how busy the cores are on average."""
        function = "cndevGetDeviceUtilizationInfo"
        after = self._versioned(function, _UTILIZATION_SIZE, handle, ends=_UTILIZATION.size)
        return Utilization(busy=ratio(_UTILIZATION.unpack_from(after)[1]))

    def process_utilization(self, handle: Handle) -> Sequence[ProcessUtilization] | None:
        """Read how busy each process keeps cores, memory, encoder and decoder."""
        found = self._array("cndevGetProcessUtilization", _BY_PROCESS, handle)
        return tuple(
            ProcessUtilization(
                pid, sm=ratio(cores), memory_controller=ratio(memory), encoder=ratio(enc), decoder=ratio(dec)
            )
            for _, pid, cores, _, dec, enc, memory in found
            if pid
        )

    def health(self, handle: Handle) -> Health:  # noqa: ARG002
        """Say nothing: the structures of power and temperature changed too often to be believed unseen."""
        return Health()

    def instances(self, handle: Handle) -> tuple[GpuInstance, ...]:  # noqa: ARG002
        """
        Say that it is whole, also where it has sMLU instances.

        `cndevGetAllSMluInstanceInfo` would tell what each may and does hold. But the list of processes is the card's
        and names none, nor do the ids of the device plugin (`MLU-<uuid>-<profile>-<n>` counts the profile's shares; a
        pod's annotation has the instance, in dynamic mode alone). With instances for leaf devices no container would
        hold anything that is known; on the card each holds what its processes do.
        """
        return ()

    def _versioned(self, function: str, size: int, *handle: Handle, ends: int = 0) -> bytes:
        """Ask in the newest version that the library speaks."""
        for version in VERSIONS:
            try:
                after = self._library.structure(function, size, after=handle, head=version)
            except (OtherVersionError, InvalidArgumentError) as error:
                refused: CallError = error
                continue
            if not (ends or size) <= written(after) <= size:
                raise LayoutError(function, f"{written(after)} bytes were written, not {size}")
            return after
        raise refused

    def _array(self, function: str, entry: struct.Struct, handle: Handle) -> list[tuple[int, ...]]:
        """Read an array through (count, entries, handle); the version stands in its first entry."""
        room, version = ROOM, 0
        for _ in range(ATTEMPTS + len(VERSIONS)):
            count = ctypes.c_uint(room)
            try:
                after = self._library.structure(
                    function,
                    room * entry.size,
                    ctypes.byref(count),
                    after=(handle,),
                    head=VERSIONS[version],
                )
            except InsufficientSizeError:
                room = 2 * max(room, count.value)
                if room > 2**20:
                    raise LayoutError(function, f"{count.value} entries") from None
                continue
            except (OtherVersionError, InvalidArgumentError):
                version += 1
                if version == len(VERSIONS):
                    raise
                continue
            return self._entries(function, entry, after, count.value, room)
        raise InsufficientSizeError(function, f"the list grew in each of {ATTEMPTS} calls")

    def _entries(
        self, function: str, entry: struct.Struct, after: bytes, count: int, room: int
    ) -> list[tuple[int, ...]]:
        end = written(after)
        if (
            count > room
            or end > count * entry.size + (0 if count else 4)
            or (count and end <= (count - 1) * entry.size)
        ):
            raise LayoutError(function, f"{count} entries end at byte {end}, not at {count * entry.size}")
        return [entry.unpack_from(after, at * entry.size) for at in range(count)]

    def _pci(self, handle: Handle) -> str:
        after = self._library.structure("cndevGetPCIeInfoV2", _PCI_SIZE, after=(handle,))
        if not _PCI.size <= written(after) <= _PCI_SIZE:
            raise LayoutError("cndevGetPCIeInfoV2", f"{written(after)} bytes were written, not {_PCI_SIZE}")
        *_, domain, bus, device, function = _PCI.unpack_from(after)
        return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"
