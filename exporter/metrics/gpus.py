"""
Physical GPUs: description, whether they answer, and health.

What comes in: the snapshot. What goes out: one series per GPU, never per MIG instance, because an instance has neither
a power meter nor ECC counters of its own. A figure that a GPU does not have is missing.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import Metric

from exporter.api.document import describe_gpu
from exporter.metrics.family import Family, Figure, Kept, Lasting, Row, counter, figure, gauge, info
from exporter.metrics.labels import GPU, NodeLabels, known_gpus
from exporter.model import Gpu, GpuUuid, Snapshot

INFO = info(
    "gpu_info",
    (*GPU, "vendor", "model", "pci_bus_id", "driver_version", "mig"),
    "The physical GPU as its driver describes it; mig is true or false. Always 1, to be joined on uuid.",
)
VBIOS = info(
    "gpu_vbios_info",
    (*GPU, "vbios_version"),
    "The version of the GPU's VBIOS, its firmware (NVIDIA only: NVML VBIOS version). Always 1, to be joined on uuid.",
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
    figure(
        "gpu_memory_temperature_celsius",
        "Temperature of the GPU's memory in degrees Celsius (NVIDIA only: NVML field MEMORY_TEMP).",
    ),
)

CONDITION: tuple[Figure, ...] = (
    figure(
        "gpu_power_limit_watts",
        "Power in watts below which the driver keeps the GPU, by the lowest of its limits; read once a minute (NVIDIA "
        "only: NVML enforced power limit).",
    ),
    figure(
        "gpu_power_default_limit_watts",
        "Power limit in watts with which the GPU starts (NVIDIA only: NVML power management default limit).",
    ),
    figure(
        "gpu_row_remap_pending",
        "1 if rows of the GPU's memory are replaced at the next reset of the GPU, else 0 (NVIDIA only, Ampere and "
        "later: NVML field REMAPPED_PENDING).",
    ),
    figure(
        "gpu_row_remap_failure",
        "1 if a row of the GPU's memory could not be replaced, else 0; once 1, it stays so (NVIDIA only, Ampere and "
        "later: NVML field REMAPPED_FAILURE).",
    ),
    figure(
        "gpu_page_retirement_pending",
        "1 if pages of the GPU's memory are taken out of use when the driver is loaded again, else 0 (NVIDIA only, "
        "before Ampere: NVML field RETIRED_PENDING).",
    ),
    figure(
        "gpu_pcie_replays_total",
        "Packets that the GPU had to send again over PCIe (NVIDIA only: NVML field PCIE_REPLAY_COUNTER).",
    ),
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

CONDITION_PARTS: tuple[tuple[Family, Callable[[Gpu], Mapping[str, float]]], ...] = (
    (
        gauge(
            "gpu_temperature_threshold_celsius",
            (*GPU, "threshold"),
            "Temperature in degrees Celsius at which the GPU shuts down, or lowers its clocks, by its own or its "
            "memory's heat (NVIDIA only: NVML temperature thresholds).",
        ),
        lambda gpu: gpu.hardware.temperature_thresholds_celsius,
    ),
    (
        gauge(
            "gpu_remapped_rows",
            (*GPU, "cause"),
            "Rows of the GPU's memory that were ever replaced by spare ones, by the kind of error (NVIDIA only, Ampere "
            "and later: NVML fields REMAPPED_COR and REMAPPED_UNC).",
        ),
        lambda gpu: gpu.hardware.remapped_rows,
    ),
    (
        gauge(
            "gpu_row_remap_banks",
            (*GPU, "availability"),
            "Banks of the GPU's memory by how many of their spare rows are left: max is all, none is none (NVIDIA "
            "only, Ampere and later: NVML row remapper histogram).",
        ),
        lambda gpu: gpu.hardware.row_remap_banks,
    ),
    (
        gauge(
            "gpu_retired_pages",
            (*GPU, "cause"),
            "Pages of the GPU's memory that were ever taken out of use, by the kind of error (NVIDIA only, before "
            "Ampere: NVML fields RETIRED_SBE and RETIRED_DBE).",
        ),
        lambda gpu: gpu.hardware.retired_pages,
    ),
    (
        gauge(
            "gpu_recovery_action",
            (*GPU, "action"),
            "1 for what the GPU needs to work again, by its driver; none if it needs nothing. Other actions have no "
            "sample (NVIDIA only, R570 and later: NVML field GET_GPU_RECOVERY_ACTION).",
        ),
        lambda gpu: {gpu.hardware.recovery_action: 1} if gpu.hardware.recovery_action else {},
    ),
    (
        counter(
            "gpu_nvlink_errors_total",
            (*GPU, "error"),
            "Errors on all NVLinks of the GPU by kind, as its driver counts them (NVIDIA only: NVML fields NVLINK_*; "
            "NVLink 5 has other kinds).",
        ),
        lambda gpu: gpu.hardware.nvlink_errors,
    ),
)
"""Those of what changes seldom (`Hardware`)."""

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

FAMILIES = (
    *(INFO, VBIOS, UP),
    *(family for family, _ in (*FIGURES, *CONDITION, *PARTS, *CONDITION_PARTS)),
    *(XIDS, LAST_XID),
)

_SELDOM: Kept[tuple[list[Metric], list[Metric], list[Metric]]] = Kept()
_XIDS: Kept[list[Metric]] = Kept()


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield info, figures and XID errors of each physical GPU."""
    labels = NodeLabels(snapshot)
    known = known_gpus(snapshot)
    rows = [(labels.gpu(gpu.uuid), gpu) for gpu in snapshot.gpus]
    answered = {gpu.uuid for gpu in snapshot.gpus}
    silent = [labels.gpu(uuid) for uuid in snapshot.gpus_present if uuid not in answered]
    basis = (snapshot.node, [(gpu.uuid, gpu.index, gpu.hardware, *_description(gpu).values()) for gpu in snapshot.gpus])
    if (seldom := _SELDOM.of(basis)) is None:
        seldom = _SELDOM.keep(basis, _seldom(snapshot, labels))
    described, condition, condition_parts = seldom
    yield from described
    yield UP.of([*((labels, 1) for labels, _ in rows), *((labels, 0) for labels in silent)])
    figures = [(labels, describe_gpu(gpu)) for labels, gpu in rows]
    for family, read in FIGURES:
        yield family.of((labels, read(gpu)) for labels, gpu in figures)
    yield from condition
    for family, read_all in PARTS:
        yield family.of(_each(family, read_all, snapshot, labels))
    yield from condition_parts
    errors = (snapshot.node, known, snapshot.xid_errors)
    if (xids := _XIDS.of(errors)) is None:
        xids = _XIDS.keep(errors, _xids(snapshot, labels, known))
    yield from xids


