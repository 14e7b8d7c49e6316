"""
The condition of a GPU's hardware: repairs of its memory, the recovery action, link errors, limits, the VBIOS.

What comes in: a GPU, round after round. What goes out: its `Hardware`, and in each round the memory's temperature.

The rule: **what changes seldom is read seldom, and what a GPU does not have is asked once.** A minute after the last
reading, one call reads all fields, and two more read the power limit and the spare rows. Constants are read once. A
figure that failed is absent until the next reading, and is a fault in each round until then. "Not supported" is
remembered until the GPU is lost and comes back, or until MIG instances appear or vanish: with instances the driver
does not report remapped rows (nvmlDeviceGetRemappedRows in nvml.h).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import pynvml

from exporter.devices.device_faults import DeviceFaults
from exporter.devices.errors import CallError, InvalidArgumentError, LibraryError, UnsupportedError
from exporter.devices.nvml.errors import refusal
from exporter.devices.nvml.fields import ALL_LINKS, FUNCTION, Field
from exporter.devices.nvml.inventory import FoundGpu
from exporter.devices.nvml.library import THRESHOLDS, Library
from exporter.model import ALL_ON, Collector, GpuUuid, Hardware, Off

P = ParamSpec("P")
T = TypeVar("T")

SELDOM = 60.0
"""Seconds between two readings. An XID event reports a change of the recovery action at once (154)."""
HOTTEST = 200
"""Degrees Celsius above which a temperature is no answer, as in DCGM (DcgmCacheManager.cpp)."""

MEMORY_TEMPERATURE = Field(pynvml.NVML_FI_DEV_MEMORY_TEMP)
REMAP_PENDING = Field(pynvml.NVML_FI_DEV_REMAPPED_PENDING)
REMAP_FAILURE = Field(pynvml.NVML_FI_DEV_REMAPPED_FAILURE)
RETIREMENT_PENDING = Field(pynvml.NVML_FI_DEV_RETIRED_PENDING)
RECOVERY_ACTION = Field(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
PCIE_REPLAYS = Field(pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER)
REMAPPED = {
    "correctable": Field(pynvml.NVML_FI_DEV_REMAPPED_COR),
    "uncorrectable": Field(pynvml.NVML_FI_DEV_REMAPPED_UNC),
}
RETIRED = {
    "single_bit": Field(pynvml.NVML_FI_DEV_RETIRED_SBE),
    "double_bit": Field(pynvml.NVML_FI_DEV_RETIRED_DBE),
}
NVLINK = {
    "crc_flit": Field(pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL),
    "crc_data": Field(pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL),
    "replay": Field(pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL),
    "recovery": Field(pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL),
    "ecc_data": Field(pynvml.NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL),
    # NVLink 5 (Blackwell) has none of those.
    "receive": Field(pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, ALL_LINKS),
    "transmit_discard": Field(pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS, ALL_LINKS),
    "link_integrity": Field(pynvml.NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS, ALL_LINKS),
    "link_recovery": Field(pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, ALL_LINKS),
    "link_recovery_failed": Field(pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, ALL_LINKS),
    "effective": Field(pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, ALL_LINKS),
    "symbol": Field(pynvml.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, ALL_LINKS),
}
"""NVLink errors by kind, each the sum of all links of the GPU."""
FIELDS = (
    *(*REMAPPED.values(), REMAP_PENDING, REMAP_FAILURE, *RETIRED.values(), RETIREMENT_PENDING),
    *(RECOVERY_ACTION, PCIE_REPLAYS, *NVLINK.values()),
)
"""What one call reads."""

ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: "none",
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "gpu_reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "node_reboot",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "drain_p2p",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain_and_reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: "recover_imex_domain",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "bus_reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "system_reboot",
}
"""Names of NVML's numbers (R570 and later); a number of a later driver is its own name."""


@dataclass(slots=True)
class _Kept:
    """What is remembered of one GPU. `missing`: fields and calls that it does not have."""

    divided: bool
    missing: set[object] = field(default_factory=set)
    constants: dict[str, object] = field(default_factory=dict)
    read_at: float | None = None
    hardware: Hardware = field(default_factory=Hardware)
    errors: tuple[LibraryError, ...] = ()


