"""The chart as a package: real files, the same as their originals, and nothing that an installation does not need."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from deploy import chart, copies
from deploy.chart import CHART

OWN = {"files/ask.py", ".helmignore", "Chart.yaml", "README.md", "values.yaml", "values.schema.json"}
"""What Helm and a reader of the chart want, besides templates and copies."""


def test_the_copies_are_the_same_as_their_originals() -> None:
    """`make manifests` would change no rule and no board of the chart, add none, and remove none."""
    wanted = {path: original.read_bytes() for path, original in copies.files().items()}
    there = {
        str(one.relative_to(CHART)): one.read_bytes()
        for folder in copies.FOLDERS
        for one in (CHART / folder).rglob("*")
        if one.is_file()
    }
    assert len(wanted) > 9 and there == wanted, "run `make manifests`"


def test_the_schema_knows_the_systems_of_the_daemon() -> None:
    """`limits.systems` of a chart names what the catalogue has."""
    assert (CHART / "values.schema.json").read_text() == copies.schema(), "run `make manifests`"


def test_no_file_of_the_chart_is_a_link() -> None:
    """Flux and Rancher drop symbolic links without a word, and with them what they lead to."""
    assert [one for one in (CHART, *CHART.parents[:2], *CHART.rglob("*")) if one.is_symlink()] == []


@pytest.mark.charts
@pytest.mark.usefixtures("helm")
def test_the_package_has_what_the_chart_needs_and_nothing_else() -> None:
    """Templates, rules, boards and values, also those of platforms; no test, no variant, no link."""
    with tarfile.open(chart.packed()) as archive:
        members = archive.getmembers()
    assert all(one.isfile() for one in members)
    inside = {str(Path(one.name).relative_to(CHART.name)) for one in members}
    templates = {one for one in inside if one.startswith("templates/")}
    assert {Path(one).suffix for one in templates} == {".yaml", ".tpl", ".txt"}
    platforms = {f"{one}.yaml" for one in chart.PLATFORMS}
    assert platforms and inside == OWN | templates | platforms | set(copies.files())
