"""The alerts: judged by promtool, each tested in three ways, with a runbook, and of nothing that is not exported."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import plain_yaml
from alerts import written
from alerts.written import ROOT, RULES, RUNBOOKS, TARGET, TESTS, Rule, Selector
from enforcer.policy.history import Result
from enforcer.policy.vocabulary import Breaker, Kind, Mode, Reason, Rung, State
from exporter.devices.nvml.health import THROTTLES
from exporter.devices.xids import ROWS, UNKNOWN, XIDS, Cause, Xid
from prometheus.scraping import program

ALERTS = tuple(rule for rule in written.rules() if not rule.records)
NAMES = sorted({rule.name for rule in ALERTS})
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
RUNBOOK = re.compile(rf"{re.escape(PROJECT)}/blob/main/docs/runbooks/(\w+)\.md")
GRAFANA = "https://grafana.example.com"
"""Stands for the reader's own Grafana in dashboard_url; alerts/README.md says how to replace it."""
BOARDS = ROOT / "grafana" / "dashboards"
SEVERITIES = ("info", "warning", "critical")
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
VALUES = {
    ("gpusteward_breaker_open", "breaker"): frozenset(Breaker),
    ("gpusteward_configured_mode", "mode"): frozenset(Mode),
    ("gpusteward_enforcement_mode", "mode"): frozenset(Mode),
    ("gpusteward_held_containers", "reason"): frozenset(Reason),
    ("gpusteward_due_seconds_total", "reason"): frozenset(Reason) | {""},
    ("gpusteward_due_seconds_total", "kind"): frozenset(Kind) | {""},
    ("gpusteward_action_failures_total", "reason"): frozenset(Result),
    ("gpusteward_container_state", "state"): frozenset(State),
    ("gpusteward_actions_total", "action"): frozenset(Rung),
    ("gpusteward_gpu_xid_last_timestamp_seconds", "xid"): frozenset(map(str, (*XIDS, UNKNOWN))),
    ("gpusteward_gpu_throttled", "reason"): frozenset(THROTTLES),
    ("gpusteward_gpu_ecc_errors_total", "severity"): frozenset({"corrected", "uncorrected"}),
    ("gpusteward_container_limit_info", "scope"): frozenset({"process", "container", "instance", "pod"}),
}
"""Labels whose values the code lists: a rule that asks for another one would be silent for ever."""


PAGES = sorted(path.stem for path in RUNBOOKS.glob("*.md"))


def page_of(rule: Rule) -> str:
    """The runbook that an alert links, in this repository."""
    found = RUNBOOK.fullmatch(rule.annotations["runbook_url"])
    assert found, rule.annotations["runbook_url"]
    return found.group(1)


def headings(page: str) -> list[str]:
    """The alerts that a runbook is about."""
    return (RUNBOOKS / f"{page}.md").read_text().splitlines()[0].removeprefix("# ").split(", ")


def ids(rule: Rule) -> str:
    return f"{rule.name}-{rule.severity}"


