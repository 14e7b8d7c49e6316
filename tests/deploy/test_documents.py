"""What docs/deploy.md and docs/threat-model.md name is there: tests, files, values. In: the pages. Out: nothing."""

from __future__ import annotations

import re

import pytest

import plain_yaml
from deploy import plain
from deploy.chart import CHART, DEPLOY, VARIANTS

ROOT = DEPLOY.parent
PAGES = ("deploy.md", "threat-model.md")


@pytest.mark.parametrize("page", PAGES)
def test_each_test_that_a_page_names_is_there(page: str) -> None:
    """`test_file.py::test_name`: the name stands in one of the files so called."""
    text = (ROOT / "docs" / page).read_text()
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", text))
    assert named or page == "deploy.md"
    texts = {file: "" for file, _ in named}
    for file in (ROOT / "tests").rglob("test_*.py"):  # once for all names: to look for each one takes 0.35 s
        if file.name in texts:
            texts[file.name] += file.read_text()
    assert not [(file, test) for file, test in named if f"def {test}(" not in texts[file]]


@pytest.mark.parametrize("page", PAGES)
def test_each_file_that_a_page_links_to_is_there(page: str) -> None:
    """Links are relative to docs/."""
    linked = re.findall(r"\]\(([^)#]+)", (ROOT / "docs" / page).read_text())
    assert linked and not [one for one in linked if not (ROOT / "docs" / one).exists()]


def test_the_page_knows_the_values_and_the_manifests() -> None:
    """A value that the page names is one of values.yaml, and each plain manifest is named."""
    text = (ROOT / "docs" / "deploy.md").read_text()
    values = plain_yaml.load((CHART / "values.yaml").read_text())
    sections = [name for name, one in values.items() if isinstance(one, dict) and name != "config"]
    for section, key in re.findall(rf"`({'|'.join(sections)})\.(\w+)", text):
        assert key in values[section], f"{section}.{key}"
    assert f"{{{','.join(plain.VARIANTS)}}}" in text
    assert set(plain.VARIANTS) <= set(VARIANTS)
