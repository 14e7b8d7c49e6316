"""
Hygon DCUs, read through the vendor's ROCm SMI.

What comes in: devices by their index. What goes out: the answers of `reader.Reader`.

The rule: there is one list of processes for the whole node, with each process's bytes on all devices together. If a
process is on one device, all its bytes are there. If it is on several, its bytes on each are unknown. The PIDs are
KFD's, of the host. AMD's own library has the same name, so this source needs Hygon's kernel modules. AMD's library
opens /dev/kfd, and the kernel's own files show more (`exporter.devices.kernel`).
"""

import ctypes
import struct
from collections.abc import Sequence

from exporter.devices import errors
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.session import Beat
from exporter.devices.vendor_libs.layouts import Listed, balanced, blank, listed, pci_address, ratio, written
from exporter.devices.vendor_libs.native import Meanings, known
from exporter.devices.vendor_libs.reader import Identity, Reader
from exporter.devices.vendor_libs.rows import Library
from exporter.model import GpuUuid, Memory, Utilization

LIBRARY = Library(
    name="rsmi",
    vendor="hygon",
    title="Hygon DCU",
    libraries=("librocm_smi64.so", "/opt/hyhal/lib/librocm_smi64.so", "/opt/dtk/lib/librocm_smi64.so"),
    nodes=("mkfd", "kfd"),
    source="HYGON-AI/hcu-dcgm; rocm_smi.h, of which it is a fork",
    modules=("hycu", "hydcu"),  # without these the library is AMD's, of the same name
)

MEANINGS: Meanings = {
    1: errors.InvalidArgumentError,
    2: errors.UnsupportedError,
    4: errors.NoPermissionError,
    8: errors.LibraryGoneError,  # not initialised
    9: errors.UnsupportedError,  # not yet implemented
    10: errors.NotFoundError,
    11: errors.InsufficientSizeError,
    14: errors.UnsupportedError,  # no data
}
_LIST = "rsmi_compute_process_info_get"
_PROCESS = struct.Struct("@IIQQI4x")  # pid, pasid, bytes, microseconds of SDMA, compute units
_ENDS = 28
_MOST_DEVICES = 64
_VRAM = 0


class Rsmi(Reader[int]):
    """Reads the DCUs of this node. None is divided: the library reports nothing of virtual devices here."""

    meanings = MEANINGS
    end = "rsmi_shut_down"

    def __init__(self, library: Library, beat: Beat, nodes: OpenNodes) -> None:
        super().__init__(library, beat, nodes)
        self._held: dict[int, list[tuple[int, int | None]]] | None = None

    def start(self) -> None:
        """Load and initialise."""
        super().start()
        self._library.call("rsmi_init", ctypes.c_ulonglong(0))

    def driver_version(self) -> str:
        """Return the version of the driver."""
        return self._library.text("rsmi_version_str_get", 0, size=80)

    def indices(self) -> Sequence[int]:
        """Count the devices. Called first in each round."""
        self._held = None
        return range(self._library.uint("rsmi_num_monitor_devices"))

    def open(self, index: int) -> int:
        """Return the index, which is the library's handle of a device."""
        return index

    def identify(self, handle: int, index: int) -> Identity:
        """Name a device by its unique id, or, without one, by its PCI address."""
        place = self._library.ulonglong("rsmi_dev_pci_id_get", handle)
        pci = pci_address(place >> 32, place >> 8, place >> 3, place)
        try:
            uuid = f"{self._library.ulonglong('rsmi_dev_unique_id_get', handle):016x}"
        except (errors.UnsupportedError, errors.NotFoundError):
            uuid = pci
        name = known(self._library.text, "rsmi_dev_name_get", handle)
        return Identity(GpuUuid(f"{self.vendor}-{uuid}"), name or self.title, pci, index)

    def memory(self, handle: int) -> Memory | None:
        """Read device memory."""
        total = self._library.ulonglong("rsmi_dev_memory_total_get", handle, _VRAM)
        used = self._library.ulonglong("rsmi_dev_memory_usage_get", handle, _VRAM)
        return balanced("rsmi_dev_memory_usage_get", total, used)

    def processes(self, handle: int, total: int | None) -> Sequence[Listed]:
        """List the processes on a device, with their bytes there where these are known."""
        if self._held is None:
            self._held = self._by_device()
        return tuple(listed(_LIST, pid, used, total, host=True) for pid, used in self._held.get(handle, ()))

    def utilization(self, handle: int) -> Utilization:
        """Read the utilization of the device."""
        return Utilization(busy=ratio(self._library.uint("rsmi_dev_busy_percent_get", handle)))

    def power(self, handle: int) -> float | None:
        """Read the power, which the library returns in microwatts."""
        microwatts = known(self._library.ulonglong, "rsmi_dev_power_ave_get", handle, 0)
        return None if microwatts is None else microwatts / 1_000_000

    def temperature(self, handle: int) -> float | None:
        """Read the temperature, which the library returns in thousandths of a degree."""
        thousandths = known(self._library.ulonglong, "rsmi_dev_temp_metric_get", handle, 0, 0)
        return None if thousandths is None else thousandths / 1000

    def _by_device(self) -> dict[int, list[tuple[int, int | None]]]:
        """Read the list of the node, and ask for the devices of each process."""
        holders: dict[int, list[tuple[int, int | None]]] = {}
        for pid, _, used, *_ in self._list():
            devices = self._devices_of(pid)
            for device in devices:
                holders.setdefault(device, []).append((pid, used if len(devices) == 1 else None))
        return holders

    def _list(self) -> list[tuple[int, ...]]:
        def ask(room: int, count: ctypes.c_uint) -> bytes:
            answer = ctypes.create_string_buffer(blank(room * _PROCESS.size), room * _PROCESS.size)
            self._library.call(_LIST, answer, ctypes.byref(count))
            return answer.raw

        after, count, room = self._library.growing(_LIST, ask)
        end = written(after)
        least = max(0, count - 1) * _PROCESS.size + (_ENDS if count else 0)
        if count > room or not least <= end <= count * _PROCESS.size:
            raise errors.LayoutError(_LIST, f"{count} entries end at byte {end}")
        return [_PROCESS.unpack_from(after, at * _PROCESS.size) for at in range(count)]

    def _devices_of(self, pid: int) -> tuple[int, ...]:
        """Name the devices of a process; none once it has ended. Raises LibraryError when the library cannot say."""
        devices, count = (ctypes.c_uint * _MOST_DEVICES)(), ctypes.c_uint(_MOST_DEVICES)
        try:
            self._library.call("rsmi_compute_process_gpus_get", pid, devices, ctypes.byref(count))
        except errors.NotFoundError:
            return ()
        if count.value > _MOST_DEVICES:
            raise errors.LayoutError("rsmi_compute_process_gpus_get", f"{count.value} devices")
        return tuple(devices[: count.value])
