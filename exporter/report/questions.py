"""
The questions of a report, in PromQL, and where their answers go.

What comes in: whether series are there more than once. What goes out: queries in which RANGE stands for the length of a
part, each with the function that puts a row of its answer into the ledger.

The rule: sums are what counters grew by. What no counter counts is looked at each `EVERY` seconds, at times that
do not depend on the window: so the report of a week is the sum of those of its days.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from exporter.report.growth import grown
from exporter.report.ledger import EVERY, Holder, Ledger, Node, Part, Place, Pod, Workload

COPY_LABELS = ("job", "prometheus", "prometheus_replica", "replica")
"""What tells copies of a series apart: two jobs that scrape a daemon, two Prometheus servers of a pair."""
UP = "gpusteward_snapshot_timestamp_seconds"
_NODE = "cluster, node"
_DEVICE = f"{_NODE}, uuid, gpu_instance"
_WORKLOAD = ("namespace", "pod", "container")
_POD = "namespace, pod, exported_namespace, exported_pod"
_ON_DEVICE = f"{_DEVICE}, {_POD}"
_HOLDER = f"{_ON_DEVICE}, container, exported_container"
_GRID = f"[RANGE:{EVERY}s]"

Labels = Mapping[str, str]
Enter = Callable[[Ledger, Part, Labels, float], None]


@dataclass(frozen=True, slots=True)
class Question:
    """A query; `enter` puts one row of its answer into the ledger."""

    query: str
    enter: Enter


def scrapes() -> tuple[Question, ...]:
    """Ask how much of the time each node was scraped, and how often."""
    copy = ", ".join(COPY_LABELS)
    return (
        Question(f"sum by ({_NODE}, {copy}) (count_over_time({UP}{_GRID})) * {EVERY}", _scraped),
        Question(f"sum by ({_NODE}) (count_over_time((group by ({_NODE}) ({UP})){_GRID})) * {EVERY}", _alive),
        Question(f"min by ({_NODE}) (min_over_time(timestamp({UP}){_GRID}))", _node_first),
        Question(f"max by ({_NODE}) (max_over_time(timestamp({UP}){_GRID}))", _node_last),
    )


def models() -> Question:
    """Ask for the model of each GPU."""
    return Question(_had(f"{_NODE}, uuid, model", "gpu_info"), _model)


def sizes() -> tuple[Question, ...]:
    """Ask for the sizes of devices and GPUs; what is put into the ledger after them is weighted by them."""
    size = "gpusteward_device_memory_total_bytes[RANGE]"
    return (
        Question(_had(_DEVICE, "device_memory_total_bytes"), _capacity),
        Question(f"sum by ({_DEVICE}) (sum_over_time({size}))", _size),
        Question(f"sum by ({_DEVICE}) (count_over_time({size}))", _look),
        Question(_had(f"{_NODE}, uuid", "gpu_memory_total_bytes"), _gpu_bytes),
    )


def sums(*, copied: bool) -> tuple[Question, ...]:
    """Ask all else; where series are `copied`, each counts once."""

    def summed(by: str, rates: str) -> str:
        if not copied:
            return f"sum by ({by}) ({rates})"
        return f"max by ({by}) (sum by ({by}, {', '.join(COPY_LABELS)}) ({rates}))"

    def grew(by: str, name: str) -> str:
        return summed(by, grown(f"gpusteward_{name}"))

    def rate(name: str) -> str:
        return summed(_HOLDER, f"rate(gpusteward_{name}[{EVERY}s])")

    there = f"group by ({_DEVICE}) (gpusteward_device_observed_seconds_total)"
    excess = f"({rate('container_sm_seconds_total')} - {rate('container_allocated_seconds_total')}) > 0"
    sliced = f'(group by ({_NODE}, uuid) (gpusteward_gpu_info{{mig="true"}})){_GRID}'
    return (
        Question(grew(f"{_DEVICE}, part", "device_memory_byte_seconds_total"), _part),
        Question(grew(_DEVICE, "device_observed_seconds_total"), _observed),
        Question(grew(_DEVICE, "device_unknown_seconds_total"), _unanswered),
        models(),
        Question(f"count_over_time(({there}){_GRID}) * {EVERY}", _present),
        Question(f"min_over_time((time() * ({there})){_GRID})", _device_first),
        Question(f"max_over_time((time() * ({there})){_GRID})", _device_last),
        Question(f"sum by ({_NODE}, uuid) (count_over_time({sliced})) * {EVERY}", _sliced),
        *_samples(),
        Question(grew(_HOLDER, "container_allocated_seconds_total"), _allocated),
        Question(grew(_HOLDER, "container_sm_seconds_total"), _of_holder(lambda ledger: ledger.sm, weighted=True)),
        Question(
            f"sum by ({_HOLDER}) (sum_over_time(({excess}){_GRID})) * {EVERY}",
            _of_holder(lambda ledger: ledger.excess, weighted=True),
        ),
        Question(grew(_HOLDER, "container_memory_byte_seconds_total"), _of_holder(lambda ledger: ledger.memory)),
        *_limits(),
        Question(_had(f"{_NODE}, {_POD}, workload_kind, workload", "pod_info"), _workload),
    )


def _had(by: str, name: str) -> str:
    return f"max by ({by}) (last_over_time(gpusteward_{name}[RANGE]))"


def _samples() -> tuple[Question, ...]:
    """Ask how many samples the allocation of each container has, whatever the number of its resources, and its SMs."""
    allotted = f"sum by ({_HOLDER}, resource) (count_over_time(gpusteward_container_allocated_seconds_total[RANGE]))"
    metered = "count_over_time(gpusteward_container_sm_seconds_total[RANGE])"
    return (
        Question(f"max by ({_HOLDER}) ({allotted})", _allotted),
        Question(f"sum by ({_HOLDER}) ({metered})", _metered),
    )


def _limits() -> tuple[Question, ...]:
    """Ask what was declared, and what of it was held, at the same moments: those at which the device was read."""
    read = f"and on ({_DEVICE}) gpusteward_device_memory_total_bytes"
    used = f"max by ({_HOLDER}) (gpusteward_container_memory_used_bytes)"
    declared, held = [], []
    for name, by, amount in (
        ("container", _HOLDER, used),
        ("pod", _ON_DEVICE, f"sum by ({_ON_DEVICE}) ({used})"),
    ):
        limit = f"(max by ({by}) (gpusteward_{name}_memory_limit_bytes) {read})"
        declared.append(limit)
        held.append(f"({amount} < {limit} or ({limit} and {amount}))")

    def over_time(terms: list[str]) -> str:
        return f"sum_over_time(({' or '.join(terms)}){_GRID}) * {EVERY}"

    return (
        Question(over_time(declared), _of_holder(lambda ledger: ledger.declared)),
        Question(over_time(held), _of_holder(lambda ledger: ledger.within)),
    )


def _node(labels: Labels) -> Node:
    return Node(labels.get("cluster", ""), labels.get("node", ""))


def _place(labels: Labels) -> Place:
    return Place(_node(labels), labels.get("uuid", ""), labels.get("gpu_instance", ""))


def _named(ledger: Ledger, labels: Labels) -> Labels:
    """Return labels in which namespace, pod and container are the workload's (`metrics.workload_labels`)."""
    if labels.get("exported_pod"):
        return {**labels, **{name: labels.get(f"exported_{name}", "") for name in _WORKLOAD}}
    if namespace := labels.get("exported_namespace"):
        ledger.podless = True
        return {**labels, "namespace": namespace}
    return labels


