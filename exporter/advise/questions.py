"""
What advice asks a Prometheus, as PromQL.

What comes in: which labels of workloads are overridden there, perhaps namespaces. What goes out: queries in which
RANGE stands for the length of the part, and for each the function that notes a row of its answer.

The rule: a label that Prometheus overrides is read as `exported_NAME`, each label for itself.
https://prometheus.io/docs/prometheus/latest/configuration/configuration/#scrape_config (honor_labels)
"""

from collections.abc import Collection, Mapping

from exporter.advise import notes
from exporter.advise.notes import Enter, PodName
from exporter.history.owners import Owners, Workload
from exporter.history.prometheus import History
from exporter.history.windows import Window
from exporter.report.questions import UP

OF_WORKLOADS = ("namespace", "pod", "container")
"""Labels that a scrape may override."""
PREFIX = "exported_"
USED = "gpusteward_container_memory_used_bytes"


async def overridden(history: History, part: Window) -> frozenset[str]:
    """Return the labels of workloads that are overridden in a part: an installation may change in the time."""
    asked = [
        f'label_replace(count(last_over_time({USED}{{{PREFIX}{name}!=""}}[RANGE])), "of", "{name}", "", "")'
        for name in OF_WORKLOADS
    ]
    found = {row.labels.get("of", "") async for _, rows in history.over(" or ".join(asked), part) for row in rows}
    return frozenset(found) & frozenset(OF_WORKLOADS)


async def owners(history: History, part: Window, renamed: frozenset[str]) -> Owners[tuple[str, str], PodName]:
    """Ask for the workload of each pod in a part: samples with each, and scrapes of its node."""
    history.expect(2)
    found: Owners[tuple[str, str], PodName] = Owners()
    pod = ", ".join(PREFIX + name if name in renamed else name for name in OF_WORKLOADS[:2])
    by = f"cluster, node, {pod}, workload_kind, workload"
    async for _, rows in history.over(f"sum by ({by}) (count_over_time(gpusteward_pod_info[RANGE]))", part):
        for row in rows:
            labels = plain(row.labels, renamed)
            name = notes.pod_name(labels)
            workload = Workload(labels.get("workload_kind", ""), labels.get("workload", ""))
            found.note(name[:2], name, workload, row.value)
    async for _, rows in history.over(f"sum by (cluster, node) (count_over_time({UP}[RANGE]))", part):
        for row in rows:
            found.scraped((row.labels.get("cluster", ""), row.labels.get("node", "")), row.value)
    return found


def plain(labels: Mapping[str, str], renamed: frozenset[str]) -> Mapping[str, str]:
    """Give the labels of workloads the names that they have without an override."""
    return {
        name.removeprefix(PREFIX) if name.removeprefix(PREFIX) in renamed else name: labels[name] for name in labels
    }


def questions(
    renamed: frozenset[str], namespaces: Collection[str], pods: Collection[str] = ()
) -> list[tuple[str, Enter]]:
    """Return all queries about a part, with what notes their rows; about all of them without `namespaces` or `pods`."""
    named = {name: PREFIX + name if name in renamed else name for name in OF_WORKLOADS}
    which = [f'{named["namespace"]}!=""'] if "namespace" in renamed else []
    which += [f'{named["namespace"]}=~"{_either(namespaces)}"'] if namespaces else []
    which += [f'{named["pod"]}=~"{_either(pods)}"'] if pods else []
    where = f"{{{', '.join(which)}}}" if which else ""
    pod = f"cluster, node, {named['namespace']}, {named['pod']}"
    box = f"{pod}, {named['container']}, uuid, gpu_instance"

    claim = f"cluster, node, {named['namespace']}, claim, uuid, gpu_instance"

    def each(function: str, name: str, labels: str = box) -> str:
        return f"max by ({labels}) ({function}gpusteward_{name}{where}[RANGE]))"

    used = "container_memory_used_bytes"
    return [
        (each("max_over_time(", used), notes.peak),
        (each("max_over_time(", "container_memory_peak_bytes"), notes.kernel_peak),
        (each("quantile_over_time(0.99, ", used), notes.p99),
        (each("quantile_over_time(0.95, ", used), notes.p95),
        (each("quantile_over_time(0.25, ", used), notes.p25),
        (each("last_over_time(", "container_memory_limit_bytes"), notes.limit),
        (each("last_over_time(", "pod_memory_limit_bytes", f"{pod}, uuid, gpu_instance"), notes.limit),
        (
            each("last_over_time(", "container_limit_info", f"{box}, system, source, scope, enforced_by"),
            notes.declaration,
        ),
        (each("max_over_time(", "claim_memory_used_bytes", claim), notes.claim_peak),
        (each("last_over_time(", "claim_memory_limit_bytes", claim), notes.claim_limit),
        (each("increase(", "container_over_limit_seconds_total"), notes.over),
        (
            each("last_over_time(", "last_action_timestamp_seconds", f"{pod}, {named['container']}, action"),
            notes.acted,
        ),
        (
            "max by (cluster, node, uuid, gpu_instance) (last_over_time(gpusteward_device_memory_total_bytes[RANGE]))",
            notes.size,
        ),
    ]


def _either(names: Collection[str]) -> str:
    return "|".join(sorted(name.replace(".", "[.]") for name in names))
