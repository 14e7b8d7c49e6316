"""
Huawei Ascend, as the driver's DCMI tells of it.

What comes in: cards and the devices in them. What goes out: the answers of `reading.Reader`.

The law: `dcmi_get_device_resource_info` takes no bound: it writes up to 32 entries whatever the count said before, so
there is always room for them, and 32 of them may be a list that was cut. Its numbers are the host's; its memory
includes what the device's own system takes for the process.

Of a device that is divided (vNPU) the parts are the leaf devices. Which part a process is on, and how busy the whole
is, is then not known (Huawei calls the figure meaningless).

Sources: Ascend/mind-cluster component/ascend-common/devmanager/dcmi (header, codes, VDIE); DCMI reference 24.1.RC3.
"""

import contextlib
import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exporter.devices.vendor_libs.errors import (
    CallError,
    DeviceLostError,
    LayoutError,
    LibraryGoneError,
    Meanings,
    NoPermissionError,
    UnsupportedError,
)
from exporter.devices.vendor_libs.layouts import EXCESS, UNKNOWN, Listed, balanced, listed, mebibytes, ratio, written
from exporter.devices.vendor_libs.native import Handle, Native, known
from exporter.devices.vendor_libs.read_device import Identity
from exporter.model import GpuInstance, GpuUuid, Health, Memory, ProcessUtilization, Utilization

LIBRARIES = ("libdcmi.so", "/usr/local/Ascend/driver/lib64/driver/libdcmi.so", "/usr/local/dcmi/libdcmi.so")
NODES = ("davinci*",)
MEANINGS: Meanings = {
    -8255: UnsupportedError,
    -8013: UnsupportedError,  # not in a container
    -8002: NoPermissionError,
    -8008: DeviceLostError,  # no such device
    -8005: CallError,
    -99997: LibraryGoneError,  # not initialised
}
"""-8012 (not ready), -8006 (timeout) and -8017 (upgrading) pass: this time, and not never."""

MOST = 32
"""Entries that the driver ever writes."""

_PROCESS = struct.Struct("@iL")
_HBM = struct.Struct("@QIQiI")  # MiB, MHz, MiB used, degrees, percent
_MEMORY_V3 = struct.Struct("@QQ")  # MiB, MiB available; the rest of its 112 bytes is of no use here
_MEMORY_V3_SIZE = 112
_DIE = struct.Struct("@5I")
_CHIP = struct.Struct("@32s32s32sI")
_PCI = struct.Struct("@4Ii3I")
_PCI_SIZE = 64
_VDEVS = struct.Struct("@I32I")
_VDEVS_SIZE = 360
_VDEV_SIZE = 264
_VDEV_NAME = struct.Struct("@I4x16s")
_VDEV_MEMORY = struct.Struct("@QQ")
_VDEV_MEMORY_AT = 176

_NPU = 0
_AI_CORE = 2
_VDIE = 1
_VDEV_MANAGEMENT, _ONE_VDEV, _ALL_VDEVS = 52, 0, 1
_UNLIKELY = 100_000
"""Tenths of a watt."""


@dataclass(frozen=True, slots=True)
class _Place:
    """How DCMI names a device: the card as the list of cards has it, and the device in it."""

    card: int
    device: int


