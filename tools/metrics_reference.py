"""
Writes the reference of all metrics from their help texts: `make golden`.

What comes in: the exporter's catalogue, and the enforcer's families. What goes out: the text of docs/metrics.md.

The rule: a test compares the page with this text.
"""

from collections.abc import Mapping

from exporter.metrics import CATALOGUE
from exporter.metrics.family import Family
from exporter.metrics.labels import CONTAINER, GPU, LEAF

HEAD = """\
# Metrics

<!-- Written by `make golden`; change the help texts in exporter/metrics/ and enforcer/runtime/metrics.py instead. -->

Served at `/metrics`, as Prometheus text or OpenMetrics. Base units; ratios from 0 to 1. An unknown value has no sample:
a missing series never means zero.

Every sample has the label `node`. Short for the labels of a device:

| short | labels | what it is |
|---|---|---|
| *gpu* | `gpu`, `uuid` | a physical GPU: its index and UUID |
| *device* | *gpu*, `gpu_instance` | a GPU with MIG off (`gpu_instance` is empty), or one MIG instance |
| *container* | `namespace`, `pod`, `container`, *device* | a container on a device |

Scrape with `honorLabels: true` (`honor_labels` in a plain scrape config), or Prometheus renames `namespace`, `pod` and
`container` to `exported_…`. In a family without a workload these three labels are empty, so that Prometheus does not
write those of the daemon's own pod. In queries an empty label is the same as a missing one.
While an old and a new pod of one name coexist, their values are summed.
"""


def page(more: Mapping[str, tuple[Family, ...]]) -> str:
    """Write the reference; `more` are families beyond the exporter's, by heading."""
    parts = [HEAD]
    for subject, families in {**CATALOGUE, **more}.items():
        parts.append(f"\n## {subject}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n")
        parts += [f"| `{family.name}` | {family.kind} | {labels(family)} | {family.help} |\n" for family in families]
    return "".join(parts)


def labels(family: Family) -> str:
    """Write the labels of a family, with the short names of the page."""
    for short, names in (("*container*", CONTAINER), ("*device*", LEAF), ("*gpu*", GPU)):
        if family.labels[: len(names)] == names:
            return ", ".join([short, *(f"`{name}`" for name in family.labels[len(names) :])])
    return ", ".join(f"`{name}`" for name in family.labels)
