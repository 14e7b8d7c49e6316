"""
Hygon DCUs, as the vendor's ROCm SMI tells of them.

What comes in: devices by their index. What goes out: the answers of `reading.Reader`.

The law: there is one list of processes for the whole node, with what each holds of all devices together, in bytes. Of
who is on one device that is what he holds of it; of who is on several nobody knows how much of each, and there it is
unknown. The numbers are KFD's, of the host. AMD's own library has the same name: this source is for Hygon's modules
alone, for AMD's library opens /dev/kfd, and the kernel's own files tell more (`exporter.devices.kernel`).

Sources: HYGON-AI/hcu-dcgm; rocm_smi.h, of which it is a fork.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence

from exporter.devices.vendor_libs.errors import (
    InsufficientSizeError,
    InvalidArgumentError,
    LayoutError,
    LibraryError,
    LibraryGoneError,
    Meanings,
    NoPermissionError,
    NotFoundError,
    UnsupportedError,
)
from exporter.devices.vendor_libs.layouts import Listed, balanced, blank, listed, ratio, written
from exporter.devices.vendor_libs.native import ATTEMPTS, ROOM, Handle, Native, known
from exporter.devices.vendor_libs.read_device import Identity
from exporter.model import GpuInstance, GpuUuid, Health, Memory, ProcessUtilization, Utilization

LIBRARIES = ("librocm_smi64.so", "/opt/hyhal/lib/librocm_smi64.so", "/opt/dtk/lib/librocm_smi64.so")
NODES = ("mkfd", "kfd")
MODULES = ("hycu", "hydcu")
"""Kernel modules without which this library is somebody else's."""
MEANINGS: Meanings = {
    1: InvalidArgumentError,
    2: UnsupportedError,
    4: NoPermissionError,
    8: LibraryGoneError,  # not initialised
    9: UnsupportedError,  # not yet implemented
    10: NotFoundError,
    11: InsufficientSizeError,
    14: UnsupportedError,  # no data
}
_PROCESS = struct.Struct("@IIQQI4x")  # pid, pasid, bytes, microseconds of SDMA, compute units
_ENDS = 28
_MOST_DEVICES = 64
_VRAM = 0
_UNLIKELY = 10_000_000_000
"""Microwatts."""


