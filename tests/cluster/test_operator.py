"""
The chart's monitors and rules before the real Prometheus operator, and what a real Prometheus does with the result.

In: the chart as helm installs it, and a pod over its limit. Out: target, rules and alerts of a Prometheus that runs the
operator's config and rule files. Law: of the config three things are changed: the folder of the rule files, what finds
the pods (`discovered`), and the two variables that the operator's reloader fills in.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import written
from cluster.bed import NODE_NAME, Bed
from cluster.client import Object, until
from cluster.installed import ACCOUNT, RELEASE, Release, released, values
from cluster.operator_stack import SELECTED, Made, discovered, operating
from cluster.stage import Stage, ready_pods
from cluster.test_decide import bare, create
from prometheus import scraping
from prometheus.scraping import Prometheus

pytestmark = pytest.mark.cluster

MONITOR = {
    "enabled": True,
    "interval": "1s",
    "scrapeTimeout": "1s",
    "jobLabel": "app.kubernetes.io/name",
    "podTargetLabels": ["app.kubernetes.io/instance"],
    "sampleLimit": 20_000,
    "scrapeClass": "of-pods",
}
CLASS = {"name": "of-pods", "relabelings": [{"targetLabel": "scrape_class", "replacement": "of-pods"}]}
LABELS = {"job": "gpusteward", "instance": NODE_NAME, "app_kubernetes_io_instance": RELEASE, "scrape_class": "of-pods"}
ALERT = "GPUMemoryOverLimit"


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart."""
    async with released(cluster, stage.api, tmp_path) as made:
        yield made


@pytest.fixture
async def operator(cluster: Bed, stage: Stage) -> AsyncIterator[Made]:
    """An operator whose Prometheus selects as that of kube-prometheus-stack does."""
    async with operating(cluster, stage.api, scrapeClasses=[CLASS]) as made:
        yield made


def given(bed: Bed, image: str, **monitors: object) -> Object:
    """Values of the chart with our rules, one of which fires at once."""
    rules = {"enabled": True, "alerts": {ALERT: {"for": "0s"}}}
    return values(bed, image, {}, monitoring={"labels": SELECTED["matchLabels"]}, prometheusRule=rules, **monitors)


@contextmanager
def running(folder: Path, config: Object, rules: dict[str, str], pods: list[Object]) -> Iterator[Prometheus]:
    """Run the operator's config with its rule files; a group that is evaluated each five minutes, each second."""
    folder.mkdir()
    for name, text in rules.items():
        (folder / name).write_text(re.sub(r"\binterval: \S+", "interval: 1s", text))
    (folder / "targets.json").write_text(json.dumps(list(discovered(pods))))
    (job,) = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs")[0]["role"] == "pod"
    job["file_sd_configs"] = [{"files": [str(folder / "targets.json")]}]
    config["rule_files"] = [f"{folder}/{Path(one).name}" for one in config["rule_files"]]
    with scraping.running(yaml.safe_dump(config), folder, folder / "data") as prometheus:
        yield prometheus


async def says(condition: Callable[[], Any], what: str, prometheus: Prometheus) -> Any:
    """Wait until Prometheus says so; if it does not, show its targets, and the rules that are not healthy."""

    async def there() -> Any:
        return condition()

    try:
        return await until(there, what)
    except TimeoutError as error:
        ill = [
            one
            for group in prometheus.get("/api/v1/rules")["groups"]
            for one in group["rules"]
            if one["health"] != "ok"
        ]
        error.add_note(f"{prometheus.get('/api/v1/targets')}\n{ill}")
        raise


def target(prometheus: Prometheus, health: str) -> dict[str, Any] | None:
    """The one target, once it has this health."""
    found = prometheus.get("/api/v1/targets")["activeTargets"]
    return dict(found[0]) if [one["health"] for one in found] == [health] else None


def healthy(prometheus: Prometheus) -> set[str] | None:
    """The names of all rules, once each was evaluated without an error."""
    found = [one for group in prometheus.get("/api/v1/rules")["groups"] for one in group["rules"]]
    return {one["name"] for one in found} if found and all(one["health"] == "ok" for one in found) else None


def firing(prometheus: Prometheus) -> list[dict[str, str]]:
    """The labels of the alerts of pods over their limit."""
    found = prometheus.get("/api/v1/alerts")["alerts"]
    return [one["labels"] for one in found if (one["labels"]["alertname"], one["state"]) == (ALERT, "firing")]


async def test_the_operator_takes_monitors_and_rules(
    operator: Made, release: Release, stage: Stage, namespace: str, image: str
) -> None:
    """
    The PodMonitor becomes a target that is up, with the labels that its options ask for; all rules are healthy.

    A pod over its limit makes an alert fire. A sample limit that is too low refuses the scrape. The ServiceMonitor has
    the same options.
    """
    await create(stage, namespace, bare("greedy", "2GiB", "1Gi"))
    await ready_pods(stage, namespace, 1)
    release.helm("install", values=given(stage.bed, image, podMonitor=MONITOR))
    pods, job = [await release.pod()], f"podMonitor/{release.namespace}/{ACCOUNT}/0"
    config, rules = await operator.config(job), await operator.rules()
    with running(stage.folder / "first", config, rules, pods) as prometheus:
        found = await says(lambda: target(prometheus, "up"), "the target to be up", prometheus)
        assert found["scrapePool"] == job and LABELS.items() <= found["labels"].items()
        names = await says(lambda: healthy(prometheus), "all rules to be healthy", prometheus)
        assert names == {one.name for one in written.rules()}
        (alert,) = await says(lambda: firing(prometheus), f"{ALERT} to fire", prometheus)
        workload = {"namespace": namespace, "pod": "greedy", "container": "main", "node": NODE_NAME}
        assert workload.items() <= alert.items()

    release.helm("upgrade", values=given(stage.bed, image, podMonitor={**MONITOR, "sampleLimit": 10}))
    config = await operator.config(job, sample_limit=10)
    with running(stage.folder / "second", config, rules, pods) as prometheus:
        found = await says(lambda: target(prometheus, "down"), "the scrape to be refused", prometheus)
        assert "sample limit exceeded" in found["lastError"]

    release.helm("upgrade", values=given(stage.bed, image, serviceMonitor=MONITOR))
    config = await operator.config(f"serviceMonitor/{release.namespace}/{ACCOUNT}/0", sample_limit=20_000)
    relabelled = {one.get("target_label") for one in config["scrape_configs"][0]["relabel_configs"]}
    assert LABELS.keys() <= relabelled
