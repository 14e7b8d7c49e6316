"""
The queries of docs/recipes.md and docs/accounting.md as they are written: they ask for what is there, and keep clusters
apart.

In: the page; series of a cluster whose pods are HAMi's, move, wait, reserve. Out: what promtool answers. Law: with the
exported labels, changed as the page says, each query has the same answer.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from alerts import written
from alerts.alertmanager import relabelled
from alerts.written import ROOT
from prometheus.scraping import program

BLOCKS = re.findall(r"```promql\n(.*?)```", (ROOT / "docs/recipes.md").read_text(), re.DOTALL)
(WRAPPED,) = (one for one in BLOCKS if "SERIES" in one)
QUERIES = [one for one in BLOCKS if one is not WRAPPED]
ACCOUNTING = re.findall(r"```promql\n(.*?)```", (ROOT / "docs/accounting.md").read_text(), re.DOTALL)
USED, DECLARED, REQUESTED, BY_WORKLOAD, OVER, SHARES, WAITING, IDLE = QUERIES
GROUPING = re.compile(r"\b(?:on|by)\s*\(([\w\s,]*)\)")
OURS = re.compile(r"\b\w+_over_time\(gpusteward_[^)]*\)|\bgpusteward_\w+(?:\{[^}]*\})?")


@pytest.mark.parametrize("query", [*QUERIES, *ACCOUNTING])
def test_cluster_is_part_of_each_join_and_sum(query: str) -> None:
    """`on` and `by` name `cluster`, so that two clusters with the same names are never joined."""
    found = GROUPING.findall(query)
    assert found
    assert all("cluster" in re.split(r"[\s,]+", labels) for labels in found)


@pytest.mark.parametrize("query", [*QUERIES, *ACCOUNTING])
def test_each_series_of_ours_is_exported(query: str) -> None:
    """A name that begins with gpusteward is on the golden page; tests/cluster/test_recipes.py asks for the others."""
    names = set(re.findall(r"\bgpusteward_\w+", query))
    assert names <= written.metrics().keys()


def test_there_are_queries() -> None:
    """All but one ask for series of ours, and none for names by a pattern, which Google's PromQL does not take."""
    assert sum("gpusteward_" in query for query in QUERIES) == len(QUERIES) - 1
    assert not any("__name__" in query for query in QUERIES)
    assert ACCOUNTING and all("gpusteward_" in query for query in ACCOUNTING)


def on(node: str, pod: str, **more: str) -> dict[str, str]:
    """The labels of a pod's container on a device, or of the pod; the daemon's target is its node."""
    target = {"job": "gpusteward/gpusteward", "instance": node}
    return {**target, "node": node, "namespace": "team-a", "pod": pod, **more}


def device(uuid: str) -> dict[str, str]:
    return {"container": "main", "gpu": "0", "uuid": uuid}


def ours() -> Iterator[tuple[str, dict[str, str], float]]:
    """
    Series of the daemons.

    hami-0 is over its limit. db-0 moved to gpu-2, and the daemon of gpu-1 still lists it, without its owner. kai-0
    reserves a GPU for others. notebook-0 does nothing.
    """
    for node, pod, uuid, used in (
        ("gpu-1", "hami-0", "GPU-0", 3),
        ("gpu-2", "db-0", "GPU-2", 5),
        ("gpu-1", "web-0", "GPU-0", 1),
        ("gpu-1", "kai-0", "GPU-1", 0),
        ("gpu-1", "notebook-0", "GPU-1", 0),
    ):
        yield "gpusteward_container_memory_used_bytes", on(node, pod, **device(uuid)), used
        yield "gpusteward_container_allocated_replicas", on(node, pod, **device(uuid), resource="nvidia.com/gpu"), 1
        yield "gpusteward_container_processes", on(node, pod, **device(uuid)), float(used > 0)
    yield "gpusteward_container_memory_limit_bytes", on("gpu-1", "hami-0", **device("GPU-0")), 2
    yield "gpusteward_container_memory_ceiling_bytes", on("gpu-1", "hami-0", **device("GPU-0")), 2
    yield "gpusteward_pod_memory_limit_bytes", on("gpu-2", "db-0", gpu="0", uuid="GPU-2"), 7
    for node, pod, more in (
        ("gpu-1", "hami-0", {"workload_kind": "Deployment", "workload": "hami"}),
        ("gpu-1", "db-0", {}),
        ("gpu-2", "db-0", {"workload_kind": "StatefulSet", "workload": "db"}),
        ("gpu-1", "web-0", {"workload_kind": "StatefulSet", "workload": "web"}),
        ("gpu-1", "kai-0", {"reservation": "kai"}),
        ("gpu-1", "notebook-0", {"workload_kind": "Deployment", "workload": "notebook"}),
    ):
        yield "gpusteward_pod_info", on(node, pod, **more), 1


