"""The daemon while the API server or the kubelet is away, its token is exchanged, and its rights are counted."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
import yaml

from cluster.bed import GPUS, NODE_NAME
from cluster.client import until
from cluster.manifests import controller, job
from cluster.stage import (
    ACCOUNT,
    GPU,
    MIG,
    PATHS,
    RBAC,
    SHARED,
    Stage,
    held,
    ready_pods,
    seen,
    spec,
    truth,
)
from cluster.test_decide import bare
from driver.node import GiB, MiB

pytestmark = pytest.mark.cluster


async def test_the_api_server_away(stage: Stage, namespace: str) -> None:
    """Names stay, marked as not live, rounds stay complete, memory is followed; all resumes by itself."""
    await stage.run(namespace, "train", "alloc visible 1GiB")
    uid = (await stage.api.get(f"/api/v1/namespaces/{namespace}/pods/train"))["metadata"]["uid"]
    workload = stage.bed.driver.workload(uid)
    expected = await truth(stage, namespace)
    with stage.daemon() as daemon:
        seen(daemon, lambda: expected, "the pod by name")
        stage.bed.control_plane.kill_api_server()
        try:
            away = daemon.until(lambda s: s if not s["names_live"] else None, "names that are not live")
            assert "api_away" in json.dumps(away["faults"])
            workload.alloc("visible", 512 * MiB)
            key = (namespace, "train", GPUS[0].uuid)
            grown = daemon.until(lambda s: s if held(s) == {key: GiB + 512 * MiB} else None, "growth in the dark")
            assert grown["complete"], grown["faults"]
        finally:
            stage.bed.control_plane.start_api_server()
        daemon.until(lambda s: s["names_live"] and s["complete"], "live names again")
        assert daemon.process.poll() is None


async def test_a_daemon_that_restarts_while_the_api_server_is_away(stage: Stage, namespace: str) -> None:
    """The kubelet's log links still give namespace, pod, container and UID: nothing goes nameless."""
    await stage.run(namespace, "train", "alloc visible 1GiB")
    expected = await truth(stage, namespace)
    stage.bed.control_plane.kill_api_server()
    try:
        with stage.daemon() as daemon:
            snapshot = daemon.until(lambda s: s if held(s) == expected else None, "names from the log links")
            assert snapshot["names_live"] is False
    finally:
        stage.bed.control_plane.start_api_server()


@pytest.mark.fault(36)
async def test_the_kubelet_away(stage: Stage, namespace: str) -> None:
    """The last allocations stay, with a fault; a restart of the kubelet takes none away and leaves no fault behind."""
    await stage.run(namespace, "idle", resource=SHARED)
    with stage.daemon() as daemon:

        def allocated(snapshot: dict[str, Any]) -> list[str]:
            return [a["pod"] for a in snapshot["allocations"] if a["namespace"] == namespace]

        snapshot = daemon.until(lambda s: s if allocated(s) == ["idle"] else None, "the allocation")
        idle = [c for c in snapshot["containers"] if c["pod"] == "idle"]
        assert [(c["memory_used_bytes"], c["processes"]) for c in idle] == [(0, 0)], "handed out, and known to hold 0"
        stage.bed.node.kill_kubelet()
        away = daemon.until(lambda s: s if "kubelet_away" in json.dumps(s["faults"]) else None, "the kubelet's silence")
        assert allocated(away) == ["idle"] and away["complete"], "the last view stays, and is told to be old"
        stage.bed.node.restart_kubelet()
        later = daemon.snapshot()["round"] + 30  # some six seconds: the kubelet is asked every five
        daemon.until(
            lambda s: s["round"] >= later and allocated(s) == ["idle"] and not s["faults"] and s["complete"],
            "no fault left, and the allocation as before",
        )