def _holder(ledger: Ledger, labels: Labels) -> Holder:
    named = _named(ledger, labels)
    return Holder(_place(labels), named.get("namespace", ""), named.get("pod", ""), named.get("container", ""))


def _of_holder(amounts: Callable[[Ledger], dict[Holder, float]], *, weighted: bool = False) -> Enter:
    """Add an answer to one of the ledger's amounts by container; `weighted` is GPU time."""

    def enter(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
        holder = _holder(ledger, labels)
        amounts(ledger)[holder] += value * (ledger.weight(part, holder.place) if weighted else 1.0)

    return enter


def _allocated(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    holder = _holder(ledger, labels)
    seconds = value * ledger.weight(part, holder.place)
    ledger.allocated[holder] += seconds
    if unmetered := part.unmetered(holder):
        ledger.unmetered[holder] += seconds * unmetered


def _allotted(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    part.allotted[_holder(ledger, labels)] += value


def _metered(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    part.metered[_holder(ledger, labels)] += value


def _scraped(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    copy, copies = tuple(labels.get(name, "") for name in COPY_LABELS), part.scraped[_node(labels)]
    copies[copy] = copies.get(copy, 0.0) + value


def _alive(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    part.alive[_node(labels)] += value


def _node_first(ledger: Ledger, _: Part, labels: Labels, value: float) -> None:
    ledger.spans[_node(labels)].widen(first=value)


def _node_last(ledger: Ledger, _: Part, labels: Labels, value: float) -> None:
    ledger.spans[_node(labels)].widen(last=value)


def _present(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    part.present[_place(labels)] += value


def _device_first(ledger: Ledger, _: Part, labels: Labels, value: float) -> None:
    ledger.lives[_place(labels)].widen(first=value)


def _device_last(ledger: Ledger, _: Part, labels: Labels, value: float) -> None:
    ledger.lives[_place(labels)].widen(last=value)


def _part(ledger: Ledger, _: Part, labels: Labels, value: float) -> None:
    ledger.parts[_place(labels)][labels.get("part", "unknown")] += value


def _observed(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    place = _place(labels)
    ledger.observed[place] += value * ledger.weight(part, place)
    part.counted[place] += value


def _unanswered(ledger: Ledger, part: Part, labels: Labels, value: float) -> None:
    place = _place(labels)
    ledger.unanswered[place] += value * ledger.weight(part, place)
    ledger.silent[place] += value * ledger.size(part, place)
    part.counted[place] += value


def _capacity(ledger: Ledger, _: Part, labels: Labels, value: float) -> None:
    ledger.capacity[_place(labels)] = value


def _size(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    part.sizes[_place(labels)] += value


def _look(_: Ledger, part: Part, labels: Labels, value: float) -> None:
    part.looks[_place(labels)] += value


def _gpu_bytes(ledger: Ledger, _: Part, labels: Labels, value: float) -> None:
    ledger.gpu_bytes[_place(labels)] = value


def _model(ledger: Ledger, _: Part, labels: Labels, __: float) -> None:
    ledger.models[_place(labels)] = labels.get("model") or "unknown model"


def _sliced(ledger: Ledger, _: Part, labels: Labels, value: float) -> None:
    ledger.sliced[_place(labels)] += value


def _workload(ledger: Ledger, _: Part, labels: Labels, __: float) -> None:
    named = _named(ledger, labels)
    pod = Pod(_node(labels), named.get("namespace", ""), named.get("pod", ""))
    ledger.workloads[pod] = Workload(labels.get("workload_kind", ""), labels.get("workload", ""))
