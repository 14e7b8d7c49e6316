"""A real node: what users run comes up and goes, and the node behaves as nodes do."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from cluster.bed import NODE_NAME, WORKLOAD, Bed
from cluster.client import Api, until
from cluster.manifests import controller, job, pod, pod_spec

pytestmark = pytest.mark.cluster


async def gone_with_its_pods(api: Api, path: str, pods: str) -> None:
    """Delete the object; return when it and all its pods are gone."""
    await api.delete(path, propagationPolicy="Foreground")

    async def gone() -> bool:
        return await api.missing(path) and not (await api.get(pods))["items"]

    await until(gone, f"{path} and its pods to be gone")


@pytest.mark.parametrize(
    ("kind", "plural", "replicas", "ready"),
    [
        ("Deployment", "deployments", 2, "readyReplicas"),
        ("StatefulSet", "statefulsets", 2, "readyReplicas"),
        ("DaemonSet", "daemonsets", None, "numberReady"),
    ],
)
async def test_controllers_run_to_ready_and_are_deleted(  # noqa: PLR0917 - fixtures and parameters
    node_api: Api, namespace: str, kind: str, plural: str, replicas: int | None, ready: str
) -> None:
    """A Deployment, a StatefulSet and a DaemonSet of the workload image become Ready; deleted, no pod stays."""
    more = {"replicas": replicas} if replicas else {}
    if kind == "StatefulSet":
        more["serviceName"] = "work"  # type: ignore[assignment]
    collection = f"/apis/apps/v1/namespaces/{namespace}/{plural}"
    await node_api.create(collection, controller(kind, "work", pod_spec(), **more))

    async def is_ready() -> bool:
        status = (await node_api.get(f"{collection}/work"))["status"]
        return bool(status.get(ready, 0) == (replicas or 1))

    await until(is_ready, f"{kind} to be ready")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    found = (await node_api.get(pods))["items"]
    assert {item["spec"]["nodeName"] for item in found} == {NODE_NAME}
    assert {item["spec"]["containers"][0]["image"] for item in found} == {WORKLOAD}
    await gone_with_its_pods(node_api, f"{collection}/work", pods)


async def test_a_job_completes_and_is_deleted(node_api: Api, namespace: str) -> None:
    """A Job's pod runs once to its end, the Job says Complete; deleted, no pod stays."""
    collection = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    spec = pod_spec(command=["/bin/sh", "-c", "echo done"], restart="Never")
    await node_api.create(collection, job("once", spec))

    async def complete() -> bool:
        conditions = (await node_api.get(f"{collection}/once"))["status"].get("conditions", [])
        return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

    await until(complete, "the Job to complete")
    await gone_with_its_pods(node_api, f"{collection}/once", f"/api/v1/namespaces/{namespace}/pods")


def cgroup_texts(container_id: str) -> list[str]:
    """/proc/<pid>/cgroup of every process that is in a cgroup of this container."""
    texts = []
    for file in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            texts.append(file.read_text())
    return [text for text in texts if container_id in text]


async def test_a_container_is_where_the_kubelet_says(cluster: Bed, node_api: Api, namespace: str) -> None:
    """A container's first process is in the cgroup kubepods/besteffort/pod<uid>/<container id>, for real."""
    await node_api.create(f"/api/v1/namespaces/{namespace}/pods", pod("where", pod_spec()))
    found = await node_api.ready_pod(namespace, "where")
    container = found["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    wanted = f"{cluster.node.cgroup_root}/kubepods/besteffort/pod{found['metadata']['uid']}/{container}"
    texts = cgroup_texts(container)
    assert texts
    assert all(f":{wanted}\n" in text for text in texts)


async def test_logs_exec_and_cp_go_through_the_kubelet(cluster: Bed, node_api: Api, namespace: str) -> None:
    """`kubectl logs` and `kubectl exec` work: the API server reaches the kubelet at the node's address."""
    spec = pod_spec(command=["/bin/sh", "-c", "echo hello from the pod; exec sleep 2147483647"])
    await node_api.create(f"/api/v1/namespaces/{namespace}/pods", pod("talk", spec))
    await node_api.ready_pod(namespace, "talk")
    assert cluster.kubectl("-n", namespace, "logs", "talk") == "hello from the pod\n"
    assert cluster.kubectl("-n", namespace, "exec", "talk", "--", "hostname") == "talk\n"


async def test_a_pod_reaches_the_api_server_at_its_service(cluster: Bed, node_api: Api, namespace: str) -> None:
    """Inside a pod, the address that every in-cluster client takes from its environment answers."""
    await node_api.create(f"/api/v1/namespaces/{namespace}/pods", pod("client", pod_spec()))
    await node_api.ready_pod(namespace, "client")
    inside = ("-n", namespace, "exec", "client", "--", "sh", "-c")
    cluster.kubectl(*inside, "busybox nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null")
    answer = cluster.kubectl(*inside, "ls /var/run/secrets/kubernetes.io/serviceaccount")
    assert answer.split() == ["ca.crt", "namespace", "token"]


async def test_a_changed_config_map_reaches_its_pod(cluster: Bed, node_api: Api, namespace: str) -> None:
    """A mounted ConfigMap follows its object, through the kubelet's own links."""
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    await node_api.create(maps, {"metadata": {"name": "config"}, "data": {"value": "old"}})
    spec = pod_spec()
    spec["volumes"] = [{"name": "config", "configMap": {"name": "config"}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "config", "mountPath": "/config"}]
    await node_api.create(f"/api/v1/namespaces/{namespace}/pods", pod("reader", spec))
    await node_api.ready_pod(namespace, "reader")

    def value() -> str:
        return cluster.kubectl("-n", namespace, "exec", "reader", "--", "cat", "/config/value")

    assert value() == "old"
    await node_api.patch(f"{maps}/config", {"data": {"value": "new"}})

    async def changed() -> bool:
        return value() == "new"

    await until(changed, "the new value in the pod")


async def test_helm_installs_a_chart(cluster: Bed, namespace: str, tmp_path: Path) -> None:
    """The helm that the tests build talks to this cluster as a user's does."""
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: trial\nversion: 0.1.0\n")
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "{{ .Release.Name }}"},
        "data": {"by": "helm"},
    }
    (chart / "templates" / "config.yaml").write_text(json.dumps(config))
    cluster.helm("install", "trial", str(chart), "--namespace", namespace)
    found = json.loads(cluster.kubectl("-n", namespace, "get", "configmap", "trial", "-o", "json"))
    assert found["data"] == {"by": "helm"}
