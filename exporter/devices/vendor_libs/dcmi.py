"""
Huawei Ascend, read through the driver's DCMI.

What comes in: cards and the devices in them. What goes out: the answers of `reader.Reader`.

The rule: `dcmi_get_device_resource_info` has no bound. It writes up to 32 entries, whatever the count was before. So
there is always room for 32, and a list of 32 may have been cut. Its PIDs are the host's. Its memory includes the memory
that the device's own system takes for the process. The parts of a divided device (vNPU) are the devices. The part of a
process is then not known. Neither is the utilization of the whole: Huawei calls the figure meaningless.
"""

import contextlib
import ctypes
import struct
from collections.abc import Sequence
from typing import NamedTuple

from exporter.devices import errors
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.session import Beat
from exporter.devices.vendor_libs.layouts import (
    EXCESS,
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
from exporter.model import GpuInstance, GpuUuid, Memory, Utilization

LIBRARY = Library(
    name="dcmi",
    vendor="huawei",
    title="Ascend NPU",
    libraries=("libdcmi.so", "/usr/local/Ascend/driver/lib64/driver/libdcmi.so", "/usr/local/dcmi/libdcmi.so"),
    nodes=("davinci*",),
    source="Ascend/mind-cluster component/ascend-common/devmanager/dcmi (header, codes, VDIE); reference 24.1.RC3",
)

MEANINGS: Meanings = {
    -8255: errors.UnsupportedError,
    -8013: errors.UnsupportedError,  # not in a container
    -8002: errors.NoPermissionError,
    -8008: errors.DeviceLostError,  # no such device
    -8005: errors.CallError,
    -99997: errors.LibraryGoneError,  # not initialised
}
"""-8012 (not ready), -8006 (timeout) and -8017 (upgrading) pass: they affect this call, and not all later ones."""
MOST = 32
"""Entries that the driver writes, at most."""

_PROCESS = struct.Struct("@iL")
_HBM = struct.Struct("@QIQiI")  # MiB, MHz, MiB used, degrees, percent
_MEMORY_V3 = struct.Struct("@QQ")  # MiB, MiB available; the rest of its 112 bytes is not used here
_MEMORY_V3_SIZE = 112
_DIE = struct.Struct("@5I")
_CHIP = struct.Struct("@32s32s32sI")
_PCI = struct.Struct("@8I")
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


class _Place(NamedTuple):
    """A device's address in DCMI: the card's number in the list of cards, and the device in it."""

    card: int
    device: int


class Dcmi(Reader[_Place]):
    """Reads the NPUs of this node. DCMI has no shutdown call."""

    meanings = MEANINGS

    def __init__(self, library: Library, beat: Beat, nodes: OpenNodes) -> None:
        super().__init__(library, beat, nodes)
        self._places: dict[int, _Place] = {}
        self._divided: set[_Place] = set()

    def start(self) -> None:
        """Load and initialise."""
        super().start()
        self._library.call("dcmi_init")

    def driver_version(self) -> str:
        """Return the version of the driver."""
        return self._library.text("dcmi_get_driver_version", size=64)

    def indices(self) -> Sequence[int]:
        """List the NPUs by their logic ids. Cards keep their numbers, also when one of them is missing."""
        count, cards = ctypes.c_int(), (ctypes.c_int * 64)()
        self._library.call("dcmi_get_card_list", ctypes.byref(count), cards, 64)
        places: dict[int, _Place] = {}
        for card in cards[: max(0, min(count.value, len(cards)))]:
            for device in range(self._library.sint("dcmi_get_device_num_in_card", card)):
                place = _Place(card, device)
                with contextlib.suppress(errors.UnsupportedError):
                    if self._library.uint("dcmi_get_device_type", card, device) != _NPU:
                        continue
                places[self._library.sint("dcmi_get_device_logic_id", after=(card, device))] = place
        self._places = places
        return sorted(places)

    def open(self, index: int) -> _Place:
        """Return the place of a device."""
        return self._places[index]

    def identify(self, handle: _Place, index: int) -> Identity:
        """Name a device by its die (VDIE), as HAMi does; its minor is the physical id, of /dev/davinci<id>."""
        die = self._library.fields("dcmi_get_device_die_v2", _DIE, *handle, _VDIE, ends=_DIE.size - 4)
        chip = known(self._library.fields, "dcmi_get_device_chip_info", _CHIP, *handle)
        return Identity(
            GpuUuid("-".join(f"{part:08X}" for part in die)),
            f"Ascend {text(chip[1]) if chip else ''}".strip(),
            known(self._pci, handle) or "",
            known(self._library.uint, "dcmi_get_device_phyid_from_logicid", index),
        )

    def memory(self, handle: _Place) -> Memory | None:
        """Read HBM, or the memory of a device without it. `v2` returns only a percentage, and is not used."""
        function = "dcmi_get_device_hbm_info"
        with contextlib.suppress(errors.UnsupportedError):
            size, _, used, *_ = self._library.fields(function, _HBM, *handle)
            if size:
                return balanced(function, mebibytes(size), mebibytes(used))
        function = "dcmi_get_device_memory_info_v3"
        size, available = self._library.fields(function, _MEMORY_V3, *handle, size=_MEMORY_V3_SIZE)
        if UNKNOWN & {size, available}:
            return None
        if available > EXCESS * size:
            raise errors.LayoutError(function, f"{available} of {size} MiB available")
        return balanced(function, mebibytes(size), mebibytes(max(0, size - available)))

    def processes(self, handle: _Place, total: int | None) -> Sequence[Listed]:
        """List the processes that hold memory."""
        function = "dcmi_get_device_resource_info"
        count = ctypes.c_int(MOST)
        after = self._library.structure(function, MOST * _PROCESS.size, *handle, after=(ctypes.byref(count),))
        if not 0 <= count.value <= MOST or written(after) > MOST * _PROCESS.size:
            raise errors.LayoutError(function, f"{count.value} entries of {MOST}")
        if count.value == MOST:
            raise _CutError(function, f"{MOST} processes are all that the driver lists: there may be more")
        entries = (_PROCESS.unpack_from(after, at * _PROCESS.size) for at in range(count.value))
        return tuple(listed(function, pid, used, total, host=True) for pid, used in entries if pid)

    def utilization(self, handle: _Place) -> Utilization:
        """Read the utilization of the AI cores. While profiling the driver returns 0xEF, which is no ratio."""
        return Utilization(busy=ratio(self._library.uint("dcmi_get_device_utilization_rate", *handle, _AI_CORE)))

    def power(self, handle: _Place) -> float | None:
        """Read the power, which the library returns in tenths of a watt."""
        tenths = known(self._library.sint, "dcmi_get_device_power_info", *handle)
        return None if tenths is None else tenths / 10

    def temperature(self, handle: _Place) -> float | None:
        """Read the temperature."""
        return known(self._library.sint, "dcmi_get_device_temperature", *handle)

    def instances(self, handle: _Place) -> tuple[GpuInstance, ...]:
        """
        List the vNPUs: template, and memory in MiB.

        A driver that refuses the call has not divided the device. If it listed vNPUs before, the refusal is an error.
        """
        try:
            count, *ids = _VDEVS.unpack_from(self._managed(handle, _ALL_VDEVS, _VDEVS_SIZE))
        except errors.CallError:
            if handle in self._divided:
                raise
            return ()
        if count > len(ids):
            raise errors.LayoutError("dcmi_get_device_info", f"{count} vNPUs")
        instances = tuple(self._instance(handle, number) for number in ids[:count])
        (self._divided.add if instances else self._divided.discard)(handle)
        return instances

    def _instance(self, handle: _Place, number: int) -> GpuInstance:
        answer = self._managed(handle, _ONE_VDEV, _VDEV_SIZE, number)
        _, name = _VDEV_NAME.unpack_from(answer)
        total, free = _VDEV_MEMORY.unpack_from(answer, _VDEV_MEMORY_AT)
        memory = Memory(mebibytes(total), mebibytes(free)) if total and free <= total and total not in UNKNOWN else None
        return GpuInstance(number, text(name), (), memory)

    def _managed(self, handle: _Place, command: int, size: int, number: int | None = None) -> bytes:
        room = ctypes.byref(ctypes.c_uint(size))
        question = (*handle, _VDEV_MANAGEMENT, command)
        return self._library.structure("dcmi_get_device_info", size, *question, after=(room,), head=number)

    def _pci(self, handle: _Place) -> str:
        *_, domain, bus, device, function = self._library.fields(
            "dcmi_get_device_pcie_info_v2", _PCI, *handle, size=_PCI_SIZE
        )
        return pci_address(domain, bus, device, function)


class _CutError(errors.CallError):
    """The list has its full length, and may have been cut."""

    reason = "processes_cut"
