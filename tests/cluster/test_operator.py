"""
The chart's monitors and rules before the real Prometheus operator, and before the Prometheus that it makes.

In: the chart as helm installs it, and a pod over its limit. Out: what that Prometheus says. Law: operator, StatefulSet,
reload, discovery by the API server, scrape and rules are real; a scrape goes from pod to pod.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts import written
from cluster.bed import NODE_NAME, Bed
from cluster.client import Object, until
from cluster.installed import ACCOUNT, RELEASE, Release, released, values
from cluster.operator_stack import SELECTED, operating
from cluster.stage import Stage, ready_pods
from cluster.test_decide import bare, create
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
ALERT = "GPUMemoryOverLimit"
PATIENT = 120.0


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart."""
    async with released(cluster, stage.api, tmp_path) as made:
        yield made


@pytest.fixture
async def prometheus(cluster: Bed, stage: Stage) -> AsyncIterator[Prometheus]:
    """The Prometheus of an operator that selects as kube-prometheus-stack does."""
    async with operating(cluster, stage.api, scrapeClasses=[CLASS]) as made:
        yield made


def given(bed: Bed, image: str, **monitors: object) -> Object:
    """Values of the chart with our rules, one of which fires at once."""
    rules = {"enabled": True, "alerts": {ALERT: {"for": "0s"}}}
    return values(bed, image, {}, monitoring={"labels": SELECTED["matchLabels"]}, prometheusRule=rules, **monitors)


async def says(condition: Callable[[], Any], what: str, prometheus: Prometheus) -> Any:
    """Wait until Prometheus says so; if it does not, show its targets."""

    async def there() -> Any:
        try:
            return condition()
        except OSError:  # it is starting, or busy
            return None

    try:
        return await until(there, what, PATIENT)
    except TimeoutError as error:
        error.add_note(str(prometheus.get("/api/v1/targets")["activeTargets"]))
        raise


def target(prometheus: Prometheus, pool: str, health: str) -> dict[str, Any] | None:
    """The one target, once it belongs to this monitor and has this health."""
    found = prometheus.get("/api/v1/targets")["activeTargets"]
    if [(one["scrapePool"], one["health"]) for one in found] != [(pool, health)]:
        return None
    return dict(found[0])


def rules(prometheus: Prometheus) -> Iterator[dict[str, Any]]:
    """Each rule that it has loaded."""
    for group in prometheus.get("/api/v1/rules")["groups"]:
        yield from group["rules"]


def firing(prometheus: Prometheus) -> list[dict[str, str]]:
    """The labels of the alerts of pods over their limit."""
    found = prometheus.get("/api/v1/alerts")["alerts"]
    return [one["labels"] for one in found if (one["labels"]["alertname"], one["state"]) == (ALERT, "firing")]


async def test_the_operators_prometheus_scrapes_the_daemon_and_fires_our_alert(
    prometheus: Prometheus, release: Release, stage: Stage, namespace: str, image: str
) -> None:
    """
    The PodMonitor becomes a target that is up, with the labels that its options ask for; the rules are healthy.

    A pod over its limit makes an alert fire. A sample limit that is too low refuses the scrape. The ServiceMonitor is
    a target that is up, too.
    """
    await create(stage, namespace, bare("greedy", "2GiB", "1Gi"))
    await ready_pods(stage, namespace, 1)
    release.helm("install", values=given(stage.bed, image, podMonitor=MONITOR))
    pool = f"podMonitor/{release.namespace}/{ACCOUNT}/0"
    found = await says(lambda: target(prometheus, pool, "up"), "the PodMonitor's target to be up", prometheus)
    labels = {"job": "gpusteward", "instance": NODE_NAME, "app_kubernetes_io_instance": RELEASE}
    assert (labels | {"scrape_class": "of-pods"}).items() <= found["labels"].items()

    def healthy() -> set[str] | None:
        there = list(rules(prometheus))
        return {one["name"] for one in there} if there and all(one["health"] == "ok" for one in there) else None

    assert await says(healthy, "all rules to be healthy", prometheus) == {one.name for one in written.rules()}
    (alert,) = await says(lambda: firing(prometheus), f"{ALERT} to fire", prometheus)
    workload = {"namespace": namespace, "pod": "greedy", "container": "main", "node": NODE_NAME}
    assert workload.items() <= alert.items()

    release.helm("upgrade", values=given(stage.bed, image, podMonitor={**MONITOR, "sampleLimit": 10}))
    found = await says(lambda: target(prometheus, pool, "down"), "the scrape to be refused", prometheus)
    assert "sample limit exceeded" in found["lastError"]

    release.helm("upgrade", values=given(stage.bed, image, serviceMonitor=MONITOR))
    pool = f"serviceMonitor/{release.namespace}/{ACCOUNT}/0"
    found = await says(lambda: target(prometheus, pool, "up"), "the ServiceMonitor's target to be up", prometheus)
    assert (labels | {"scrape_class": "of-pods"}).items() <= found["labels"].items()
