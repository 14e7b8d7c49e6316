"""What is written for the other names of labels: of the plain ones, and rules pass the tests of their originals."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import plain_yaml
from alerts.alertmanager import DAEMON
from alerts.written import RULES, TESTS
from exporter.metrics.labels import EXPORTED
from prometheus.scraping import program
from tools.exported import ALERTS, FOLDER, files, promql

DCGM = tuple(sorted((ALERTS / "dcgm").glob("rules*.yaml")))


def test_the_files_are_written_of_the_originals() -> None:
    """`make golden` would change nothing; each file has its counterpart, and none is left over."""
    assert {path: path.read_text() for path in FOLDER.rglob("*") if path.is_file()} == files()
    originals = {path.relative_to(ALERTS) for path in (*RULES, *DCGM, *(ALERTS / "alertmanager").iterdir())}
    assert {path.relative_to(FOLDER) for path in files()} == originals


def test_nothing_but_names_of_labels_changes() -> None:
    """With the names put back, each rule is its original; no expression has a plain name left."""
    for path in RULES:
        original, text = plain_yaml.load(path.read_text()), (FOLDER / path.name).read_text()
        for name, other in EXPORTED.items():
            text = text.replace(other, name)
        assert plain_yaml.load(text) == original


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        ('x{namespace="pod", kind=~"container|pod"}', 'x{exported_namespace="pod", kind=~"container|pod"}'),
        (
            "sum without (container) (gpusteward_pod_x)",
            "sum without (exported_container) (gpusteward_pod_x)",
        ),
        ('label_replace(x, "pod", "-", "pod", "")', 'label_replace(x, "exported_pod", "-", "exported_pod", "")'),
        ('x{pod=~"$pod"}', 'x{exported_pod=~"$pod"}'),
        ("label_values(x, namespace)", "label_values(x, exported_namespace)"),
        ('x{scope!="container"}', 'x{scope!="container"}'),
    ],
)
def test_values_and_variables_stay(plain: str, other: str) -> None:
    """A matcher's value, a variable of a board and a metric's name are no names of labels."""
    assert promql(plain) == other


def renamed(one: Any) -> Any:
    """A promtool test for the other names: those of series, of expressions, of expected labels."""
    if isinstance(one, dict):
        found: dict[str, Any] = {}
        for key, value in one.items():
            if key == "exp_labels":
                found[key] = {EXPORTED.get(name, name): text for name, text in value.items()}
            elif key in {"series", "expr", "labels"} and isinstance(value, str):
                found[key] = promql(value)
            elif key == "value":
                found[key] = float(value)
            else:
                found[key] = renamed(value)
        return found
    return [renamed(each) for each in one] if isinstance(one, list) else one


@pytest.mark.prometheus
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_promtool_runs_the_tests_of_the_originals(path: Path, tmp_path: Path) -> None:
    """Each alert fires, is silent, resolves and says what its original does: the same words and addresses."""
    loaded = renamed(yaml.load(path.read_text(), Loader=yaml.BaseLoader))  # noqa: S506 - it makes nothing but text
    loaded["rule_files"] = [str(FOLDER / path.name)]
    promtool(tmp_path / path.name, loaded)
    assert "exported_" in (tmp_path / path.name).read_text() or path.stem in {"daemon", "devices"}


@pytest.mark.prometheus
@pytest.mark.parametrize("rules", DCGM, ids=lambda path: path.stem)
def test_under_the_names_of_dcgm_no_series_has_the_daemons_pod(rules: Path, tmp_path: Path) -> None:
    """Where each series carries the daemon's pod, the sums are those of the originals, and the labels, too."""
    path = rules.with_name(rules.name.replace("rules", "tests"))
    loaded = renamed(yaml.load(path.read_text(), Loader=yaml.BaseLoader))  # noqa: S506 - it makes nothing but text
    loaded["rule_files"] = [str(FOLDER / "dcgm" / rules.name)]
    written = ", ".join(f'{name}="{value}"' for name, value in DAEMON.items())
    for group in loaded["tests"]:
        for one in group["input_series"]:
            one["series"] = f"{one['series'].removesuffix('}')}, {written}}}"
    promtool(tmp_path / path.name, loaded)
    assert 'exported_pod="train-0"' in (tmp_path / path.name).read_text()


def promtool(path: Path, tests: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(tests))
    done = subprocess.run([program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