def _seldom(snapshot: Snapshot, labels: NodeLabels) -> tuple[list[Metric], list[Metric], list[Metric]]:
    """Make the families of what does not change, or seldom: info and VBIOS; the condition; its parts."""
    gpus = snapshot.gpus
    versions = ((gpu.uuid, gpu.hardware.vbios_version) for gpu in gpus)
    info = ((labels.gpu(gpu.uuid, **_description(gpu)), 1) for gpu in gpus)
    vbios = ((labels.gpu(uuid, vbios_version=version), 1) for uuid, version in versions if version)
    figures = [(labels.gpu(gpu.uuid), describe_gpu(gpu)) for gpu in gpus]
    return (
        [INFO.of(info, Lasting), VBIOS.of(vbios, Lasting)],
        [family.of(((own, read(gpu)) for own, gpu in figures), Lasting) for family, read in CONDITION],
        [family.of(_each(family, read_all, snapshot, labels), Lasting) for family, read_all in CONDITION_PARTS],
    )


def _each(
    family: Family, read_all: Callable[[Gpu], Mapping[str, float]], snapshot: Snapshot, labels: NodeLabels
) -> Iterator[Row]:
    """Make the rows of a family with a last label of its own."""
    label = family.labels[-1]
    for gpu in snapshot.gpus:
        if values := read_all(gpu):
            yield from zip(labels.gpu_each(gpu.uuid, label, values), values.values(), strict=True)


def _xids(snapshot: Snapshot, labels: NodeLabels, known: Mapping[GpuUuid, int]) -> list[Metric]:
    """Make the families of XID errors, also of GPUs that do not answer: then they matter most."""
    rows = [
        row
        for uuid in sorted(known, key=known.__getitem__)
        if (errors := snapshot.xid_errors.get(uuid))
        for row in zip(labels.gpu_each(uuid, "xid", map(str, errors)), errors.values(), strict=True)
    ]
    return [
        XIDS.of(((own, errors.count) for own, errors in rows), Lasting),
        LAST_XID.of(((own, errors.last_at) for own, errors in rows), Lasting),
    ]


def _description(gpu: Gpu) -> dict[str, str]:
    return {
        "vendor": gpu.vendor,
        "model": gpu.model,
        "pci_bus_id": gpu.pci_bus_id,
        "driver_version": gpu.driver_version,
        "mig": str(gpu.mig).lower(),
    }
