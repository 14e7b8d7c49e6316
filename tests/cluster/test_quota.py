"""
Where pods of a system class want a quota for them alone, as on GKE: the chart's own lets the daemon's pods in.

In: an API server that limits such pods, the chart's values for GKE. Out: what it says to a pod of the DaemonSet.
"""

from __future__ import annotations

import pytest

from cluster import requirements
from cluster.bed import Bed
from cluster.client import ApiError, until
from cluster.fixtures import fresh_namespace, require
from cluster.installed import ACCOUNT, RELEASE
from deploy.chart import packed, variant

pytestmark = pytest.mark.cluster


async def test_the_charts_quota_lets_its_pods_in() -> None:
    """Without it each is refused, for want of a quota; with it admitted, and counted."""
    require(requirements.missing(node=False))
    with Bed(node=False, limited=["system-node-critical", "system-cluster-critical"]) as bed:
        async with bed.api() as api, fresh_namespace(api) as namespace:

            async def admitted() -> bool:
                path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{ACCOUNT}"
                template = (await api.get(path))["spec"]["template"]
                body = {**template, "metadata": {**template["metadata"], "name": "on-a-node"}}
                try:
                    await api.create(f"/api/v1/namespaces/{namespace}/pods", body)
                except ApiError as error:
                    if "insufficient quota to match these scopes" in str(error):  # with status 500
                        return False
                    raise
                return True

            def helm(verb: str, *words: str) -> None:
                values = f"--values={variant('gke')}"
                bed.helm(verb, RELEASE, str(packed()), f"--namespace={namespace}", values, *words)

            helm("install", "--set=priorityClass.resourceQuota.create=false")
            assert not await admitted()
            helm("upgrade")
            await until(admitted, "the quota to be known")

            async def counted() -> bool:
                quota = await api.get(f"/api/v1/namespaces/{namespace}/resourcequotas/{ACCOUNT}")
                return bool(quota["status"].get("used", {}).get("pods") == "1")

            await until(counted, "the pod to be counted")
