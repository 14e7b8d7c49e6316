"""
Enflame GCUs: the half of the library in NVML's shape, and the UUIDs of its older half.

What comes in: the row of `efml`. What goes out: the answers of `reader.Reader`.

The rule: the half in NVML's shape has no UUIDs. The ids of the vendor's device plugin (`enflame.com/gcu`) are the UUIDs
of the older half. Each half has its own indices: a UUID is believed where both report the same PCI address at an index.
Without the older half a device is named by its PCI address. Source: EnflameTechnology/gcu-exporter efml.h
(efmlDeviceInfo_t, EfmlGetDevUuid), collector/pod_info.go.
"""

import ctypes
import struct
from dataclasses import replace

from exporter.devices.errors import CallError, LayoutError
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.session import Beat
from exporter.devices.vendor_libs.layouts import blank, pci_address, written
from exporter.devices.vendor_libs.native import Handle
from exporter.devices.vendor_libs.nvml_like import NvmlLike
from exporter.devices.vendor_libs.reader import Identity
from exporter.devices.vendor_libs.rows import Row
from exporter.model import GpuUuid

_INFO = struct.Struct("=128s7I")  # name, vendor, device, domain, bus, device, function, logic id
_TEXT = 128
_OLDER = ("EfmlInit", "EfmlGetDevInfo", "EfmlGetDevUuid")


class Enflame(NvmlLike):
    """Reads the GCUs of this node."""

    def __init__(self, row: Row, beat: Beat, nodes: OpenNodes) -> None:
        super().__init__(row, beat, nodes)
        self._both = False

    def start(self) -> None:
        """Load and initialise both halves of the library, as far as it has them and they start."""
        super().start()
        complete = all(self._library.has(function) for function in _OLDER)
        self._both = complete and self._library.code("EfmlInit", ctypes.c_bool(False)) == 0

    def identify(self, handle: Handle, index: int) -> Identity:
        """Name a device by the older half's UUID."""
        identity = super().identify(handle, index)
        if not self._both:
            return identity
        info = ctypes.create_string_buffer(blank(2 * _INFO.size), 2 * _INFO.size)
        self._ask("EfmlGetDevInfo", index, info)
        if written(info.raw) > _INFO.size:
            raise LayoutError("EfmlGetDevInfo", f"{written(info.raw)} bytes were written, not {_INFO.size}")
        *_, domain, bus, device, function, _ = _INFO.unpack_from(info.raw)
        if pci_address(domain, bus, device, function) != identity.pci_bus_id.lower():
            return identity
        uuid = ctypes.create_string_buffer(_TEXT)
        self._ask("EfmlGetDevUuid", index, uuid)
        name = uuid.value.decode("ascii", "replace")
        return replace(identity, uuid=GpuUuid(name)) if name else identity

    def _ask(self, function: str, *arguments: object) -> None:
        """Call the older half. Its codes are its own: any but 0 is an error of this call only."""
        if code := self._library.code(function, *arguments):
            raise CallError(function, f"code {code}")
