"""
The questions of a report, in PromQL, and where their answers go.

What comes in: whether series are there more than once. What goes out: queries, each with the function of `entering`
that puts a row of its answer into the ledger. RANGE stands for the length of a part.

The rule: sums are what counters grew by. What no counter counts is looked at each `EVERY` seconds, at times that
do not depend on the window: so the report of a week is the sum of those of its days.
"""

from dataclasses import dataclass

from exporter.report import entering as to
from exporter.report.entering import COPY_LABELS, Enter
from exporter.report.growth import grown, late
from exporter.report.ledger import EVERY
from exporter.report.names import SLICED

UP = "gpusteward_snapshot_timestamp_seconds"
_NODE = "cluster, node"
_DEVICE = f"{_NODE}, uuid, gpu_instance"
_POD = "namespace, pod, exported_namespace, exported_pod"
_ON_DEVICE = f"{_DEVICE}, {_POD}"
_HOLDER = f"{_ON_DEVICE}, container, exported_container"
_GRID = f"[RANGE:{EVERY}s]"
_COUNTED, _MIG = "gpusteward_device_observed_seconds_total", 'gpusteward_gpu_info{mig="true"}'
_CUT = f'group by ({_NODE}, uuid) ({_MIG} or {_COUNTED}{{gpu_instance!=""}})'
_SLICED = f'label_replace({_CUT}, "gpu_instance", "{SLICED}", "", "")'
"""A GPU in MIG mode. While its driver does not answer, only the counters of its instances are there."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query; `enter` puts one row of its answer into the ledger."""

    query: str
    enter: Enter


def scrapes() -> tuple[Question, ...]:
    """Ask how much of the time each node was scraped, and how often."""
    copy = ", ".join(COPY_LABELS)
    return (
        Question(f"sum by ({_NODE}, {copy}) (count_over_time({UP}{_GRID})) * {EVERY}", to.scraped),
        Question(f"sum by ({_NODE}) (count_over_time((group by ({_NODE}) ({UP})){_GRID})) * {EVERY}", to.alive),
        Question(f"min by ({_NODE}) (min_over_time(timestamp({UP}){_GRID}))", to.node_first),
        Question(f"max by ({_NODE}) (max_over_time(timestamp({UP}){_GRID}))", to.node_last),
    )


def models() -> Question:
    """Ask for the model of each GPU: samples with each."""
    return Question(f"sum by ({_NODE}, uuid, model) (count_over_time(gpusteward_gpu_info[RANGE]))", to.model)


def owners() -> tuple[Question, ...]:
    """Ask for the workload of each pod: samples with each."""
    by = f"{_NODE}, {_POD}, workload_kind, workload"
    return (
        Question(f"sum by ({by}) (count_over_time(gpusteward_pod_info[RANGE]))", to.workload),
        Question(f"sum by ({_NODE}) (count_over_time({UP}[RANGE]))", to.scrapes),
    )


def devices() -> Question:
    """Ask which copies of series each GPU has."""
    by = f"{_NODE}, uuid, {', '.join(COPY_LABELS)}"
    return Question(f"group by ({by}) (last_over_time({_COUNTED}[RANGE]))", to.source)


def sizes() -> tuple[Question, ...]:
    """Ask for the sizes of devices and GPUs; what is put into the ledger after them is weighted by them."""
    size = "gpusteward_device_memory_total_bytes[RANGE]"
    return (
        Question(_had(_DEVICE, "device_memory_total_bytes"), to.capacity),
        Question(f"sum by ({_DEVICE}) (sum_over_time({size}))", to.size),
        Question(f"sum by ({_DEVICE}) (count_over_time({size}))", to.look),
        Question(_had(f"{_NODE}, uuid", "gpu_memory_total_bytes"), to.gpu_bytes),
    )


