"""
Fills a ledger from a Prometheus.

What comes in: the Prometheus and a window. What goes out: a `Ledger`.

The rule: sums are Prometheus' own `increase()`, part by part. Names that may change (model, workload) are joined here,
because a label that changes within a part breaks a join in PromQL.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from exporter.history.prometheus import History, HistoryError
from exporter.history.windows import Window
from exporter.report.ledger import Holder, Ledger, Node, Place, Pod, Workload

EVERY = 300
"""Seconds between two looks at a declared limit."""
_NODE = "cluster, node"
_DEVICE = f"{_NODE}, uuid, gpu_instance"

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Question:
    """A query, with RANGE for the length of the part; `enter` puts one row of its answer into the ledger."""

    query: str
    enter: Callable[[Ledger, Labels, float], None]


async def read(history: History, window: Window) -> Ledger:
    """Ask everything about a window. Raises HistoryError, AskError."""
    prefix = await prefix_of(history, window)
    questions, parts = _questions(prefix), list(window.parts())
    history.expect(len(questions) * len(parts))
    ledger = Ledger()
    for part in parts:
        for question in questions:
            async for _, rows in history.over(question.query, part):
                for row in rows:
                    question.enter(ledger, _plain(row.labels, prefix), row.value)
    if not ledger.spans:
        raise _nothing()
    return ledger


async def prefix_of(history: History, window: Window) -> str:
    """Return what precedes the labels of workloads there (`metrics.workload_labels`)."""
    query = 'count(last_over_time(gpusteward_pod_info{exported_namespace!=""}[RANGE]))'
    history.expect(1)
    async for _, rows in history.over(query, list(window.parts())[-1]):
        if any(row.value for row in rows):
            return "exported_"
    return ""


def _plain(labels: Labels, prefix: str) -> Labels:
    return {name.removeprefix(prefix): text for name, text in labels.items()} if prefix else labels


def _questions(prefix: str) -> tuple[_Question, ...]:
    pod = f"{prefix}namespace, {prefix}pod"
    holder = f"{_DEVICE}, {pod}, {prefix}container"

    def grew(by: str, name: str) -> str:
        return f"sum by ({by}) (increase(gpusteward_{name}[RANGE]))"

    def had(by: str, name: str) -> str:
        return f"max by ({by}) (last_over_time(gpusteward_{name}[RANGE]))"

    limits = "gpusteward_container_memory_limit_bytes or gpusteward_pod_memory_limit_bytes"
    return (
        _Question(grew(f"{_DEVICE}, part", "device_memory_byte_seconds_total"), _part),
        _Question(grew(_DEVICE, "device_observed_seconds_total"), _observed),
        _Question(grew(_DEVICE, "device_unknown_seconds_total"), _unanswered),
        _Question(had(_DEVICE, "device_memory_total_bytes"), _capacity),
        _Question(had(f"{_NODE}, uuid", "gpu_memory_total_bytes"), _gpu_bytes),
        _Question(had(f"{_NODE}, uuid, model", "gpu_info"), _model),
        _Question(f"min by ({_NODE}) (min_over_time(gpusteward_snapshot_timestamp_seconds[RANGE]))", _first),
        _Question(f"max by ({_NODE}) (max_over_time(gpusteward_snapshot_timestamp_seconds[RANGE]))", _last),
        _Question(grew(holder, "container_allocated_seconds_total"), _allocated),
        _Question(grew(holder, "container_sm_seconds_total"), _sm),
        _Question(grew(holder, "container_memory_byte_seconds_total"), _memory),
        _Question(f"sum by ({holder}) (sum_over_time(({limits})[RANGE:{EVERY}s])) * {EVERY}", _declared),
        _Question(had(f"{_NODE}, {pod}, workload_kind, workload", "pod_info"), _workload),
    )


def _node(labels: Labels) -> Node:
    return Node(labels.get("cluster", ""), labels.get("node", ""))


def _place(labels: Labels) -> Place:
    return Place(_node(labels), labels.get("uuid", ""), labels.get("gpu_instance", ""))


def _holder(labels: Labels) -> Holder:
    return Holder(_place(labels), labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", ""))


def _part(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.parts[_place(labels)][labels.get("part", "unknown")] += value


def _observed(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.observed[_place(labels)] += value


def _unanswered(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.unanswered[_place(labels)] += value


def _capacity(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.capacity[_place(labels)] = value


def _gpu_bytes(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.gpu_bytes[_place(labels)] = value


def _model(ledger: Ledger, labels: Labels, _: float) -> None:
    ledger.models[_place(labels)] = labels.get("model", "")


def _first(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.seen(_node(labels), value, None)


def _last(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.seen(_node(labels), None, value)


def _allocated(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.allocated[_holder(labels)] += value


def _sm(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.sm[_holder(labels)] += value


def _memory(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.memory[_holder(labels)] += value


def _declared(ledger: Ledger, labels: Labels, value: float) -> None:
    ledger.declared[_holder(labels)] += value


def _workload(ledger: Ledger, labels: Labels, _: float) -> None:
    pod = Pod(_node(labels), labels.get("namespace", ""), labels.get("pod", ""))
    ledger.workloads[pod] = Workload(labels.get("workload_kind", ""), labels.get("workload", ""))


def _nothing() -> HistoryError:
    return HistoryError(
        "this Prometheus has no series of gpusteward in this time",
        cause="it scrapes no daemon, keeps a shorter time, or another Prometheus does",
        fix="ask it for gpusteward_snapshot_timestamp_seconds, and set --since to a time that it keeps",
    )
