"""The mixin: what a jsonnet project vendors is the rules and boards of this repository, read and not copied."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import plain_yaml
from alerts.written import ROOT, RULES
from cluster import build
from cluster.fixtures import require

EXPRESSION = """
local mixin = (import 'kubernetes.libsonnet') + (import 'mixin.libsonnet') + CONFIG;
[mixin.prometheusAlerts, mixin.prometheusRules, mixin.grafanaDashboards]
"""
pytestmark = pytest.mark.charts


CONFIGS = {"plain": "{}", "exported": "{_config+:: {gpustewardLabels: 'exported'}}"}


@pytest.fixture(scope="module", params=CONFIGS)
def names(request: pytest.FixtureRequest) -> str:
    """Which names of labels are chosen; the plain ones by default."""
    return str(request.param)


@pytest.fixture(scope="module")
def mixin(tmp_path_factory: pytest.TempPathFactory, names: str) -> list[Any]:
    """Alerts, rules and boards as go-jsonnet makes them, added to a mixin of another project."""
    done = jsonnet(tmp_path_factory.mktemp("vendor"), CONFIGS[names])
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def jsonnet(beside: Path, config: str) -> subprocess.CompletedProcess[str]:
    """What go-jsonnet makes of the mixin with a config, beside another mixin."""
    require([problem] if not build.assets("jsonnet") and (problem := build.go_problem()) else [])
    (beside / "kubernetes.libsonnet").write_text(
        "{prometheusAlerts+:: {groups+: [{name: 'theirs', rules: []}]}, prometheusRules+:: {}, grafanaDashboards+:: {}}"
    )
    command: list[str | Path] = [build.program("jsonnet"), "--jpath", ROOT, "--jpath", beside, "--exec"]
    command.append(EXPRESSION.replace("CONFIG", config))
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_mixin_has_each_rule_once(mixin: list[Any], names: str) -> None:
    """Alerts below prometheusAlerts, what is recorded below prometheusRules; in groups of unique names."""
    files = RULES if names == "plain" else [path.parent / "exported" / path.name for path in RULES]
    written = [
        rule for path in files for group in plain_yaml.load(path.read_text())["groups"] for rule in group["rules"]
    ]
    groups = [group for part in mixin[:2] for group in part["groups"]]
    alerts, recorded = ([rule for group in part["groups"] for rule in group["rules"]] for part in mixin[:2])
    assert {rule["alert"]: rule for rule in alerts} == {rule["alert"]: rule for rule in written if "alert" in rule}
    assert recorded == [rule for rule in written if "record" in rule]
    assert len(alerts) + len(recorded) == len(written) and groups[0]["name"] == "theirs"
    assert len({group["name"] for group in groups}) == len(groups)


def test_the_mixin_has_each_board(mixin: list[Any], names: str) -> None:
    """By the name of its file."""
    folder = ROOT / "grafana" / "dashboards" / ("" if names == "plain" else "exported")
    boards = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert len(boards) == 7
    assert mixin[2] == boards


TUNED = """{_config+:: {
  gpustewardDcgm: '4.9', gpustewardGrafanaUrl: 'https://grafana.my.org', gpustewardRunbookUrl: 'https://git.my.org/',
  gpustewardAlerts: {
    GPUMemoryNearLimit: {threshold: '0.8', 'for': '5m'},
    GPUThrottled: {severity: 'critical', labels: {pager: 'yes'}},
    GPUIdleAllocation: {enabled: false},
  },
}}"""


@pytest.mark.parametrize("folder", ["", "exported"])
def test_a_config_tunes_alerts_as_the_chart_does(folder: str, tmp_path: Path) -> None:
    """Thresholds, spans, severities, labels and addresses; what is not named stays as it is."""
    config = TUNED.replace("_config+:: {", "_config+:: {gpustewardLabels: 'exported',") if folder else TUNED
    done = jsonnet(tmp_path, config)
    assert done.returncode == 0, done.stderr
    alerts, recorded = (
        [rule for group in part["groups"] for rule in group["rules"]] for part in json.loads(done.stdout)[:2]
    )
    made = {rule["alert"]: rule for rule in alerts}
    original = {
        rule["alert"]: rule
        for path in RULES
        for rule in plain_yaml.load((path.parent / folder / path.name).read_text())["groups"][0]["rules"]
        if "alert" in rule
    }
    assert original.keys() - made.keys() == {"GPUIdleAllocation"}
    near = made["GPUMemoryNearLimit"]
    assert near["expr"] == original["GPUMemoryNearLimit"]["expr"].replace("0.9 # threshold", "0.8 # threshold")
    assert near["for"] == "5m" and made["GPUThrottled"]["labels"] == {"severity": "critical", "pager": "yes"}
    for name, rule in made.items():
        assert rule["annotations"]["dashboard_url"].startswith("https://grafana.my.org/d/")
        assert rule["annotations"]["runbook_url"].startswith("https://git.my.org/docs/runbooks/")
        if name not in {"GPUMemoryNearLimit", "GPUThrottled"}:
            assert {**rule, "annotations": 0} == {**original[name], "annotations": 0}
    dcgm = plain_yaml.load((ROOT / "alerts" / folder / "dcgm" / "rules-4.9.yaml").read_text())["groups"][0]["rules"]
    assert recorded[-len(dcgm) :] == dcgm


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("gpustewardLabels: 'other'", "_config.gpustewardLabels: other is none of exported, plain"),
        ("gpustewardDcgm: '5'", "_config.gpustewardDcgm: 5 is none of"),
        ("gpustewardAlerts: {GPUGone: {}}", "_config.gpustewardAlerts: GPUGone is none of GPUStewardDown"),
        ("gpustewardAlerts: {GPULost: {threshold: 1}}", "GPULost.threshold: this alert has no threshold"),
        ("gpustewardAlerts: {GPULost: {window: '5m'}}", "_config.gpustewardAlerts.GPULost: window is none of"),
    ],
)
def test_a_config_that_is_wrong_is_refused(config: str, words: str, tmp_path: Path) -> None:
    """With the place, and what may stand there."""
    assert words in jsonnet(tmp_path, f"{{_config+:: {{{config}}}}}").stderr
