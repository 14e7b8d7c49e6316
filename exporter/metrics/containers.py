"""
Containers: the usage and the allocation of each container on each device.

What comes in: the snapshot. What goes out: one series per namespace, pod, container and device.

The rule: two generations of a container have the same name, so their values are summed. If one value is unknown, so is
the sum. A total is that of the name already. A usage whose pod has no name is left out, because its labels would be
those of other usages.
"""

from collections import defaultdict
from collections.abc import Iterable

from exporter.accounts.grouping import total
from exporter.api import schema
from exporter.api.document import describe_containers
from exporter.metrics.family import Families, Figure, figure, gauge, with_rests
from exporter.metrics.labels import CONTAINER, Labels, Name, NodeLabels, by_name
from exporter.model import Snapshot

FIGURES: tuple[Figure, ...] = (
    figure(
        "container_memory_used_bytes",
        "Memory that the container holds on the GPU or MIG instance, in bytes: the kernel's count by cgroup "
        "(dmem.current) if there is one, else the sum over its processes in the driver's lists.",
    ),
    figure(
        "container_memory_peak_bytes",
        "Most memory that the container held on the GPU or MIG instance, as seen by a round or by the kernel "
        "(dmem.peak), in bytes.",
    ),
    figure(
        "container_processes",
        "Living processes of the container on the GPU or MIG instance, from the driver's process lists.",
    ),
    figure(
        "container_memory_kernel_limit_bytes",
        "Memory of the GPU or MIG instance above which the kernel does not let the container grow, in bytes (dmem.max "
        "of its cgroup). Absent without such a limit.",
    ),
)

TOTALS: tuple[Figure, ...] = (
    figure(
        "container_queue_evicted_seconds_total",
        "Seconds in which the queues of the container's processes were taken off the GPU or partition, mostly because "
        "their memory was moved out of it. Counted since the daemon first saw the processes. AMD only: KFD's "
        "evicted_ms.",
    ),
)

RATIOS: tuple[Figure, ...] = (
    figure(
        "container_sm_utilization_ratio",
        "Share of the SMs (AMD and Intel: shader engines, Cambricon: cores) that the container used, 0 to 1. A coarse "
        "sum of the driver's figures per process. Under MIG the figure of the instance if the container is alone on "
        "it, else absent.",
    ),
    figure(
        "container_encoder_utilization_ratio",
        "Share of the video encoders that the container used, 0 to 1 (sum of the driver's figures per process).",
    ),
    figure(
        "container_decoder_utilization_ratio",
        "Share of the video decoders that the container used, 0 to 1 (sum of the driver's figures per process).",
    ),
)

REPLICAS = gauge(
    "container_allocated_replicas",
    (*CONTAINER, "resource"),
    "Replicas of the GPU or MIG instance that the kubelet handed to the container, used or not (pod-resources API).",
)

FAMILIES = (*(family for family, _ in (*FIGURES, *TOTALS, *RATIOS)), REPLICAS)


def collect(snapshot: Snapshot) -> Families:
    """Yield usage, utilization and allocated replicas of each container and device."""
    labels_of = NodeLabels(snapshot).container
    described: list[schema.Container] = []
    yield from with_rests(describe_containers(snapshot, snapshot.usages), described)
    parts = (
        (usage.subject.pod_uid, usage.subject.container, usage.device, container)
        for usage, container in zip(snapshot.usages, described, strict=True)
    )
    named = by_name(snapshot, parts)
    rows: list[tuple[Labels, list[schema.Container]]] = []
    yield from with_rests(((labels_of(*name), generations) for name, generations in named.items()), rows)
    for family, read in FIGURES:
        yield family.of((labels, total(map(read, generations))) for labels, generations in rows)
    for family, read in TOTALS:
        yield family.of((labels, _of_name(map(read, generations))) for labels, generations in rows)
    for family, read in RATIOS:
        yield family.of((labels, _at_most_one(total(map(read, generations)))) for labels, generations in rows)

    replicas: dict[tuple[Name, str], int] = defaultdict(int)
    for held in snapshot.allocations:
        replicas[(held.namespace, held.pod, held.container, held.device), held.resource] += held.replicas
    yield REPLICAS.of((labels_of(*name, resource=resource), held) for (name, resource), held in replicas.items())


def _of_name(totals: Iterable[float | None]) -> float | None:
    """Return the total that the generations have in common; one without it has no process there."""
    return max((each for each in totals if each is not None), default=None)


def _at_most_one(ratio: float | None) -> float | None:
    return None if ratio is None else min(1.0, ratio)
