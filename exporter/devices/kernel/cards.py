"""
The kernel's GPUs of AMD and Intel, and their figures: `/sys/class/drm` and hwmon.

What comes in: a sysfs, and the collectors that are off. What goes out: one `Card` for each GPU.

The rule: a missing figure is None. Figures of load, power and temperature are the physical GPU's, also where it is
divided. Formats: https://docs.kernel.org/gpu/amdgpu/driver-misc.html and https://docs.kernel.org/hwmon/.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from exporter.devices.kernel.sums import known_sum
from exporter.devices.kernel.tree import Tree
from exporter.model import ALL_ON, Collector, Health, Memory, Off, Utilization, vendors

VENDORS: Mapping[str, str] = {driver: vendor.name for vendor in vendors.VENDORS for driver in vendor.drivers}
"""Driver to vendor. Other DRM drivers (nouveau, ast, vgem ...) report no memory."""
DRM = "class/drm"
INTEGRATED = "0000:00:02.0"
"""
The address of all of Intel's integrated GPUs.

A discrete one is behind a bridge, or (in a virtual machine) has tiles.
"""

_RENDER = 128
_NUMBERED = re.compile(r"(card|renderD)(\d+)", re.ASCII)
_CLOCKS = {"sclk": "graphics", "mclk": "memory"}
_MICRO, _MILLI, _PERCENT = 1e6, 1e3, 100


@dataclass(frozen=True, slots=True)
class Card:
    """
    A physical GPU.

    Attributes:
        pci: address, in lower case.
        number: of its `/dev/dri/card<number>`; it may change at a reboot.
        minors: of its device nodes, card and render, without those of its partitions.
        mode: of its partitions (SPX: one, CPX: one for each die); empty where it cannot be divided.
        capacity: bytes of its own memory; known also where the driver reports no usage.
        integrated: it uses the host's memory.

    """

    pci: str
    driver: str
    number: int | None = None
    minors: frozenset[int] = frozenset()
    model: str = ""
    driver_version: str = ""
    memory: Memory | None = None
    capacity: int | None = None
    mode: str = ""
    integrated: bool = False
    utilization: Utilization = field(default_factory=Utilization)
    health: Health = field(default_factory=Health)

    @property
    def names(self) -> tuple[str, ...]:
        """Its render nodes, by which AMD's DRA driver names it."""
        return tuple(f"renderD{minor}" for minor in sorted(self.minors) if minor >= _RENDER)

    @property
    def vendor(self) -> str:
        """The vendor's name in `exporter.model.vendors`."""
        return VENDORS[self.driver]


@dataclass(frozen=True, slots=True)
class _Place:
    """The ids of a device, and the folder of its files."""

    pci: str
    driver: str
    pci_id: str
    folder: str


def read_cards(sys: Tree, wanted: Callable[[str], bool] = VENDORS.__contains__, off: Off = ALL_ON) -> tuple[Card, ...]:
    """Read all GPUs whose driver is `wanted`, in the order of their addresses."""
    nodes: dict[str, dict[str, set[int]]] = {}
    drivers: dict[str, _Place] = {}
    for name in sys.names(DRM):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            continue  # a connector (card0-DP-1), or the file `version`
        event = _event(sys.text(f"{DRM}/{name}/device/uevent") or "")
        pci, driver = event.get("PCI_SLOT_NAME", "").lower(), event.get("DRIVER", "")
        if pci and driver in VENDORS and wanted(driver):
            nodes.setdefault(pci, {"card": set(), "renderD": set()})[match[1]].add(int(match[2]))
            drivers[pci] = _Place(pci, driver, event.get("PCI_ID", "").lower(), f"{DRM}/{name}/device")
    return tuple(_card(sys, drivers[pci], nodes[pci], off) for pci in sorted(nodes))


def partition_names(sys: Tree) -> Mapping[int, str]:
    """Name the render nodes of partitions: minor to device, such as `amdgpu_xcp_3`, as AMD's device plugin does."""
    names = {}
    for name in sys.names(DRM):
        match = _NUMBERED.fullmatch(name)
        if match is not None and match[1] == "renderD":
            device = sys.target(f"{DRM}/{name}/device")
            if device.startswith("amdgpu_xcp"):
                names[int(match[2])] = device.lower()
    return names


def _event(text: str) -> Mapping[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _card(sys: Tree, place: _Place, nodes: Mapping[str, set[int]], off: Off) -> Card:
    driver, folder = place.driver, place.folder
    product = (sys.text(f"{folder}/product_name") or "").strip()
    total, used = sys.number(f"{folder}/mem_info_vram_total"), sys.number(f"{folder}/mem_info_vram_used")
    number = min(nodes["card"], default=None)
    capacity = total if total is not None else _tiles(sys, folder)
    return Card(
        pci=place.pci,
        driver=driver,
        number=number,
        minors=frozenset(nodes["card"] | nodes["renderD"]),
        model=product or f"{VENDORS[driver]} {place.pci_id}".strip(),
        driver_version=(sys.text(f"module/{driver}/version") or "").strip(),
        memory=None if total is None or used is None else Memory(total, max(0, total - used)),
        capacity=capacity,
        mode=(sys.text(f"{folder}/current_compute_partition") or "").strip().upper(),
        integrated=driver != "amdgpu" and place.pci == INTEGRATED and capacity is None,
        utilization=Utilization() if Collector.UTILIZATION in off else _utilization(sys, folder),
        health=_health(sys, folder, off),
    )


def _tiles(sys: Tree, folder: str) -> int | None:
    """Add up the memory of an xe device's tiles. Its driver reports the size, and not the usage."""
    tiles = [name for name in sys.names(folder) if re.fullmatch(r"tile\d+", name, re.ASCII)]
    return known_sum(sys.number(f"{folder}/{tile}/physical_vram_size_bytes") or None for tile in tiles)


def _utilization(sys: Tree, folder: str) -> Utilization:
    busy, memory_busy = sys.number(f"{folder}/gpu_busy_percent"), sys.number(f"{folder}/mem_busy_percent")
    return Utilization(busy=_ratio(busy), memory_controller=_ratio(memory_busy))


def _health(sys: Tree, folder: str, off: Off) -> Health:
    monitors = sys.names(f"{folder}/hwmon")
    if not monitors:
        return Health()
    hwmon = f"{folder}/hwmon/{monitors[0]}"

    def figure(collector: Collector, name: str, unit: float) -> float | None:
        number = None if collector in off else sys.number(f"{hwmon}/{name}")
        return None if number is None else number / unit

    power = figure(Collector.POWER, "power1_average", _MICRO)
    clocks = {}
    for place in () if Collector.CLOCKS in off else ("freq1", "freq2"):
        clock = _CLOCKS.get((sys.text(f"{hwmon}/{place}_label") or "").strip())
        hertz = sys.number(f"{hwmon}/{place}_input")
        if clock and hertz is not None:
            clocks[clock] = float(hertz)
    return Health(
        power_watts=figure(Collector.POWER, "power1_input", _MICRO) if power is None else power,
        energy_joules=figure(Collector.POWER, "energy1_input", _MICRO),
        temperature_celsius=figure(Collector.TEMPERATURE, "temp1_input", _MILLI),
        clocks_hertz=clocks,
    )


def _ratio(percent: int | None) -> float | None:
    return None if percent is None or not 0 <= percent <= _PERCENT else percent / _PERCENT