@pytest.mark.prometheus
def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    """All files are valid rules, and no two of them are the same."""
    done = subprocess.run([program("promtool"), "check", "rules", *RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "duplicate" not in done.stdout, done.stdout + done.stderr


@pytest.mark.prometheus
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_promtool_runs_the_tests_of_the_rules(path: Path) -> None:
    """Each alert fires, is silent, resolves and says what its tests say."""
    done = subprocess.run([program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_the_rules_evaluate_on_a_node_that_has_everything(tmp_path: Path) -> None:
    """
    No match on the golden page is ambiguous. Each limit there has a limit holder, except that of a whole MIG instance.

    On a node where two GPUs are GPU 0 no match is ambiguous either: a limit holder that has both has two limits.
    """
    subjects = "count by (namespace, pod, claim, container) (subject:gpusteward_memory_limit:bytes)"
    expected = {
        '{namespace="team-a", pod="trainer-0", container="main"}': 1,
        '{namespace="team-b", pod="notebook-7c9", container="main"}': 1,
        '{namespace="team-c", pod="sealed"}': 1,
        '{namespace="team-g", claim="shared"}': 1,
        '{namespace="team-h", pod="both-0", container="main"}': 2,
        '{namespace="team-h", claim="shared"}': 2,
    }
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    asked = {"expr": subjects, "eval_time": "5m", "exp_samples": samples}
    group = {"interval": "1m", "input_series": written.golden_series(), "promql_expr_test": [asked]}
    path = tmp_path / "golden.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(one) for one in RULES], "tests": [group]}))
    done = subprocess.run([program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_file_of_rules_has_its_tests() -> None:
    """alerts/x.yaml is tested by alerts/tests/x.yaml, which loads it and nothing else."""
    assert [path.name for path in RULES] == [path.name for path in TESTS]
    for path in TESTS:
        assert plain_yaml.load(path.read_text())["rule_files"] == [f"../{path.name}"]


@pytest.mark.parametrize("rule", ALERTS, ids=ids)
def test_each_alert_is_tested_in_three_ways(rule: Rule) -> None:
    """Per severity: a case in which it fires and later resolves, and one with its own metric in which it never does."""
    fires = resolves = silent = False
    for case in written.cases():
        expected = [one for one in case.expected if one.alert == rule.name]
        firing = [one.at for one in expected if rule.severity in one.severities]
        fires |= bool(firing)
        resolves |= bool(firing) and any(one.at > max(firing) for one in expected)
        fed = {one.name for series in case.series for one in written.selectors(series)}
        silent |= bool(expected) and not firing and bool(fed & _fed_by(rule.expression))
    assert (fires, resolves, silent) == (True, True, True)


def _fed_by(expression: str) -> set[str]:
    """The metrics below an expression, through what is recorded."""
    recorded = {rule.name: rule.expression for rule in written.rules() if rule.records}
    found: set[str] = set()
    for one in written.selectors(expression):
        found |= _fed_by(recorded[one.name]) if one.name in recorded else {one.name}
    return found


def test_what_an_alert_says_is_tested_word_by_word() -> None:
    """No expected alert leaves out summary, description, runbook or dashboard; promtool compares all four."""
    for case in written.cases():
        for one in case.expected:
            assert all(
                set(each) == {"summary", "description", "runbook_url", "dashboard_url"} for each in one.annotations
            ), case.name


@pytest.mark.parametrize("rule", ALERTS, ids=ids)
def test_each_alert_has_what_a_person_wants(rule: Rule) -> None:
    """A severity that routes know, a fixed summary, a description, and the address of its runbook."""
    assert rule.severity in SEVERITIES and re.fullmatch(r"GPU[A-Za-z]+", rule.name)
    assert "{{" not in rule.annotations["summary"] and rule.annotations["summary"].endswith(".")
    assert rule.name in headings(page_of(rule))
    assert len(rule.annotations["description"]) > len(rule.annotations["summary"])


def test_each_alert_has_one_severity() -> None:
    """One rule for each name: values can tune it, and an inhibition by name never takes one severity for another."""
    assert sorted(rule.name for rule in ALERTS) == NAMES


@pytest.mark.parametrize("rule", ALERTS, ids=ids)
def test_each_alert_leads_to_its_board(rule: Rule) -> None:
    """An absolute address of a board that exists, with variables that it has, and labels that the alert has."""
    address = rule.annotations["dashboard_url"]
    base, _, rest = address.partition("/d/")
    assert base == GRAFANA
    board = json.loads((BOARDS / f"{re.split('[?{]', rest)[0]}.json").read_text())
    assert rest.startswith(board["uid"])
    variables = {one["name"] for one in board["templating"]["list"]}
    assert set(re.findall(r"var-(\w+)=", rest)) <= variables and "var-cluster={{ . }}" in rest


def test_the_gpus_of_a_node_that_lacks_its_daemon_excuse_no_absence() -> None:
    """What GPUStewardDown takes for GPUs, an empty cluster lacks, in both halves of GPUStewardAbsent."""
    resources = {
        rule.name: [
            value
            for one in written.selectors(rule.expression)
            if one.name == "kube_node_status_capacity"
            for *_, value in one.matchers
        ]
        for rule in ALERTS
    }
    first, second = resources["GPUStewardAbsent"]
    assert first == second
    assert resources["GPUStewardDown"] and all(one in first for one in resources["GPUStewardDown"])


def test_a_number_that_values_can_change_stands_in_no_sentence() -> None:
    """What an alert says stays true when its threshold or `for` is tuned: spans are those of its ranges alone."""
    units = {"minute": "m", "hour": "h", "day": "d"}
    for rule in ALERTS:
        said = rule.annotations["summary"] + rule.annotations["description"]
        assert not re.search(r"\d ?%|\d (?:seconds|bytes)", said), rule.name
        for number, unit in re.findall(r"\b(\d+|an?|two|ten|last) (minute|hour|day)", said):
            span = f"{number if number.isdigit() else 1}{units[unit]}"
            assert f"[{span}]" in rule.expression or rule.name == "GPUActionTaken", (rule.name, span)


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    """A page for one alert or a few, with the four sections in order; alerts/README.md has each alert as it is."""
    assert {page_of(rule) for rule in ALERTS} == set(PAGES)
    index = (ROOT / "alerts" / "README.md").read_text()
    for page in PAGES:
        about = headings(page)
        assert page in about and about == [name for name in about if name in NAMES]
        assert sorted(about) == sorted(rule.name for rule in ALERTS if page_of(rule) == page)
        text = (RUNBOOKS / f"{page}.md").read_text()
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS, page
    for rule in ALERTS:
        cells = (rule.severity, rule.lasts, rule.threshold)
        assert f"| [{rule.name}](../docs/runbooks/{page_of(rule)}.md) | {' | '.join(cells)} |" in index


@pytest.mark.parametrize("name", PAGES)
def test_each_link_of_a_runbook_leads_somewhere(name: str) -> None:
    """Files are there, and so are the headings that links point to."""
    for file, anchor in re.findall(r"\]\((?!https://)([^)#]+)(?:#([^)]+))?\)", (RUNBOOKS / f"{name}.md").read_text()):
        target = RUNBOOKS / file
        assert target.exists(), file
        headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
        assert not anchor or anchor in slugs, (file, anchor)


def xid_severity(row: Xid) -> str:
    """The severity at which GPUXid alerts tell a number; "" where none does."""
    found = set()
    for rule in (one for one in ALERTS if one.name.startswith("GPUXid")):
        ((_, operator, value),) = next(written.selectors(rule.expression)).matchers
        if (re.fullmatch(value, str(row.code)) is not None) == (operator == "=~"):
            found.add(rule.severity)
    assert len(found) < 2, row
    return found.pop() if found else ""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"XID {row.code}")
def test_the_runbook_tells_each_xid_as_the_code_and_the_rules_do(row: Xid) -> None:
    """One line a number, with its one severity; what programs do is at most an info, and nothing else is."""
    severity = xid_severity(row)
    line = f"| {row.code} | {severity or 'none'} | {row.meaning} | {row.remedy} |\n"
    assert line in (RUNBOOKS / "GPUXidError.md").read_text()
    assert (severity in {"", "info"}) == (row.cause is Cause.APPLICATION)
    assert (severity == "") == (row.code in {43, 45}), "what a killed program leaves, by us too"


@pytest.mark.parametrize("rule", written.rules(), ids=ids)
def test_a_rule_names_what_is_on_the_golden_page(rule: Rule) -> None:
    """Metrics, labels, and the values of labels which the code lists; in expressions and in what is said."""
    known = written.metrics()
    asked = list(written.selectors(rule.expression))
    assert asked
    _are_known(asked, known)
    labels = written.labels_of(rule.expression, known)
    assert written.grouped(rule.expression) <= labels
    said = " ".join(rule.annotations.values())
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= labels
    in_queries = [Selector(name, ()) for name in re.findall(r"\b(?:\w+:)?gpusteward_\w+(?::\w+)?", said)]
    _are_known(in_queries, known)


def _are_known(asked: list[Selector], known: dict[str, set[str]]) -> None:
    for one in asked:
        assert one.name in known, one.name
        for label, operator, value in one.matchers:
            assert label in known[one.name], (one.name, label)
            if "~" in operator and (one.name, label) in VALUES:
                for part in value.split("|"):
                    assert any(re.fullmatch(part, text) for text in VALUES[one.name, label]), (one.name, part)
            elif (one.name, label) in VALUES:
                assert value in VALUES[one.name, label], (one.name, value)


@pytest.mark.parametrize("rule", written.rules(), ids=ids)
def test_a_gpu_is_named_by_its_uuid(rule: Rule) -> None:
    """Two vendors' drivers both count from 0: the number alone neither groups series, nor tells a person which GPU."""
    assert all("uuid" in labels for labels in written.groupings(rule.expression) if "gpu" in labels)
    said = re.findall(r"\$labels\.(\w+)", rule.annotations.get("description", ""))
    assert "gpu" not in said or "uuid" in said


def test_the_series_of_the_tests_are_on_the_golden_page() -> None:
    """No rule is shown to work on a metric or label that the daemon does not export."""
    known = written.metrics()
    for case in written.cases():
        for series in case.series:
            _are_known(list(written.selectors(series)), known)


@pytest.mark.parametrize("name", PAGES)
def test_a_runbook_names_what_is_on_the_golden_page(name: str) -> None:
    """Each metric of a page is exported or recorded, in its queries with labels that it has."""
    page, known = (RUNBOOKS / f"{name}.md").read_text(), written.metrics()
    for metric in re.findall(r"\b(?:\w+:)?gpusteward_\w+(?::\w+)?", page):
        assert metric in known, metric
    for query in written.queries(page):
        asked = [
            Selector(one.name, tuple((*each[:2], "") for each in one.matchers)) for one in written.selectors(query)
        ]
        for one in asked:
            assert one.name in known, one.name
            assert {label for label, *_ in one.matchers} <= known[one.name], query
            assert "gpu" not in {label for label, *_ in one.matchers}, "GPUs of two vendors may have one number"
        assert written.grouped(query) <= written.labels_of(query, known) | TARGET


@pytest.mark.prometheus
def test_each_query_of_a_runbook_is_promql(tmp_path: Path) -> None:
    """promtool parses what a person would paste into Prometheus at night."""
    found = [one for name in PAGES for one in written.queries((RUNBOOKS / f"{name}.md").read_text())]
    assert found
    rules = [{"record": f"runbook:{number}", "expr": query} for number, query in enumerate(found)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]}))
    done = subprocess.run([program("promtool"), "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
