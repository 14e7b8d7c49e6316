"""`gpusteward report` about times in which labels of series, owners of pods or models of GPUs changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

import pytest

from exporter.history.cutting import cut
from exporter.history.owners import Owners, Workload, filled
from exporter.history.windows import Window
from report import week
from report.days import GPU, TRAIN, Sample, Serve, at, hours, labelled, rows
from report.test_report import CLOSE
from report.week import DAY, GIB, HOUR, START, Labels

NOON = START + DAY + 12 * HOUR
CONTAINER = "gpusteward_container_"


@pytest.mark.prometheus
def test_a_new_label_of_containers_does_not_bring_their_past(serve: Serve) -> None:
    """The device's series stay as they are; what was counted by other labels does not count again."""

    def team(labels: dict[str, str], when: int) -> dict[str, str]:
        return {**labels, "team": "a"} if when >= NOON and "namespace" in labels else labels

    with serve(labelled(week.samples([GPU]), team)) as report:
        hour = report.json("--since", "1h", "--until", at(NOON + HOUR / 2))
        found = report.json()
    assert rows(hour)["team-a"]["allocated_gpu_hours"] == pytest.approx(1, abs=0.1)
    assert rows(hour)["team-a"]["memory_gib_hours"] == pytest.approx(40, abs=4)
    assert hour["total"]["gpu_hours"] == pytest.approx(1, abs=0.1)
    row = rows(found)["team-a"]
    assert row["allocated_gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert row["idle_gpu_hours"] == pytest.approx(24, rel=CLOSE)
    assert row["memory_gib_hours"] == pytest.approx(40 * 48, rel=CLOSE)
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)


@pytest.mark.prometheus
def test_series_of_containers_that_come_back_do_not_bring_what_is_not_known(serve: Serve) -> None:
    """Dropped until noon: the morning is not allocated. A container with no allocation at all likewise."""
    rider = replace(TRAIN, namespace="riders", pod="rider-0", workload="rider")
    made = week.samples([GPU, replace(GPU, uuid="GPU-2", boxes=(rider,))])
    known = (
        one
        for one in made
        if not (one[0].startswith(CONTAINER) and one[2] < NOON)
        and not ("allocated" in one[0] and ("namespace", "riders") in one[1])
    )
    with serve(known) as report:
        found = report.json("--since", "1d")
    assert rows(found)["team-a"]["allocated_gpu_hours"] == pytest.approx(12, rel=2 * CLOSE)
    assert rows(found)["team-a"]["memory_gib_hours"] == pytest.approx(12 * 40, rel=2 * CLOSE)
    assert rows(found)["riders"]["memory_gib_hours"] == pytest.approx(12 * 40, rel=2 * CLOSE)
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)


@pytest.mark.prometheus
def test_a_pod_that_begins_while_prometheus_is_down_counts_in_full(serve: Serve) -> None:
    """Its first value fits into the gap. One that does not fit is of series with another label."""
    gap = range(START + 6 * HOUR, START + 9 * HOUR)
    empty = replace(GPU, boxes=())
    began = START + 7 * HOUR
    pod = (one for one in week.samples([replace(GPU, since=began)]) if one[0].startswith((CONTAINER, "gpusteward_pod")))
    old = replace(GPU, uuid="GPU-2", boxes=(replace(TRAIN, namespace="old"),))

    def team(labels: dict[str, str], when: int) -> dict[str, str]:
        return {**labels, "team": "a"} if when >= gap.stop and labels.get("namespace") == "old" else labels

    made = labelled(chain(week.samples([empty, old]), pod), team)
    with serve(one for one in made if one[2] not in gap) as report:
        found = rows(report.json())
    assert found["team-a"]["allocated_gpu_hours"] == pytest.approx(48 - 7, rel=CLOSE)
    assert found["team-a"]["memory_gib_hours"] == pytest.approx(40 * (48 - 7), rel=CLOSE)
    assert found["team-a"]["idle_gpu_hours"] == pytest.approx((48 - 7) / 2, rel=CLOSE)
    assert found["old"]["allocated_gpu_hours"] == pytest.approx(48 - 3, rel=CLOSE)


