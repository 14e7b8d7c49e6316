"""End to end on the real cluster: pods made through the real API, allocated by the real kubelet, seen by the daemon."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from cluster.bed import GPUS, NODE_NAME
from cluster.client import Object, until
from cluster.manifests import controller, job, pod
from cluster.stage import (
    GPU,
    LABELS,
    MIG,
    SHARED,
    Stage,
    held,
    ready_pods,
    seen,
    spec,
    truth,
)
from driver.node import GiB, MiB
from scraped import series

pytestmark = [pytest.mark.cluster, pytest.mark.versions]


async def test_pods_of_all_kinds_are_named_and_agree_to_the_byte(stage: Stage, namespace: str) -> None:
    """A plain pod, a Deployment, a Job and a StatefulSet: names, workloads, replicas and bytes are the real ones."""
    apps = f"/apis/apps/v1/namespaces/{namespace}"
    with stage.daemon() as daemon:
        await stage.run(namespace, "plain", "alloc visible 1GiB", resource=GPU)
        await stage.api.create(
            f"{apps}/deployments",
            controller("Deployment", "web", spec("alloc visible 2GiB", resource=SHARED), replicas=2),
        )
        await stage.api.create(
            f"{apps}/statefulsets",
            controller("StatefulSet", "db", spec("alloc visible 3GiB", resource=MIG), serviceName="db", replicas=1),
        )
        await stage.api.create(
            f"/apis/batch/v1/namespaces/{namespace}/jobs",
            job("train", spec("alloc visible 512MiB", "children 2 visible 64MiB", resource=GPU, restart="Never")),
        )
        await ready_pods(stage, namespace, 5)
        expected = await truth(stage, namespace)
        assert len(expected) == 5 and sum(expected.values()) == 8 * GiB + 512 * MiB + 128 * MiB
        snapshot = seen(daemon, lambda: expected, "five pods of four kinds")

        def workloads(one: dict[str, Any]) -> set[tuple[str, str]]:
            return {(p["workload_kind"], p["workload"]) for p in one["pods"]}

        wanted = {("Deployment", "web"), ("StatefulSet", "db"), ("Job", "train"), ("", "")}
        snapshot = daemon.until(
            lambda s: s if workloads(s) == wanted and len(s["allocations"]) == 5 else None, "workloads and allocations"
        )
        sharing = {(d["uuid"], d["sharing"], d["replicas"]) for d in snapshot["devices"]}
        assert (GPUS[0].uuid, "time-slicing", 2) in sharing and (GPUS[1].uuid, "time-slicing", 4) in sharing
        page = daemon.page()
        metric = series(page, "container_memory_used_bytes", *LABELS)
        assert {(n, p, u): v for (n, p, c, u, _), v in metric.items()} == expected
        assert {gi for (_, pod_name, _, _, gi) in metric if pod_name == "db-0"} <= {"1", "2"}
        replicas = series(page, "container_allocated_replicas", "pod", "container", "resource")
        assert replicas["plain", "main", GPU] == 1 and replicas["db-0", "main", MIG] == 1
        assert sum(resource == SHARED for _, _, resource in replicas) == 2


async def test_restarts_and_deletions_are_followed(stage: Stage, namespace: str) -> None:
    """A container that restarts keeps its name and starts anew; a pod that is deleted leaves nothing behind."""
    await stage.run(namespace, "train", "alloc visible 1GiB")
    with stage.daemon() as daemon:
        expected = await truth(stage, namespace)
        before = seen(daemon, lambda: expected, "the first generation")
        uid = before["containers"][0]["pod_uid"]
        workload = stage.bed.driver.workload(uid)
        generation = workload.says().token
        os.kill(
            before["containers"][0]["pids"][0], signal.SIGKILL
        )  # the container's first process, as the daemon reports it

        async def restarted() -> bool:
            return workload.says().token != generation and workload.says().ready

        await until(restarted, "the next generation to speak")
        after = daemon.until(
            lambda s: (
                s
                if held(s) == expected and s["containers"][0]["container_id"] != before["containers"][0]["container_id"]
                else None
            ),
            "the second generation by its name",
        )
        assert after["containers"][0]["container"] == "main"
        await stage.api.delete(f"/api/v1/namespaces/{namespace}/pods/train")
        daemon.until(lambda s: s["containers"] == [] and s["complete"], "the deleted pod gone, and its devices free")
        assert series(daemon.get("/metrics")[1], "container_memory_used_bytes", *LABELS) == {}


async def test_the_same_name_again_is_somebody_new(stage: Stage, namespace: str) -> None:
    """Force-deleted and created under the same name: the new UID's bytes, and one series."""
    await stage.run(namespace, "train", "alloc visible 1GiB")
    with stage.daemon() as daemon:
        first = await truth(stage, namespace)
        old = seen(daemon, lambda: first, "the first")["containers"][0]["pod_uid"]
        await stage.api.delete(f"/api/v1/namespaces/{namespace}/pods/train", gracePeriodSeconds=0)

        async def gone() -> bool:
            return await stage.api.missing(f"/api/v1/namespaces/{namespace}/pods/train")

        await until(gone, "the name to be free")
        await stage.run(namespace, "train", "alloc visible 3GiB")
        second = await truth(stage, namespace)
        snapshot = daemon.until(
            lambda s: s if {c["pod_uid"] for c in s["containers"]} - {old} and held(s) == second else None,
            "the second generation alone",
        )
        assert {c["pod_uid"] for c in snapshot["containers"] if c["memory_used_bytes"]} != {old}


