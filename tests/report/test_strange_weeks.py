"""`gpusteward report` about times in which something changed: GPUs, labels, jobs, clocks, drivers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from report import week
from report.days import END, GPU, TRAIN, Sample, Serve, at, hours, labelled, rows
from report.test_report import CLOSE
from report.week import DAY, GIB, HOUR, START, STEP, Box

pytestmark = pytest.mark.prometheus


def copies(label: str) -> Iterator[Sample]:
    """The samples of GPU twice, with two values of a label."""
    for one in "ab":
        for name, labels, when, value in week.samples([GPU]):
            yield name, (*labels, (label, one)), when, value


def exported(labels: dict[str, str], _: int = 0, *, only: str = "") -> dict[str, str]:
    """The labels that a Prometheus makes which overrides them with those of the daemon's own pod."""
    for name, own in (("namespace", "gpu-system"), ("pod", "gpusteward-x7"), ("container", "exporter")):
        if only in ("", name):
            if name in labels:
                labels[f"exported_{name}"] = labels[name]
            labels[name] = own
    return labels


def test_a_clock_that_was_wrong_once_changes_nothing(serve: Serve) -> None:
    """The time of a sample is Prometheus' own, not what the node says."""
    made = (
        (name, labels, when, 946_684_800.0 if "timestamp" in name and when == START + 30 * HOUR else value)
        for name, labels, when, value in week.samples([GPU])
    )
    with serve(made) as report:
        memory = hours(report.json())
    assert memory["no samples"] == pytest.approx(0, abs=80 * 2 * STEP / HOUR)
    assert sum(memory.values()) == pytest.approx(80 * 48, rel=CLOSE)


def test_the_labels_of_workloads_may_change_within_the_time(serve: Serve) -> None:
    """Exported labels on the first day, plain ones later, and no pod at all at the end: the bill goes to team-a."""
    busy = replace(GPU, until=START + 30 * HOUR)
    empty = replace(GPU, boxes=(), since=START + 30 * HOUR + STEP)
    made = labelled(week.samples([busy]), lambda labels, when: exported(labels) if when < START + DAY else labels)
    with serve(chain(made, labelled(week.samples([empty]), exported))) as report:
        found = rows(report.json())
        workloads = rows(report.json("--by", "workload"))
    assert found["team-a"]["allocated_gpu_hours"] == pytest.approx(30, rel=CLOSE)
    assert found["team-a"]["unused_share"] == pytest.approx(1 / 3, abs=CLOSE)
    assert "gpu-system" not in found and "team-a/Job/train" in workloads