def theirs() -> Iterator[tuple[str, dict[str, str], float]]:
    """Series of kube-state-metrics and kubernetes-mixin."""
    pods = ("hami-0", "db-0", "web-0", "kai-0", "notebook-0", "ended-0")
    for pod in pods:
        about = {"namespace": "team-a", "pod": pod}
        yield "kube_pod_labels", {**about, "label_team": "ml"}, 1
        yield "kube_pod_status_phase", {**about, "phase": "Succeeded" if pod == "ended-0" else "Running"}, 1
        kind = {"workload": pod.partition("-")[0], "workload_type": "deployment"}
        yield "namespace_workload_pod:kube_pod_owner:relabel", {**about, **kind}, 1
    for pod, resource, value in (
        ("hami-0", "nvidia_com_gpu", 1),
        ("hami-0", "nvidia_com_gpumem", 16384),
        ("hami-0", "nvidia_com_gpucores", 50),
        ("web-0", "nvidia_com_gpu_shared", 2),
        ("db-0", "nvidia_com_mig_1g_10gb", 1),
        ("ended-0", "nvidia_com_gpu", 8),
    ):
        of = {"namespace": "team-a", "pod": pod, "container": "main", "resource": resource}
        yield "kube_pod_container_resource_requests", of, value


Answers = dict[tuple[str, ...], float]

ANSWERS: dict[str, tuple[str, tuple[str, ...], Answers]] = {
    "used": (USED, ("label_team",), {("ml",): 9}),
    "declared": (DECLARED, ("label_team",), {("ml",): 9}),
    "requested": (REQUESTED, ("label_team",), {("ml",): 4}),
    "by workload": (
        BY_WORKLOAD,
        ("namespace", "workload_kind", "workload"),
        {
            ("team-a", "Deployment", "hami"): 3,
            ("team-a", "StatefulSet", "db"): 5,
            ("team-a", "StatefulSet", "web"): 1,
            ("team-a", "Deployment", "notebook"): 0,
            ("team-a", "", ""): 0,
        },
    ),
    "over": (OVER, ("namespace", "pod", "container", "workload"), {("team-a", "hami-0", "main", "hami"): 1}),
    "idle": (
        IDLE,
        ("node", "namespace", "pod", "container", "workload", "label_team"),
        {("gpu-1", "team-a", "notebook-0", "main", "notebook", "ml"): 1},
    ),
}
"""What each query answers; those about whole nodes are in tests/cluster/test_recipes.py."""


def series(name: str, labels: Mapping[str, str], value: float) -> dict[str, str]:
    told = ", ".join(f"{label}={json.dumps(text)}" for label, text in labels.items() if text)
    return {"series": f"{name}{{{told}}}", "values": f"{value}x90"}


@pytest.mark.prometheus
@pytest.mark.parametrize("names", ["plain", "exported"])
@pytest.mark.parametrize("what", ANSWERS)
def test_each_query_answers_what_its_sentence_says(what: str, names: str, tmp_path: Path) -> None:
    """One pod of HAMi has one GPU; a pod that moves or is made anew fails no query; a reservation is not idle."""
    query, labels, wanted = ANSWERS[what]
    fed = [series(name, relabelled(own) if names == "exported" else own, value) for name, own, value in ours()]
    fed += [series(name, own, value) for name, own, value in theirs()]
    if names == "exported":
        query = OURS.sub(lambda found: WRAPPED.replace("SERIES", found[0]), query)
    samples = [
        {"labels": series("", dict(zip(labels, key, strict=True)), 0)["series"], "value": value}
        for key, value in wanted.items()
    ]
    asked = {"expr": f"sum by ({', '.join(labels)}) ({query})", "eval_time": "80m", "exp_samples": samples}
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": fed, "promql_expr_test": [asked]}]}))
    done = subprocess.run([program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
