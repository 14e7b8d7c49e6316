"""
Advice as text or JSON.

What comes in: targets with their use and advice. What goes out: a table, the reasons, and the patches as YAML; or JSON.

The rule: names from Kubernetes are printable ASCII in text, and quoted where YAML needs it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import yaml

from exporter.advise.advice import Advice, Kind, gib
from exporter.advise.declaring import Declared
from exporter.advise.grouping import Seen
from exporter.advise.patches import patch, place
from exporter.report.rendering import columns
from exporter.top.figures import UNKNOWN, clean

FRACTION = (
    "fraction: vLLM, JAX and TensorFlow take a part of the device at their start, which says nothing about their need. "
    "Lower it, then look at the peak again: vLLM --gpu-memory-utilization, JAX XLA_CLIENT_MEM_FRACTION (before: "
    "XLA_PYTHON_CLIENT_MEM_FRACTION), TensorFlow set_memory_growth or a LogicalDeviceConfiguration."
)
STEADY = "PyTorch takes memory as it needs it: for a steady job of it, the limit in brackets is the answer."


@dataclass(frozen=True, slots=True)
class Line:
    """One target; `declared` is a text to declare, words where none can be written, or None without advice."""

    seen: Seen
    advice: Advice
    declared: Declared | str | None

    @property
    def name(self) -> str:
        """Its namespace, kind, workload, and the container if the limit is not the pod's."""
        return "/".join(clean(part) for part in self.seen.target[1:] if part)


def as_text(lines: Sequence[Line]) -> str:
    """Write the table, a reason for each target, and the patches. Clusters are named where there are several."""
    several = len({line.seen.target.cluster for line in lines}) > 1
    rows: list[tuple[str, ...]] = [("CONTAINER", "PEAK", "P99", "P95", "DAYS", "LIMIT", "ADVICE")]
    for line in lines:
        use = line.seen.use
        limit = UNKNOWN if use.limit is None else gib(use.limit)
        rows.append((line.name, gib(use.peak), gib(use.p99), gib(use.p95), str(use.days), limit, _advised(line.advice)))
    clusters = ("CLUSTER", *(clean(line.seen.target.cluster) or UNKNOWN for line in lines))
    if several:
        rows = [(cluster, *row) for cluster, row in zip(clusters, rows, strict=True)]
    text = [*columns(rows, left=(0, 1) if several else (0,)), ""]
    for line, cluster in zip(lines, clusters[1:], strict=True):
        text.append(f"{f'{cluster}: ' if several else ''}{line.name}: {line.advice.why}")
        text += [f"  {sentence}" for sentence in _sentences(line)]
    fractions = [line.advice for line in lines if line.advice.kind is Kind.FRACTION]
    if fractions:
        text += ["", FRACTION]
    if any(advice.limit is not None for advice in fractions):
        text.append(STEADY)
    for (cluster, *_), group in groupby(lines, lambda line: line.seen.target[:4]):
        text += _patch(list(group), cluster if several else "")
    return "".join(f"{one.rstrip()}\n" for one in text)


def as_json(lines: Sequence[Line]) -> str:
    """Write a list of targets."""
    return json.dumps([_data(line) for line in lines], indent=2) + "\n"


def _advised(advice: Advice) -> str:
    if advice.kind is Kind.FRACTION and advice.limit is not None:
        return f"fraction ({gib(advice.limit)})"
    return gib(advice.limit) if advice.limit is not None else advice.kind.value


def _sentences(line: Line) -> Iterable[str]:
    yield from line.advice.remarks
    if isinstance(line.declared, str):
        yield line.declared


def _patch(lines: Sequence[Line], cluster: str) -> Iterable[str]:
    """Write one patch for all containers of a workload: two would restart its pods twice."""
    written = [(line, line.declared) for line in lines if isinstance(line.declared, Declared)]
    if not written:
        return
    yield "---"
    for line, declaration in written:
        yield f"# {f'{cluster}: ' if cluster else ''}{line.name}: {declaration.key}"
        if line.advice.kind is Kind.FRACTION:
            yield '# it holds for the present use; see "fraction" above'
    for note in dict.fromkeys(note for _, declaration in written for note in declaration.note.split("; ") if note):
        yield f"# {note}"
    target = lines[0].seen.target
    if where := place(target.kind, target.workload):
        yield f"# {clean(where)}"
    containers = [(declaration, line.seen.container) for line, declaration in written]
    made = patch(containers, target.kind, target.namespace, target.workload)
    yield yaml.safe_dump(made, sort_keys=False).rstrip()


def _data(line: Line) -> dict[str, Any]:
    target, use, advice = line.seen.target, line.seen.use, line.advice
    found: dict[str, Any] = {
        "cluster": target.cluster,
        "namespace": target.namespace,
        "workload_kind": target.kind,
        "workload": target.workload,
        "container": target.container,
        "peak_bytes": round(use.peak),
        "p99_bytes": round(use.p99),
        "p95_bytes": round(use.p95),
        "days": use.days,
        "limit_bytes": None if use.limit is None else round(use.limit),
        "system": use.system,
        "advice": advice.kind.value,
        "advised_bytes": advice.limit,
        "why": advice.why,
        "remarks": [*_sentences(line), *([FRACTION] if advice.kind is Kind.FRACTION else [])],
        "patch": None,
    }
    if isinstance(line.declared, Declared):
        containers = [(line.declared, line.seen.container)]
        found["patch"] = patch(containers, target.kind, target.namespace, target.workload)
        found["patch_bytes"], found["patch_note"] = line.declared.bytes, line.declared.note
        found["patch_place"] = place(target.kind, target.workload)
    return found
