"""
The rules, their promtool tests and their runbooks as they are written, and what an expression names.

In: the files of alerts/ and docs/runbooks/. Out: dataclasses. Law: expressions are cut by PromQL's rules for names.
A word that is not understood counts as a metric's name, so that it is looked for on the golden page and not found.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import plain_yaml
from exporter.metrics.labels import WORKLOAD
from golden import mixed
from golden.everything import golden_page
from scraped import families

ROOT = Path(__file__).parents[2]
RULES = tuple(sorted((ROOT / "alerts").glob("*.yaml")))
TESTS = tuple(sorted((ROOT / "alerts" / "tests").glob("*.yaml")))
RUNBOOKS = ROOT / "docs" / "runbooks"

FOREIGN = {
    "up": {"cluster", "job", "instance", *WORKLOAD},
    "process_start_time_seconds": {"cluster", "job", "instance"},
    "kube_node_status_capacity": {"cluster", "node", "resource", "unit", "job", "instance"},
    "kube_daemonset_status_desired_number_scheduled": {"cluster", "namespace", "daemonset", "job", "instance"},
}
"""Not ours alone: Prometheus's, with the daemon's pod; kube-state-metrics's (its docs/metrics/{cluster,workload})."""

TARGET = {"job", "instance", "cluster"}

_WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset"}
_STRING = r'"(?:[^"\\]|\\.)*"'
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_STRING})")
_SELECTOR = re.compile(rf"([a-zA-Z_:][\w:]*)\s*\{{((?:[^{{}}\"]|{_STRING})*)\}}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([\w\s,]*)\)")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; `severity` and `annotations` are empty for one that records."""

    name: str
    expression: str
    severity: str
    annotations: Mapping[str, str]
    records: bool
    lasts: str = ""
    """Its `for`."""
    threshold: str = ""
    """The number that values can change, and its unit: `0.9: share of the limit`."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a promtool test expects of one alert at one time: the severities that fire, and all their annotations."""

    alert: str
    at: int
    severities: frozenset[str]
    annotations: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A test group of promtool: the series that it feeds, and what it expects."""

    name: str
    series: tuple[str, ...]
    expected: tuple[Expected, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric in an expression, with its matchers (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()


@cache
def rules() -> tuple[Rule, ...]:
    """All rules of all files."""
    return tuple(_rules())


def _rules() -> Iterator[Rule]:
    for path in RULES:
        for group in plain_yaml.load(path.read_text())["groups"]:
            for one in group["rules"]:
                named = one.get("alert") or one["record"]
                severity = one.get("labels", {}).get("severity", "")
                expression = re.sub(r" *#.*", "", one["expr"])  # the marks of thresholds
                said = one.get("annotations", {})
                threshold = ": ".join(*re.findall(r"([\d.]+) # threshold: (.+)", one["expr"]) or [("",)])
                yield Rule(named, expression, severity, said, "record" in one, one.get("for", ""), threshold)


@cache
def cases() -> tuple[Case, ...]:
    """All test groups of all files."""
    return tuple(_cases())


def _cases() -> Iterator[Case]:
    for path in TESTS:
        for one in plain_yaml.load(path.read_text())["tests"]:
            series = tuple(series["series"] for series in one["input_series"])
            yield Case(one["name"], series, tuple(map(_expected, one.get("alert_rule_test", ()))))


def selectors(expression: str) -> Iterator[Selector]:
    """The metrics that an expression asks for."""
    for name, matchers in _SELECTOR.findall(expression):
        found = ((label, operator, value[1:-1]) for label, operator, value in _MATCHER.findall(matchers))
        yield Selector(name, tuple(found))
    rest = re.sub(r"\[[^\]]*\]", "", re.sub(_STRING, "", _SELECTOR.sub("", expression)))
    for name in re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?!\s*\(|[\w:])", _GROUPING.sub("", rest)):
        if name not in _WORDS:
            yield Selector(name)


def groupings(expression: str) -> Iterator[set[str]]:
    """The lists of labels by which an expression matches and groups."""
    bare = re.sub(_STRING, "", _SELECTOR.sub("", expression))
    return ({label for label in re.split(r"[\s,]+", labels.strip()) if label} for labels in _GROUPING.findall(bare))


def grouped(expression: str) -> set[str]:
    """The labels by which an expression matches and groups."""
    return set().union(*groupings(expression))


@cache
def metrics() -> dict[str, set[str]]:
    """Each series that can be asked for, with its labels: the golden page's, the foreign ones, what rules record."""
    found: dict[str, set[str]] = defaultdict(set)
    for family in families(golden_page()):
        for sample in family.samples:
            own = {label for label, value in sample.labels.items() if value or label not in WORKLOAD}
            found[sample.name] |= own | TARGET
    found |= FOREIGN
    for rule in rules():
        if rule.records:
            found[rule.name] = labels_of(rule.expression, found)
    return dict(found)


def golden_series() -> list[dict[str, str]]:
    """Return the golden page and a node of two vendors as series of a promtool test, unchanged for ten steps."""
    return [
        {"series": _series(sample.name, sample.labels), "values": f"{sample.value}x10"}
        for page in (golden_page(), mixed.page())
        for family in families(page)
        for sample in family.samples
    ]


def _series(name: str, labels: Mapping[str, str]) -> str:
    told = (f"{label}={json.dumps(value, ensure_ascii=False)}" for label, value in labels.items() if value)
    return f"{name}{{{', '.join(told)}}}"


def labels_of(expression: str, known: Mapping[str, set[str]]) -> set[str]:
    """The labels that what an expression gives may have; more than it does, never fewer."""
    return {label for one in selectors(expression) for label in known.get(one.name, ())}


def queries(page: str) -> Iterator[str]:
    """The queries of a page, one a line, with placeholders in capitals."""
    for block in re.findall(r"```promql\n(.*?)```", page, re.DOTALL):
        yield from filter(None, block.splitlines())


def _expected(one: Mapping[str, Any]) -> Expected:
    alerts: Iterable[Mapping[str, Any]] = one["exp_alerts"]
    severities = frozenset(each["exp_labels"]["severity"] for each in alerts)
    return Expected(
        one["alertname"],
        _seconds(one["eval_time"]),
        severities,
        tuple(each.get("exp_annotations", {}) for each in alerts),
    )


def _seconds(time: str) -> int:
    return sum(
        int(number) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[unit]
        for number, unit in re.findall(r"(\d+)([dhms])", time)
    )