class Dcmi:
    """Reads the NPUs of this node."""

    name = "dcmi"
    vendor = "huawei"
    title = "Ascend NPU"

    def __init__(self, beat: Callable[[str], None], names: Sequence[str] = LIBRARIES) -> None:
        self._library = Native(names, MEANINGS, beat)
        self._places: dict[int, _Place] = {}
        self._divided: set[_Place] = set()

    def start(self) -> None:
        """Load and initialise."""
        self._library.load()
        self._library.call("dcmi_init")

    def stop(self) -> None:
        """Do nothing: DCMI has no end."""

    def driver_version(self) -> str:
        """Give the version of the driver."""
        return self._library.text("dcmi_get_driver_version", size=64)

    def indices(self) -> Sequence[int]:
        """List the NPUs by their logic ids. Cards keep their numbers, also when one of them is missing."""
        count, cards = ctypes.c_int(), (ctypes.c_int * 64)()
        self._library.call("dcmi_get_card_list", ctypes.byref(count), cards, 64)
        places: dict[int, _Place] = {}
        for card in cards[: max(0, min(count.value, len(cards)))]:
            for device in range(self._library.sint("dcmi_get_device_num_in_card", card)):
                place = _Place(card, device)
                with contextlib.suppress(UnsupportedError):
                    if self._library.uint("dcmi_get_device_type", card, device) != _NPU:
                        continue
                places[self._logic_id(place)] = place
        self._places = places
        return sorted(places)

    def open(self, index: int) -> Handle:
        """Give the place of a device."""
        return Handle(self._places[index])

    def identify(self, handle: Handle, index: int) -> Identity:
        """Name a device by its die (VDIE), as HAMi does; its minor is the physical id, of /dev/davinci<id>."""
        die = self._structure("dcmi_get_device_die_v2", _DIE.size, handle, _VDIE, ends=_DIE.size - 4)
        uuid = "-".join(f"{part:08X}" for part in _DIE.unpack_from(die))
        model = known(lambda: _text(_CHIP.unpack_from(self._chip(handle))[1]), "")
        minor = known(lambda: self._library.uint("dcmi_get_device_phyid_from_logicid", index), None)
        return Identity(GpuUuid(uuid), f"Ascend {model}".strip(), known(lambda: self._pci(handle), ""), minor)

    def memory(self, handle: Handle) -> Memory | None:
        """Read HBM, or, of a device without it, its memory; a percentage alone (`v2`) is no figure."""
        with contextlib.suppress(UnsupportedError):
            size, _, used, *_ = _HBM.unpack_from(self._structure("dcmi_get_device_hbm_info", _HBM.size, handle))
            if size:
                return balanced("dcmi_get_device_hbm_info", mebibytes(size), mebibytes(used))
        function = "dcmi_get_device_memory_info_v3"
        after = self._structure(function, _MEMORY_V3_SIZE, handle, ends=_MEMORY_V3.size)
        size, available = _MEMORY_V3.unpack_from(after)
        if UNKNOWN & {size, available}:
            return None
        if available > EXCESS * size:
            raise LayoutError(function, f"{available} of {size} MiB available")
        return balanced(function, mebibytes(size), mebibytes(max(0, size - available)))

    def processes(self, handle: Handle, total: int | None) -> Sequence[Listed]:
        """List who holds memory."""
        function = "dcmi_get_device_resource_info"
        count = ctypes.c_int(MOST)
        after = self._library.structure(function, MOST * _PROCESS.size, *_of(handle), after=(ctypes.byref(count),))
        if not 0 <= count.value <= MOST or written(after) > MOST * _PROCESS.size:
            raise LayoutError(function, f"{count.value} entries of {MOST}")
        if count.value == MOST:
            raise _CutError(function, f"{MOST} processes are all that the driver lists: there may be more")
        found = (_PROCESS.unpack_from(after, at * _PROCESS.size) for at in range(count.value))
        return tuple(listed(function, pid, used, total, host=True) for pid, used in found if pid)

    def utilization(self, handle: Handle) -> Utilization:
        """Read how busy the AI cores are. While profiling the driver says 0xEF, which is no ratio."""
        percent = self._library.uint("dcmi_get_device_utilization_rate", *_of(handle), _AI_CORE)
        return Utilization(busy=ratio(percent))

    def process_utilization(self, handle: Handle) -> Sequence[ProcessUtilization] | None:  # noqa: ARG002
        """Say nothing: DCMI tells of no process."""
        return None

    def health(self, handle: Handle) -> Health:
        """Read power (in tenths of a watt) and temperature."""
        power = known(lambda: self._library.sint("dcmi_get_device_power_info", *_of(handle)), -1)
        heat = known(lambda: self._library.sint("dcmi_get_device_temperature", *_of(handle)), None)
        return Health(
            power_watts=power / 10 if 0 <= power < _UNLIKELY else None,
            temperature_celsius=None if heat is None or not -100 < heat < 1000 else float(heat),  # noqa: PLR2004
        )

    def instances(self, handle: Handle) -> tuple[GpuInstance, ...]:
        """
        List the vNPUs: template, and memory in MiB.

        A driver that refuses to say has not divided the device; one that said so before must say so again.
        """
        place = _place(handle)
        try:
            count, *ids = _VDEVS.unpack_from(self._managed(handle, _ALL_VDEVS, _VDEVS_SIZE))
        except CallError:
            if place in self._divided:
                raise
            return ()
        if count > len(ids):
            raise LayoutError("dcmi_get_device_info", f"{count} vNPUs")
        found = tuple(self._instance(handle, number) for number in ids[:count])
        (self._divided.add if found else self._divided.discard)(place)
        return found

    def _instance(self, handle: Handle, number: int) -> GpuInstance:
        answer = self._managed(handle, _ONE_VDEV, _VDEV_SIZE, number)
        _, name = _VDEV_NAME.unpack_from(answer)
        total, free = _VDEV_MEMORY.unpack_from(answer, _VDEV_MEMORY_AT)
        memory = Memory(mebibytes(total), mebibytes(free)) if total and free <= total and total not in UNKNOWN else None
        return GpuInstance(number, _text(name), (), memory)

    def _managed(self, handle: Handle, command: int, size: int, number: int | None = None) -> bytes:
        room = ctypes.c_uint(size)
        return self._library.structure(
            "dcmi_get_device_info",
            size,
            *_of(handle),
            _VDEV_MANAGEMENT,
            command,
            after=(ctypes.byref(room),),
            head=number,
        )

    def _logic_id(self, place: _Place) -> int:
        answer = ctypes.c_int()
        self._library.call("dcmi_get_device_logic_id", ctypes.byref(answer), place.card, place.device)
        return answer.value

    def _chip(self, handle: Handle) -> bytes:
        return self._structure("dcmi_get_device_chip_info", _CHIP.size, handle)

    def _pci(self, handle: Handle) -> str:
        after = self._structure("dcmi_get_device_pcie_info_v2", _PCI_SIZE, handle, ends=_PCI.size)
        *_, domain, bus, device, function = _PCI.unpack_from(after)
        return f"{domain & 0xFFFFFFFF:04x}:{bus & 0xFF:02x}:{device & 0x1F:02x}.{function & 7:x}"

    def _structure(self, function: str, size: int, handle: Handle, *more: int, ends: int = 0) -> bytes:
        after = self._library.structure(function, size, *_of(handle), *more)
        if not (ends or size) <= written(after) <= size:
            raise LayoutError(function, f"{written(after)} bytes were written, not {size}")
        return after


class _CutError(CallError):
    """The list is as long as it can be."""

    reason = "processes_cut"


def _place(handle: Handle) -> _Place:
    assert isinstance(handle, _Place)  # noqa: S101  (`open` made it)
    return handle


def _of(handle: Handle) -> tuple[int, int]:
    return _place(handle).card, _place(handle).device


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("utf-8", "replace")
