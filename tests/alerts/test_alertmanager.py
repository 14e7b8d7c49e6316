"""
The example for Alertmanager, run by the real one.

It shows which receiver gets which alert, which alert silences another, and what a person reads.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import plain_yaml
from alerts import written
from alerts.alertmanager import FOLDERS, Alertmanager, relabelled, running, until
from alerts.written import TESTS
from prometheus.scraping import program

pytestmark = pytest.mark.prometheus

ROUTES = {
    "namespace=team-a severity=critical alertname=GPUMemoryOverLimit": "team-a",
    "namespace=team-a severity=warning alertname=GPUMemoryNearLimit": "team-a",
    "namespace=team-b-dev severity=warning alertname=GPULimitBypassed": "team-b",
    "namespace=team-x severity=critical alertname=GPUMemoryOverLimit": "platform",
    "namespace=team-a severity=info alertname=GPUActionTaken": "team-a",
    "namespace=team-a severity=warning alertname=GPUActionRepeated": "team-a",
    "namespace=team-a severity=info alertname=GPUIdleAllocation": "nobody",
    "namespace=team-a severity=warning alertname=GPUIdleAllocationLong": "team-a",
    "namespace=team-a severity=warning alertname=GPUActionFailed": "platform",
    "namespace=team-a severity=warning alertname=GPULimitNotHeld": "platform",
    "namespace=team-a severity=warning alertname=GPULimitEvaded": "platform",
    "namespace=team-a severity=warning alertname=GPUNamespaceRightsMissing": "platform",
    "node=gpu-1 severity=warning alertname=GPUStewardDown": "platform",
    "severity=critical alertname=GPUStewardAbsent": "on-call",
    "severity=critical alertname=GPUStewardBreakerOpen": "on-call",
    "severity=critical alertname=GPULost": "on-call",
    "severity=warning alertname=GPUThrottled": "platform",
    "severity=critical alertname=GPUXidFatal": "on-call",
    "severity=info alertname=GPUXidProgramError": "nobody",
    "severity=info alertname=GPUMemoryOvercommitted": "nobody",
}


def amtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("amtool"), *words], capture_output=True, text=True, check=False)


def alert(name: str, severity: str, at: str, **labels: str) -> dict[str, Any]:
    """An alert as Prometheus sends it: words and labels of the promtool test that expects it at that time."""
    for path in TESTS:
        for case in plain_yaml.load(path.read_text())["tests"]:
            for one in case.get("alert_rule_test", ()):
                for each in one["exp_alerts"]:
                    own = each["exp_labels"]
                    if (one["alertname"], own["severity"], one["eval_time"]) == (name, severity, at) and (
                        labels.items() <= own.items()
                    ):
                        return {
                            "labels": {"alertname": name, **own},
                            "annotations": each["exp_annotations"],
                            "startsAt": "2026-02-03T10:04:11Z",
                        }
    raise LookupError(name, severity, at)


def resolved(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "endsAt": "2026-02-03T11:30:00Z"}


@pytest.fixture(params=FOLDERS)
def names(request: pytest.FixtureRequest) -> str:
    """The names of labels: the workload's own, or those beside a Prometheus that overrides them."""
    return str(request.param)


@pytest.fixture
def config(names: str) -> Path:
    """The example for these names."""
    return FOLDERS[names] / "alertmanager.yaml"


@pytest.fixture
def alertmanager(tmp_path: Path, names: str) -> Iterator[Alertmanager]:
    """The example, running, with ourselves as Slack."""
    with running(tmp_path, names) as found:
        yield found


def test_amtool_finds_nothing_wrong(config: Path) -> None:
    """The example and its templates are valid."""
    done = amtool("check-config", config)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("labels", ROUTES)
def test_each_goes_where_it_belongs(labels: str, names: str, config: Path) -> None:
    """
    Owners get the alerts of their pods, and the platform team gets the rest.

    An alert that is critical to all wakes the person on call.
    """
    told = dict(one.split("=") for one in labels.split())
    words = (f"{name}={text}" for name, text in (relabelled(told) if names == "exported" else told).items())
    done = amtool("config", "routes", "test", f"--config.file={config}", *words)
    assert done.stdout.strip() == ROUTES[labels], done.stderr


