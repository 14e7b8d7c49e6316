"""
The metrics: one file per topic, such as GPUs, devices or containers.

What comes in: the latest snapshot and the tally. What goes out: metric families, and the page for scrapers.

The rule: a page is rendered from the latest snapshot. Rendering reads no source, so a source that hangs cannot slow it.
To add a figure: describe it in `exporter.api`, and write its name and help into the file of its topic.
To add a topic: write a file with `FAMILIES` and `collect(snapshot)`, and add it below.
"""

from collections.abc import Callable, Mapping

from exporter.metrics import claims, containers, devices, gpus, integrals, limits, pods, process, rounds
from exporter.metrics.family import Families, Family
from exporter.model import Collector, Snapshot

SUBJECTS: tuple[tuple[str, tuple[Family, ...], Callable[[Snapshot], Families]], ...] = (
    ("GPUs", gpus.FAMILIES, gpus.collect),
    ("Devices", devices.FAMILIES, devices.collect),
    ("Containers", containers.FAMILIES, containers.collect),
    ("Declared limits", limits.FAMILIES, limits.collect),
    ("Claims", claims.FAMILIES, claims.collect),
    ("Pods", pods.FAMILIES, pods.collect),
)
"""The families of a snapshot, in the order of the page. `integrals` and `rounds` are apart: they are not withdrawn."""

CATALOGUE: Mapping[str, tuple[Family, ...]] = {
    **{topic: families for topic, families, _ in SUBJECTS},
    "Use over time": integrals.FAMILIES,
    "The daemon itself": rounds.FAMILIES,
}
"""All promised families of our own by topic, in the order of the page."""
STANDARD: Mapping[str, tuple[Family, ...]] = {"The daemon's process": process.FAMILIES}
"""The families that every exporter has, without labels of ours; last on the page."""

COLLECTED: Mapping[Collector, tuple[str, ...]] = {
    Collector.UTILIZATION: (
        "device_utilization_ratio",
        "device_memory_controller_utilization_ratio",
        "device_encoder_utilization_ratio",
        "device_decoder_utilization_ratio",
    ),
    Collector.PROCESS_UTILIZATION: (
        "container_sm_utilization_ratio",
        "container_sm_seconds_total",
        "container_encoder_utilization_ratio",
        "container_decoder_utilization_ratio",
    ),
    Collector.GPM: ("device_sm_utilization_ratio",),
    Collector.POWER: (
        "gpu_power_watts",
        "gpu_energy_joules_total",
        "gpu_power_limit_watts",
        "gpu_power_default_limit_watts",
    ),
    Collector.TEMPERATURE: (
        "gpu_temperature_celsius",
        "gpu_memory_temperature_celsius",
        "gpu_temperature_threshold_celsius",
    ),
    Collector.CLOCKS: ("gpu_clock_hertz",),
    Collector.THROTTLING: ("gpu_throttled",),
    Collector.ECC: ("gpu_ecc_errors_total",),
    Collector.HARDWARE: (
        "gpu_vbios_info",
        "gpu_row_remap_pending",
        "gpu_row_remap_failure",
        "gpu_page_retirement_pending",
        "gpu_pcie_replays_total",
        "gpu_remapped_rows",
        "gpu_row_remap_banks",
        "gpu_retired_pages",
        "gpu_recovery_action",
        "gpu_nvlink_errors_total",
    ),
    Collector.XID: ("gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"),
}
"""The families that are missing while a collector is off."""
