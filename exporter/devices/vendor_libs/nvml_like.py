"""
A library of NVML's shape, read by its row.

What comes in: a row (`rows`). What goes out: the answers of `reading.Reader`.

The law: one code path for all; whatever differs stands in the row. Of several versions of a call the first that the
library knows is taken, and what it wrote must be laid out as the row says.
"""

import os
import re
import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from exporter.devices.vendor_libs.errors import (
    CallError,
    InvalidArgumentError,
    LayoutError,
    LibraryError,
    NoPermissionError,
    UnsupportedError,
)
from exporter.devices.vendor_libs.layouts import Entry, Listed, MemoryLayout, agree, entries, memory, ratio, written
from exporter.devices.vendor_libs.native import Handle, Native, known
from exporter.devices.vendor_libs.read_device import Identity
from exporter.devices.vendor_libs.rows import MEANINGS, Row
from exporter.model import GpuInstance, GpuUuid, Health, Memory, ProcessUtilization, Utilization

L = TypeVar("L")
T = TypeVar("T")

_PERCENTS = struct.Struct("=II")
_BUS_ID = 32
_PLACE = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", re.ASCII)
_CORE = 0
"""The sensor of the chip itself."""
_UNLIKELY = 10_000_000
_BOILING = 1000
"""Milliwatts and degrees from which on a figure is none."""


class NvmlLike:
    """Reads the devices of one row; `names` of its library in place of those in the row."""

    def __init__(self, row: Row, beat: Callable[[str], None], names: Sequence[str] = ()) -> None:
        self.name = row.name
        self.vendor = row.vendor
        self.title = row.title
        self._row = row
        self._library = Native(names or row.libraries, MEANINGS, beat)

    def start(self) -> None:
        """Load and initialise."""
        self._library.load()
        init = self._row.function("Init_v2")
        if init.endswith("WithFlags"):
            self._library.call(init, 0)
        else:
            self._library.call(init)

    def stop(self) -> None:
        """Shut down."""
        try:
            self._library.call(self._row.function("Shutdown"))
        except LibraryError:
            return

    def driver_version(self) -> str:
        """Give the version of the driver."""
        return self._library.text(self._row.function("SystemGetDriverVersion"), size=80)

    def indices(self) -> Sequence[int]:
        """Count the devices."""
        return range(self._library.uint(self._row.function("DeviceGetCount_v2")))

    def open(self, index: int) -> Handle:
        """Open a device."""
        return self._library.handle(self._row.function("DeviceGetHandleByIndex_v2"), index)

    def identify(self, handle: Handle, index: int) -> Identity:
        """Name a device. Where it has no UUID and no serial number, its place on the bus names it."""
        pci = known(lambda: self._pci(handle), "")
        try:
            uuid = self._text(self._row.uuid, handle) if self._row.uuid else ""
        except (UnsupportedError, NoPermissionError):
            uuid = ""
        if not uuid and not pci:
            raise CallError(self._row.function(self._row.uuid), f"device {index} has neither a name nor a place")
        return Identity(
            GpuUuid(uuid or f"{self.vendor}-{pci}"),
            known(lambda: self._text("DeviceGetName", handle), "") or self.title,
            pci,
            known(lambda: self._library.uint(self._row.function("DeviceGetMinorNumber"), handle), None),
        )

    def memory(self, handle: Handle) -> Memory | None:
        """
        Read device memory.

        Which of three figures is free, used and reserved cannot be told by their sum. So the form that has them all is
        believed where it calls as much free as the plain one does; else reserved counts as used.
        """

        def read(function: str, layout: MemoryLayout) -> Memory | None:
            after = self._library.structure(function, layout.size, handle, head=layout.version)
            return memory(function, after, layout)

        plain = read(self._row.function("DeviceGetMemoryInfo"), self._row.memory)
        try:
            found = self._first(self._row.reserved, read) if self._row.reserved else None
        except (UnsupportedError, InvalidArgumentError, LayoutError):
            found = None
        return found if plain and found and agree(plain, found) else plain

    def processes(self, handle: Handle, total: int | None) -> Sequence[Listed]:
        """List who holds memory."""

        def read(function: str, layouts: Sequence[Entry]) -> Sequence[Listed]:
            after, count, entry = self._library.list(function, layouts, handle)
            return () if entry is None else entries(function, after, count, entry, total)

        found = self._first(self._row.processes, read)
        if self._row.own_entry:  # the daemon's own context, which holds nothing
            return tuple(each for each in found if each.pid != os.getpid() or each.memory)
        return found

    def utilization(self, handle: Handle) -> Utilization:
        """Read how busy the device is."""
        function = self._row.function("DeviceGetUtilizationRates")
        after = self._library.structure(function, self._row.busy, handle)
        if not _PERCENTS.size <= written(after) <= self._row.busy:
            raise LayoutError(function, f"{written(after)} bytes were written, not {self._row.busy}")
        busy, memory_controller = _PERCENTS.unpack_from(after)
        return Utilization(busy=ratio(busy), memory_controller=ratio(memory_controller))

    def process_utilization(self, handle: Handle) -> Sequence[ProcessUtilization] | None:  # noqa: ARG002
        """Say nothing: who counts so is not known of any of these."""
        return None

    def health(self, handle: Handle) -> Health:
        """Read power (the library says milliwatts) and temperature."""
        power = known(lambda: self._library.uint(self._row.function("DeviceGetPowerUsage"), handle), None)
        heat = known(lambda: self._library.uint(self._row.function("DeviceGetTemperature"), handle, _CORE), None)
        return Health(
            power_watts=None if power is None or power >= _UNLIKELY else power / 1000,
            temperature_celsius=None if heat is None or heat >= _BOILING else float(heat),
        )

    def instances(self, handle: Handle) -> tuple[GpuInstance, ...]:  # noqa: ARG002
        """Say that it is whole: how these libraries divide a device was never seen."""
        return ()

    def _first(self, versions: Sequence[tuple[str, L]], read: Callable[[str, L], T]) -> T:
        """Take the first version that the library knows and that proves itself; else say why none did."""
        refused: CallError | None = None
        for name, layout in versions:
            try:
                return read(self._row.function(name), layout)
            except (UnsupportedError, InvalidArgumentError, LayoutError) as error:
                # What is laid out otherwise says more than what is not there.
                refused = refused if isinstance(refused, LayoutError) else error
        assert refused is not None  # noqa: S101  (each row has a version)
        raise refused

    def _pci(self, handle: Handle) -> str:
        function, size, at = self._row.pci
        after = self._library.structure(self._row.function(function), size, handle)
        place = after[at : at + _BUS_ID].split(b"\0")[0].decode("ascii", "replace")
        return place if _PLACE.fullmatch(place) else ""

    def _text(self, function: str, handle: Handle) -> str:
        return self._library.text(self._row.function(function), handle)
