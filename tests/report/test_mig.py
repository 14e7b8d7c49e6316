"""`gpusteward report` about GPUs that are cut into MIG instances."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from report import week
from report.days import END, GPU, TRAIN, Serve, at, hours, rows
from report.test_report import CLOSE
from report.week import DAY, GIB, HOUR, START, STEP, Device

pytestmark = pytest.mark.prometheus
HALF = replace(GPU, instance="1", size=40 * GIB)
"""The one instance of a GPU; no other covers the second half of its memory."""


def test_a_gpu_that_was_replaced_or_cut_into_instances_is_not_missing(serve: Serve) -> None:
    """A device counts from its own first to its own last sample; the node's gap of three hours is missing for all."""
    noon = START + DAY + 12 * HOUR
    dead = range(START + 6 * HOUR, START + 9 * HOUR)
    whole = Device("n3", "GPU-9", "NVIDIA H100", 80 * GIB, 80 * GIB, (), until=noon, dead=dead)
    parts = [replace(whole, size=40 * GIB, since=noon, until=END, instance=one, dead=range(0)) for one in "12"]
    old = replace(whole, uuid="GPU-old")
    new = replace(whole, uuid="GPU-new", since=noon, until=END, dead=range(0))
    with serve(chain.from_iterable(week.samples([one]) for one in (whole, *parts, old, new))) as report:
        found = report.json()
    memory = hours(found)
    assert memory["no samples"] == pytest.approx(2 * 80 * 3, abs=80 * 2 * 2 * STEP / HOUR)
    assert sum(memory.values()) == pytest.approx(2 * 80 * 48, rel=CLOSE)
    assert found["total"]["gpu_hours"] == pytest.approx(2 * 48, rel=CLOSE)


@pytest.mark.parametrize(("inner", "outer"), [(HALF, GPU), (GPU, HALF)], ids=["cut", "whole"])
@pytest.mark.parametrize("gap", [range(18, 24), range(2, 7)], ids=["between", "before"])
def test_a_gpu_that_changes_its_mode_and_back_counts_once_in_a_gap(
    serve: Serve, inner: Device, outer: Device, gap: range
) -> None:
    """It is whole before hour 8 and after hour 36, and cut between them, or the other way round."""
    first, last = START + 8 * HOUR, START + 36 * HOUR
    modes = (
        replace(outer, until=first),
        replace(inner, since=first + STEP, until=last),
        replace(outer, since=last + STEP),
    )
    dead = range(START + gap.start * HOUR, START + gap.stop * HOUR)
    with serve(chain.from_iterable(week.samples([replace(mode, dead=dead)]) for mode in modes)) as report:
        found = report.json()
    row = rows(found)
    cut = sum((8 <= hour < 36) is (inner is HALF) for hour in range(48) if hour not in gap)
    assert row["(no MIG instance)"]["gpu_hours"] == pytest.approx(cut / 2, abs=0.5)
    assert row["(unknown)"]["gpu_hours"] == pytest.approx(len(gap), abs=0.5)
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)


def test_what_no_instance_covers_has_a_price(serve: Serve, tmp_path: Path) -> None:
    """The rows add up to the price of the fleet, in JSON, CSV and text; no row of the CSV is a sum of others."""
    prices = tmp_path / "prices.yaml"
    prices.write_text('currency: "EUR\\u001b[2J"\ngpu_hour: {NVIDIA H100: 2, NVIDIA B200: 9}\n')
    half = replace(GPU, instance="1", size=40 * GIB)
    with serve(week.samples([half])) as report:
        found = report.json("--prices", str(prices))
        lines = list(csv.DictReader(io.StringIO(report("--prices", str(prices), "--csv"))))
        text = report("--prices", str(prices))
    assert rows(found)["(no MIG instance)"]["cost"] == pytest.approx(48, rel=2 * CLOSE)
    assert found["total"]["cost"] == pytest.approx(96, rel=2 * CLOSE)
    assert sum(float(line["cost"] or 0) for line in lines) == pytest.approx(found["total"]["cost"])
    assert sum(float(line["gpu_hours"]) for line in lines) == pytest.approx(48, rel=2 * CLOSE)
    names = [line.split()[0] for line in text.split("\n\n")[2].splitlines()]
    assert names.index("allocated") < names.index("(no") < names.index("total")
    assert "price of NVIDIA B200: no such model in this time" in found["notes"]
    assert "\x1b" not in text and "(2d)" in text


def test_an_id_of_a_mig_instance_that_is_reused_has_the_size_of_its_time(serve: Serve) -> None:
    """Days of 40 GiB and days of 10 GiB count as such, also if it changes at noon; the days add up to the whole."""
    noon = START + 36 * HOUR
    large = replace(GPU, instance="5", size=40 * GIB, gpu_size=80 * GIB, until=noon, boxes=(replace(TRAIN, held=0),))
    small = replace(large, size=10 * GIB, since=noon + STEP, until=END)
    with serve(chain.from_iterable(week.samples([one]) for one in (large, small))) as report:
        found = report.json("--by", "workload")
        days = [report.json("--since", "1d", "--until", at(START + day * DAY), "--by", "workload") for day in (1, 2)]
    row = rows(found)["team-a/Job/train"]
    assert row["allocated_gpu_hours"] == pytest.approx(36 / 2 + 12 / 8, rel=CLOSE)
    assert row["idle_gpu_hours"] == pytest.approx((36 / 2 + 12 / 8) / 2, rel=CLOSE)
    assert rows(found)["(no MIG instance)"]["gpu_hours"] == pytest.approx(36 / 2 + 12 * 7 / 8, rel=2 * CLOSE)
    for part in ("team-a/Job/train", "(no MIG instance)"):
        alone = sum(rows(day)[part]["gpu_hours"] for day in days)
        assert alone == pytest.approx(rows(found)[part]["gpu_hours"], rel=CLOSE)