@pytest.mark.fault(21)
async def test_the_token_is_rotated(stage: Stage, namespace: str) -> None:
    """A new token is taken up without a restart once the old one is refused."""
    await stage.run(namespace, "train", "alloc visible 1GiB")
    expected = await truth(stage, namespace)
    with stage.daemon() as daemon:
        seen(daemon, lambda: expected, "the pod by name")
        await stage.api.delete(f"{PATHS['ServiceAccount']}/{ACCOUNT}")
        await stage.api.create(PATHS["ServiceAccount"], {"metadata": {"name": ACCOUNT}})
        await stage.rotate()
        # The watch in progress was authorized; a broken connection has to ask again, with the new token. (The old one
        # is refused: its ServiceAccount is gone.)
        stage.bed.control_plane.kill_api_server()
        daemon.until(lambda s: not s["names_live"], "the broken connection")
        stage.bed.control_plane.start_api_server()
        seen(daemon, lambda: expected, "live names by the new token")


async def test_the_daemon_needs_exactly_the_rights_that_are_shipped(stage: Stage, namespace: str) -> None:
    """The audit log of a whole run knows each verb of the shipped role, and none besides; nothing was refused."""
    apps = f"/apis/apps/v1/namespaces/{namespace}"
    with stage.daemon() as daemon:
        for kind, resource in (("Deployment", GPU), ("StatefulSet", SHARED)):
            more = {"serviceName": "x"} if kind == "StatefulSet" else {}
            await stage.api.create(
                f"{apps}/{kind.lower()}s",
                controller(kind, kind.lower(), spec("alloc visible 1GiB", resource=resource), replicas=1, **more),
            )
        await stage.api.create(
            f"/apis/batch/v1/namespaces/{namespace}/jobs",
            job("job", spec("alloc visible 1GiB", resource=MIG, restart="Never")),
        )
        # Namespaces are asked for where a pod has a limit.
        await stage.api.create(f"/api/v1/namespaces/{namespace}/pods", bare("limited", "1GiB", "2Gi"))
        await ready_pods(stage, namespace, 4)
        expected = await truth(stage, namespace)
        seen(daemon, lambda: expected, "four pods")
        daemon.until(lambda s: all(p["workload"] for p in s["pods"] if p["name"] != "limited"), "all workloads")

        async def asked() -> bool:
            return ("get", "namespaces") in stage.asked()

        await until(asked, "the namespace of the limited pod to be asked for")
    role = next(d for d in yaml.safe_load_all(RBAC.read_text()) if d["kind"] == "ClusterRole")
    shipped = {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    # No DRA driver runs here, so nothing makes the daemon ask for claims and slices; test_claims does.
    assert stage.asked() | {("get", "resourceclaims"), ("list", "resourceslices")} == shipped


async def test_slices_are_read_with_the_shipped_rights(stage: Stage) -> None:
    """The UUID of a claimed device comes from the ResourceSlice of the own node, with the same role."""
    from exporter.base.clock import SystemClock
    from exporter.kube.client import Client
    from exporter.kube.credentials import from_kubeconfig
    from exporter.kube.own_node import OwnNode

    slices = "/apis/resource.k8s.io/v1/resourceslices"
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "gpus"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": NODE_NAME,
            "pool": {"name": NODE_NAME, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": GPUS[0].uuid}}}],
        },
    }
    await stage.api.create(slices, body)
    try:
        with stage.daemon():
            client = Client(from_kubeconfig(str(stage.folder / "kubeconfig")), clock=SystemClock())
            node = OwnNode(client, NODE_NAME, clock=SystemClock(), random=Random(1), has_claims=lambda: True)
            try:
                await node.look()
            finally:
                await client.close()
        assert node.uuids == {("gpu.nvidia.com", NODE_NAME, "gpu-0"): GPUS[0].uuid}
        assert node.labels["kubernetes.io/hostname"] == NODE_NAME
        assert ("list", "resourceslices") in stage.asked()
    finally:
        await stage.api.delete(f"{slices}/gpus")