def test_a_namespace_alone_may_be_overridden(serve: Serve) -> None:
    """The pod is the workload's then; a note says so."""
    with serve(labelled(week.samples([GPU]), lambda labels, _: exported(labels, only="namespace"))) as report:
        found = report.json("--by", "workload")
    assert rows(found)["team-a/Job/train"]["allocated_gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert any("exported_namespace and no exported_pod" in note for note in found["notes"])


def test_the_idle_time_of_a_time_is_that_of_its_parts(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of much use do not hide hours of none, but for the five minutes in which one follows the other."""
    monkeypatch.setattr(week, "STEP", 60)
    burst = replace(TRAIN, share=0.5, sm=0.5, hourly=True)
    with serve(week.samples([replace(GPU, boxes=(burst,))])) as report:
        whole = report.json()["total"]
        parts = [
            report.json("--since", "6h", "--until", at(START + six * 6 * HOUR))["total"]["idle_gpu_hours"]
            for six in range(1, 9)
        ]
    assert whole["allocated_gpu_hours"] == pytest.approx(24, rel=CLOSE)
    assert whole["idle_gpu_hours"] == pytest.approx(12, rel=0.05)
    assert sum(parts) == pytest.approx(whole["idle_gpu_hours"], rel=0.02)


@pytest.mark.parametrize("label", ["job", "prometheus_replica"])
def test_a_daemon_that_is_scraped_twice_counts_once(serve: Serve, label: str) -> None:
    """Two jobs or a pair of Prometheus servers: one bill, and a note that names both."""
    with serve(copies(label)) as report:
        found = report.json()
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert rows(found)["team-a"]["allocated_gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert rows(found)["team-a"]["idle_gpu_hours"] == pytest.approx(24, rel=CLOSE)
    assert rows(found)["team-a"]["unused_share"] == pytest.approx(1 / 3, abs=CLOSE)
    assert any(f"{label}=a, {label}=b" in note for note in found["notes"])


def test_series_that_are_there_twice_and_cannot_be_told_apart_are_refused(serve: Serve) -> None:
    """The error names the node, the labels and both values."""
    with serve(copies("shard")) as report:
        told = report(code=1)
    told = " ".join(told.split())
    assert "node n1: its series are there more than once" in told and "they differ by shard=a, b" in told


def test_a_daemon_that_was_replaced_counts_on(serve: Serve) -> None:
    """A rollout changes the labels of the target, and doubles nothing."""
    made = labelled(
        week.samples([GPU]), lambda labels, when: {**labels, "job": "a", "instance": str(when > START + 18 * HOUR)}
    )
    with serve(made) as report:
        found = report.json()
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert found["notes"] == []


def test_memory_that_nobody_could_see_is_not_unused(serve: Serve) -> None:
    """Limits count while the driver answers, as readings do."""
    silent = range(START + 12 * HOUR, START + 36 * HOUR)
    with serve(week.samples([replace(GPU, silent=silent)])) as report:
        row = rows(report.json())["team-a"]
    assert row["unused_share"] == pytest.approx(1 / 3, abs=CLOSE)
    assert row["declared_gib_hours"] == pytest.approx(60 * 24, rel=2 * CLOSE)


def test_memory_whose_use_is_unknown_is_not_unused(serve: Serve) -> None:
    """A container that cannot be told apart on the second day has neither a use nor an unused limit there."""
    made = (
        sample
        for sample in week.samples([GPU])
        if sample[0] != "gpusteward_container_memory_used_bytes" or sample[2] < START + DAY
    )
    with serve(made) as report:
        row = rows(report.json())["team-a"]
    assert row["unused_share"] == pytest.approx(1 / 3, abs=CLOSE)
    assert row["declared_gib_hours"] == pytest.approx(60 * 24, rel=2 * CLOSE)


def test_all_models_without_a_price_are_named_first(serve: Serve, tmp_path: Path) -> None:
    """One run tells all that is missing in the file."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("gpu_hour: {NVIDIA T4: 2}\n")
    other = replace(GPU, uuid="GPU-2", model="NVIDIA A100", boxes=())
    with serve(chain(week.samples([GPU]), week.samples([other]))) as report:
        told = report("--prices", str(prices), code=2)
    assert f"{prices}: gpu_hour has no price for NVIDIA A100, NVIDIA H100, and no default" in " ".join(told.split())


def test_idle_allocations_of_several_clusters_have_theirs(serve: Serve) -> None:
    """In text and JSON."""
    with serve(copies("cluster")) as report:
        found, text = report.json(), report()
    assert sorted(one["cluster"] for one in found["idle"]) == ["a", "b"]
    assert "a/team-a/Job/train  main" in text and "b/team-a/Job/train  main" in text


def test_an_idle_allocation_is_compared_with_all_that_its_workload_was_allocated(serve: Serve) -> None:
    """Also with GPUs and replicas that were used all the time, and with those of unknown use."""
    pair = [replace(GPU, uuid=f"GPU-{busy}", boxes=(replace(TRAIN, sm=float(busy)),)) for busy in (0, 1)]
    llm = [
        replace(GPU, uuid=f"GPU-{number}", boxes=(Box("team-b", f"llm-{number}", "main", "llm", 0, 1.0, sm),))
        for number, sm in enumerate((0.0, *[1.0] * 7, None, None), 10)
    ]
    with serve(week.samples([*pair, *llm])) as report:
        found = {one["workload"]: one for one in report.json()["idle"]}
        text = report()
    for workload, gpus in (("train", 2), ("llm", 10)):
        assert found[workload]["allocated_gpu_hours"] == pytest.approx(gpus * 48, rel=CLOSE)
        assert found[workload]["idle_gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert sorted(line.split()[-1] for line in text.splitlines() if "/Job/" in line) == ["10%", "50%"]


@pytest.mark.parametrize("known", [DAY, 12 * HOUR])
def test_time_without_a_figure_of_the_sms_is_unknown(serve: Serve, known: int) -> None:
    """Also if the container has a figure at another time, on another day or on the same one."""
    later = range(START + known, END + 1)
    made = (one for one in week.samples([GPU]) if "sm_seconds" not in one[0] or one[2] not in later)
    with serve(made) as report:
        row = rows(report.json())["team-a"]
    assert row["used_gpu_hours"] == pytest.approx(known / HOUR / 2, rel=2 * CLOSE)
    assert row["idle_gpu_hours"] == pytest.approx(known / HOUR / 2, rel=2 * CLOSE)
    assert row["unmeasured_gpu_hours"] == pytest.approx(48 - known / HOUR, rel=2 * CLOSE)


def test_gaps_shorter_than_five_minutes_are_time_without_samples(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is down four minutes of every ten loses this time, and the capacity does not."""
    monkeypatch.setattr(week, "STEP", 60)
    dead = set(chain.from_iterable(range(start, start + 240, 60) for start in range(START + 360, END, 600)))
    with serve(week.samples([replace(GPU, dead=dead)])) as report:
        found = report.json()
    memory = hours(found)
    # The minute before the first sample after a gap is lost, too: the counters begin at 0.
    assert memory["no samples"] == pytest.approx(80 * 48 * 5 / 10, rel=0.02)
    assert sum(memory.values()) == pytest.approx(80 * 48, rel=CLOSE)
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)


def short(scrape: int, *, lasting: int = 45, every: int = 120) -> Iterator[Sample]:
    """A day of 720 pods, one after the other, each with the whole GPU for 45 s; read at each scrape."""
    names = ("container_allocated_seconds_total", "container_sm_seconds_total", "container_memory_byte_seconds_total")
    pods = [("short", f"{number:03}", START + 7 + number * every) for number in range(DAY // every)]
    for name, labels, when, value in week.samples([replace(GPU, boxes=(), until=START + 2 * DAY)]):
        if when % scrape == 0:
            yield name, labels, when, value
    where = (("node", "n1"), ("gpu", "0"), ("uuid", "GPU-1"), ("gpu_instance", ""))
    for namespace, pod, began in pods:
        labels = (("namespace", namespace), ("pod", pod), ("container", "main"), *where)
        for when in range(began - began % scrape + scrape, began + lasting + 300, scrape):
            seconds = float(min(lasting, when - began))
            for name, rate in zip(names, (1.0, 0.5, 40 * GIB), strict=True):
                more = (("resource", "nvidia.com/gpu"),) if "allocated" in name else ()
                yield f"gpusteward_{name}", (*labels, *more), when, seconds * rate


@pytest.mark.parametrize("scrape", [15, 30, 60])
def test_pods_that_live_for_a_few_scrapes_lose_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, scrape: int
) -> None:
    """Their counters begin above 0, and stay for five minutes; the last value is what they were allocated."""
    monkeypatch.setattr(week, "STEP", scrape)
    with serve(short(scrape)) as report:
        row = rows(report.json())["short"]
    assert row["allocated_gpu_hours"] == pytest.approx(9.0, rel=CLOSE)
    assert row["used_gpu_hours"] == pytest.approx(4.5, rel=CLOSE)
    assert row["idle_gpu_hours"] == pytest.approx(4.5, rel=CLOSE)
    assert row["memory_gib_hours"] == pytest.approx(9 * 40, rel=CLOSE)


def test_short_pods_lose_nothing_on_a_day_on_which_prometheus_is_new(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what had grown for long before the first sample is of another time."""
    monkeypatch.setattr(week, "STEP", 30)
    noon = START + 12 * HOUR
    with serve(one for one in short(30) if one[2] >= noon) as report:
        row = rows(report.json())["short"]
    assert row["allocated_gpu_hours"] == pytest.approx(4.5, rel=2 * CLOSE)
    assert row["memory_gib_hours"] == pytest.approx(4.5 * 40, rel=2 * CLOSE)


@pytest.mark.parametrize("gap", [range(0), range(START - HOUR, START + 6 * HOUR)])
def test_a_daemon_that_is_new_to_prometheus_only_does_not_bring_its_past(serve: Serve, gap: range) -> None:
    """Its counters have grown for five days before the first sample, or the last sample is some hours old."""
    days = replace(GPU, since=START - 5 * DAY)
    made = (one for one in week.samples([days]) if one[2] >= (START - DAY if gap else START) and one[2] not in gap)
    known = 48 - max(0, gap.stop - START) / HOUR if gap else 48
    with serve(made) as report:
        found = report.json()
    assert rows(found)["team-a"]["allocated_gpu_hours"] == pytest.approx(known, rel=CLOSE)
    assert found["total"]["gpu_hours"] == pytest.approx(known, rel=CLOSE)
    assert sum(hours(found).values()) == pytest.approx(80 * known, rel=CLOSE)


def test_what_a_daemon_counts_while_prometheus_is_down_is_not_lost(serve: Serve) -> None:
    """The counters go on, within a day."""
    gap = range(START + 6 * HOUR, START + 9 * HOUR)
    with serve(one for one in week.samples([GPU]) if one[2] not in gap) as report:
        found = report.json()
    assert rows(found)["team-a"]["allocated_gpu_hours"] == pytest.approx(48, rel=CLOSE)
    assert hours(found)["no samples"] == pytest.approx(0, abs=80 * 2 * STEP / HOUR)
    assert found["total"]["gpu_hours"] == pytest.approx(48, rel=CLOSE)


def test_nodes_that_ended_are_named_with_their_cluster(serve: Serve) -> None:
    """Of two nodes of one name, the one that ended; not one whose label changed, which goes on at once."""

    def clusters(labels: dict[str, str], when: int) -> dict[str, str]:
        cluster = {"n1": "a", "moved": "a" if when < START + DAY else "b"}[labels["node"]]
        return {**labels, "cluster": cluster}

    ended, moved = replace(GPU, until=START + DAY), replace(GPU, node="moved", uuid="GPU-2")
    other = labelled(week.samples([GPU]), lambda labels, _: {**labels, "cluster": "b"})
    with serve(chain(labelled(week.samples([ended, moved]), clusters), other)) as report:
        notes = report.json()["notes"]
    assert notes == ["nodes without samples at the end, which count until their last one: a/n1"]
