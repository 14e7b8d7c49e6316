"""The queries of docs/accounting.md as they are written, asked of a real Prometheus over four hours of three nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import GIB
from golden.mixed import CLAIMED, HOLDS
from prometheus.backfilled import END, blocks
from prometheus.scraping import Prometheus, serving

pytestmark = pytest.mark.prometheus

PAGE = Path(__file__).parents[2] / "docs/accounting.md"
ALLOCATED, USED, IDLE, GIB_HOURS, PARTS, READ = re.findall(r"```promql\n(.*?)```", PAGE.read_text(), re.DOTALL)
HOURS = 4


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus that has the four hours, and scrapes no target."""
    folder = tmp_path_factory.mktemp("hours")
    with serving(blocks(folder), folder) as running:
        yield running


def answer(prometheus: Prometheus, query: str, by: str) -> dict[str, float]:
    """Ask at the end of the hours."""
    found = prometheus.get("/api/v1/query", query=query, time=str(END))["result"]
    return {one["metric"].get(by, ""): float(one["value"][1]) for one in found}


def about(value: float) -> object:
    """Allow for what Prometheus extrapolates at both ends of a range: half a minute each."""
    return pytest.approx(value, rel=0.01)


def test_gib_hours_are_what_the_containers_held(hours: Prometheus) -> None:
    """The pods of team-h hold the same for four hours, on GPUs of two vendors."""
    held = sum((*HOLDS.values(), *CLAIMED.values())) / GIB
    assert answer(hours, GIB_HOURS, "namespace")["team-h"] == about(HOURS * held)


def test_gpu_hours_are_what_was_handed_out_and_used(hours: Prometheus) -> None:
    """
    One pod has both GPUs with a utilization of 25 %, another was handed both and has no process.

    NVIDIA's is in four replicas, of which each has one. Only the first has a figure for the idle hours.
    """
    assert answer(hours, ALLOCATED, "namespace")["team-h"] == about(HOURS * (0.25 + 1) * 2)
    assert answer(hours, USED, "namespace")["team-h"] == about(HOURS * 0.25 * 2)
    idle = answer(hours, IDLE, "pod")
    assert idle["both-0"] == about(HOURS * (0.25 + 1 - 0.25 * 2)) and "unused-0" not in idle


def test_the_parts_of_all_memory_are_1(hours: Prometheus) -> None:
    """Whatever happened in these hours, each byte-second of the observed time is in one part."""
    parts = answer(hours, PARTS, "part")
    assert sum(parts.values()) == pytest.approx(1) and parts["containers"] > 0.3


def test_what_was_not_read_is_missing(hours: Prometheus) -> None:
    """Of the day there are four hours, and a daemon that started anew has lost what no scrape saw."""
    for node, share in answer(hours, READ, "node").items():
        assert 0.9 * HOURS / 24 < share < 1.01 * HOURS / 24, node
