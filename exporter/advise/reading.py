"""
Reads what advice needs from a Prometheus.

What comes in: the Prometheus, a window, perhaps a namespace and a workload. What goes out: one `Observed` per workload
and container, with the number of devices of its pods.

The rule: percentiles are those of single days, because percentiles of parts cannot be added up.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.advise.observed import Day, Observed, Series, observed
from exporter.history.prometheus import History, HistoryError
from exporter.history.windows import Window
from exporter.report.reading import prefix_of

Labels = Mapping[str, str]


class Target(NamedTuple):
    """A container name of a workload; of a pod without one, the pod is the workload."""

    namespace: str
    kind: str
    workload: str
    container: str


class _Pod(NamedTuple):
    cluster: str
    node: str
    namespace: str
    name: str


class _Box(NamedTuple):
    pod: _Pod
    container: str
    uuid: str
    instance: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A target: its use, and the most devices that one container of it had."""

    target: Target
    use: Observed
    devices: int


@dataclass
class _Notes:
    """What the answers say."""

    series: dict[_Box, Series] = field(default_factory=lambda: defaultdict(Series))
    pods: dict[_Pod, tuple[str, str]] = field(default_factory=dict)
    sizes: dict[tuple[str, str, str, str], float] = field(default_factory=dict)


async def read(history: History, window: Window, namespace: str | None, workload: str | None) -> list[Seen]:
    """Ask about all containers, or those of a namespace or workload. Raises HistoryError, AskError."""
    prefix = await prefix_of(history, window)
    asked, parts = _questions(prefix, namespace), list(window.parts())
    history.expect(len(asked) * len(parts))
    notes = _Notes()
    for number, part in enumerate(parts):
        for query, enter in asked:
            async for _, rows in history.over(query, part):
                for row in rows:
                    enter(
                        notes, {name.removeprefix(prefix): text for name, text in row.labels.items()}, row.value, number
                    )
    if not notes.series:
        raise HistoryError(
            "this Prometheus has no containers on GPUs in this time",
            cause="no daemon was scraped, or the namespace has no pod on a GPU",
            fix="check the name, and set --since to a time that it keeps",
        )
    return _grouped(notes, workload)


Enter = Callable[[_Notes, Labels, float, int], None]


def _questions(prefix: str, namespace: str | None) -> list[tuple[str, Enter]]:
    where = "" if namespace is None else f'{{{prefix}namespace="{namespace}"}}'
    pod = f"cluster, node, {prefix}namespace, {prefix}pod"
    box = f"{pod}, {prefix}container, uuid, gpu_instance"

    def each(function: str, name: str, labels: str = box) -> str:
        return f"max by ({labels}) ({function}gpusteward_{name}{where}[RANGE]))"

    used = "container_memory_used_bytes"
    return [
        (each("max_over_time(", used), _peak),
        (each("max_over_time(", "container_memory_peak_bytes"), _kernel_peak),
        (each("quantile_over_time(0.99, ", used), _quantile("p99")),
        (each("quantile_over_time(0.95, ", used), _quantile("p95")),
        (each("quantile_over_time(0.25, ", used), _quantile("p25")),
        (each("last_over_time(", "container_memory_limit_bytes"), _limit),
        (each("last_over_time(", "container_limit_info", f"{box}, system, source, scope, enforced_by"), _declaration),
        (each("increase(", "container_over_limit_seconds_total"), _over),
        (each("last_over_time(", "last_action_timestamp_seconds", f"{pod}, {prefix}container, action"), _acted),
        (each("last_over_time(", "pod_info", f"{pod}, workload_kind, workload"), _workload),
        (
            "max by (cluster, node, uuid, gpu_instance) (last_over_time(gpusteward_device_memory_total_bytes[RANGE]))",
            _size,
        ),
    ]


def _pod(labels: Labels) -> _Pod:
    return _Pod(*(labels.get(name, "") for name in ("cluster", "node", "namespace", "pod")))


def _box(labels: Labels) -> _Box:
    return _Box(_pod(labels), *(labels.get(name, "") for name in ("container", "uuid", "gpu_instance")))


def _day(notes: _Notes, labels: Labels, number: int) -> Day:
    return notes.series[_box(labels)].days.setdefault(number, Day())


def _peak(notes: _Notes, labels: Labels, value: float, number: int) -> None:
    day = _day(notes, labels, number)
    day.peak = max(day.peak, value)


def _kernel_peak(notes: _Notes, labels: Labels, value: float, number: int) -> None:
    """Take a peak that rounds did not see. It is remembered since the container's start, so it counts for its days."""
    if number in notes.series[_box(labels)].days:
        _peak(notes, labels, value, number)


def _quantile(name: str) -> Enter:
    def enter(notes: _Notes, labels: Labels, value: float, number: int) -> None:
        day = _day(notes, labels, number)
        setattr(day, name, max(getattr(day, name), value))

    return enter


def _limit(notes: _Notes, labels: Labels, value: float, _: int) -> None:
    notes.series[_box(labels)].limit = value


def _declaration(notes: _Notes, labels: Labels, _: float, __: int) -> None:
    series = notes.series[_box(labels)]
    for name in ("system", "source", "scope", "enforced_by"):
        setattr(series, name, labels.get(name, ""))


def _over(notes: _Notes, labels: Labels, value: float, _: int) -> None:
    notes.series[_box(labels)].over_seconds += value


def _acted(notes: _Notes, labels: Labels, _: float, __: int) -> None:
    if labels.get("action") in ("evict", "kill"):
        pod, container = _pod(labels), labels.get("container", "")
        for box, series in notes.series.items():
            series.acted |= box.pod == pod and container in ("", box.container)


def _workload(notes: _Notes, labels: Labels, _: float, __: int) -> None:
    notes.pods[_pod(labels)] = labels.get("workload_kind", ""), labels.get("workload", "")


def _size(notes: _Notes, labels: Labels, value: float, _: int) -> None:
    notes.sizes[
        labels.get("cluster", ""), labels.get("node", ""), labels.get("uuid", ""), labels.get("gpu_instance", "")
    ] = value


def _grouped(notes: _Notes, workload: str | None) -> list[Seen]:
    groups: dict[Target, list[Series]] = defaultdict(list)
    devices: dict[Target, dict[tuple[_Pod, str], int]] = defaultdict(lambda: defaultdict(int))
    for box, series in notes.series.items():
        if not series.days or not box.container:
            continue
        kind, name = notes.pods.get(box.pod, ("", ""))
        target = Target(box.pod.namespace, kind if name else "Pod", name or box.pod.name, box.container)
        if workload is not None and target.workload != workload:
            continue
        series.device_bytes = notes.sizes.get((box.pod.cluster, box.pod.node, box.uuid, box.instance))
        groups[target].append(series)
        devices[target][box.pod, box.container] += 1
    return [Seen(target, observed(series), max(devices[target].values())) for target, series in sorted(groups.items())]
