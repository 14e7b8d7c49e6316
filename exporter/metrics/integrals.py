"""
Use over time: counters of memory, SM time and allocated time, to be summed over days.

What comes in: the sums in the snapshot. What goes out: series per device, and per container and device.

The rule: **these series are not withdrawn while the daemon lives**, unlike those of a snapshot that is too old. A
counter that stands still adds nothing to `increase()`. One that is missing for a while loses what it grew by, if the
range begins in the gap. They begin at 0 when the daemon starts, and `increase()` sees that.
"""

from exporter.metrics.family import Families, counter, with_rests
from exporter.metrics.labels import CONTAINER, LEAF, Labels, Name, NodeLabels
from exporter.model import ContainerIntegral, Snapshot

MEMORY = counter(
    "container_memory_byte_seconds_total",
    CONTAINER,
    "Memory that the container held on the GPU or MIG instance, summed over time, in byte-seconds: divided by 2^30 and "
    "3600 in GiB-hours. Stays for five minutes after its end.",
)
SM = counter(
    "container_sm_seconds_total",
    CONTAINER,
    "SM utilization of the container summed over time, in seconds of the whole GPU or MIG instance. Absent where the "
    "driver does not report it.",
)
ALLOCATED = counter(
    "container_allocated_seconds_total",
    (*CONTAINER, "resource"),
    "Time for which the kubelet allocated the GPU or MIG instance to the container, used or not, in seconds of the "
    "whole device: an hour with one of four replicas counts 900 s. Containers that share a device by claims (DRA) "
    "count equal parts of it. Containers on a GPU that KAI or Run:ai reserves count what they declared of its memory; "
    "the reservation pod counts the rest.",
)
PARTS = counter(
    "device_memory_byte_seconds_total",
    (*LEAF, "part"),
    "Memory of the GPU or MIG instance summed over time by part, in byte-seconds. The sum over part is its memory x "
    "device_observed_seconds_total. containers is the sum of container_memory_byte_seconds_total; unknown was in use, "
    "and it is not known by which container or process.",
)
OBSERVED = counter(
    "device_observed_seconds_total", LEAF, "Seconds in which the GPU or MIG instance was read since the daemon started."
)
UNKNOWN = counter(
    "device_unknown_seconds_total",
    LEAF,
    "Seconds in which the daemon ran, and the driver did not answer for the GPU or MIG instance, or for its memory. "
    "No other counter has them.",
)

FAMILIES = (MEMORY, SM, ALLOCATED, PARTS, OBSERVED, UNKNOWN)


def collect(snapshot: Snapshot) -> Families:
    """Yield the counters of each container and device, in seconds and byte-seconds."""
    labels_of = NodeLabels(snapshot)
    containers = (
        (labels_of.container(*holder, device), (*holder, device), container)
        for device, sums in snapshot.integrals.items()
        for holder, container in sums.containers.items()
    )
    rows: list[tuple[Labels, Name, ContainerIntegral]] = []
    yield from with_rests(containers, rows)
    yield MEMORY.of((labels, container.memory_byte_seconds) for labels, _, container in rows)
    yield SM.of((labels, container.sm) for labels, _, container in rows)
    yield ALLOCATED.of(
        (labels_of.container(*name, resource=resource), seconds)
        for _, name, container in rows
        for resource, seconds in container.allocated.items()
    )
    devices = [(labels_of.device(device), sums) for device, sums in snapshot.integrals.items()]
    yield PARTS.of(
        (labels_of.device(device, part=part), amount)
        for device, sums in snapshot.integrals.items()
        for part, amount in sums.memory_byte_seconds.items()
    )
    yield OBSERVED.of((labels, sums.observed_seconds) for labels, sums in devices)
    yield UNKNOWN.of((labels, sums.unknown_seconds) for labels, sums in devices)