class Rsmi:
    """Reads the DCUs of this node."""

    name = "rsmi"
    vendor = "hygon"
    title = "Hygon DCU"

    def __init__(self, beat: Callable[[str], None], names: Sequence[str] = LIBRARIES) -> None:
        self._library = Native(names, MEANINGS, beat)
        self._held: dict[int, list[tuple[int, int | None]]] | None = None

    def start(self) -> None:
        """Load and initialise."""
        self._library.load()
        self._library.call("rsmi_init", ctypes.c_ulonglong(0))

    def stop(self) -> None:
        """Shut down."""
        try:
            self._library.call("rsmi_shut_down")
        except LibraryError:
            return

    def driver_version(self) -> str:
        """Give the version of the driver."""
        return self._library.text("rsmi_version_str_get", 0, size=80)

    def indices(self) -> Sequence[int]:
        """Count the devices; a round begins."""
        self._held = None
        return range(self._library.uint("rsmi_num_monitor_devices"))

    def open(self, index: int) -> Handle:
        """Give the index, by which this library names a device."""
        return Handle(index)

    def identify(self, handle: Handle, index: int) -> Identity:
        """Name a device by its unique id, or, without one, by its place."""
        place = self._library.ulonglong("rsmi_dev_pci_id_get", handle)
        pci = f"{place >> 32:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7:x}"
        try:
            uuid = f"{self._library.ulonglong('rsmi_dev_unique_id_get', handle):016x}"
        except (UnsupportedError, NotFoundError):
            uuid = pci
        name = known(lambda: self._library.text("rsmi_dev_name_get", handle), "")
        return Identity(GpuUuid(f"{self.vendor}-{uuid}"), name or self.title, pci, index)

    def memory(self, handle: Handle) -> Memory | None:
        """Read device memory."""
        total = self._library.ulonglong("rsmi_dev_memory_total_get", handle, _VRAM)
        used = self._library.ulonglong("rsmi_dev_memory_usage_get", handle, _VRAM)
        return balanced("rsmi_dev_memory_usage_get", total, used)

    def processes(self, handle: Handle, total: int | None) -> Sequence[Listed]:
        """List who is on a device, with what it holds there where that is known."""
        if self._held is None:
            self._held = self._by_device()
        held = self._held.get(self._index(handle), ())
        return tuple(listed("rsmi_compute_process_info_get", pid, used, total, host=True) for pid, used in held)

    def utilization(self, handle: Handle) -> Utilization:
        """Read how busy the device is."""
        return Utilization(busy=ratio(self._library.uint("rsmi_dev_busy_percent_get", handle)))

    def process_utilization(self, handle: Handle) -> Sequence[ProcessUtilization] | None:  # noqa: ARG002
        """Say nothing: ROCm's queues are the processes' own."""
        return None

    def health(self, handle: Handle) -> Health:
        """Read power (in microwatts) and temperature (in thousandths of a degree)."""
        power = known(lambda: self._library.ulonglong("rsmi_dev_power_ave_get", handle, 0), None)
        heat = known(lambda: self._library.ulonglong("rsmi_dev_temp_metric_get", handle, 0, 0), None)
        return Health(
            power_watts=None if power is None or power >= _UNLIKELY else power / 1_000_000,
            temperature_celsius=None if heat is None or heat > 1_000_000 else heat / 1000,  # noqa: PLR2004
        )

    def instances(self, handle: Handle) -> tuple[GpuInstance, ...]:  # noqa: ARG002
        """Say that it is whole: of its virtual devices the library tells nothing here."""
        return ()

    def _by_device(self) -> dict[int, list[tuple[int, int | None]]]:
        """Read the list of the node, and ask of each process on which devices it is."""
        found: dict[int, list[tuple[int, int | None]]] = {}
        for pid, _, used, *_ in self._list():
            devices = self._devices_of(pid)
            for device in devices:
                found.setdefault(device, []).append((pid, used if len(devices) == 1 else None))
        return found

    def _list(self) -> list[tuple[int, ...]]:
        function = "rsmi_compute_process_info_get"
        room = ROOM
        for _ in range(ATTEMPTS):
            answer = ctypes.create_string_buffer(blank(room * _PROCESS.size), room * _PROCESS.size)
            count = ctypes.c_uint(room)
            try:
                self._library.call(function, answer, ctypes.byref(count))
            except InsufficientSizeError:
                room *= 2
                continue
            after, end = answer.raw, written(answer.raw)
            least = max(0, count.value - 1) * _PROCESS.size + (_ENDS if count.value else 0)
            if count.value > room or not least <= end <= count.value * _PROCESS.size:
                raise LayoutError(function, f"{count.value} entries end at byte {end}")
            return [_PROCESS.unpack_from(after, at * _PROCESS.size) for at in range(count.value)]
        raise InsufficientSizeError(function, f"the list grew in each of {ATTEMPTS} calls")

    def _devices_of(self, pid: int) -> tuple[int, ...]:
        """Name the devices of a process; none once it has ended. A library that cannot say knows nobody's."""
        devices, count = (ctypes.c_uint * _MOST_DEVICES)(), ctypes.c_uint(_MOST_DEVICES)
        try:
            self._library.call("rsmi_compute_process_gpus_get", pid, devices, ctypes.byref(count))
        except NotFoundError:
            return ()
        if count.value > _MOST_DEVICES:
            raise LayoutError("rsmi_compute_process_gpus_get", f"{count.value} devices")
        return tuple(devices[: count.value])

    @staticmethod
    def _index(handle: Handle) -> int:
        assert isinstance(handle, int)  # noqa: S101  (`open` made it)
        return handle
