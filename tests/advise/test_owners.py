"""`gpusteward advise` where names are used again: of pods, of nodes, of workloads in several clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from advise.histories import DAYS, Box, samples
from advise.test_installations import asking, found
from exporter.advise import notes
from exporter.history.owners import Workload
from report.week import DAY, GIB, HOUR, START, STEP, Labels, blocks

Sample = tuple[str, Labels, int, float]
CUT = START + 2 * DAY + 5 * HOUR
"""When the pod of `LLAMA` ends, and the pod of `OTHER` takes its name over."""
LLAMA = Box("llama", pod="worker-0", kind="PyTorchJob", held=lambda _: 30 * GIB, limit=40 * GIB, place="gpu")
OTHER = replace(LLAMA, workload="other", kind="MPIJob", held=lambda _: 8 * GIB)


def scraped(made: Iterable[Sample], *more: tuple[str, str]) -> Iterator[Sample]:
    """These samples and those of each scrape of the node, with more labels."""
    up = (
        ("gpusteward_snapshot_timestamp_seconds", (("node", "n"),), at, float(at))
        for at in range(START, START + DAYS * DAY + 1, STEP)
    )
    for name, labels, at, value in chain(made, up):
        yield name, (*labels, *more), at, value


def between(box: Box, start: int, end: int) -> Iterator[Sample]:
    """The samples of a box in this time."""
    return (one for one in samples([box]) if start <= one[2] < end)


@pytest.mark.prometheus
def test_each_owner_of_a_pod_name_has_its_own_readings(tmp_path: Path) -> None:
    """The next workload with this pod name gets neither the peak nor the days of the one before."""
    halves = Box("halves", held=lambda at: (60 if (at - START) % DAY > DAY // 2 else 5) * GIB)
    pods = (between(LLAMA, START, CUT), between(OTHER, CUT, START + DAYS * DAY + 1), samples([halves]))
    with asking(tmp_path, blocks(tmp_path, scraped(chain.from_iterable(pods)))) as ask:
        answers = {one["workload"]: one for one in found(ask("team-a", "--json"))}
        alone = found(ask("team-a/halves", "--json", "--since", "1d"))
    assert answers["halves"]["p95_bytes"] == alone[0]["p95_bytes"]
    llama, other = answers["llama"], answers["other"]
    assert (llama["peak_bytes"], llama["days"], llama["advised_bytes"]) == (30 * GIB, 3, 33 * GIB)
    assert (other["peak_bytes"], other["days"], other["advice"]) == (8 * GIB, 2, "unknown")


@pytest.mark.prometheus
@pytest.mark.parametrize("label", ["k8s_cluster", "prometheus"])
def test_two_clusters_that_cannot_be_told_apart_are_refused(tmp_path: Path, label: str) -> None:
    """As `gpusteward report` refuses them; the fix names the label that is missing."""
    seen = ((("gpusteward_device_observed_seconds_total", (("node", "n"), ("uuid", "GPU-0"), ("gpu_instance", "")))),)
    device = [(*one, at, 0.0) for one in seen for at in range(START, START + DAYS * DAY, STEP)]
    east = scraped(chain(samples([LLAMA]), device), (label, "east"))
    west = (
        (name, tuple((key, "GPU-9" if key == "uuid" else text) for key, text in labels), at, value)
        for name, labels, at, value in scraped(chain(samples([OTHER]), device), (label, "west"))
    )
    with asking(tmp_path, blocks(tmp_path, chain(east, west))) as ask:
        done = ask("team-a")
    told = " ".join(done.stderr.split())
    assert done.returncode == 1 and done.stdout == ""
    assert "node n: " in told and label in told and "fix: " in told
    assert "give each cluster a label `cluster` (external_labels of its Prometheus, or relabelling)" in told


@pytest.mark.prometheus
def test_a_name_may_begin_with_its_cluster(tmp_path: Path) -> None:
    """As a report prints it where there are several. A namespace that is called as a cluster comes first."""
    boxes = [replace(LLAMA, cluster=cluster, pod=cluster, place=cluster) for cluster in ("west", "east")]
    with asking(tmp_path, blocks(tmp_path, samples(boxes))) as ask:
        for name in ("west/team-a", "west/team-a/llama", "west/team-a/PyTorchJob/llama/main", "west/team-a/llama/main"):
            assert [one["cluster"] for one in found(ask(name, "--json"))] == ["west"]
        assert len(found(ask("team-a/llama/main", "--json"))) == 2
        done = ask("north/team-a/llama")
        assert done.returncode == 1 and "has no containers on GPUs of north/team-a/llama in this time" in done.stderr


def test_an_action_on_a_pod_is_none_on_the_next_pod_of_its_name() -> None:
    """The series of the action stays after its time."""
    seen, labels = notes.Notes(), {"node": "n", "namespace": "team-a", "pod": "worker-0", "action": "evict"}
    for owner, since in (("llama", 0.0), ("other", 1_000.0)):
        seen.workloads, seen.since = {notes.pod_name(labels): Workload("Job", owner)}, since
        seen.enter(notes.acted, labels, 500.0, 0)
    assert {pod.workload for pod, _ in seen.actions} == {"llama"}


def test_a_reading_of_a_pod_whose_workload_changes_just_then_is_of_none_of_them() -> None:
    """Neither gets the peak of the other."""
    seen, labels = notes.Notes(), {"node": "n", "namespace": "team-a", "pod": "worker-0", "container": "main"}
    other = {**labels, "pod": "worker-1"}
    seen.only, seen.doubtful = {notes.pod_name(labels), notes.pod_name(other)}, {notes.pod_name(labels)}
    for one, held in ((labels, 30.0), (other, 8.0), ({**labels, "pod": "worker-2"}, 5.0)):
        seen.enter(notes.peak, one, held * GIB, 0)
    assert [box.pod.name for box in seen.series] == ["worker-1"]