@pytest.mark.prometheus
def test_each_owner_of_a_pod_name_has_its_own_time(serve: Serve) -> None:
    """Another workload takes a pod name over at noon: time, use and idle time of each, to the quarter of an hour."""
    first = replace(GPU, until=NOON, boxes=(replace(TRAIN, workload="llama", sm=1.0),))
    after = replace(GPU, since=NOON + week.STEP, boxes=(replace(TRAIN, workload="other", sm=0.0),))
    with serve(chain(week.samples([first]), week.samples([after]))) as report:
        found = report.json("--by", "workload")
    row, other = rows(found)["team-a/Job/llama"], rows(found)["team-a/Job/other"]
    assert row["allocated_gpu_hours"] == pytest.approx(36, abs=0.5)
    assert other["allocated_gpu_hours"] == pytest.approx(12, abs=0.5)
    assert row["idle_gpu_hours"] == pytest.approx(0, abs=0.5) and other["used_gpu_hours"] == pytest.approx(0, abs=0.5)
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert found["idle"][0]["workload"] == "other"


@pytest.mark.prometheus
def test_a_workload_that_is_not_known_for_a_while_is_the_one_that_was_known(serve: Serve) -> None:
    """The API server did not answer on the last day: the pod does not become a workload of its own."""

    def forgotten(labels: dict[str, str], when: int) -> dict[str, str]:
        return (
            {**labels, "workload": "", "workload_kind": ""} if "workload" in labels and when >= START + DAY else labels
        )

    with serve(labelled(week.samples([GPU]), forgotten)) as report:
        found = rows(report.json("--by", "workload"))
    assert found["team-a/Job/train"]["allocated_gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert "team-a/Pod/train-0" not in found


@pytest.mark.prometheus
def test_a_model_that_is_renamed_has_the_price_of_each_day(serve: Serve, tmp_path: Path) -> None:
    """One GPU, two names, two prices; no time is missing between them."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("gpu_hour: {NVIDIA H100: 2, NVIDIA H100 80GB: 5}\n")

    def renamed(labels: dict[str, str], when: int) -> dict[str, str]:
        return {**labels, "model": "NVIDIA H100 80GB"} if "model" in labels and when >= START + DAY else labels

    with serve(labelled(week.samples([GPU]), renamed)) as report:
        found = report.json("--by", "model", "--prices", str(prices))
    for model, price in (("NVIDIA H100", 2), ("NVIDIA H100 80GB", 5)):
        row = rows(found)[model]
        assert row["allocated_gpu_hours"] == pytest.approx(24, rel=CLOSE)
        assert row["capacity_gpu_hours"] == pytest.approx(24, rel=CLOSE)
        assert row["cost"] == pytest.approx(24 * price, rel=CLOSE)
    assert found["gpus"] == 1 and found["total"]["cost"] == pytest.approx(24 * 7, rel=CLOSE)
    assert hours(found)["no samples"] == pytest.approx(0, abs=80 * 2 * week.STEP / HOUR)


@pytest.mark.prometheus
def test_a_device_that_is_handed_out_twice_costs_once(serve: Serve, tmp_path: Path) -> None:
    """All of its allocations are in the rows; a row takes off what is more than the device has, and the sums hold."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("gpu_hour: {default: 2}\n")
    twice = replace(GPU, boxes=(TRAIN, replace(TRAIN, pod="other-0", workload="other", held=0)), until=START + DAY)
    free = replace(GPU, boxes=(), since=START + DAY + week.STEP)
    with serve(chain(week.samples([twice]), week.samples([free]))) as report:
        found = report.json("--prices", str(prices))
        text = report("--prices", str(prices))
    assert rows(found)["team-a"]["allocated_gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert rows(found)["(handed out twice)"]["gpu_hours"] == pytest.approx(-24, rel=CLOSE)
    assert rows(found)["(not allocated)"]["gpu_hours"] == pytest.approx(24, rel=0.02)
    for column, whole in (("gpu_hours", 48), ("cost", 96)):
        assert found["total"][column] == pytest.approx(whole, rel=0.02)
        assert sum(row[column] or 0 for row in found["rows"]) == pytest.approx(found["total"][column])
    assert "(handed out twice)" in text and "(handed out twice)" not in text.split("(not allocated)")[1]


@pytest.mark.prometheus
def test_pods_too_short_for_a_sample_of_their_workload_are_one_row(serve: Serve) -> None:
    """One row for each namespace; a long one without such a sample stays a row of its own."""
    where: Labels = (("node", "n1"), ("gpu", "0"), ("uuid", "GPU-1"), ("gpu_instance", ""))

    def pods() -> Iterator[Sample]:
        for number in range(24):
            began, lasting = START + number * HOUR, 60 if number else 30 * 60
            labels = (("namespace", "batch"), ("pod", f"cron-{number}"), ("container", "main"), *where)
            for when in range(began + 60, began + lasting + 300, 60):
                seconds = float(min(lasting, when - began))
                allocated = (*labels, ("resource", "nvidia.com/gpu"))
                yield "gpusteward_container_allocated_seconds_total", allocated, when, seconds
                yield "gpusteward_container_memory_byte_seconds_total", labels, when, seconds * GIB

    with serve(chain(week.samples([replace(GPU, boxes=())]), pods())) as report:
        found = rows(report.json("--by", "workload"))
    assert [name for name in found if name.startswith("batch/")] == ["batch/Pod/cron-0", "batch/(short pods)"]
    assert found["batch/(short pods)"]["allocated_gpu_hours"] == pytest.approx(23 / 60, rel=0.02)


@pytest.mark.prometheus
def test_two_clusters_that_only_their_prometheus_tells_apart_are_said(serve: Serve) -> None:
    """Different GPUs of one node name are no copies: both count, and the note says what is missing."""
    made = chain(
        labelled(week.samples([GPU]), lambda labels, _: {**labels, "prometheus": "east/k8s"}),
        labelled(week.samples([replace(GPU, uuid="GPU-2")]), lambda labels, _: {**labels, "prometheus": "west/k8s"}),
    )
    with serve(made) as report:
        found = report.json()
    assert found["total"]["gpu_hours"] == pytest.approx(96, rel=CLOSE)
    (note,) = found["notes"]
    assert note.startswith("two nodes are called n1, with prometheus=east/k8s, prometheus=west/k8s: both count")
    assert "label cluster" in note


A, B, BARE = Workload("Job", "a"), Workload("Job", "b"), Workload("", "")


def part(*samples: tuple[str, Workload, float]) -> Owners[str, str]:
    """A part in which node n was scraped 100 times."""
    found: Owners[str, str] = Owners(scrapes={"n": 100.0})
    for pod, workload, count in samples:
        found.note("n", pod, workload, count)
    return found


def test_a_workload_counts_before_none_and_the_nearest_one_fills_a_gap() -> None:
    """A pod without a controller stays one; a pod that no sample names is missing."""
    days = [part(("x", BARE, 9), ("y", BARE, 9)), part(("x", BARE, 99), ("x", A, 1)), part(), part(("x", B, 9))]
    found = filled(days)
    assert [day["x"] for day in found] == [A, A, A, B]
    assert [day["y"] for day in found] == [BARE] * 4
    assert all("z" not in day for day in found)


def test_only_workloads_that_follow_one_another_cut_a_part() -> None:
    """Two pods of one name at once, as two clusters without a label have, cannot be told apart by time."""
    assert part(("x", A, 60), ("x", B, 40)).changed() == {"x"}
    assert part(("x", A, 100), ("x", B, 100)).changed() == set()
    assert part(("x", A, 60), ("x", BARE, 40)).changed() == set()


@pytest.mark.parametrize(("pods", "shortest"), [(4, 900.0), (5, 3600.0)])
def test_a_day_on_which_many_workloads_change_is_not_cut_below_hours(pods: int, shortest: float) -> None:
    """Each part is a round of questions to a Prometheus of perhaps a thousand nodes."""
    changes = [float(DAY * (number + 1) / 7) for number in range(pods)]

    async def ask(window: Window) -> Owners[str, str]:
        return part(
            *(
                (f"pod-{number}", workload, 50)
                for number, at in enumerate(changes)
                for workload in ((A, B) if window.start < at < window.end else (A,))
            )
        )

    found = asyncio.run(cut(Window(0.0, float(DAY)), ask, 4))
    lengths = [window.seconds for window, _ in found]
    assert sum(lengths) == DAY and shortest <= min(lengths) < 2 * shortest
    assert len(found) <= 7 * pods
    assert all(one.end == after.start for (one, _), (after, _) in pairwise(found))