def test_the_example_names_alerts_that_exist(config: Path) -> None:
    """Each name in routes and inhibitions is that of a rule."""
    named = set(re.findall(r"\bGPU[A-Z][A-Za-z]+", config.read_text()))
    assert named and named <= {rule.name for rule in written.rules()}


def test_a_message_says_all_that_is_wanted(alertmanager: Alertmanager) -> None:
    """Pod, container, device, used, limit, its source, what to do, and where to read on; and later that it is over."""
    one = alert("GPUMemoryOverLimit", "critical", "45m", pod="train-0")
    alertmanager.post(one)
    (first,) = until(lambda: alertmanager.said("#team-a"), "the message")
    assert first["title"] == "[FIRING:1] GPUMemoryOverLimit in team-a on gpu-1"
    assert first["text"] == (
        "*critical* Pod team-a/train-0, container main, holds 10GiB of GPU 0 (GPU-0) on gpu-1. Its limit is 8GiB "
        "(hami-nvidia, resource). Its neighbours may run out of memory. Lower its usage, or declare a higher limit. In "
        "mode enforce the pod may be evicted.\nSince 2026-02-03 10:04 UTC. Runbook: "
        "https://github.com/gpusteward/gpusteward/blob/main/docs/runbooks/GPUMemoryOverLimit.md\n"
    )
    alertmanager.post(resolved(one))
    second = until(lambda: alertmanager.said("#team-a")[1:], "the end")[0]
    assert second["title"] == "[RESOLVED] GPUMemoryOverLimit in team-a on gpu-1"
    own = {
        "plain": "container=main gpu=0 namespace=team-a node=gpu-1 pod=train-0",
        "exported": "exported_container=main exported_namespace=team-a exported_pod=train-0 gpu=0 node=gpu-1",
    }
    assert second["text"] == (
        f"*resolved* GPU memory is over its limit. {own[alertmanager.names]} uuid=GPU-0\n"
        "From 2026-02-03 10:04 to 11:30 UTC.\n"
    )
    assert {one["channel"] for one in alertmanager.messages} == {"#team-a"}


def test_the_graver_one_speaks_and_only_for_its_own(alertmanager: Alertmanager) -> None:
    """Critical silences the warning of the same container, not that of another pod."""
    graver = alert("GPUMemoryOverLimit", "critical", "45m", pod="train-0")
    lesser = alert("GPUMemoryNearLimit", "warning", "45m", pod="train-0")
    other = {**lesser, "labels": {**lesser["labels"], "pod": "train-1"}}
    alertmanager.post(graver)
    until(lambda: alertmanager.said("#team-a"), "the graver one")
    alertmanager.post(lesser, other)
    until(lambda: len(alertmanager.said("#team-a")) == 2 and alertmanager.inhibited(), "the other pod's")
    texts = [one["text"].split()[0] for one in alertmanager.said("#team-a")]
    assert texts == ["*critical*", "*warning*"]
    assert alertmanager.inhibited() == {("GPUMemoryNearLimit", "warning")}


def test_a_cause_silences_its_consequences_on_its_node_alone(alertmanager: Alertmanager) -> None:
    """An old snapshot explains a silent source of its node; a silent source of another node is reported."""
    cause = alert("GPUStewardSnapshotStale", "warning", "20m")
    consequence = alert("GPUStewardSourceDown", "warning", "15m")
    elsewhere = {**consequence, "labels": {**consequence["labels"], "node": "gpu-2", "instance": "gpu-2"}}
    alertmanager.post(cause)
    until(lambda: alertmanager.said("#gpu-platform"), "the cause")
    alertmanager.post(consequence, elsewhere)
    until(lambda: len(alertmanager.said("#gpu-platform")) == 2 and alertmanager.inhibited(), "the other node's")
    assert [one["title"] for one in alertmanager.said("#gpu-platform")] == [
        "[FIRING:1] GPUStewardSnapshotStale on gpu-1",
        "[FIRING:1] GPUStewardSourceDown on gpu-2",
    ]
    assert alertmanager.inhibited() == {("GPUStewardSourceDown", "warning")}


