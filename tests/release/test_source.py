"""What may be released: a version that all places agree on, described, committed. In: checkouts. Out: refusals."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.base.version import VERSION
from tools.release.programs import ReleaseError
from tools.release.source import (
    CHART,
    IMAGE,
    MODULE,
    ROOT,
    charted,
    checked,
    paged,
    pages,
    programmed,
    section,
    version,
)

CHANGES = "# Changelog\n\n## 1.2.3, 1 May 2026\n\n- New.\n\n### More\n\n- Other.\n\n## 1.2.2\n\n- Old.\n"
FILES = {
    "pyproject.toml": '[project]\nversion = "1.2.3"\n',
    "CHANGELOG.md": CHANGES,
    f"{MODULE}": 'VERSION = "1.2.3"\n',
    f"{CHART}/Chart.yaml": "name: gpusteward\nversion: 1.2.3\nappVersion: 1.2.3\n",
    "deploy/manifests/observe/gpusteward.yaml": "image: gpusteward:1.2.3\n",
}


def git(folder: Path, *words: str) -> None:
    author = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
    subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True)


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that can be released as 1.2.3."""
    for name, text in FILES.items():
        write(tmp_path, name, text)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message=all")
    return tmp_path


def test_a_commit_that_says_what_it_is_can_be_released(checkout: Path) -> None:
    """Version, revision, date and notes are the commit's."""
    found = checked(checkout, "1.2.3")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True)
    assert (found.version, found.revision) == ("1.2.3", head.stdout.strip())
    assert found.notes == "- New.\n\n### More\n\n- Other."
    assert found.date > 0


@pytest.mark.parametrize(
    ("wanted", "change", "said"),
    [
        ("", None, "no version"),
        ("v1.2.3", None, "no version"),
        ("1.2", None, "no version"),
        ("1.3.0", None, "pyproject.toml has the version 1.2.3"),
        ("1.2.3", ("CHANGELOG.md", "## Unreleased\n\n- New.\n"), "CHANGELOG.md says nothing about 1.2.3"),
        ("1.2.3", ("CHANGELOG.md", "## 1.2.3\n\n## 1.2.2\n\n- Old.\n"), "CHANGELOG.md says nothing about 1.2.3"),
        ("1.2.3", (f"{CHART}/Chart.yaml", "version: 1.2.3\nappVersion: 1.2.2\n"), "do not have the version"),
        ("1.2.3", (f"{MODULE}", 'VERSION = "1.2.2"\n'), "do not have the version"),
        ("1.2.3", ("deploy/manifests/observe/gpusteward.yaml", "image: gpusteward:1.2.2\n"), "do not have the version"),
        ("1.2.3", ("more.txt", "new"), "not committed"),
    ],
)
def test_a_refusal_says_the_reason_and_the_fix(
    checkout: Path, wanted: str, change: tuple[str, str] | None, said: str
) -> None:
    """A wrong version, a version without notes, a place with another version, a change that is not committed."""
    if change:
        write(checkout, *change)
    with pytest.raises(ReleaseError) as refused:
        checked(checkout, wanted)
    text = str(refused.value)
    assert said in text and "fix: " in text


def test_what_needs_no_program_is_refused_before_one_is_built(checkout: Path) -> None:
    """`make release` first asks with --check, which wants neither helm nor cosign: these take minutes to build."""
    git_alone = checkout.parent / "bin"
    git_alone.mkdir()
    (git_alone / "git").symlink_to(shutil.which("git") or "")
    command = [sys.executable, "-m", "tools.release", "--check", "1.3.0", "--registry=ghcr.io/owner"]
    variables = {"PATH": str(git_alone), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pyproject.toml has the version 1.2.3" in done.stderr
    recipe = (ROOT / "Makefile").read_text().partition("\nrelease: $(VENV)")[2].partition("\n\n")[0]
    assert 0 < recipe.index("tools.release --check") < recipe.index("cluster.build helm cosign")


@pytest.mark.parametrize(
    ("wanted", "notes"), [("1.2.2", "- Old."), ("1.2", None), ("1.2.33", None), ("2.3", None), ("More", None)]
)
def test_a_section_is_found_by_its_whole_version(wanted: str, notes: str | None) -> None:
    """No part of another version is taken for it."""
    assert section(CHANGES, wanted) == notes


def test_the_version_has_one_source() -> None:
    """The programs, the chart and each page of the documentation have the version of pyproject.toml."""
    assert version() == VERSION, "fix: make manifests"
    assert programmed((ROOT / MODULE).read_text(), "7.8.9").endswith('\nVERSION = "7.8.9"\n')
    chart = (ROOT / CHART / "Chart.yaml").read_text()
    assert chart == charted(chart, version()), "fix: make manifests"
    naming = {page.name: page.read_text() for page in pages() if IMAGE.search(page.read_text())}
    assert {"README.md", "first-hour.md", "image.md"} <= set(naming)
    others = [name for name, text in naming.items() if text != paged(text, version())]
    assert not others, f"{others} name an image that is not {version()}; fix: make manifests"


def test_the_pages_get_the_next_version(tmp_path: Path) -> None:
    """After a change of pyproject.toml `make manifests` writes all places: no page is edited by hand."""
    copy = tmp_path / "checkout"
    for name in ("tools", "docs", "exporter/base", str(CHART)):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.png", "dashboards"))
    shutil.copy(ROOT / "README.md", copy)
    write(copy, "pyproject.toml", '[project]\nversion = "77.8.9"\n')
    subprocess.run([sys.executable, "-m", "tools.release.source"], cwd=copy, check=True)
    assert 'VERSION = "77.8.9"\n' in (copy / MODULE).read_text()
    assert version(copy) == "77.8.9" and "appVersion: 77.8.9\n" in (copy / CHART / "Chart.yaml").read_text()
    for page in pages(copy):
        old = ROOT / page.relative_to(copy)
        assert page.read_text() == paged(old.read_text(), "77.8.9")
    assert "--build-arg VERSION=77.8.9 -t REGISTRY/gpusteward:77.8.9" in (copy / "docs/first-hour.md").read_text()
