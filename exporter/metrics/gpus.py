"""
Physical GPUs: description, whether they answer, and health.

What comes in: the snapshot. What goes out: one series per GPU, never per MIG instance, because an instance has neither
a power meter nor ECC counters of its own. A figure that a GPU does not have is missing.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import Metric

from exporter.api.document import describe_gpu
from exporter.metrics.family import Family, Figure, counter, figure, gauge, info
from exporter.metrics.labels import GPU, NodeLabels, known_gpus
from exporter.model import Gpu, Snapshot

INFO = info(
    "gpu_info",
    (*GPU, "vendor", "model", "pci_bus_id", "driver_version", "mig"),
    "The physical GPU as its driver describes it; mig is true or false. Always 1, to be joined on uuid.",
)
UP = gauge("gpu_up", GPU, "1 if the GPU answered in the last round, 0 if the driver counts it but it did not answer.")


FIGURES: tuple[Figure, ...] = (
    figure("gpu_memory_total_bytes", "Memory of the whole GPU in bytes, also with MIG on (NVIDIA: NVML memory info)."),
    figure("gpu_power_watts", "Power drawn by the GPU in watts (NVIDIA: NVML power usage)."),
    figure(
        "gpu_energy_joules_total",
        "Energy used by the GPU in joules, as its driver counts it (NVIDIA: since the driver was loaded, NVML total "
        "energy consumption).",
    ),
    figure("gpu_temperature_celsius", "Temperature of the GPU die in degrees Celsius (NVIDIA: NVML temperature)."),
)

PARTS: tuple[tuple[Family, Callable[[Gpu], Mapping[str, float]]], ...] = (
    (
        gauge(
            "gpu_clock_hertz",
            (*GPU, "clock"),
            "Present frequency of a clock of the GPU in hertz (NVIDIA: NVML clock info).",
        ),
        lambda gpu: gpu.health.clocks_hertz,
    ),
    (
        gauge(
            "gpu_throttled",
            (*GPU, "reason"),
            "1 while the GPU lowers its clocks for this reason, else 0 (NVIDIA only: NVML clocks event reasons).",
        ),
        lambda gpu: gpu.health.throttled or {},
    ),
    (
        counter(
            "gpu_ecc_errors_total",
            (*GPU, "severity"),
            "ECC errors of the GPU's memories by severity since its driver was loaded (NVIDIA only: NVML volatile ECC "
            "counters).",
        ),
        lambda gpu: gpu.health.ecc_errors,
    ),
)
"""Families with a last label for the clock, reason or severity."""

XIDS = counter(
    "gpu_xid_errors_total",
    (*GPU, "xid"),
    "XID errors that the driver reported for the GPU since the daemon started, by number (NVIDIA only: NVML events). "
    "The common numbers start at 0. increase() misses the first error of any other number: see "
    "gpu_xid_last_timestamp_seconds.",
)
LAST_XID = gauge(
    "gpu_xid_last_timestamp_seconds",
    (*GPU, "xid"),
    "Unix time at which the driver last reported this XID error of the GPU to the daemon (NVIDIA only: NVML events). "
    "No sample before the first.",
)

FAMILIES = (INFO, UP, *(family for family, _ in (*FIGURES, *PARTS)), XIDS, LAST_XID)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield info, figures and XID errors of each physical GPU."""
    labels_of = NodeLabels(snapshot).gpu
    known = known_gpus(snapshot)
    rows = [(labels_of(gpu.uuid), gpu) for gpu in snapshot.gpus]
    answered = {gpu.uuid for gpu in snapshot.gpus}
    silent = [labels_of(uuid) for uuid in snapshot.gpus_present if uuid not in answered]
    yield INFO.of((labels_of(gpu.uuid, **_description(gpu)), 1) for gpu in snapshot.gpus)
    yield UP.of([*((labels, 1) for labels, _ in rows), *((labels, 0) for labels in silent)])
    described = [(labels, describe_gpu(gpu)) for labels, gpu in rows]
    for family, read in FIGURES:
        yield family.of((labels, read(gpu)) for labels, gpu in described)
    for family, read_all in PARTS:
        label = family.labels[-1]
        yield family.of((labels | {label: key}, value) for labels, gpu in rows for key, value in read_all(gpu).items())
    # Also for GPUs that do not answer: then their XID errors matter most.
    xids = [
        (labels_of(uuid, xid=str(code)), errors)
        for uuid in sorted(known, key=known.__getitem__)
        for code, errors in snapshot.xid_errors.get(uuid, {}).items()
    ]
    yield XIDS.of((labels, errors.count) for labels, errors in xids)
    yield LAST_XID.of((labels, errors.last_at) for labels, errors in xids)


def _description(gpu: Gpu) -> dict[str, str]:
    return {
        "vendor": gpu.vendor,
        "model": gpu.model,
        "pci_bus_id": gpu.pci_bus_id,
        "driver_version": gpu.driver_version,
        "mig": str(gpu.mig).lower(),
    }
