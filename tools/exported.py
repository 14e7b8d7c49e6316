"""
Rules and PromQL for the other label names, `exported_namespace`, `exported_pod` and `exported_container`.

What comes in: what is written for `namespace`, `pod` and `container`. What goes out: the same for the other names, by
`python -m tools.exported` into alerts/exported. grafana/exported.py does so for boards.

The rule: only names of labels change. Values of labels, variables of boards and prose stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from exporter.metrics.labels import EXPORTED

ALERTS = Path(__file__).parents[1] / "alerts"
FOLDER = ALERTS / "exported"
NAME = "|".join(EXPORTED)

_IN_PROMQL = re.compile(rf'[=~]\s*"(?:[^"\\]|\\.)*"|(?<![\w$])({NAME})(?!\w)')
_IN_TEMPLATES = re.compile(rf'(?<=\$labels\.)({NAME})(?!\w)|(?<=[{{,])({NAME})(?==%q)|(?<=label ")({NAME})(?=")')
_EXPRESSION = re.compile(r"^( +)(?:- )?expr:")


def promql(expression: str) -> str:
    """Write an expression for the other names; the value of a matcher is no name."""
    return _IN_PROMQL.sub(lambda found: EXPORTED[found[1]] if found[1] else found[0], expression)


def rules(text: str) -> str:
    """Write a file of rules for the other names; comments outside of expressions stay."""
    return "".join(_lines(text))


def _lines(text: str) -> Iterator[str]:
    deeper = None
    for line in text.splitlines(keepends=True):
        indent = len(line) - len(line.lstrip())
        if deeper is not None and line.strip() and indent <= deeper:
            deeper = None
        if found := _EXPRESSION.match(line):
            deeper = len(found[1])
        if deeper is not None:
            yield promql(line)
        elif line.lstrip().startswith("#"):
            yield line
        else:
            yield _IN_TEMPLATES.sub(lambda found: EXPORTED[found[0]], line)


def files() -> dict[Path, str]:
    """Each file to write: where, and what."""
    originals = sorted(ALERTS.glob("*.yaml"))  # those of dcgm/ name none of these labels
    head = "# Written by `make golden` from {}, for metrics.workload_labels: exported.\n"
    return {FOLDER / one.name: head.format(f"alerts/{one.name}") + rules(one.read_text()) for one in originals}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
