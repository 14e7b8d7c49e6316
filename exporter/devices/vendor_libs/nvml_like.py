"""
A library in NVML's shape, read by its row.

What comes in: a row (`rows`). What goes out: the answers of `reader.Reader`.

The rule: all libraries share one code path, and each difference is in the row. Of several versions of a call, the first
that the library knows is used. The layout of its answer must be one of the row's.
"""

import os
import re
import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from exporter.devices import errors
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.session import Beat
from exporter.devices.vendor_libs.layouts import (
    Entry,
    Listed,
    MemoryLayout,
    agree,
    entries,
    memory,
    ratio,
    text,
)
from exporter.devices.vendor_libs.native import Handle, Meanings, known
from exporter.devices.vendor_libs.reader import Identity, Reader
from exporter.devices.vendor_libs.rows import Row
from exporter.model import GpuUuid, Memory, Utilization

L = TypeVar("L")
T = TypeVar("T")

MEANINGS: Meanings = {
    1: errors.LibraryGoneError,  # not initialised
    2: errors.InvalidArgumentError,
    3: errors.UnsupportedError,
    4: errors.NoPermissionError,
    7: errors.InsufficientSizeError,
    9: errors.LibraryGoneError,  # driver not loaded
    12: errors.LibraryGoneError,  # library not found
    13: errors.OtherVersionError,  # function not found
    15: errors.DeviceLostError,
    16: errors.DeviceLostError,  # reset required
    17: errors.NoPermissionError,  # the operating system refuses
    18: errors.LibraryGoneError,  # the driver was replaced under the loaded library
    25: errors.OtherVersionError,  # version of the structure
    26: errors.UnsupportedError,  # deprecated
    28: errors.DeviceLostError,
}
"""NVML's codes, which all these libraries keep, by their headers. Enflame's older API has others, and is not used."""

_PERCENTS = struct.Struct("=II")
_BUS_ID = 32
_PLACE = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", re.ASCII)
_CORE = 0
"""The sensor of the chip itself."""


class NvmlLike(Reader[Handle]):
    """Reads the devices of one row."""

    meanings = MEANINGS

    def __init__(self, row: Row, beat: Beat, nodes: OpenNodes) -> None:
        super().__init__(row, beat, nodes)
        self._row = row
        self.end = row.function("Shutdown")

    def start(self) -> None:
        """Load and initialise."""
        super().start()
        init = self._row.function("Init_v2")
        self._library.call(init, *([0] if init.endswith("WithFlags") else []))

    def driver_version(self) -> str:
        """Return the version of the driver."""
        return self._library.text(self._row.function("SystemGetDriverVersion"), size=80)

    def indices(self) -> Sequence[int]:
        """Count the devices."""
        return range(self._uint("DeviceGetCount_v2"))

    def open(self, index: int) -> Handle:
        """Open a device."""
        return self._library.handle(self._row.function("DeviceGetHandleByIndex_v2"), index)

    def identify(self, handle: Handle, index: int) -> Identity:
        """Name a device. Without a UUID or a serial number, its PCI address names it."""
        pci = known(self._pci, handle) or ""
        try:
            uuid = self._text(self._row.uuid, handle) if self._row.uuid else ""
        except (errors.UnsupportedError, errors.NoPermissionError):
            uuid = ""
        if not uuid and not pci:
            raise errors.CallError(self._row.function(self._row.uuid), f"device {index} has neither a name nor a place")
        return Identity(
            GpuUuid(uuid or f"{self.vendor}-{pci}"),
            known(self._text, "DeviceGetName", handle) or self.title,
            pci,
            known(self._uint, "DeviceGetMinorNumber", handle),
        )

    def memory(self, handle: Handle) -> Memory | None:
        """
        Read device memory.

        The sum of three figures does not show which of them is free, used and reserved. So the form with all three is
        believed if its free memory equals that of the plain form. Otherwise reserved counts as used.
        """

        def read(function: str, layout: MemoryLayout) -> Memory | None:
            after = self._library.structure(function, layout.size, handle, head=layout.version)
            return memory(function, after, layout)

        plain = read(self._row.function("DeviceGetMemoryInfo"), self._row.memory)
        try:
            with_reserved = self._first(self._row.reserved, read) if self._row.reserved else None
        except (errors.UnsupportedError, errors.InvalidArgumentError, errors.LayoutError):
            with_reserved = None
        return with_reserved if plain and with_reserved and agree(plain, with_reserved) else plain

    def processes(self, handle: Handle, total: int | None) -> Sequence[Listed]:
        """List the processes that hold memory."""

        def read(function: str, layouts: Sequence[Entry]) -> Sequence[Listed]:
            after, count, entry = self._library.list(function, layouts, handle)
            return () if entry is None else entries(function, after, count, entry, total)

        processes = self._first(self._row.processes, read)
        if self._row.own_entry:  # the daemon's own context, which holds no memory
            return tuple(process for process in processes if process.pid != os.getpid() or process.memory)
        return processes

    def utilization(self, handle: Handle) -> Utilization:
        """Read the utilization of the device."""
        function = self._row.function("DeviceGetUtilizationRates")
        busy, memory_controller = self._library.fields(function, _PERCENTS, handle, size=self._row.busy)
        return Utilization(busy=ratio(busy), memory_controller=ratio(memory_controller))

    def power(self, handle: Handle) -> float | None:
        """Read the power, which the library returns in milliwatts."""
        milliwatts = known(self._uint, "DeviceGetPowerUsage", handle)
        return None if milliwatts is None else milliwatts / 1000

    def temperature(self, handle: Handle) -> float | None:
        """Read the temperature."""
        return known(self._uint, "DeviceGetTemperature", handle, _CORE)

    def _first(self, versions: Sequence[tuple[str, L]], read: Callable[[str, L], T]) -> T:
        """
        Return the answer of the first version that the library knows and that proves its layout.

        Raises the LayoutError of a refused version, else the last error.
        """
        refused: errors.CallError | None = None
        for name, layout in versions:
            try:
                return read(self._row.function(name), layout)
            except (errors.UnsupportedError, errors.InvalidArgumentError, errors.LayoutError) as error:
                # A wrong layout says more than a missing function.
                refused = refused if isinstance(refused, errors.LayoutError) else error
        assert refused is not None  # noqa: S101  (each row has a version)
        raise refused

    def _pci(self, handle: Handle) -> str:
        function, size, at = self._row.pci
        answer = self._library.structure(self._row.function(function), size, handle)
        place = text(answer[at : at + _BUS_ID])
        return place if _PLACE.fullmatch(place) else ""

    def _text(self, function: str, handle: Handle) -> str:
        return self._library.text(self._row.function(function), handle)

    def _uint(self, function: str, *arguments: object) -> int:
        return self._library.uint(self._row.function(function), *arguments)