def test_a_gpu_that_is_lost_wakes_once(alertmanager: Alertmanager) -> None:
    """The XID of its end has woken who is on call; that of another GPU explains nothing."""
    cause, other = alert("GPUXidFatal", "critical", "15m", xid="79"), alert("GPULost", "critical", "10m")
    same = {**other, "labels": {**other["labels"], "uuid": cause["labels"]["uuid"]}}
    alertmanager.post(cause)
    until(lambda: alertmanager.said("#on-call"), "the XID")
    alertmanager.post(same, other)
    until(lambda: len(alertmanager.said("#on-call")) == 2 and alertmanager.inhibited(), "the other GPU's")
    assert [one["title"].split()[1] for one in alertmanager.said("#on-call")] == ["GPUXidFatal", "GPULost"]
    assert alertmanager.inhibited() == {("GPULost", "critical")}


def test_two_breakers_of_a_node_are_two_things(alertmanager: Alertmanager) -> None:
    """An open breaker does not hide another one of its node; it explains that no pod is acted on there."""
    alertmanager.post(alert("GPUStewardBreakerOpen", "critical", "45m", breaker="blast_radius"))
    until(lambda: alertmanager.said("#on-call"), "the first breaker")
    not_held = alert("GPULimitNotHeld", "warning", "40m")
    alertmanager.post(alert("GPUStewardBreakerOpen", "critical", "45m", breaker="attribution"), not_held)
    until(lambda: len(alertmanager.said("#on-call")) >= 2 and alertmanager.inhibited(), "the other breaker")
    assert "attribution" in alertmanager.said("#on-call")[-1]["text"]
    assert alertmanager.inhibited() == {("GPULimitNotHeld", "warning")}


def test_a_known_cause_silences_the_general_alert_of_its_pod_alone(alertmanager: Alertmanager) -> None:
    """A pod that prevents its action has one alert, with the reason; another pod keeps its own."""
    alertmanager.post(alert("GPULimitEvaded", "warning", "30m"))
    until(lambda: alertmanager.said("#gpu-platform"), "the cause")
    same = alert("GPULimitNotHeld", "warning", "40m")
    words = {key: text.replace("train-0", "train-9") for key, text in same["annotations"].items()}
    other = {**same, "labels": {**same["labels"], "pod": "train-9"}, "annotations": words}
    alertmanager.post(same, other)
    until(lambda: len(alertmanager.said("#gpu-platform")) == 2 and alertmanager.inhibited(), "the other pod's")
    assert "train-9" in alertmanager.said("#gpu-platform")[1]["text"]
    assert alertmanager.inhibited() == {("GPULimitNotHeld", "warning")}


def test_a_namespace_without_rights_explains_nothing_in_another(alertmanager: Alertmanager) -> None:
    """The missing RoleBinding of one namespace silences failures for want of rights there, and nowhere else."""
    cause = alert("GPUNamespaceRightsMissing", "warning", "30m")
    same = {**cause["labels"], "alertname": "GPULimitUnenforceable", "reason": "no_rights", "node": "gpu-1"}
    other = {**same, "namespace": "team-z"}
    alertmanager.post(cause)
    until(lambda: alertmanager.said("#gpu-platform"), "the cause")
    alertmanager.post({**cause, "labels": same}, {**cause, "labels": other})
    until(lambda: len(alertmanager.said("#gpu-platform")) == 2 and alertmanager.inhibited(), "the other namespace's")
    assert alertmanager.inhibited() == {("GPULimitUnenforceable", "warning")}
    muted = [one["labels"] for one in alertmanager.alerts() if one["status"]["inhibitedBy"]]
    assert [one.get("exported_namespace", one["namespace"]) for one in muted] == [cause["labels"]["namespace"]]


def test_repeated_actions_silence_the_single_ones_on_any_node(alertmanager: Alertmanager) -> None:
    """The owner of a workload that is evicted from node to node reads of it once, and of another action besides."""
    graver, lesser = alert("GPUActionRepeated", "warning", "30m"), alert("GPUActionTaken", "info", "15m")
    here = {**graver, "labels": {**graver["labels"], "namespace": "team-a"}}
    evicted, killed = (
        {**lesser, "labels": {**lesser["labels"], "namespace": "team-a", "node": "gpu-7", "action": action}}
        for action in ("evict", "kill")
    )
    alertmanager.post(here)
    until(lambda: alertmanager.said("#team-a"), "the graver one")
    alertmanager.post(evicted, killed)
    until(lambda: len(alertmanager.said("#team-a")) == 2 and alertmanager.inhibited(), "the other action")
    assert alertmanager.inhibited() == {("GPUActionTaken", "info")}