def sums(*, copied: bool) -> tuple[Question, ...]:
    """Ask all else; where series are `copied`, each counts once."""

    def grew(by: str, name: str) -> str:
        return _summed(by, grown(f"gpusteward_{name}"), copied=copied)

    def rate(name: str) -> str:
        return _summed(_HOLDER, f"rate(gpusteward_{name}[{EVERY}s])", copied=copied)

    there = f"(group by ({_DEVICE}) ({_COUNTED}) or {_SLICED})"
    excess = f"({rate('container_sm_seconds_total')} - {rate('container_allocated_seconds_total')}) > 0"
    sliced = f"(group by ({_NODE}, uuid) ({_MIG})){_GRID}"
    return (
        Question(grew(f"{_DEVICE}, part", "device_memory_byte_seconds_total"), to.memory),
        Question(grew(_DEVICE, "device_observed_seconds_total"), to.observed),
        Question(grew(_DEVICE, "device_unknown_seconds_total"), to.unanswered),
        Question(f"count_over_time({there}{_GRID}) * {EVERY}", to.present),
        Question(f"min_over_time((time() * {there}){_GRID})", to.device_first),
        Question(f"max_over_time((time() * {there}){_GRID})", to.device_last),
        Question(f"sum by ({_NODE}, uuid) (count_over_time({sliced})) * {EVERY}", to.sliced),
        *_samples(),
        Question(grew(_HOLDER, "container_allocated_seconds_total"), to.allocated),
        Question(grew(_HOLDER, "container_sm_seconds_total"), to.of_holder(lambda ledger: ledger.sm, weighted=True)),
        Question(
            f"sum by ({_HOLDER}) (sum_over_time(({excess}){_GRID})) * {EVERY}",
            to.of_holder(lambda ledger: ledger.excess, weighted=True),
        ),
        Question(grew(_HOLDER, "container_memory_byte_seconds_total"), to.of_holder(lambda ledger: ledger.memory)),
        *_limits(),
    )


def gained_in_gaps(*, copied: bool) -> tuple[Question, ...]:
    """Ask for what containers gained in gaps between two scrapes, before their first sample (`growth.late`)."""
    return tuple(
        Question(_summed(_HOLDER, late(f"gpusteward_container_{name}_seconds_total"), copied=copied), enter)
        for name, enter in (
            ("allocated", to.late_allocated),
            ("sm", to.of_holder(lambda ledger: ledger.sm, weighted=True, late=True)),
            ("memory_byte", to.of_holder(lambda ledger: ledger.memory, late=True)),
        )
    )


def _summed(by: str, rates: str, *, copied: bool) -> str:
    if not copied:
        return f"sum by ({by}) ({rates})"
    return f"max by ({by}) (sum by ({by}, {', '.join(COPY_LABELS)}) ({rates}))"


def _had(by: str, name: str) -> str:
    return f"max by ({by}) (last_over_time(gpusteward_{name}[RANGE]))"


def _samples() -> tuple[Question, ...]:
    """Ask how many samples the allocation of each container has, whatever the number of its resources, and its SMs."""
    allotted = f"sum by ({_HOLDER}, resource) (count_over_time(gpusteward_container_allocated_seconds_total[RANGE]))"
    metered = "count_over_time(gpusteward_container_sm_seconds_total[RANGE])"
    return (
        Question(f"max by ({_HOLDER}) ({allotted})", to.allotted),
        Question(f"sum by ({_HOLDER}) ({metered})", to.metered),
    )


def _limits() -> tuple[Question, ...]:
    """Ask what was declared, and what of it was held, at the same moments: those at which it is known what was held."""
    used = f"max by ({_HOLDER}) (gpusteward_container_memory_used_bytes)"
    declared, held = [], []
    for name, by, amount in (
        ("container", _HOLDER, used),
        ("pod", _ON_DEVICE, f"sum by ({_ON_DEVICE}) ({used})"),
    ):
        limit = f"(max by ({by}) (gpusteward_{name}_memory_limit_bytes) and {amount})"
        declared.append(limit)
        held.append(f"({amount} < {limit} or {limit})")

    def over_time(terms: list[str]) -> str:
        return f"sum_over_time(({' or '.join(terms)}){_GRID}) * {EVERY}"

    return (
        Question(over_time(declared), to.of_holder(lambda ledger: ledger.declared)),
        Question(over_time(held), to.of_holder(lambda ledger: ledger.within)),
    )
