"""
Advice as text or JSON.

What comes in: targets with their use and advice. What goes out: a table, the reasons, and the patches as YAML; or JSON.

The rule: names from Kubernetes are printable ASCII in text, and quoted where YAML needs it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from exporter.advise.advice import Advice, Kind
from exporter.advise.patches import Declared, patch
from exporter.advise.reading import Seen
from exporter.report.rendering import columns
from exporter.top.figures import UNKNOWN, clean

FRACTION = (
    "set the fraction, not the limit: vLLM --gpu-memory-utilization, JAX XLA_PYTHON_CLIENT_MEM_FRACTION, TensorFlow "
    "set_memory_growth or a LogicalDeviceConfiguration; then look at its peak again"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One target; `declared` is a text to declare, words where none can be written, or None without advice."""

    seen: Seen
    advice: Advice
    declared: Declared | str | None

    @property
    def name(self) -> str:
        """Its namespace, kind, workload and container."""
        return "/".join(clean(part) for part in self.seen.target)


def as_text(lines: Sequence[Line]) -> str:
    """Write the table, a reason for each target, and the patches."""
    rows = [("CONTAINER", "PEAK", "P99", "P95", "DAYS", "LIMIT", "ADVICE")]
    for line in lines:
        use = line.seen.use
        advised = _size(line.advice.limit) if line.advice.limit is not None else line.advice.kind.value
        limit = UNKNOWN if use.limit is None else _size(use.limit)
        rows.append((line.name, _size(use.peak), _size(use.p99), _size(use.p95), str(use.days), limit, advised))
    text = [*columns(rows, left=(0,)), ""]
    for line in lines:
        text.append(f"{line.name}: {line.advice.why}")
        text += [f"  {sentence}" for sentence in _sentences(line)]
    patches = [one for line in lines for one in _patch(line)]
    return "".join(f"{one.rstrip()}\n" for one in (*text, *patches))


def as_json(lines: Sequence[Line]) -> str:
    """Write a list of targets."""
    return json.dumps([_data(line) for line in lines], indent=2) + "\n"


def _sentences(line: Line) -> Iterable[str]:
    yield from line.advice.remarks
    if line.advice.kind is Kind.FRACTION:
        yield FRACTION
    if isinstance(line.declared, str):
        yield line.declared


def _patch(line: Line) -> Iterable[str]:
    if not isinstance(line.declared, Declared):
        return
    target = line.seen.target
    yield "---"
    yield f"# {line.name}: {line.declared.key}"
    if line.declared.note:
        yield f"# {line.declared.note}"
    made = patch(line.declared, target.kind, target.namespace, target.workload, target.container)
    if "kind" not in made:
        yield f"# in the pod template of {clean(target.kind)} {clean(target.workload)}"
    yield yaml.safe_dump(made, sort_keys=False).rstrip()


def _data(line: Line) -> dict[str, Any]:
    target, use, advice = line.seen.target, line.seen.use, line.advice
    found: dict[str, Any] = {
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
        "remarks": list(_sentences(line)),
        "patch": None,
    }
    if isinstance(line.declared, Declared):
        found["patch"] = patch(line.declared, target.kind, target.namespace, target.workload, target.container)
        found["patch_bytes"], found["patch_note"] = line.declared.bytes, line.declared.note
    return found


def _size(amount: float) -> str:
    return f"{amount / 2**30:.2f}Gi"