class HardwareReader:
    """The hardware of all GPUs. On the driver thread only; `monotonic` returns seconds."""

    def __init__(self, library: Library, monotonic: Callable[[], float], off: Off = ALL_ON) -> None:
        self._library = library
        self._monotonic = monotonic
        self._off = off
        self._kept: dict[GpuUuid, _Kept] = {}

    def read(self, gpu: FoundGpu, faults: DeviceFaults, *, divided: bool) -> Hardware:
        """Return the figures of the last minute; `divided`: the GPU has MIG instances. Raises DeviceLostError."""
        kept, now = self._of(gpu.uuid, divided=divided), self._monotonic()
        if kept.read_at is None or now - kept.read_at >= SELDOM:
            reading = _Reading(self._library, gpu, kept)
            kept.hardware, kept.errors = reading.all(self._off), tuple(reading.errors)
            kept.read_at = now
        faults.unread(kept.errors)
        return kept.hardware

    def memory_temperature(self, gpu: FoundGpu, faults: DeviceFaults, *, divided: bool) -> float | None:
        """Return degrees Celsius now. Raises DeviceLostError."""
        if Collector.TEMPERATURE in self._off:
            return None
        reading = _Reading(self._library, gpu, self._of(gpu.uuid, divided=divided))
        degrees = reading.fields([MEMORY_TEMPERATURE]).get(MEMORY_TEMPERATURE)
        if degrees is not None and degrees > HOTTEST:
            reading.errors.append(refusal(f"{FUNCTION}({MEMORY_TEMPERATURE.id})", 0, f"{degrees} °C of the memory"))
            degrees = None
        faults.unread(reading.errors)
        return degrees

    def keep(self, there: Collection[GpuUuid]) -> None:
        """Forget the others: a GPU that was lost may come back with another mode of ECC, or another VBIOS."""
        for uuid in self._kept.keys() - there:
            del self._kept[uuid]

    def close(self) -> None:
        """Forget all GPUs, with the library."""
        self._kept.clear()

    def _of(self, uuid: GpuUuid, *, divided: bool) -> _Kept:
        kept = self._kept.get(uuid)
        if kept is None or kept.divided != divided:
            kept = self._kept[uuid] = _Kept(divided)
        return kept


class _Reading:
    """One reading of one GPU, with the errors of what it did not answer."""

    def __init__(self, library: Library, gpu: FoundGpu, kept: _Kept) -> None:
        self._library = library
        self._handle = gpu.handle
        self._kept = kept
        self.errors: list[LibraryError] = []

    def all(self, off: Off) -> Hardware:
        library, handle = self._library, self._handle
        hardware, power = Collector.HARDWARE not in off, Collector.POWER not in off
        thresholds = THRESHOLDS if Collector.TEMPERATURE not in off else ()
        values = self.fields(FIELDS if hardware else ())
        action = values.get(RECOVERY_ACTION)
        return Hardware(
            vbios_version=self._constant("vbios", library.vbios_version, handle) if hardware else None,
            power_limit_watts=self._ask("power limit", library.power_limit, handle) if power else None,
            power_default_limit_watts=self._constant("default limit", library.power_default_limit, handle)
            if power
            else None,
            temperature_thresholds_celsius={
                name: degrees
                for name in thresholds
                if (degrees := self._constant(name, library.temperature_threshold, handle, name)) is not None
            },
            remapped_rows=_named(values, REMAPPED),
            row_remap_pending=_yes(values.get(REMAP_PENDING)),
            row_remap_failure=_yes(values.get(REMAP_FAILURE)),
            row_remap_banks=(self._ask("banks", library.row_remap_banks, handle) if hardware else None) or {},
            retired_pages=_named(values, RETIRED),
            page_retirement_pending=_yes(values.get(RETIREMENT_PENDING)),
            recovery_action=None if action is None else ACTIONS.get(action, str(action)),
            nvlink_errors=_named(values, NVLINK),
            pcie_replays=values.get(PCIE_REPLAYS),
        )

    def fields(self, fields: Iterable[Field]) -> dict[Field, int]:
        """Read the fields that the GPU has."""
        asked = [one for one in fields if one not in self._kept.missing]
        if not asked:
            return {}
        try:
            answers = self._library.fields(self._handle, asked)
        except UnsupportedError:
            self._kept.missing.update(asked)
            return {}
        except CallError as error:
            self.errors.append(error)
            return {}
        values = {}
        for one, answer in zip(asked, answers, strict=True):
            match answer:
                case int():
                    values[one] = answer
                case UnsupportedError() | InvalidArgumentError():  # the latter: a field that the driver does not know
                    self._kept.missing.add(one)
                case CallError():
                    self.errors.append(answer)
                case _:
                    raise answer
        return values

    def _ask(self, name: str, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        if name in self._kept.missing:
            return None
        try:
            return question(*args, **kwargs)
        except UnsupportedError:
            self._kept.missing.add(name)
        except CallError as error:
            self.errors.append(error)
        return None

    def _constant(self, name: str, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        if name not in self._kept.constants and (answer := self._ask(name, question, *args, **kwargs)) is not None:
            self._kept.constants[name] = answer
        return self._kept.constants.get(name)  # type: ignore[return-value]


def _named(values: Mapping[Field, int], fields: Mapping[str, Field]) -> dict[str, int]:
    return {name: values[one] for name, one in fields.items() if one in values}


def _yes(value: int | None) -> bool | None:
    return None if value is None else bool(value)
