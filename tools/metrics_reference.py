"""
Writes the reference of all metrics from their help texts: `make golden`.

What comes in: the exporter's catalogue, and the enforcer's families. What goes out: the text of docs/metrics.md.

The rule: a test compares the page with this text.
"""

from collections.abc import Mapping

from exporter.metrics import CATALOGUE, COLLECTED, STANDARD
from exporter.metrics.family import Family
from exporter.metrics.labels import CONTAINER, GPU, LEAF
from exporter.model import COLLECTORS

HEAD = """\
# Metrics

<!-- Written by `make golden`; change the help texts in exporter/metrics/ and enforcer/runtime/metrics.py instead. -->

Served at `/metrics`, as Prometheus text or OpenMetrics. Base units; ratios from 0 to 1. An unknown value has no sample:
a missing series never means zero.

Every sample of ours has the label `node`. Short for the labels of a device:

| short | labels | what it is |
|---|---|---|
| *gpu* | `gpu`, `uuid` | a physical GPU: its index and UUID |
| *device* | *gpu*, `gpu_instance` | a GPU with MIG off (`gpu_instance` is empty), or one MIG instance |
| *container* | `namespace`, `pod`, `container`, *device* | a container on a device |

Scrape with `honorLabels: true` (`honor_labels` in a plain scrape config), or Prometheus renames `namespace`, `pod` and
`container` to `exported_…`. Where it cannot honor them, set
[`metrics.workload_labels: exported`](platforms.md#where-prometheus-overrides-the-labels): the daemon then writes these
names itself. In a family without a workload these three labels are empty, so that Prometheus does not
write those of the daemon's own pod. In queries an empty label is the same as a missing one.
While an old and a new pod of one name coexist, their values are summed.
"""

COLLECTORS_HEAD = """
## Collectors

Each of these config keys is `true`. Set one to `false`, or give the flag `--no-collector.NAME` (an underscore is a
hyphen there): the daemon then does not ask the drivers for these figures, and their series are missing. Memory,
processes and limits cannot be switched off. A simulated or recorded node shows all figures.

On AMD and Intel, utilization by process comes from the file that has the memory: `process_utilization` saves the
arithmetic alone there. Under MIG `gpusteward_container_sm_utilization_ratio` is of the collector `gpm`.

| key | reads | series |
|---|---|---|
"""


def page(more: Mapping[str, tuple[Family, ...]]) -> str:
    """Write the reference; `more` are families beyond the exporter's, by heading."""
    parts = [HEAD]
    for subject, families in {**CATALOGUE, **more, **STANDARD}.items():
        parts.append(f"\n## {subject}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n")
        parts += [f"| `{family.name}` | {family.kind} | {labels(family)} | {family.help} |\n" for family in families]
    parts.append(COLLECTORS_HEAD)
    for collector, what in COLLECTORS.items():
        names = ", ".join(f"`gpusteward_{name}`" for name in COLLECTED[collector])
        parts.append(f"| `collector.{collector}` | {what} | {names} |\n")
    return "".join(parts)


def labels(family: Family) -> str:
    """Write the labels of a family, with the short names of the page."""
    for short, names in (("*container*", CONTAINER), ("*device*", LEAF), ("*gpu*", GPU)):
        if family.labels[: len(names)] == names:
            return ", ".join([short, *(f"`{name}`" for name in family.labels[len(names) :])])
    return ", ".join(f"`{name}`" for name in family.labels)
