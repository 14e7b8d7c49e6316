"""
docs/recipes.md on real parts: each query, the adapter's config and the autoscaler are run as they stand on the page.

In: the page; a Deployment over its limit, one that does nothing with its GPU, and one that is scaled. Out: what the
queries answer, for each of two clusters. Law: nothing of the page is changed but the namespace of its examples.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import build
from cluster.bed import GPUS, NODE_NAME
from cluster.client import Object, until
from cluster.fixtures import require
from cluster.manifests import controller, pod_spec
from cluster.monitored import CLUSTERS, adapted, monitored
from cluster.stage import SHARED, Stage, spec
from documented import ROOT
from driver.node import GiB
from patience import PATIENCE
from prometheus.scraping import Prometheus

pytestmark = [pytest.mark.cluster, pytest.mark.prometheus]

PAGE = (ROOT / "docs/recipes.md").read_text()
LIMIT = "nvidia.com/container.main.gpu-memory.limit"
SLICED = GPUS[1].uuid
"""In four replicas: one of `train`, one of `notebook`, two of `llm`."""
POD_OWNER = {
    "record": "namespace_workload_pod:kube_pod_owner:relabel",
    "labels": {"workload_type": "deployment"},
    "expr": "max by (cluster, namespace, workload, pod)"
    ' (label_replace(kube_pod_owner{owner_kind="ReplicaSet"}, "workload", "$1", "owner_name", "(.+)-[^-]+"))',
}
"""What kubernetes-mixin records for Deployments: name and labels of its rules/apps.libsonnet (aa38e2b)."""

Answer = dict[tuple[str, ...], float]


@pytest.fixture(autouse=True)
def programs() -> None:
    """This machine has the other exporters, or can build them."""
    there = all(build.assets(one) for one in ("kube-state-metrics", "adapter"))
    require([problem] if not there and (problem := build.go_problem()) else [])


def blocks(heading: str, kind: str) -> list[str]:
    """The code blocks of a kind below a heading of the page."""
    section = re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL)


def answer(prometheus: Prometheus, query: str, *labels: str) -> Answer:
    """What Prometheus answers now: of each series these labels, without `cluster`, which is in front."""
    result = prometheus.get("/api/v1/query", query=query)["result"]
    return {
        tuple(one["metric"].get(label, "") for label in ("cluster", *labels)): float(one["value"][1]) for one in result
    }


def answers(prometheus: Prometheus, query: str, labels: tuple[str, ...], wanted: Answer) -> None:
    """Wait until both clusters have this answer, and no series besides."""
    both = {(cluster, *key): value for cluster in CLUSTERS for key, value in wanted.items()}
    deadline = time.monotonic() + PATIENCE
    while (said := answer(prometheus, query, *labels)) != both:
        assert time.monotonic() < deadline, f"{query}\n{said}\ninstead of\n{both}"
        time.sleep(0.2)


def deployment(name: str, made: Object, labels: dict[str, str], annotations: dict[str, str]) -> Object:
    """A Deployment whose pods have more labels, and annotations."""
    whole = controller("Deployment", name, made)
    meta = whole["spec"]["template"]["metadata"]
    meta["labels"] |= labels
    meta["annotations"] = annotations
    return whole


@asynccontextmanager
async def placed(stage: Stage, namespace: str, *deployments: Object) -> AsyncIterator[None]:
    """Have Deployments in a namespace, and no pod of theirs after it."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    for one in deployments:
        await stage.api.create(path, one)
    try:
        yield
    finally:
        for one in deployments:
            await stage.api.delete(f"{path}/{one['metadata']['name']}")


@contextmanager
def scraped(stage: Stage, folder: Path) -> Iterator[Prometheus]:
    """Have the daemon and the other exporters scraped, configured as the page says."""
    (text,) = blocks("Prepare the other exporters", "yaml")
    values = yaml.safe_load(text)
    (written,) = values["prometheus-node-exporter"]["prometheus"]["monitor"]["relabelings"]
    labels = values["kube-state-metrics"]["metricLabelsAllowlist"]
    assert f"`--metric-labels-allowlist={','.join(labels)}`" in PAGE
    with (
        stage.daemon() as daemon,
        monitored(
            stage.bed,
            folder,
            daemon.url.removeprefix("http://"),
            labels=labels,
            node_label=written["targetLabel"],
            rules=[POD_OWNER],
        ) as prometheus,
    ):
        yield prometheus


