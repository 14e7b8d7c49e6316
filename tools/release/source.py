"""
What is released: one commit of a git checkout, and the version that pyproject.toml names.

What comes in: the checkout. What goes out: version, revision, date, section of CHANGELOG.md.

The rule: the version has one source, pyproject.toml; `python -m tools.release.source` copies it into the programs, the
chart and the pages, and tests compare all other places.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.release.programs import ReleaseError, run

ROOT = Path(__file__).parents[2]
CHART = Path("deploy/charts/gpusteward")
MODULE = Path("exporter/base/version.py")
VERSION = re.compile(r"\d+\.\d+\.\d+")
IMAGE = re.compile(r"(gpusteward:|--build-arg VERSION=)\d+\.\d+\.\d+")
"""The image as the commands of pages name and build it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A commit. `date`: its own, in seconds since 1970; `notes`: the section of the changelog."""

    root: Path
    version: str
    revision: str
    date: int
    notes: str


def version(root: Path = ROOT) -> str:
    """Read the version of the checkout."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def repository(root: Path = ROOT) -> str:
    """Read the address of the repository that the checkout is of."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]["Repository"])


def section(changelog: str, wanted: str) -> str | None:
    """Read what the changelog says below the heading `## x.y.z`; None without that heading."""
    heading = re.escape(wanted)
    found = re.search(rf"^## {heading}\b(?![.\d]).*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    return found[1].strip() if found else None


def charted(text: str, wanted: str) -> str:
    """Chart.yaml with this version of chart and daemon."""
    return re.sub(r"^(version|appVersion): .*$", rf"\g<1>: {wanted}", text, flags=re.MULTILINE)


def programmed(text: str, wanted: str) -> str:
    """Write the module from which the programs know this version."""
    return re.sub(r'^VERSION = ".*"$', f'VERSION = "{wanted}"', text, flags=re.MULTILINE)


def paged(text: str, wanted: str) -> str:
    """Write a page whose commands build and name the image of this version."""
    return IMAGE.sub(rf"\g<1>{wanted}", text)


def pages(root: Path = ROOT) -> list[Path]:
    """List the pages that may name an image."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def checked(root: Path, wanted: str) -> Source:
    """Check that the checkout can be released as `wanted`. Raises ReleaseError."""
    if not VERSION.fullmatch(wanted):
        raise ReleaseError(f"VERSION={wanted} is no version.\nfix: three numbers, such as VERSION=1.2.3.")
    if (has := version(root)) != wanted:
        raise ReleaseError(
            f"VERSION={wanted}, but pyproject.toml has the version {has}.\n"
            "fix: change pyproject.toml, run `make manifests`, and commit."
        )
    chart = (root / CHART / "Chart.yaml").read_text()
    plain = (root / "deploy/manifests/observe/gpusteward.yaml").read_text()
    program = (root / MODULE).read_text()
    if (
        chart != charted(chart, wanted)
        or f'VERSION = "{wanted}"\n' not in program
        or f"image: gpusteward:{wanted}\n" not in plain
    ):
        raise ReleaseError(
            f"The programs, the chart or the manifests do not have the version {wanted}.\n"
            "fix: `make manifests`, and commit."
        )
    if not (notes := section((root / "CHANGELOG.md").read_text(), wanted)):
        raise ReleaseError(
            f"CHANGELOG.md says nothing about {wanted}.\n"
            f"fix: rename its top section, Unreleased, to `## {wanted}` and the date, and commit."
        )
    if changed := run("git", "status", "--porcelain", cwd=root):
        raise ReleaseError(f"The checkout has changes that are not committed:\n{changed}\nfix: commit or remove them.")
    revision, date = run("git", "log", "-1", "--format=%H %ct", cwd=root).split()
    return Source(root, wanted, revision, int(date), notes)


if __name__ == "__main__":
    chart = ROOT / CHART / "Chart.yaml"
    chart.write_text(charted(chart.read_text(), version()))
    module = ROOT / MODULE
    module.write_text(programmed(module.read_text(), version()))
    for page in pages():
        if (wanted := paged(page.read_text(), version())) != page.read_text():
            page.write_text(wanted)
