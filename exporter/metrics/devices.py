"""
Devices: memory, its account, utilization.

What comes in: the snapshot. What goes out: one series per GPU with MIG off and per MIG GPU instance, and none for a
GPU with MIG on, so that every `sum()` counts each byte once.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from exporter.api.document import describe_device
from exporter.metrics.family import Figure, figure, info
from exporter.metrics.labels import LEAF, NodeLabels
from exporter.model import Device, Snapshot

INFO = info(
    "device_info",
    (*LEAF, "profile", "sharing", "replicas", "mig_uuid"),
    "The leaf device and how pods share it. GPU-instance ids are reused: mig_uuid (several compute instances: "
    "separated by commas) tells generations apart. Always 1, to be joined on uuid and gpu_instance.",
)


FIGURES: tuple[Figure, ...] = (
    figure("device_memory_total_bytes", "Memory of the leaf device in bytes (of NVIDIA: NVML memory info)."),
    figure(
        "device_memory_used_bytes",
        "Memory in use in bytes: total - free - reserved, whatever the driver's version means by used.",
    ),
    figure("device_memory_free_bytes", "Memory that can still be allocated, in bytes (of NVIDIA: NVML memory info)."),
    figure(
        "device_memory_reserved_bytes",
        "Memory that driver and firmware keep for themselves, in bytes, where the driver tells it apart from what "
        "is used (of NVIDIA: NVML memory info).",
    ),
    figure(
        "device_memory_attributed_bytes",
        "Used memory held by known containers, in bytes (process lists joined with cgroups, or the kernel's own "
        "count by cgroup).",
    ),
    figure("device_memory_ghost_bytes", "Used memory of dead processes which no living container explains, in bytes."),
    figure("device_memory_host_bytes", "Used memory of processes outside of any container, in bytes."),
    figure(
        "device_memory_unattributed_bytes",
        "The rest of the used memory, in bytes: attributed + ghost + host + unattributed = used.",
    ),
    figure(
        "device_utilization_ratio",
        "How busy the leaf device was, 0 to 1, as its driver counts that (of NVIDIA: share of time in which some "
        "kernel ran, NVML utilization).",
    ),
    figure("device_sm_utilization_ratio", "Share of the SMs in use, 0 to 1 (NVIDIA alone, by GPM: Hopper and later)."),
    figure(
        "device_memory_controller_utilization_ratio",
        "Share of time in which device memory was read or written, 0 to 1 (of NVIDIA: NVML utilization).",
    ),
    figure("device_encoder_utilization_ratio", "Utilization of the video encoders, 0 to 1 (NVIDIA alone: NVML)."),
    figure("device_decoder_utilization_ratio", "Utilization of the video decoders, 0 to 1 (NVIDIA alone: NVML)."),
    figure("device_containers", "Containers which have a process on the leaf device or were handed it by the kubelet."),
    figure(
        "device_pods",
        "Pods that hold the leaf device, use it, or declare a limit on it; those that only reserve it do not count.",
    ),
)

FAMILIES = (INFO, *(family for family, _ in FIGURES))


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the families of devices."""
    labels_of = NodeLabels(snapshot).device
    yield INFO.of((labels_of(device.key, **_description(device)), 1) for device in snapshot.devices)
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