async def test_the_joins_answer_for_each_cluster(stage: Stage, namespace: str, tmp_path: Path) -> None:
    """Each query of the page has the answer that its sentence says, once for each cluster."""
    train = deployment(
        "train", spec("alloc visible 3GiB compute sm=30", resource=SHARED), {"team": "research"}, {LIMIT: "2Gi"}
    )
    notebook = deployment("notebook", pod_spec(command=["sleep", "86400"], resources={SHARED: 1}), {}, {})
    async with placed(stage, namespace, train, notebook):
        with scraped(stage, tmp_path) as prometheus:
            used, declared, requested = blocks("GPU memory by team", "promql")
            answers(prometheus, used, ("label_team",), {("research",): 3 * GiB})
            answers(prometheus, declared, ("label_team",), {("research",): 2 * GiB})
            answers(prometheus, requested, ("label_team",), {("research",): 1})

            (by_workload,) = blocks("GPU memory by workload", "promql")
            labels: tuple[str, ...] = ("namespace", "workload_kind", "workload")
            ours = {(namespace, "Deployment", "train"): 3 * GiB, (namespace, "Deployment", "notebook"): 0}
            answers(prometheus, by_workload, labels, {key: float(value) for key, value in ours.items()})

            (over,) = blocks("The owner of a container over its limit", "promql")
            (excess,) = set(answer(prometheus, over.partition("*")[0]).values())
            assert 0 < excess < GiB
            labels = ("namespace", "container", "uuid", "workload", "workload_type")
            answers(prometheus, over, labels, {(namespace, "main", SLICED, "train", "deployment"): excess})

            _of_the_node(prometheus)

            (idle,) = blocks("Idle GPUs, and their holders", "promql")
            labels = ("node", "uuid", "namespace", "container", "workload_kind", "workload", "label_team")
            answers(prometheus, idle, labels, {(NODE_NAME, SLICED, namespace, "main", "Deployment", "notebook", ""): 1})


def _of_the_node(prometheus: Prometheus) -> None:
    shares, waiting = blocks("CPU and memory of a GPU node", "promql")
    parts = ("GPU memory", "CPU", "memory")
    wanted = {(cluster, NODE_NAME, part) for cluster in CLUSTERS for part in parts}
    deadline = time.monotonic() + PATIENCE
    while (said := answer(prometheus, shares, "node", "of")).keys() != wanted:
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    (total,) = set(answer(prometheus, "sum by (cluster) (gpusteward_device_memory_total_bytes)").values())
    assert all(0 <= value <= 1 for value in said.values())
    assert round(said["east", NODE_NAME, "GPU memory"] * total) == 3 * GiB
    assert answer(prometheus, waiting.replace("> 0.9", ">= 0"), "node").keys() == {(c, NODE_NAME) for c in CLUSTERS}


async def test_the_autoscaler_follows_the_containers_memory(stage: Stage, namespace: str, tmp_path: Path) -> None:
    """
    The custom metrics API has the pod's figure, and the autoscaler starts a second pod for it.

    The first holds 3 GiB, and 2 GiB on average are wanted.
    """
    config, manifest = blocks("Scale on GPU memory", "yaml")
    (command,) = blocks("Scale on GPU memory", "sh")
    assert "namespaces/team-a/" in command and "namespace: team-a" in manifest
    llm = deployment("llm", spec("alloc visible 3GiB", resource=SHARED), {}, {})
    scaled: dict[str, Any] = {}

    async def second() -> bool:
        scaled.update(await stage.api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/llm"))
        return bool(scaled["status"].get("readyReplicas") == 2)

    async with placed(stage, namespace, llm):
        with scraped(stage, tmp_path) as prometheus:
            held = f'sum by (cluster) (gpusteward_container_memory_used_bytes{{namespace="{namespace}"}})'
            answers(prometheus, held, (), {(): 3 * GiB})
            with adapted(stage.bed, tmp_path, prometheus, config):

                async def told() -> bool:
                    words = shlex.split(command.replace("team-a", namespace))[1:]
                    items = json.loads(stage.bed.kubectl(*words))["items"]
                    return [one["value"] for one in items] == [str(3 * GiB)] or [one["value"] for one in items] == [
                        "3Gi"
                    ]

                await until(told, "the pod's figure in the custom metrics API")
                stage.bed.kubectl("apply", "-f", "-", stdin=manifest.replace("team-a", namespace))
                try:
                    await until(second, "the second pod")
                except TimeoutError as error:
                    error.add_note(stage.bed.kubectl("-n", namespace, "describe", "hpa,pods"))
                    raise
                finally:
                    stage.bed.kubectl("-n", namespace, "delete", "hpa", "llm")
