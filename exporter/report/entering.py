"""
Puts answers of a Prometheus into a ledger.

What comes in: rows of an answer, one at a time, with the part of the window that they are of. What goes out: entries.

The rule: a row is of the workload and the model that its pod and GPU had in the part. Names are joined here, because a
label that changes within a part breaks a join in PromQL.
"""

from collections.abc import Callable, Mapping

from exporter.history.owners import Workload
from exporter.report.ledger import Ledger, Part
from exporter.report.names import ANY_MODEL, Gpu, Holder, Node, Place, Pod

COPY_LABELS = ("job", "prometheus", "prometheus_replica", "replica")
"""What tells copies of a series apart: two jobs that scrape a daemon, two Prometheus servers of a pair."""
_WORKLOAD = ("namespace", "pod", "container")

Labels = Mapping[str, str]
Enter = Callable[[Ledger, Part, Labels, float], None]
"""Enters a row: labels, value."""


def of_holder(amounts: Callable[[Ledger], dict[Holder, float]], *, weighted: bool = False, late: bool = False) -> Enter:
    """
    Add an answer to one of the ledger's amounts by container.

    `weighted` is GPU time. `late` are first values (`growth.late`): they count if the gap before them is long enough.
    """

    def enter(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
        holder = _holder(ledger, part, labels)
        place, most = holder.place, part.gap(holder.place.node) if late else float("inf")
        if value <= most * (1.0 if weighted else ledger.size(part, place)):
            amounts(ledger)[holder] += value * (ledger.weight(part, place) if weighted else 1.0)

    return enter


def allocated(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add allocated time."""
    holder = _holder(ledger, part, labels)
    seconds = value * ledger.weight(part, holder.place)
    ledger.allocated[holder] += seconds
    part.handed[holder.place] += seconds
    if unmetered := part.unmetered(holder):
        ledger.unmetered[holder] += seconds * unmetered


def late_allocated(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add a first value of allocated time, if the gap before it is long enough."""
    if value <= part.gap(_node(labels)):
        allocated(ledger, part, labels, value)


def allotted(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add samples of an allocation."""
    part.allotted[_holder(ledger, part, labels)] += value


def metered(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add samples of a container's SMs."""
    part.metered[_holder(ledger, part, labels)] += value


def scraped(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add the time with samples of one copy of a node's series."""
    copy, copies = _copy(labels), part.scraped[_node(labels)]
    copies[copy] = copies.get(copy, 0.0) + value


def source(_: Ledger, part: Part, labels: Labels, __: float) -> None:
    """Note a copy of a GPU's series."""
    part.sources[Gpu(_node(labels), labels.get("uuid", ""))].add(_copy(labels))


def alive(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add the time with samples of a node."""
    part.alive[_node(labels)] += value


def node_first(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Take the first sample of a node."""
    for spans in (ledger.spans, part.seen):
        spans[_node(labels)].widen(first=value)


def node_last(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Take the last sample of a node."""
    for spans in (ledger.spans, part.seen):
        spans[_node(labels)].widen(last=value)


def present(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add the time with samples of a device."""
    part.present[_place(part, labels)] += value


def device_first(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Take the first sample of a device."""
    ledger.lives[_place(part, labels).nameless].widen(first=value)


def device_last(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Take the last sample of a device."""
    ledger.lives[_place(part, labels).nameless].widen(last=value)


def memory(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add byte-seconds of a part of a device's memory."""
    ledger.parts[_place(part, labels)][labels.get("part", "unknown")] += value


def observed(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add the time in which a device was read."""
    place = _place(part, labels)
    seconds = value * ledger.weight(part, place)
    ledger.observed[place] += seconds
    part.read[place] += seconds
    part.counted[place] += value


def unanswered(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add the time in which the driver did not answer for a device."""
    place = _place(part, labels)
    ledger.unanswered[place] += value * ledger.weight(part, place)
    ledger.silent[place] += value * ledger.size(part, place)
    part.counted[place] += value


def capacity(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Take the size of a device."""
    ledger.capacity[_place(part, labels)] = value


def size(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add the sizes of a device in its samples."""
    part.sizes[_place(part, labels)] += value


def look(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add samples of the size of a device."""
    part.looks[_place(part, labels)] += value


def gpu_bytes(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Take the size of a GPU."""
    ledger.gpu_bytes[_place(part, labels)] = value


def sliced(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add the time in which a GPU answered that it is in MIG mode."""
    part.sliced[_place(part, labels)] += value


def model(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add samples of a GPU with a model."""
    found, name = part.named[Gpu(_node(labels), labels.get("uuid", ""))], labels.get("model") or ANY_MODEL
    found[name] = found.get(name, 0.0) + value


def workload(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add samples of a pod with a workload."""
    named = _named(ledger, labels)
    pod = Pod(_node(labels), named.get("namespace", ""), named.get("pod", ""))
    one = Workload(labels.get("workload_kind", ""), labels.get("workload", ""))
    part.owners.note(pod.node, pod, one, value)


def scrapes(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    """Add scrapes of a node."""
    part.owners.scraped(_node(labels), value)


def _node(labels: Labels) -> Node:
    return Node(labels.get("cluster", ""), labels.get("node", ""))


def _copy(labels: Labels) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in COPY_LABELS)


def _place(part: Part, labels: Labels) -> Place:
    gpu = Gpu(_node(labels), labels.get("uuid", ""))
    return Place(*gpu, labels.get("gpu_instance", ""), part.models.get(gpu, ANY_MODEL))


def _named(ledger: Ledger, labels: Labels) -> Labels:
    """Return labels in which namespace, pod and container are the workload's (`metrics.workload_labels`)."""
    if labels.get("exported_pod"):
        return {**labels, **{name: labels.get(f"exported_{name}", "") for name in _WORKLOAD}}
    if namespace := labels.get("exported_namespace"):
        ledger.podless = True
        return {**labels, "namespace": namespace}
    return labels


def _holder(ledger: Ledger, part: Part, labels: Labels) -> Holder:
    named, place = _named(ledger, labels), _place(part, labels)
    pod = Pod(place.node, named.get("namespace", ""), named.get("pod", ""))
    found = part.workloads.get(pod)
    if found is None or not found.name:
        found = Workload("" if found is None else "Pod", pod.name)
    return Holder(place, pod.namespace, pod.name, named.get("container", ""), found)
