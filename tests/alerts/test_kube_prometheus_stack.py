"""
Our alerts in the Alertmanager of kube-prometheus-stack, with that stack's own config: what it mutes, and what not.

In: kube_prometheus_stack.yaml, and each alert that a promtool test expects. Out: what a real Alertmanager says. Law: no
alert of ours mutes another one, on another node or in another namespace; the stack mutes information by its own alert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import plain_yaml
from alerts import written
from alerts.alertmanager import Alertmanager, running_config, until
from alerts.test_alertmanager import amtool
from alerts.written import TESTS

pytestmark = pytest.mark.prometheus

CONFIG = Path(__file__).with_name("kube_prometheus_stack.yaml")
SEVERITIES = ("critical", "warning", "info")
NODES = ("gpu-1", "gpu-2")
INFORMATION = {rule.name for rule in written.rules() if rule.severity == "info"}
HAZARD = tuple({"alertname": "Hazard", "severity": one, "node": f"of-{one}"} for one in SEVERITIES)
"""One name at three severities, on three nodes, without a namespace: as some of our alerts were."""
NOW = "2026-02-03T10:04:11Z"


def told() -> Iterator[dict[str, str]]:
    """The labels of each alert as some promtool test expects it, on two nodes, and for two pods where it names one."""
    seen = set()
    for path in TESTS:
        for case in plain_yaml.load(path.read_text())["tests"]:
            for one in case.get("alert_rule_test", ()):
                if one["exp_alerts"] and one["alertname"] not in seen:
                    seen.add(one["alertname"])
                    labels = {"alertname": one["alertname"], **one["exp_alerts"][0]["exp_labels"]}
                    for node in NODES:
                        moved = {"node": node, "instance": node, "pod": f"{labels.get('pod')}-on-{node}"}
                        yield labels | {key: value for key, value in moved.items() if key in labels}
    assert seen == {rule.name for rule in written.rules() if not rule.records}


def post(alertmanager: Alertmanager, *labels: Mapping[str, str]) -> None:
    """Send alerts that fire, and wait until Alertmanager has them all."""
    alertmanager.post(*({"labels": one, "annotations": {}, "startsAt": NOW} for one in labels))
    wanted = {tuple(sorted(one.items())) for one in labels}
    until(lambda: wanted <= {tuple(sorted(one["labels"].items())) for one in alertmanager.alerts()}, "the alerts")


def muted(alertmanager: Alertmanager) -> set[str]:
    """The names of alerts that others mute."""
    return {one["labels"]["alertname"] for one in alertmanager.alerts() if one["status"]["inhibitedBy"]}


def nothing_but_the_hazard_is_muted(alertmanager: Alertmanager) -> None:
    """Post, last of all, what the stack does mute; once it is muted, all before it has been judged, too."""
    post(alertmanager, *HAZARD)
    until(lambda: "Hazard" in muted(alertmanager), "the stack to mute")
    assert muted(alertmanager) == {"Hazard"}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Alertmanager]:
    """An Alertmanager with the stack's config."""
    with running_config(tmp_path, CONFIG) as found:
        yield found


def test_amtool_takes_the_config() -> None:
    """The stack's config is valid as it is written here."""
    done = amtool("check-config", CONFIG)
    assert done.returncode == 0 and "4 inhibit rules" in done.stdout, done.stdout + done.stderr


def test_no_alert_of_ours_mutes_another(stack: Alertmanager) -> None:
    """All of them fire at once, each on two nodes: none is muted, whatever its severity."""
    labels = list(told())
    assert {one["severity"] for one in labels} == set(SEVERITIES)
    assert any("namespace" not in one for one in labels)
    post(stack, *labels)
    nothing_but_the_hazard_is_muted(stack)


def test_two_severities_of_one_name_would_be_muted_across_nodes(stack: Alertmanager) -> None:
    """Why each alert has a name of its own: without `namespace` the graver one of a node mutes that of another."""
    post(stack, *HAZARD)
    until(lambda: muted(stack) == {"Hazard"}, "the stack to mute")
    free = [one["labels"]["severity"] for one in stack.alerts() if not one["status"]["inhibitedBy"]]
    assert free == ["critical"]


def test_another_severity_by_the_values_mutes_nothing(stack: Alertmanager) -> None:
    """Values give an alert one severity on all nodes; whichever it is, nothing of ours is muted."""
    chosen = {rule.name: SEVERITIES[number % 2] for number, rule in enumerate(written.rules())}
    post(stack, *({**one, "severity": chosen[one["alertname"]]} for one in told()))
    nothing_but_the_hazard_is_muted(stack)


def test_the_stack_mutes_information_by_its_own_alert(stack: Alertmanager) -> None:
    """InfoInhibitor of a namespace mutes what is info there, and none of our warnings and critical ones."""
    labels = list(told())
    namespaces = {one.get("namespace", "") for one in labels if one["severity"] == "info"}
    inhibitors = [{"alertname": "InfoInhibitor", "severity": "none", "namespace": one} for one in namespaces]
    post(stack, *labels, *({key: value for key, value in one.items() if value} for one in inhibitors))
    until(lambda: muted(stack) - {"InfoInhibitor"} == INFORMATION, "the stack to mute information")
