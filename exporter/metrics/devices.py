"""
Leaf devices: memory, its account, utilization.

What comes in: the snapshot. What goes out: one series per GPU with MIG off and per MIG GPU instance, and none for a
GPU with MIG on, so that every `sum()` counts each byte once.
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from exporter.metrics.family import LEAF, Family, Labels, gauge, info, labelled
from exporter.model import Device, DeviceKey, Memory, Snapshot

INFO = info(
    "device_info",
    (*LEAF, "profile", "sharing", "replicas", "mig_uuid"),
    "The leaf device and how pods share it. GPU-instance ids are reused: mig_uuid (several compute instances: "
    "separated by commas) tells generations apart. Always 1, to be joined on uuid and gpu_instance.",
)

Figure = Callable[[Device], float | None]


def of_memory(read: Callable[[Memory], int]) -> Figure:
    """Read a figure of the device's memory, unknown while the memory is."""
    return lambda device: None if device.account.memory is None else read(device.account.memory)


FIGURES: tuple[tuple[Family, Figure], ...] = (
    (
        gauge("device_memory_total_bytes", LEAF, "Memory of the leaf device in bytes (of NVIDIA: NVML memory info)."),
        of_memory(lambda memory: memory.total),
    ),
    (
        gauge(
            "device_memory_used_bytes",
            LEAF,
            "Memory in use in bytes: total - free - reserved, whatever the driver's version means by used.",
        ),
        of_memory(lambda memory: memory.used),
    ),
    (
        gauge(
            "device_memory_free_bytes",
            LEAF,
            "Memory that can still be allocated, in bytes (of NVIDIA: NVML memory info).",
        ),
        of_memory(lambda memory: memory.free),
    ),
    (
        gauge(
            "device_memory_reserved_bytes",
            LEAF,
            "Memory that driver and firmware keep for themselves, in bytes, where the driver tells it apart from what "
            "is used (of NVIDIA: NVML memory info).",
        ),
        of_memory(lambda memory: memory.reserved),
    ),
    (
        gauge(
            "device_memory_attributed_bytes",
            LEAF,
            "Used memory held by known containers, in bytes (process lists joined with cgroups, or the kernel's own "
            "count by cgroup).",
        ),
        lambda device: device.account.attributed,
    ),
    (
        gauge(
            "device_memory_ghost_bytes",
            LEAF,
            "Used memory of dead processes which no living container explains, in bytes.",
        ),
        lambda device: device.account.ghost,
    ),
    (
        gauge("device_memory_host_bytes", LEAF, "Used memory of processes outside of any container, in bytes."),
        lambda device: device.account.host,
    ),
    (
        gauge(
            "device_memory_unattributed_bytes",
            LEAF,
            "The rest of the used memory, in bytes: attributed + ghost + host + unattributed = used.",
        ),
        lambda device: device.account.unattributed,
    ),
    (
        gauge(
            "device_utilization_ratio",
            LEAF,
            "How busy the leaf device was, 0 to 1, as its driver counts that (of NVIDIA: share of time in which some "
            "kernel ran, NVML utilization).",
        ),
        lambda device: device.utilization.busy,
    ),
    (
        gauge(
            "device_sm_utilization_ratio",
            LEAF,
            "Share of the SMs in use, 0 to 1 (NVIDIA alone, by GPM: Hopper and later).",
        ),
        lambda device: device.utilization.sm,
    ),
    (
        gauge(
            "device_memory_controller_utilization_ratio",
            LEAF,
            "Share of time in which device memory was read or written, 0 to 1 (of NVIDIA: NVML utilization).",
        ),
        lambda device: device.utilization.memory_controller,
    ),
    (
        gauge(
            "device_encoder_utilization_ratio", LEAF, "Utilization of the video encoders, 0 to 1 (NVIDIA alone: NVML)."
        ),
        lambda device: device.utilization.encoder,
    ),
    (
        gauge(
            "device_decoder_utilization_ratio", LEAF, "Utilization of the video decoders, 0 to 1 (NVIDIA alone: NVML)."
        ),
        lambda device: device.utilization.decoder,
    ),
    (
        gauge(
            "device_containers",
            LEAF,
            "Containers which have a process on the leaf device or were handed it by the kubelet.",
        ),
        lambda device: device.containers,
    ),
)

FAMILIES = (INFO, *(family for family, _ in FIGURES))


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the families of leaf devices."""
    rows = [(labels_of(snapshot.node, device), device) for device in snapshot.devices]
    yield INFO.of(
        (
            labels
            | labelled(
                snapshot.node,
                profile=device.profile,
                sharing=device.sharing,
                replicas=str(device.replicas),
                mig_uuid=",".join(device.mig_uuids),
            ),
            1,
        )
        for labels, device in rows
    )
    for family, read in FIGURES:
        yield family.of((labels, read(device)) for labels, device in rows)


def labels_of(node: str, device: Device) -> Labels:
    """Make the labels of a leaf device."""
    return labelled(node, gpu=str(device.gpu.index), uuid=device.key.uuid, gpu_instance=instance_label(device.key))


def instance_label(key: DeviceKey) -> str:
    """Write the GPU instance; empty for a GPU with MIG off, since 0 is the id of a real instance."""
    return "" if key.gpu_instance is None else str(key.gpu_instance)
