"""`gpusteward report` about times that begin long before the first sample, or hold few."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import chain

import pytest

from exporter.history.prometheus import history_at
from exporter.history.windows import Window
from exporter.report.reading import parts_of
from report import week
from report.days import GPU, Serve, at
from report.test_report import CLOSE
from report.week import DAY, HOUR, START

pytestmark = pytest.mark.prometheus


def test_the_time_before_the_first_sample_is_not_asked_about(serve: Serve) -> None:
    """Four years cost little more than two days, and a note has the date. Longer is refused."""
    with serve(week.samples([GPU])) as report:
        found = report.json("--since", "1400d")
        told = report("--since", "9999w", code=2)
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert f"the oldest sample is of {at(START)[:10]}" in found["notes"][0]
    assert "--since: '9999w' is longer than 1500d" in told


def test_a_burst_of_hours_after_days_of_nothing_counts(serve: Serve) -> None:
    """A pool that is scaled to nothing: the first node is there for short, at any hour, and the next one days later."""
    first = replace(GPU, since=START + 12 * HOUR + 600, until=START + 15 * HOUR + 3000)
    then = START + 4 * DAY
    second = replace(GPU, node="n2", uuid="GPU-2", since=then + 10 * HOUR, until=then + 18 * HOUR)
    with serve(chain(week.samples([first]), week.samples([second]))) as report:
        found = report.json("--since", "9d", "--until", at(START + 7 * DAY))
        early = report.json("--since", "3d", "--until", at(START + 3 * DAY))
    assert found["total"]["gpu_hours"] == pytest.approx(3 + 40 / 60 + 8, rel=CLOSE)
    assert early["total"]["gpu_hours"] == pytest.approx(3 + 40 / 60, rel=CLOSE)
    assert f"the oldest sample is of {at(first.since)}" in found["notes"][0]


@pytest.mark.parametrize(("before", "after"), [(0, 400), (16, 3), (399, 1), (1499, 1)])
def test_the_first_sample_is_found_with_few_questions(serve: Serve, before: int, after: int) -> None:
    """Of up to four years one day has samples; the parts begin with it."""
    asked: list[int] = []
    with serve(week.samples([replace(GPU, until=START + 6 * HOUR)])) as report:
        history = history_at(report.url)
        history.progress = lambda done, _: asked.append(done)
        window = Window(START - before * DAY - 0.001, START + after * DAY - 0.001)
        parts = asyncio.run(parts_of(history, window))
    assert parts[0].start == pytest.approx(START) and len(parts) == after
    assert asked[-1] <= 16 + before / 16


def test_a_time_shorter_than_two_scrapes_is_said(serve: Serve) -> None:
    """No table of zeros."""
    with serve(week.samples([GPU])) as report:
        told = report("--since", "10m", "--until", at(START + 180), code=1)
    assert "fewer than two samples" in told and "fix: set --since to a longer time" in told
