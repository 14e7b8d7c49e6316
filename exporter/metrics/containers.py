"""
Containers: what each holds of each device, and what the kubelet handed to it.

What comes in: the snapshot. What goes out: one series per namespace, pod, container and device.

The rule: names cannot tell two generations of a container apart, so their values are summed; what is unknown of one is
unknown of the sum. A usage whose pod has no name is not written: it could not be told from others.
"""

from collections import defaultdict

from exporter.api import schema
from exporter.api.document import describe_containers
from exporter.metrics.family import Families, Figure, figure, gauge, with_rests
from exporter.metrics.labels import CONTAINER, Labels, Name, NodeLabels, by_name, together
from exporter.model import Snapshot

FIGURES: tuple[Figure, ...] = (
    figure(
        "container_memory_used_bytes",
        "Memory that the container holds of the leaf device, in bytes: the kernel's count by cgroup (dmem.current) "
        "where there is one, else the sum of its processes, as their driver lists them.",
    ),
    figure(
        "container_memory_peak_bytes",
        "The most memory of the leaf device that a round, or the kernel (dmem.peak), saw the container hold, in bytes.",
    ),
    figure(
        "container_processes", "Living processes of the container that hold the leaf device, as its driver lists them."
    ),
    figure(
        "container_memory_kernel_limit_bytes",
        "Memory of the leaf device above which the kernel does not let the container grow, in bytes (dmem.max of "
        "its cgroup); absent without such a limit.",
    ),
    figure(
        "container_memory_evicted_seconds_total",
        "Time in which the queues of the container's processes were taken off the leaf device, mostly because "
        "their memory was moved out of it, in seconds, since the daemon saw them first (AMD alone: KFD's "
        "evicted_ms).",
    ),
)

RATIOS: tuple[Figure, ...] = (
    figure(
        "container_sm_utilization_ratio",
        "Share of the SMs (of AMD and Intel: of the shader engines; of Cambricon: of the cores) that the container "
        "used, 0 to 1: a coarse sum of the driver's figures per process; under MIG the instance's figure if the "
        "container is alone there, else absent.",
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
    "Replicas of the leaf device which the kubelet handed to the container, used or not (pod-resources API).",
)

FAMILIES = (*(family for family, _ in (*FIGURES, *RATIOS)), REPLICAS)


def collect(snapshot: Snapshot) -> Families:
    """Yield the families of containers."""
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
        yield family.of((labels, together(map(read, generations))) for labels, generations in rows)
    for family, read in RATIOS:
        yield family.of((labels, _at_most_one(together(map(read, generations)))) for labels, generations in rows)

    replicas: dict[tuple[Name, str], int] = defaultdict(int)
    for held in snapshot.allocations:
        replicas[(held.namespace, held.pod, held.container, held.device), held.resource] += held.replicas
    yield REPLICAS.of((labels_of(*name, resource=resource), held) for (name, resource), held in replicas.items())


def _at_most_one(ratio: float | None) -> float | None:
    return None if ratio is None else min(1.0, ratio)