async def test_sidecars_and_ephemeral_containers_are_named(stage: Stage, namespace: str) -> None:
    """A restartable init container and a container that a person added to a running pod have bytes of their own."""
    made = spec("alloc visible 1GiB")
    main = made["containers"][0]
    main["env"] = [{"name": "WORKLOAD_NAME", "value": f"{namespace}-main"}]
    device = {"name": "NVIDIA_VISIBLE_DEVICES", "value": GPUS[0].uuid}
    mount = {"name": "state", "mountPath": "/run/fake-nvml"}
    made["volumes"] = [{"name": "state", "hostPath": {"path": str(stage.bed.driver.folder)}}]

    def more(name: str, size: str) -> Object:
        return {
            "name": name,
            "image": main["image"],
            "command": ["/bin/workload", f"alloc visible {size}"],
            "env": [{"name": "WORKLOAD_NAME", "value": f"{namespace}-{name}"}, device],
            "volumeMounts": [mount],
        }

    made["initContainers"] = [more("proxy", "2GiB") | {"restartPolicy": "Always"}]
    await stage.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("train", made))
    await stage.api.ready_pod(namespace, "train")
    with stage.daemon() as daemon:
        patch = {"spec": {"ephemeralContainers": [more("debugger", "512MiB")]}}
        path = f"/api/v1/namespaces/{namespace}/pods/train/ephemeralcontainers"
        await stage.api.patch(path, patch, kind="strategic")
        wanted = {"main": GiB, "proxy": 2 * GiB, "debugger": 512 * MiB}

        def by_container(snapshot: dict[str, Any]) -> dict[str, int]:
            return {c["container"]: c["memory_used_bytes"] for c in snapshot["containers"] if c["memory_used_bytes"]}

        # A round in which the last one starts may be incomplete: memory moves while it is read.
        whole = daemon.until(
            lambda s: s if s["complete"] and by_container(s) == wanted else None, "three kinds of containers"
        )
        assert {c["pod"] for c in whole["containers"]} == {"train"}


async def test_a_static_pod_is_named_by_its_mirror_pod(stage: Stage) -> None:
    """Its cgroup carries the kubelet's hash instead of the UID that the API knows: it is found all the same."""
    made = spec("alloc visible 1GiB", resource=None)
    container = made["containers"][0]
    container["env"] = [
        {"name": "WORKLOAD_NAME", "value": "static"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": GPUS[0].uuid},
    ]
    container["volumeMounts"] = [{"name": "state", "mountPath": "/run/fake-nvml"}]
    made["volumes"] = [{"name": "state", "hostPath": {"path": str(stage.bed.driver.folder)}}]
    manifest = stage.bed.node.static_pods / "canary.json"
    manifest.write_text(json.dumps(pod("canary", made)))
    name = f"canary-{NODE_NAME}"

    async def mirrored() -> bool:
        return not await stage.api.missing(f"/api/v1/namespaces/default/pods/{name}")

    try:
        await until(mirrored, "the mirror pod")
        await stage.api.ready_pod("default", name)
        with stage.daemon() as daemon:
            expected = {("default", name, GPUS[0].uuid): GiB}
            snapshot = seen(daemon, lambda: expected, "the static pod by its mirror's name")
            mirror = (await stage.api.get(f"/api/v1/namespaces/default/pods/{name}"))["metadata"]
            assert snapshot["containers"][0]["pod_uid"] == mirror["uid"]
            assert mirror["annotations"]["kubernetes.io/config.hash"] != mirror["uid"]
    finally:
        manifest.unlink()

        async def gone() -> bool:
            return await stage.api.missing(f"/api/v1/namespaces/default/pods/{name}")

        await until(gone, "the mirror pod to be gone")
