"""
Devices: memory, its accounts, utilization.

What comes in: the snapshot. What goes out: one series per GPU with MIG off, and one per MIG instance.

The rule: a GPU with MIG on has no series here, so that a `sum()` counts each byte once.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from exporter.api.document import describe_device
from exporter.metrics.family import Figure, Kept, Lasting, figure, info
from exporter.metrics.labels import LEAF, NodeLabels
from exporter.model import Device, Snapshot

INFO = info(
    "device_info",
    (*LEAF, "profile", "sharing", "replicas", "mig_uuid"),
    "The GPU or MIG instance and how pods share it. Ids of MIG instances are reused: mig_uuid tells generations "
    "apart (several compute instances: separated by commas). Always 1, to be joined on uuid and gpu_instance.",
)


FIGURES: tuple[Figure, ...] = (
    figure("device_memory_total_bytes", "Memory of the GPU or MIG instance in bytes (NVIDIA: NVML memory info)."),
    figure(
        "device_memory_used_bytes",
        "Memory in use in bytes: total - free - reserved, independent of what the driver's version counts as used.",
    ),
    figure("device_memory_free_bytes", "Memory that can still be allocated, in bytes (NVIDIA: NVML memory info)."),
    figure(
        "device_memory_reserved_bytes",
        "Memory that driver and firmware keep for themselves, in bytes, if the driver reports it apart from used "
        "memory (NVIDIA: NVML memory info).",
    ),
    figure(
        "device_memory_attributed_bytes",
        "Used memory that known containers hold, in bytes (process lists joined with cgroups, or the kernel's count "
        "by cgroup).",
    ),
    figure(
        "device_memory_ghost_bytes",
        "Used memory of processes that have ended, which no running container explains, in bytes.",
    ),
    figure("device_memory_host_bytes", "Used memory of processes outside of any container, in bytes."),
    figure(
        "device_memory_unattributed_bytes",
        "Used memory that no known process explains, in bytes: attributed + ghost + host + unattributed = used.",
    ),
    figure(
        "device_utilization_ratio",
        "How busy the GPU or MIG instance was, 0 to 1, as its driver counts it (NVIDIA: share of time in which a "
        "kernel ran, NVML utilization).",
    ),
    figure("device_sm_utilization_ratio", "Share of the SMs in use, 0 to 1 (NVIDIA only, by GPM: Hopper and later)."),
    figure(
        "device_memory_controller_utilization_ratio",
        "Share of time in which device memory was read or written, 0 to 1 (NVIDIA: NVML utilization).",
    ),
    figure("device_encoder_utilization_ratio", "Utilization of the video encoders, 0 to 1 (NVIDIA only: NVML)."),
    figure("device_decoder_utilization_ratio", "Utilization of the video decoders, 0 to 1 (NVIDIA only: NVML)."),
    figure(
        "device_containers",
        "Containers that have a process on the GPU or MIG instance, or to which the kubelet handed it.",
    ),
    figure(
        "device_pods",
        "Pods that have the GPU or MIG instance allocated, use it, or declare a limit on it. Pods that only reserve it "
        "do not count.",
    ),
)

FAMILIES = (INFO, *(family for family, _ in FIGURES))

_INFO: Kept[Metric] = Kept()


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the info and the figures of each device."""
    labels_of = NodeLabels(snapshot).device
    basis = (snapshot.node, [(device.key, device.gpu.index, _description(device)) for device in snapshot.devices])
    if (described := _INFO.of(basis)) is None:
        info = ((labels_of(device.key, **_description(device)), 1) for device in snapshot.devices)
        described = _INFO.keep(basis, INFO.of(info, Lasting))
    yield described
    rows = [(labels_of(device.key), describe_device(device, snapshot)) for device in snapshot.devices]
    for family, read in FIGURES:
        yield family.of((labels, read(device)) for labels, device in rows)


def _description(device: Device) -> dict[str, str]:
    return {
        "profile": device.profile,
        "sharing": device.sharing,
        "replicas": str(device.replicas),
        "mig_uuid": ",".join(device.mig_uuids),
    }
