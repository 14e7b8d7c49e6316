"""Alerts that were tuned by the chart's values: judged by promtool as they reach Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import written
from alerts.written import ROOT, RULES, TESTS
from deploy import chart
from exporter.metrics.labels import EXPORTED
from prometheus.scraping import program

pytestmark = [pytest.mark.charts, pytest.mark.prometheus, pytest.mark.usefixtures("helm")]

ALERTS = [rule.name for rule in written.rules() if not rule.records]
MARKED = [rule.name for rule in written.rules() if rule.threshold]
HOLDER = '{namespace="team-a", pod="train-0", container="main", node="gpu-1", gpu="0", uuid="GPU-0"'
USED_70_PERCENT = [
    {"series": f"gpusteward_container_memory_used_bytes{HOLDER}}}", "values": "7x60"},
    {"series": f"gpusteward_container_memory_limit_bytes{HOLDER}}}", "values": "10x60"},
    {"series": f"gpusteward_container_memory_ceiling_bytes{HOLDER}}}", "values": "11x60"},
    {
        "series": f'gpusteward_container_limit_info{HOLDER}, system="s", source="r", scope="container"}}',
        "values": "1x60",
    },
]
THROTTLED = [
    {"series": 'gpusteward_gpu_throttled{node="gpu-1", gpu="0", uuid="GPU-0", reason="hw_slowdown"}', "values": "1x60"}
]


def groups(folder: Path, **values: object) -> list[dict[str, Any]]:
    """The groups of the PrometheusRule that the chart makes of these values."""
    given = {"prometheusRule": {"enabled": True, **values}}
    made = chart.Rendered(chart.objects(chart.text(chart.written(folder, given))))
    return list(made.only("PrometheusRule")["spec"]["groups"])


def rules(folder: Path, **values: object) -> dict[str, dict[str, Any]]:
    """The alerts among them, by name."""
    return {rule["alert"]: rule for group in groups(folder, **values) for rule in group["rules"] if "alert" in rule}


def firing(folder: Path, series: list[dict[str, str]], at: str, expected: dict[str, str], **values: object) -> None:
    """Have promtool say that at this time these alerts fire, with this severity, and no others."""
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups(folder, **values)}))
    samples = [
        {"labels": f'{{alertname="{name}", severity="{severity}"}}', "value": 1} for name, severity in expected.items()
    ]
    asked = {
        "expr": 'count by (alertname, severity) (ALERTS{alertstate="firing"})',
        "eval_time": at,
        "exp_samples": samples,
    }
    case = {"interval": "1m", "input_series": series, "promql_expr_test": [asked]}
    path = folder / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}))
    done = subprocess.run([program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


ABSENT = {"GPUStewardAbsent": {"enabled": False}}  # fires where a test has no target


def test_the_chart_takes_the_rules_and_boards_of_the_daemons_labels(tmp_path: Path) -> None:
    """`config.metrics.workload_labels` is the one switch: the daemon's config, rules and boards have the same names."""
    for names, folder in (("plain", ""), ("exported", "exported")):
        on = {"enabled": True}
        values = {"config": {"metrics": {"workload_labels": names}}, "prometheusRule": on, "dashboards": on}
        made = chart.Rendered(chart.objects(chart.text(chart.written(tmp_path, values))))
        files = sorted((ROOT / "alerts" / folder).glob("*.yaml"))
        groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
        originals = [rule for group in groups for rule in group["rules"]]
        rules = [rule for group in made.only("PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
        assert [rule["expr"] for rule in rules] == [rule["expr"] for rule in originals]
        config, *boards = sorted(made.of("ConfigMap"), key=lambda one: "config.yaml" not in one["data"])
        assert f"workload_labels: {names}" in config["data"]["config.yaml"]
        shown = {name: text for board in boards for name, text in board["data"].items()}
        committed = {path.name: path.read_text() for path in (ROOT / "grafana/dashboards" / folder).glob("*.json")}
        assert {name: text.strip() for name, text in shown.items()} == {
            name: text.strip() for name, text in committed.items()
        }


def test_a_lower_threshold_fires_where_the_default_does_not(tmp_path: Path) -> None:
    """At 70 % of the limit: not with 0.9, with 0.6."""
    firing(tmp_path, USED_70_PERCENT, "30m", {}, alerts=ABSENT)
    tuned = {**ABSENT, "GPUMemoryNearLimit": {"threshold": 0.6}}
    firing(tmp_path, USED_70_PERCENT, "30m", {"GPUMemoryNearLimit": "warning"}, alerts=tuned)


def test_a_shorter_duration_fires_earlier_and_a_longer_one_later(tmp_path: Path) -> None:
    """`for: 2m` fires after three minutes, `for: 40m` not within half an hour, the default in between."""

    def tuned(span: str | None) -> dict[str, object]:
        return {**ABSENT, "GPUThrottled": {"for": span} if span else {}}

    firing(tmp_path, THROTTLED, "3m", {}, alerts=tuned(None))
    firing(tmp_path, THROTTLED, "3m", {"GPUThrottled": "warning"}, alerts=tuned("2m"))
    firing(tmp_path, THROTTLED, "30m", {"GPUThrottled": "warning"}, alerts=tuned(None))
    firing(tmp_path, THROTTLED, "30m", {}, alerts=tuned("40m"))


def test_another_severity_replaces_the_old_one(tmp_path: Path) -> None:
    """An alert has one severity, whatever the values say: no second rule of its name appears."""
    tuned = {**ABSENT, "GPUThrottled": {"severity": "page"}}
    firing(tmp_path, THROTTLED, "30m", {"GPUThrottled": "page"}, alerts=tuned)


def test_a_disabled_alert_is_absent_and_no_other_is(tmp_path: Path) -> None:
    """What rules record stays, because boards and other alerts use it; a group without rules is left out."""
    assert set(rules(tmp_path)) == set(ALERTS)
    off = {name: {"enabled": False} for name in ALERTS if name != "GPULost"}
    assert set(rules(tmp_path, alerts=off)) == {"GPULost"}
    names = {one["name"] for one in groups(tmp_path, alerts=off)}
    assert names == {f"gpusteward.{one}" for one in ("daemon", "devices", "limits", "policy", "usage")}


def test_labels_of_one_alert_and_of_all(tmp_path: Path) -> None:
    """Each alert has the common ones; its own win; the severity stays."""
    made = rules(
        tmp_path, alertLabels={"team": "gpu"}, alerts={"GPULost": {"labels": {"team": "hardware", "tier": "1"}}}
    )
    assert made["GPULost"]["labels"] == {"severity": "critical", "team": "hardware", "tier": "1"}
    assert {one["labels"]["team"] for name, one in made.items() if name != "GPULost"} == {"gpu"}


def test_no_label_of_an_alert_can_be_overwritten() -> None:
    """The chart's schema refuses each name that a promtool test expects on an alert, by either names of labels."""
    refused = json.loads((chart.CHART / "values.schema.json").read_text())["$defs"]["alertLabels"]["properties"]
    tests = [case for path in TESTS for case in yaml.safe_load(path.read_text())["tests"]]
    expected = [alert for case in tests for one in case.get("alert_rule_test", ()) for alert in one["exp_alerts"]]
    own = {label for alert in expected for label in alert["exp_labels"]}
    assert {"alertname", *own, *EXPORTED.values()} <= {label for label, rule in refused.items() if rule is False}


@pytest.mark.parametrize("name", MARKED)
def test_each_threshold_can_be_changed(name: str, tmp_path: Path) -> None:
    """The number before the mark alone changes, and no other rule; a number with a fraction, too."""
    before, after = rules(tmp_path), rules(tmp_path, alerts={name: {"threshold": 0.125}})
    assert after.pop(name)["expr"].count("0.125 # threshold: ") == 1
    before.pop(name)
    assert after == before


def test_a_rule_has_at_most_one_threshold() -> None:
    """One value cannot be two numbers; a dozen alerts or more have one, with its unit behind the mark."""
    assert len(MARKED) > 12
    for path in RULES:
        for rule in yaml.safe_load(path.read_text())["groups"][0]["rules"]:
            marks = [line for line in rule["expr"].splitlines() if "#" in line]
            assert len(marks) <= ("alert" in rule)
            assert all(one.split(" # threshold: ")[0].split()[-1].replace(".", "").isdigit() for one in marks)


def test_large_thresholds_are_numbers_of_promql(tmp_path: Path) -> None:
    """Helm writes 10 GiB as a power of ten; promtool reads it."""
    made = groups(tmp_path, alerts={"GPUMemoryOvercommitted": {"threshold": 10 * 2**30}})
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": made}))
    command: list[str | Path] = [program("promtool"), "check", "rules", tmp_path / "rules.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "e+10 # threshold" in str(made), done.stdout + done.stderr


def test_plain_files_and_the_default_are_the_same_rules(tmp_path: Path) -> None:
    """Without values of its own a release has the rules as they are."""
    plain = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    assert groups(tmp_path) == plain


def test_the_example_of_the_page_is_taken_as_it_is_written(tmp_path: Path) -> None:
    """alerts/README.md: what a reader copies into the values changes what it says."""
    (example,) = re.findall(r"```yaml\n(prometheusRule:.*?)```", (ROOT / "alerts" / "README.md").read_text(), re.DOTALL)
    made = rules(tmp_path, **yaml.safe_load(example)["prometheusRule"])
    assert "GPUIdleAllocation" not in made and {one["labels"]["team"] for one in made.values()} == {"gpu-platform"}
    assert made["GPUThrottled"]["labels"] == {"severity": "critical", "team": "gpu-platform", "pager": "yes"}
    near = made["GPUMemoryNearLimit"]
    assert "* 0.8 # threshold" in near["expr"] and near["for"] == "5m"
