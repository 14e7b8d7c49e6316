"""
Health figures of the physical GPU: power, energy, temperature, clocks, reasons for lowered clocks, ECC errors.

What comes in: a handle. What goes out: `Health`, in which a figure that this GPU does not have is missing, never 0.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from exporter.devices.device_faults import DeviceFaults
from exporter.devices.nvml.library import CLOCKS, ECC, Handle, Library
from exporter.model import Collector, Health

T = TypeVar("T")

THROTTLES: Mapping[str, int] = {
    "applications_clocks_setting": 0x02,
    "sw_power_cap": 0x04,
    "hw_slowdown": 0x08,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
"""
NVML's names for the reasons of lowered clocks.

Its first bit, gpu_idle, is left out: an idle GPU is not throttled.
"""

ALL = ~0


def read_health(library: Library, handle: Handle, known_throttles: int, faults: DeviceFaults) -> Health:
    """Read the figures of a GPU. `known_throttles`: the mask of the reasons for lowered clocks that it can report."""
    limits = faults.collected(Collector.THROTTLING, library.clock_limits, handle)
    return Health(
        power_watts=faults.collected(Collector.POWER, library.power, handle),
        energy_joules=faults.collected(Collector.POWER, library.energy, handle),
        temperature_celsius=faults.collected(Collector.TEMPERATURE, library.temperature, handle),
        clocks_hertz=_by_name(CLOCKS, lambda clock: faults.collected(Collector.CLOCKS, library.clock, handle, clock)),
        throttled=None
        if limits is None
        else {name: bool(limits & bit) for name, bit in THROTTLES.items() if known_throttles & bit},
        ecc_errors=_by_name(
            ECC, lambda severity: faults.collected(Collector.ECC, library.ecc_errors, handle, severity)
        ),
    )


def _by_name(names: Iterable[str], ask: Callable[[str], T | None]) -> dict[str, T]:
    return {name: answer for name in names if (answer := ask(name)) is not None}