@pytest.mark.parametrize("missed", ["silent", "dead"])
@pytest.mark.parametrize(
    "hours_missed",
    [range(START + 6 * HOUR, START + 16 * HOUR), range(START + 12 * HOUR, START + 36 * HOUR)],
    ids=["a day", "two days"],
)
def test_what_no_instance_covers_is_unknown_while_nothing_is_known_of_the_gpu(
    serve: Serve, tmp_path: Path, hours_missed: range, missed: str
) -> None:
    """Half of a GPU is the instance's, half is no instance's, and both are unknown and free in the same hours."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("gpu_hour: {default: 1}\n")
    lost = len(hours_missed) / HOUR
    device = replace(HALF, silent=hours_missed) if missed == "silent" else replace(HALF, dead=hours_missed)
    with serve(week.samples([device])) as report:
        found = report.json("--prices", str(prices))
        by_node = rows(report.json("--by", "node"))
    row = rows(found)
    for name in ("team-a", "(no MIG instance)"):
        assert row[name]["gpu_hours"] == pytest.approx((48 - lost) / 2, abs=0.3)
        assert row[name]["cost"] == pytest.approx((48 - lost) / 2, abs=0.3)
    assert row["(unknown)"]["gpu_hours"] == pytest.approx(lost, abs=0.3)
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert by_node["n1"]["capacity_gpu_hours"] == pytest.approx(48, rel=CLOSE)


def test_what_no_instance_covers_is_known_where_the_counters_of_instances_go_on(serve: Serve) -> None:
    """Prometheus was down for some hours, and the daemon was not."""
    gap = range(START + 6 * HOUR, START + 16 * HOUR)
    with serve(one for one in week.samples([HALF]) if one[2] not in gap) as report:
        row = rows(report.json())
    assert row["team-a"]["gpu_hours"] == pytest.approx(24, rel=CLOSE)
    assert row["(no MIG instance)"]["gpu_hours"] == pytest.approx(24, rel=CLOSE)
    assert row["(unknown)"]["gpu_hours"] == pytest.approx(0, abs=0.1)


def test_the_days_of_a_gpu_that_was_silent_add_up_to_the_whole(serve: Serve) -> None:
    """Hours of silence on one day, a larger instance on the next."""
    silent = range(START + 6 * HOUR, START + 16 * HOUR)
    large = replace(HALF, instance="2", size=60 * GIB, since=START + DAY + STEP)
    with serve(week.samples([replace(HALF, silent=silent, until=START + DAY), large])) as report:
        found = rows(report.json())
        days = [rows(report.json("--since", "1d", "--until", at(START + day * DAY))) for day in (1, 2)]
    for name in ("(no MIG instance)", "(unknown)"):
        assert sum(day[name]["gpu_hours"] for day in days) == pytest.approx(found[name]["gpu_hours"], abs=0.2)
    assert found["(no MIG instance)"]["gpu_hours"] == pytest.approx(14 / 2 + 24 / 4, abs=0.3)
    assert found["(unknown)"]["gpu_hours"] == pytest.approx(10, abs=0.3)


def test_a_gpu_without_any_instance_is_unknown_in_a_gap(serve: Serve) -> None:
    """Its info is all that there is of it."""
    gap = range(START + 30 * HOUR, START + 40 * HOUR)
    bare = (
        one
        for one in week.samples([replace(HALF, uuid="GPU-bare")])
        if one[0].startswith("gpusteward_gpu_") and one[2] not in gap
    )
    with serve(chain(bare, (one for one in week.samples([GPU]) if one[2] not in gap))) as report:
        found = report.json()
    assert found["gpus"] == 2
    assert rows(found)["(no MIG instance)"]["gpu_hours"] == pytest.approx(38, rel=CLOSE)
    assert found["total"]["gpu_hours"] == pytest.approx(96, rel=CLOSE)


def test_an_instance_alone_that_is_silent_takes_nothing_from_the_rest(serve: Serve) -> None:
    """The GPU answers, so what no instance covers is known."""
    silent = range(START + 6 * HOUR, START + 16 * HOUR)
    answering = (one for one in week.samples([HALF]) if one[0].startswith("gpusteward_gpu_"))
    made = (one for one in week.samples([replace(HALF, silent=silent)]) if not one[0].startswith("gpusteward_gpu_"))
    with serve(chain(answering, made)) as report:
        row = rows(report.json())
    assert row["(no MIG instance)"]["gpu_hours"] == pytest.approx(24, rel=CLOSE)
    assert row["(unknown)"]["gpu_hours"] == pytest.approx(5, rel=2 * CLOSE)
