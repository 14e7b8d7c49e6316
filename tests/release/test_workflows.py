"""The workflows of GitHub, looked at by actionlint. In: .github/workflows. Out: its findings."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cluster import build
from cluster.fixtures import require
from tools.release.source import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))


@pytest.fixture
def actionlint() -> str:
    """Path of the program."""
    require([problem] if not build.assets("actionlint") and (problem := build.go_problem()) else [])
    return str(build.program("actionlint"))


def look(actionlint: str, *files: object) -> str:
    words = [actionlint, "-no-color", "-shellcheck=", "-pyflakes=", *map(str, files)]  # the same on every machine
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.charts
def test_the_workflows_are_right(actionlint: str) -> None:
    """actionlint finds nothing: keys, expressions, inputs of actions."""
    assert {one.name for one in WORKFLOWS} == {"ci.yaml", "release.yaml"}
    assert look(actionlint, *WORKFLOWS) == ""


@pytest.mark.charts
def test_a_mistake_is_found(actionlint: str, tmp_path: Path) -> None:
    """A workflow with an unknown context does not pass."""
    broken = WORKFLOWS[0].read_text().replace("matrix.python", "matrix.pyton")
    file = tmp_path / "broken.yaml"
    file.write_text(broken)
    assert "pyton" in look(actionlint, file)


def test_each_command_of_a_workflow_is_one_of_ours() -> None:
    """What they call of make is a target of the Makefile."""
    text = "".join(one.read_text() for one in WORKFLOWS)
    targets = {line.split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ": " in line}
    for wanted in ("check", "test", "release"):
        assert f"make {wanted}" in text and wanted in targets


def test_each_action_of_others_is_named_by_its_commit() -> None:
    """A tag can be moved to other code, a commit cannot; the version stands beside it for people."""
    lines = [line for path in WORKFLOWS for line in path.read_text().splitlines() if "uses: " in line]
    others = [line for line in lines if "uses: ./" not in line]
    assert others and all(re.search(r"uses: [\w/-]+@[0-9a-f]{40} +# v\d+\.\d+\.\d+$", line) for line in others)
