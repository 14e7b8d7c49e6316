"""
MetaX GPUs: the extension in NVML's shape, and the library's older calls.

What comes in: the row of `mxsml`. What goes out: the answers of `reader.Reader`.

The rule: where the extension cannot list processes, the library's own call can. It writes one entry of 3144 bytes per
process, with a place for each of the 64 GPUs that the process may be on. Only the place of this GPU counts; nvtop adds
all places. Source: gpustack/runtime pymxsml (mxSmlProcessInfo_t, mxSmlProcessGpuInfo_t).
"""

import ctypes
import struct
from collections.abc import Sequence

from exporter.devices.errors import LayoutError, UnsupportedError
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.session import Beat
from exporter.devices.vendor_libs.layouts import Listed, blank, listed, text, written
from exporter.devices.vendor_libs.native import ROOM, Handle, known
from exporter.devices.vendor_libs.nvml_like import NvmlLike
from exporter.devices.vendor_libs.reader import Identity
from exporter.devices.vendor_libs.rows import Row

SIZE = 3144
_HEAD = struct.Struct("=I64sI")  # pid, name, GPUs in use
_GPU = struct.Struct("=32sI4xQ")  # PCI address, id, bytes
_MOST_GPUS = 64
_ADDRESS = len("0000:3b:00.0")
_LIST = "mxSmlGetSingleGpuProcess"


class Metax(NvmlLike):
    """Reads the GPUs of this node."""

    def __init__(self, row: Row, beat: Beat, nodes: OpenNodes) -> None:
        super().__init__(row, beat, nodes)
        self._places: dict[int | None, tuple[int, str]] = {}

    def start(self) -> None:
        """Load and initialise both halves of the library."""
        super().start()
        known(self._library.call, "mxSmlInit")

    def identify(self, handle: Handle, index: int) -> Identity:
        """Name a device, and keep its index and PCI address for the older call."""
        identity = super().identify(handle, index)
        self._places[handle.value] = index, identity.pci_bus_id
        return identity

    def processes(self, handle: Handle, total: int | None) -> Sequence[Listed]:
        """List the processes that hold memory."""
        try:
            return super().processes(handle, total)
        except UnsupportedError:
            if not self._library.has(_LIST):
                raise
        index, pci = self._places[handle.value]
        answer = ctypes.create_string_buffer(blank(ROOM * SIZE), ROOM * SIZE)
        count = ctypes.c_uint(ROOM)
        self._library.call(_LIST, ctypes.c_uint(index), ctypes.byref(count), answer)
        return entries(answer.raw, count.value, pci, total)


def entries(after: bytes, count: int, pci: str, total: int | None) -> tuple[Listed, ...]:
    """Read `count` entries of the older call: each process's bytes on the GPU at `pci`."""
    if not max(0, (count - 1) * SIZE + _HEAD.size) <= written(after) <= count * SIZE <= len(after):
        raise LayoutError(_LIST, f"{count} entries end at byte {written(after)}, not at {count * SIZE}")
    processes = []
    for start in range(0, count * SIZE, SIZE):
        pid, _, gpus = _HEAD.unpack_from(after, start)
        if gpus > _MOST_GPUS:
            raise LayoutError(_LIST, f"process {pid} would be on {gpus} GPUs")
        places = (_GPU.unpack_from(after, start + _HEAD.size + at * _GPU.size) for at in range(gpus))
        held = [used for place, _, used in places if _same(text(place), pci)]
        if len(held) != 1:  # a process that is listed is on this GPU
            raise LayoutError(_LIST, f"process {pid} has {len(held)} places on the GPU at {pci}")
        processes.append(listed(_LIST, pid, held[0], total))
    return tuple(processes)


def _same(address: str, other: str) -> bool:
    """Compare PCI addresses; some have eight digits of domain."""
    return address.lower()[-_ADDRESS:] == other.lower()[-_ADDRESS:]
