"""
Two clusters in one Prometheus, whose nodes, pods and GPUs have the same names: each keeps its own alerts.

In: the promtool tests of alerts/tests, played in both clusters at once. Out: what promtool finds. Law: what fires in
one cluster fires in each of the two, with the label `cluster`, and says the same.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import plain_yaml
from alerts import written
from alerts.written import ROOT, RULES, TESTS, Rule
from prometheus.scraping import program

CLUSTERS = ("east", "west")
WITH_ALERTS = [path for path in TESTS if "alert_rule_test" in path.read_text()]
"""The others test what is recorded alone, and have a test of two clusters by hand."""
_JOINED = re.compile(r"\b(on|by)\s*\(([\w\s,]*)\)")


def groups(path: Path) -> Iterator[dict[str, Any]]:
    """The test groups of a file that know no cluster."""
    # All as text: `0x60` is sixty times 0 for promtool, and 96 for YAML.
    for one in yaml.load(path.read_text(), Loader=yaml.BaseLoader)["tests"]:  # noqa: S506 - it makes nothing but text
        if "alert_rule_test" in one and not any("cluster=" in series["series"] for series in one["input_series"]):
            yield one


def labelled(series: str, labels: Mapping[str, str]) -> str:
    """A series with more labels."""
    more = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{series.removesuffix('}')}, {more}}}"


def scraped(series: str) -> dict[str, str]:
    """What Prometheus adds to a series of ours, where a test leaves it out; `instance` is the node (docs/deploy.md)."""
    if not (node := re.match(r'gpusteward_.*[{ ]node="([^"]+)"', series)):
        return {}
    return {name: value for name, value in {"job": "g", "instance": node.group(1)}.items() if f"{name}=" not in series}


def doubled(group: dict[str, Any], more: Callable[[str], dict[str, str]]) -> list[dict[str, str]]:
    """The series of a test in both clusters, each with more labels."""
    return [
        {**one, "series": labelled(one["series"], {"cluster": cluster, **more(one["series"])})}
        for one in group["input_series"]
        for cluster in CLUSTERS
    ]


def of_cluster(alert: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """An expected alert, in a cluster: its label, the board of that cluster, and its name where no daemon is left."""
    said = dict(alert["exp_annotations"])
    said["dashboard_url"] += f"{'&' if '?' in said['dashboard_url'] else '?'}var-cluster={cluster}"
    said["description"] = said["description"].replace(
        "no gpusteward daemon.", f"no gpusteward daemon of cluster {cluster}."
    )
    return {"exp_labels": {**alert["exp_labels"], "cluster": cluster}, "exp_annotations": said}


def nowhere(alert: str, group: Mapping[str, Any]) -> bool:
    """Whether an alert is about the absence of all series, which has no cluster."""
    return alert == "GPUStewardAbsent" and not any("kube_" in one["series"] for one in group["input_series"])


def promtool(path: Path, rules: Path, made: list[dict[str, Any]]) -> None:
    """Have promtool run test groups on a file of rules."""
    path.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": made}))
    done = subprocess.run([program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    assert made and done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
@pytest.mark.parametrize("path", WITH_ALERTS, ids=lambda path: path.stem)
def test_each_cluster_has_its_own_alerts_with_the_same_words(path: Path, tmp_path: Path) -> None:
    """Played twice at once, each test has each of its alerts twice: nothing is ambiguous, added up, or hidden."""
    made = []
    for group in groups(path):
        group["input_series"] = doubled(group, lambda _: {})
        group.pop("promql_expr_test", None)
        for one in group["alert_rule_test"]:
            if not nowhere(one["alertname"], group):
                one["exp_alerts"] = [of_cluster(alert, where) for alert in one["exp_alerts"] for where in CLUSTERS]
        made.append(group)
    promtool(tmp_path / path.name, ROOT / "alerts" / path.name, made)


@pytest.mark.prometheus
@pytest.mark.parametrize("path", WITH_ALERTS, ids=lambda path: path.stem)
def test_as_scraped_each_cluster_has_its_own_alerts(path: Path, tmp_path: Path) -> None:
    """The same with `job` and `instance`, which each scraped series has: as many alerts fire in each cluster."""
    made = []
    for group in groups(path):
        group["input_series"] = doubled(group, scraped)
        asked = [one for one in group.pop("alert_rule_test", ()) if not nowhere(one["alertname"], group)]
        group["promql_expr_test"] = [
            {
                "expr": f'count by (cluster) (ALERTS{{alertname="{one["alertname"]}", alertstate="firing"}})',
                "eval_time": one["eval_time"],
                "exp_samples": [
                    {"labels": f'{{cluster="{cluster}"}}', "value": len(one["exp_alerts"])}
                    for cluster in CLUSTERS
                    if one["exp_alerts"]
                ],
            }
            for one in asked
        ]
        made.append(group)
    promtool(tmp_path / path.name, ROOT / "alerts" / path.name, made)


@pytest.mark.parametrize("rule", written.rules(), ids=lambda rule: rule.name)
def test_cluster_is_part_of_each_join_and_sum(rule: Rule) -> None:
    """`on` and `by` name `cluster`; what is written without them keeps it. So do the queries of descriptions."""
    assert all("cluster" in re.split(r"[\s,]+", labels) for _, labels in _JOINED.findall(rule.expression))
    for query in re.findall(r"printf\s+\"[^\"]*\{([^}]*)\}", " ".join(rule.annotations.values())):
        assert query.startswith("cluster=%q,")


@pytest.mark.parametrize("file", ["rules.yaml", "rules-4.9.yaml"])
def test_cluster_is_part_of_the_joins_under_the_names_of_dcgm(file: str) -> None:
    """The rules of alerts/dcgm keep clusters apart, too."""
    joined = _JOINED.findall((ROOT / "alerts" / "dcgm" / file).read_text())
    assert len(joined) > 10 and all(labels.startswith("cluster,") for _, labels in joined)


def test_each_file_of_rules_has_a_test_of_two_clusters() -> None:
    """By hand: where the clusters differ, one does not excuse the other. Devices are joined with nothing."""
    for rules, tests in zip(RULES, TESTS, strict=True):
        joins = any(_JOINED.search(rule["expr"]) for rule in plain_yaml.load(rules.read_text())["groups"][0]["rules"])
        by_hand = [one["name"] for one in plain_yaml.load(tests.read_text())["tests"] if "two clusters" in one["name"]]
        assert bool(by_hand) is joins
