"""
Containers: what each holds of each leaf device, and what the kubelet handed to it.

What comes in: the snapshot. What goes out: one series per namespace, pod, container and leaf device.

The law: while a pod or container terminates, the next one of its name may already run. Names cannot tell the two apart,
so their values are summed; what is unknown of one is unknown of the sum. A usage whose pod has no name is not written:
it could not be told from others.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric

from exporter.metrics.devices import instance_label
from exporter.metrics.family import CONTAINER, Family, Labels, counter, gauge, labelled
from exporter.metrics.gpus import indices
from exporter.model import DeviceKey, Snapshot, Usage

FIGURES: tuple[tuple[Family, Callable[[Usage], float | None]], ...] = (
    (
        gauge(
            "container_memory_used_bytes",
            CONTAINER,
            "Memory that the container holds of the leaf device, in bytes: the kernel's count by cgroup (dmem.current) "
            "where there is one, else the sum of its processes, as their driver lists them.",
        ),
        lambda usage: usage.memory_used,
    ),
    (
        gauge(
            "container_memory_peak_bytes",
            CONTAINER,
            "The most memory of the leaf device that a round, or the kernel (dmem.peak), saw the container hold, in "
            "bytes.",
        ),
        lambda usage: usage.memory_peak,
    ),
    (
        gauge(
            "container_processes",
            CONTAINER,
            "Living processes of the container that hold the leaf device, as its driver lists them.",
        ),
        lambda usage: len(usage.processes) if usage.listed else None,
    ),
    (
        gauge(
            "container_memory_kernel_limit_bytes",
            CONTAINER,
            "Memory of the leaf device above which the kernel does not let the container grow, in bytes (dmem.max of "
            "its cgroup); absent without such a limit.",
        ),
        lambda usage: usage.kernel_limit,
    ),
    (
        counter(
            "container_memory_evicted_seconds_total",
            CONTAINER,
            "Time in which the queues of the container's processes were taken off the leaf device, mostly because "
            "their memory was moved out of it, in seconds, since the daemon saw them first (AMD alone: KFD's "
            "evicted_ms).",
        ),
        lambda usage: usage.evicted,
    ),
)

RATIOS: tuple[tuple[Family, Callable[[Usage], float | None]], ...] = (
    (
        gauge(
            "container_sm_utilization_ratio",
            CONTAINER,
            "Share of the SMs (of AMD and Intel: of the shader engines; of Cambricon: of the cores) that the container "
            "used, 0 to 1: a coarse sum of the driver's figures per process; under MIG the instance's figure if the "
            "container is alone there, else absent.",
        ),
        lambda usage: usage.sm,
    ),
    (
        gauge(
            "container_encoder_utilization_ratio",
            CONTAINER,
            "Share of the video encoders that the container used, 0 to 1 (sum of the driver's figures per process).",
        ),
        lambda usage: usage.encoder,
    ),
    (
        gauge(
            "container_decoder_utilization_ratio",
            CONTAINER,
            "Share of the video decoders that the container used, 0 to 1 (sum of the driver's figures per process).",
        ),
        lambda usage: usage.decoder,
    ),
)

REPLICAS = gauge(
    "container_allocated_replicas",
    (*CONTAINER, "resource"),
    "Replicas of the leaf device which the kubelet handed to the container, used or not (pod-resources API).",
)

FAMILIES = (*(family for family, _ in FIGURES), *(family for family, _ in RATIOS), REPLICAS)

Named = tuple[str, str, str, DeviceKey]
"""Namespace, pod, container, leaf device: all that a series can tell apart."""


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the families of containers."""
    index = indices(snapshot)

    def labels_of(named: Named, **more: str) -> Labels:
        namespace, pod, container, device = named
        return labelled(
            snapshot.node,
            namespace=namespace,
            pod=pod,
            container=container,
            gpu=index.get(device.uuid, ""),
            uuid=device.uuid,
            gpu_instance=instance_label(device),
            **more,
        )

    rows = [(labels_of(named), usages) for named, usages in _by_name(snapshot).items()]
    for family, read in FIGURES:
        yield family.of((labels, together(map(read, usages))) for labels, usages in rows)
    for family, read in RATIOS:
        yield family.of((labels, _at_most_one(together(map(read, usages)))) for labels, usages in rows)

    replicas: dict[tuple[Named, str], int] = defaultdict(int)
    for held in snapshot.allocations:
        replicas[(held.namespace, held.pod, held.container, held.device), held.resource] += held.replicas
    yield REPLICAS.of((labels_of(named, resource=resource), held) for (named, resource), held in replicas.items())


def _by_name(snapshot: Snapshot) -> dict[Named, list[Usage]]:
    found: dict[Named, list[Usage]] = defaultdict(list)
    for usage in snapshot.usages:
        if (pod := snapshot.pods.get(usage.subject.pod_uid)) is not None:
            found[pod.namespace, pod.name, usage.subject.container, usage.device].append(usage)
    return found


def together(parts: Iterable[float | None]) -> float | None:
    """Sum up; one unknown part makes the sum unknown."""
    result: float = 0
    for part in parts:
        if part is None:
            return None
        result += part
    return result


def _at_most_one(ratio: float | None) -> float | None:
    return None if ratio is None else min(1.0, ratio)
