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
    require([problem] if not build.assets("jsonnet") and (problem := build.go_problem()) else [])
    beside = tmp_path_factory.mktemp("vendor")
    (beside / "kubernetes.libsonnet").write_text(
        "{prometheusAlerts+:: {groups+: [{name: 'theirs', rules: []}]}, prometheusRules+:: {}, grafanaDashboards+:: {}}"
    )
    command: list[str | Path] = [build.program("jsonnet"), "--jpath", ROOT, "--jpath", beside, "--exec"]
    command.append(EXPRESSION.replace("CONFIG", CONFIGS[names]))
    return list(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


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
    assert len(boards) == 5
    assert mixin[2] == boards
