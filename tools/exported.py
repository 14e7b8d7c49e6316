"""
Rules and PromQL for the other label names, `exported_namespace`, `exported_pod` and `exported_container`.

What comes in: what is written for `namespace`, `pod` and `container`. What goes out: the same for the other names, by
`python -m tools.exported` into alerts/exported: rules, those under dcgm-exporter's names, the example for Alertmanager.
grafana/exported.py does so for boards.

The rule: only names of labels change. Values of labels, variables of boards and prose stay. What is recorded under
dcgm-exporter's names also loses `namespace`, `pod` and `container`, which here are the daemon's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from exporter.metrics.labels import EXPORTED

ALERTS = Path(__file__).parents[1] / "alerts"
FOLDER = ALERTS / "exported"
NAME = "|".join(EXPORTED)

_IN_PROMQL = re.compile(rf'[=~]\s*"(?:[^"\\]|\\.)*"|(?<![\w$])({NAME})(?![\w:])')
_IN_TEMPLATES = re.compile(rf'(?<=\$labels\.)({NAME})(?!\w)|(?<=[{{,])({NAME})(?==%q)|(?<=label ")({NAME})(?=")')
_IN_MESSAGES = re.compile(rf"(?<=Labels\.)({NAME})(?!\w)")
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


def dcgm(text: str) -> str:
    """Write rules under dcgm-exporter's names: the daemon's pod is on no series of theirs."""
    return text.replace("sum without (", f"sum without ({', '.join(EXPORTED)}, ")


def routes(text: str) -> str:
    """Write a config of Alertmanager: names in matchers, groups and `equal`; comments stay."""
    lines = text.splitlines(keepends=True)
    return "".join(line if line.lstrip().startswith("#") else promql(line) for line in lines)


def messages(text: str) -> str:
    """Write templates of Alertmanager's messages, which leave out the daemon's pod."""
    others = " ".join(f'"{name}"' for name in EXPORTED)
    return _IN_MESSAGES.sub(lambda found: EXPORTED[found[0]], text).replace("(stringSlice ", f"(stringSlice {others} ")


MADE_BY = {"*.yaml": rules, "dcgm/rules*.yaml": dcgm, "alertmanager/*.yaml": routes, "alertmanager/*.tmpl": messages}


def files() -> dict[Path, str]:
    """Each file to write: where, and what."""
    found = {}
    for pattern, made in MADE_BY.items():
        for one in sorted(ALERTS.glob(pattern)):
            name = one.relative_to(ALERTS)
            said = f"Written by `make golden` from alerts/{name}, for metrics.workload_labels: exported."
            head = f"{{{{- /* {said} */ -}}}}\n" if one.suffix == ".tmpl" else f"# {said}\n"
            found[FOLDER / name] = head + made(one.read_text())
    return found


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
