"""
The queries of docs/recipes.md and docs/accounting.md as they are written: they ask for what is there, and keep clusters
apart.
"""

from __future__ import annotations

import re

import pytest

from alerts import written
from alerts.written import ROOT

PAGES = ("docs/recipes.md", "docs/accounting.md")
QUERIES = [one for page in PAGES for one in re.findall(r"```promql\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)]
GROUPING = re.compile(r"\b(?:on|by)\s*\(([\w\s,]*)\)")


@pytest.mark.parametrize("query", QUERIES)
def test_cluster_is_part_of_each_join_and_sum(query: str) -> None:
    """`on` and `by` name `cluster`, so that two clusters with the same names are never joined."""
    found = GROUPING.findall(query)
    assert found
    assert all("cluster" in re.split(r"[\s,]+", labels) for labels in found)


@pytest.mark.parametrize("query", QUERIES)
def test_each_series_of_ours_is_exported(query: str) -> None:
    """A name that begins with gpusteward is on the golden page; tests/cluster/test_recipes.py asks for the others."""
    known = written.metrics()
    names = set(re.findall(r"\bgpusteward_\w+", query.replace("(container|pod)", "container")))
    assert names <= known.keys()


def test_there_are_queries() -> None:
    """The pages have not lost them to another kind of code block; all but one ask for series of ours."""
    assert len(QUERIES) == 14
    assert sum("gpusteward_" in query for query in QUERIES) == 13
