"""Declared limits end to end: annotations on real pods of a real cluster, to bytes at the real daemon's `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cluster.bed import GPUS
from cluster.client import Object
from cluster.manifests import pod
from cluster.stage import SHARED, Stage, spec
from driver.node import GiB, MiB
from scraped import series

pytestmark = pytest.mark.cluster

LIMIT = "nvidia.com/container.main.gpu-memory.limit"
HAMI = "hami.io/vgpu-devices-allocated"
LABELS = ("pod", "container", "uuid")
SLICED = GPUS[1].uuid
"""In four replicas: where the pods of these tests are."""


async def place(stage: Stage, namespace: str, name: str, annotations: Mapping[str, str]) -> None:
    """Create a pod with annotations that holds 1 GiB of the shared GPU, and wait until it does."""
    made: Object = pod(name, spec("alloc visible 1GiB", resource=SHARED))
    made["metadata"]["annotations"] = dict(annotations)
    await stage.api.create(f"/api/v1/namespaces/{namespace}/pods", made)
    ready = await stage.api.ready_pod(namespace, name)
    stage.bed.driver.workload(ready["metadata"]["uid"]).ready()


def limits(snapshot: dict[str, Any]) -> dict[str, int | None]:
    """Read pod to the limit of its container `main`, of those that hold their 1 GiB, when the round is complete."""
    holding = [one for one in snapshot["containers"] if one["memory_used_bytes"] == GiB]
    return {one["pod"]: one["memory_limit_bytes"] for one in holding} if snapshot["complete"] else {}


async def test_what_pods_declare_is_exported_in_bytes(stage: Stage, namespace: str) -> None:
    """A user's annotation and a scheduler's; a hostile pod beside them harms no other pod, and its problem is shown."""
    await place(stage, namespace, "user", {LIMIT: "2Gi"})
    await place(stage, namespace, "hami", {HAMI: f"{SLICED},NVIDIA,3000,30:;"})
    hostile = {LIMIT: "-1e99999Ei", HAMI: "GPU-nobody,NVIDIA,-5,x:;" * 8000, "volcano.sh/gpu-assigned": "{[" * 20_000}
    await place(stage, namespace, "hostile", hostile)
    await place(stage, namespace, "silent", {})
    wanted = {"user": 2 * GiB, "hami": 3000 * MiB, "hostile": None, "silent": None}
    with stage.daemon() as daemon:
        snapshot = daemon.until(lambda s: s if limits(s) == wanted else None, f"the limits {wanted}")
        assert any("gpu-memory.limit" in problem for one in of_pod(snapshot, "hostile") for problem in one["problems"])
        page = daemon.page()
        bytes_ = series(page, "container_memory_limit_bytes", *LABELS)
        assert bytes_ == {("user", "main", SLICED): 2 * GiB, ("hami", "main", SLICED): 3000 * MiB}
        assert series(page, "container_compute_limit_ratio", *LABELS) == {("hami", "main", SLICED): 0.3}
        assert series(page, "device_memory_declared_bytes", "uuid") == {(SLICED,): 2 * GiB + 3000 * MiB}
        told = series(page, "container_limit_info", "pod", "system", "source", "scope")
        assert {("user", "gpusteward", "annotation", "container")} | {
            ("hami", "hami-nvidia", "annotation", "container")
        } == set(told)
        used = series(page, "container_memory_used_bytes", *LABELS)
        assert {name: size for (name, _, _), size in used.items()} == dict.fromkeys(wanted, GiB)


async def test_a_user_lowers_a_limit_and_does_not_raise_it(stage: Stage, namespace: str) -> None:
    """What was seen first stays: a raise is refused and reported, a lower value counts; without the pod all is gone."""
    await place(stage, namespace, "user", {LIMIT: "2Gi"})
    path = f"/api/v1/namespaces/{namespace}/pods/user"
    with stage.daemon() as daemon:
        daemon.until(lambda s: limits(s) == {"user": 2 * GiB}, "the first limit")
        await stage.api.patch(path, {"metadata": {"annotations": {LIMIT: "30Gi"}}})
        daemon.until(lambda s: any("refused" in str(one["problems"]) for one in of_pod(s, "user")), "the refusal")
        assert limits(daemon.snapshot()) == {"user": 2 * GiB}
        await stage.api.patch(path, {"metadata": {"annotations": {LIMIT: "1536Mi"}}})
        daemon.until(lambda s: limits(s) == {"user": 1536 * MiB}, "the lower limit")
        await stage.api.delete(path)
        daemon.until(lambda s: s["limits"] == [] and s["complete"], "no limit left")


async def test_a_restart_of_the_daemon_is_no_way_to_raise_a_limit(stage: Stage, namespace: str) -> None:
    """The annotation is raised while no daemon looks: the next one has the first value from its file, and refuses."""
    await place(stage, namespace, "user", {LIMIT: "2Gi"})
    uid = (await stage.api.get(f"/api/v1/namespaces/{namespace}/pods/user"))["metadata"]["uid"]
    file = stage.folder / "first_seen.json"
    with stage.daemon(f"--limits.first-seen-file={file}") as daemon:
        daemon.until(lambda s: limits(s) == {"user": 2 * GiB}, "the first limit")
        daemon.until(lambda _: file.exists() and uid in file.read_text(), "the limit in the file")
    raised = {"metadata": {"annotations": {LIMIT: "30Gi"}}}
    await stage.api.patch(f"/api/v1/namespaces/{namespace}/pods/user", raised)
    with stage.daemon(f"--limits.first-seen-file={file}") as daemon:
        snapshot = daemon.until(lambda s: s if limits(s).get("user") else None, "a limit")
        assert limits(snapshot) == {"user": 2 * GiB}
        assert "refused" in str(of_pod(snapshot, "user"))


def of_pod(snapshot: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """List the limits of a pod."""
    return [one for one in snapshot["limits"] if one["pod"] == name]
