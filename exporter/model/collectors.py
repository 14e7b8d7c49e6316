"""
The figures that an operator can switch off, in groups.

What comes in: nothing. What goes out: their names.

The rule: a group that is off is not asked of any driver. What a limit needs (devices, memory, processes) is in no
group.
"""

from collections.abc import Mapping
from enum import StrEnum


class Collector(StrEnum):
    """A group of figures."""

    UTILIZATION = "utilization"
    PROCESS_UTILIZATION = "process_utilization"
    GPM = "gpm"
    POWER = "power"
    TEMPERATURE = "temperature"
    CLOCKS = "clocks"
    THROTTLING = "throttling"
    ECC = "ecc"
    HARDWARE = "hardware"
    XID = "xid"


COLLECTORS: Mapping[Collector, str] = {
    Collector.UTILIZATION: "the utilization of each GPU, its memory controller and video engines",
    Collector.PROCESS_UTILIZATION: "the utilization of each process, for that of containers",
    Collector.GPM: "the SM utilization of GPUs and MIG instances by GPM (NVIDIA: Hopper and later)",
    Collector.POWER: "power, energy and the power limit",
    Collector.TEMPERATURE: "the temperatures of the GPU and its memory, and their thresholds",
    Collector.CLOCKS: "the clocks",
    Collector.THROTTLING: "the reasons for lowered clocks (NVIDIA)",
    Collector.ECC: "the counters of ECC errors (NVIDIA)",
    Collector.HARDWARE: "repairs of the memory, the recovery action, errors of NVLink and PCIe, the VBIOS (NVIDIA)",
    Collector.XID: "the driver's events of XID errors (NVIDIA)",
}
"""What each of them reads."""

Off = frozenset[Collector]
"""The collectors that are switched off."""
ALL_ON: Off = frozenset()
