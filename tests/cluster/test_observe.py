"""
End to end on the real cluster: pods made through the real API, allocated by the real kubelet, observed by the daemon.

The daemon runs with a token of the ServiceAccount and the rights that deploy/ ships, and with nothing else.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import pod_resources
from cluster.bed import GPUS, MIG_GPU, NODE_NAME, Bed
from cluster.client import Api, Object, until
from cluster.manifests import controller, job, pod, pod_spec
from daemon.running import Daemon
from driver.node import GiB, MiB
from scraped import series

pytestmark = pytest.mark.cluster

RBAC = Path(__file__).parents[2] / "deploy/exporter/rbac.yaml"
NAMESPACE = "gpusteward"
ACCOUNT = "gpusteward-exporter"
PATHS = {"ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"}
PATHS |= {k: f"/apis/rbac.authorization.k8s.io/v1/{k.lower()}s" for k in ("ClusterRole", "ClusterRoleBinding")}
GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
LABELS = ("namespace", "pod", "container", "uuid", "gpu_instance")


class Stage:
    """The daemon on the cluster's node, and what the workloads say."""

    def __init__(self, bed: Bed, api: Api, folder: Path) -> None:
        self.bed, self.api, self.folder = bed, api, folder
        host = folder / "host"
        (host / "var/log").mkdir(parents=True)
        (host / "proc").symlink_to("/proc")
        (host / "var/log/containers").symlink_to(bed.folder / "log" / "containers")
        (folder / "ca.crt").write_bytes(bed.control_plane.authority.certificate.read_bytes())

    async def rotate(self) -> None:
        """Write a new token of the daemon's ServiceAccount, as the kubelet does."""
        token = (await self.api.token(NAMESPACE, ACCOUNT)).token
        assert token is not None
        (self.folder / "token").write_text(token)

    def daemon(self, *flags: str) -> Daemon:
        """Start the daemon as a pod would run it: a token, the host's pids, the kubelet's folder; and more flags."""
        kubeconfig = self.folder / "kubeconfig"
        cluster = {"server": self.bed.control_plane.admin.server, "certificate-authority": str(self.folder / "ca.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bed", "cluster": cluster}],
            "users": [{"name": "daemon", "user": {"tokenFile": str(self.folder / "token")}}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "daemon"}}],
            "current-context": "bed",
        }
        kubeconfig.write_text(json.dumps(config))
        return Daemon(
            "--devices=nvml",
            "--sampling.interval=200ms",
            "--sampling.fast-interval=100ms",
            "--log.format=json",
            "--names.source=kubernetes",
            f"--names.kubeconfig={kubeconfig}",
            f"--node-name={NODE_NAME}",
            f"--node.kubelet-root={self.bed.node.kubelet_folder}",
            f"--node.host-root={self.folder / 'host'}",
            *flags,
            env=self.bed.driver.environment(),
        )

    async def run(self, namespace: str, name: str, *commands: str, resource: str | None = GPU, count: int = 1) -> None:
        """Create a pod whose first process is the workload, and wait until it did its commands."""
        await self.api.create(
            f"/api/v1/namespaces/{namespace}/pods", pod(name, spec(*commands, resource=resource, count=count))
        )
        await self.api.ready_pod(namespace, name)

    def asked(self) -> set[tuple[str, str]]:
        """Verb and resource of all that the daemon asked for, from the audit log; every one was granted."""
        user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
        mine = [event for event in self.bed.control_plane.audit() if event["user"].get("username") == user]
        refused = [event for event in mine if event.get("responseStatus", {}).get("code") == 403]
        assert not refused, refused
        return {(event["verb"], event["objectRef"]["resource"]) for event in mine}


def spec(*commands: str, resource: str | None = GPU, count: int = 1, restart: str = "Always") -> Object:
    """A pod of one workload; its name as a speaker is its pod's name, from the downward API."""
    asked = {resource: count} if resource else None
    made = pod_spec(command=["/bin/workload", *commands], resources=asked, restart=restart)
    container = made["containers"][0]
    container["env"] = [{"name": "WORKLOAD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    return made


@pytest.fixture(autouse=True)
async def all_devices_free(cluster: Bed, node_api: Api) -> None:
    """Begin when no pod of an earlier test holds a device any more."""

    async def free() -> bool:
        return not await pod_resources.holdings(cluster.node.pod_resources_socket)

    await until(free, "the devices of earlier tests to be free")


@pytest.fixture
async def stage(cluster: Bed, node_api: Api, tmp_path: Path) -> Stage:
    """The cluster with what deploy/ ships for the read-only daemon."""
    if await node_api.missing(f"/api/v1/namespaces/{NAMESPACE}"):
        await node_api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for thing in yaml.safe_load_all(RBAC.read_text()):
        path = PATHS[thing["kind"]]
        if await node_api.missing(f"{path}/{thing['metadata']['name']}"):
            await node_api.create(path, thing)

    async def in_force() -> bool:
        asked = {"resource": "pods", "verb": "watch"}
        review = {"spec": {"user": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", "resourceAttributes": asked}}
        answer = await node_api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    await until(in_force, "the rights to be in force")
    made = Stage(cluster, node_api, tmp_path)
    await made.rotate()
    return made


def held(snapshot: dict[str, Any]) -> dict[tuple[str, str, str], int]:
    """Read (namespace, pod, GPU) to bytes, without those that hold nothing."""
    found: dict[tuple[str, str, str], int] = {}
    for c in snapshot["containers"]:
        key = (c["namespace"], c["pod"], c["uuid"])
        found[key] = found.get(key, 0) + c["memory_used_bytes"]
    return {key: size for key, size in found.items() if size}


def seen(daemon: Daemon, expected: Callable[[], dict[tuple[str, str, str], int]], what: str) -> dict[str, Any]:
    """Wait for a complete round with live names in which the daemon says what is expected."""

    def same(snapshot: dict[str, Any]) -> dict[str, Any] | None:
        good = held(snapshot) == expected() and snapshot["complete"] and snapshot["names_live"]
        return snapshot if good else None

    try:
        return daemon.until(same, what)
    except AssertionError as error:
        last = daemon.snapshot()
        raise AssertionError(f"{what}: {held(last)}, not {expected()}; {last['faults']}\n{error}") from None


async def truth(stage: Stage, namespace: str) -> dict[tuple[str, str, str], int]:
    """Ask the workloads of a namespace what they hold."""
    found: dict[tuple[str, str, str], int] = {}
    for one in (await stage.api.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]:
        if one["status"].get("phase") == "Running":
            says = stage.bed.driver.workload(one["metadata"]["uid"]).says()
            uuids = {c.uuid: MIG_GPU.uuid for gi in MIG_GPU.instances for c in gi.computes}
            for device, size in says.held.items():
                found[namespace, one["metadata"]["name"], uuids.get(device, device)] = size
    return found


async def ready_pods(stage: Stage, namespace: str, count: int) -> list[Object]:
    """Wait until so many pods of a namespace are ready and did their commands."""

    async def all_ready() -> list[Object] | None:
        found = (await stage.api.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]
        ready = [
            one
            for one in found
            if any(c["type"] == "Ready" and c["status"] == "True" for c in one["status"].get("conditions", []))
            and "deletionTimestamp" not in one["metadata"]
        ]
        return ready if len(ready) == count else None

    pods: list[Object] = await until(all_ready, f"{count} ready pods in {namespace}")
    for one in pods:
        stage.bed.driver.workload(one["metadata"]["uid"]).ready()
    return pods


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
        page = daemon.get("/metrics")[1]
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
        )  # the container's first process, by the daemon's word

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


async def test_the_kubelet_away(stage: Stage, namespace: str) -> None:
    """The last allocations stay, with a fault; after the kubelet's restart they are live again."""
    await stage.run(namespace, "idle", resource=SHARED)
    with stage.daemon() as daemon:

        def allocated(snapshot: dict[str, Any]) -> list[str]:
            return [a["pod"] for a in snapshot["allocations"] if a["namespace"] == namespace]

        snapshot = daemon.until(lambda s: s if allocated(s) == ["idle"] else None, "the allocation")
        idle = [c for c in snapshot["containers"] if c["pod"] == "idle"]
        assert [(c["memory_used_bytes"], c["processes"]) for c in idle] == [(0, 0)], "handed out, and known to hold 0"
        stage.bed.node.restart_kubelet()
        again = daemon.until(
            lambda s: s if allocated(s) == ["idle"] and not s["faults"] and s["complete"] else None, "no fault left"
        )
        assert again["round"] > snapshot["round"]


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
        await ready_pods(stage, namespace, 3)
        expected = await truth(stage, namespace)
        seen(daemon, lambda: expected, "three pods")
        daemon.until(lambda s: all(p["workload"] for p in s["pods"]), "all workloads")
    role = next(d for d in yaml.safe_load_all(RBAC.read_text()) if d["kind"] == "ClusterRole")
    shipped = {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    # No DRA driver runs here, so that nobody makes the daemon ask for slices; test_own_node does, with the same role.
    assert stage.asked() | {("list", "resourceslices")} == shipped


async def test_slices_are_read_with_the_shipped_rights(stage: Stage) -> None:
    """The UUID of a claimed device comes from the ResourceSlice of the own node, with the same role."""
    from exporter.clock import SystemClock
    from exporter.kube.client import Client, from_kubeconfig
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
            node = OwnNode(client, NODE_NAME, clock=SystemClock(), has_claims=lambda: True)
            try:
                await node.look()
            finally:
                await client.close()
        assert node.uuids == {("gpu.nvidia.com", NODE_NAME, "gpu-0"): GPUS[0].uuid}
        assert node.labels["kubernetes.io/hostname"] == NODE_NAME
        assert ("list", "resourceslices") in stage.asked()
    finally:
        await stage.api.delete(f"{slices}/gpus")


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

        snapshot = daemon.until(lambda s: s if by_container(s) == wanted else None, "three kinds of containers")
        assert snapshot["complete"] and {c["pod"] for c in snapshot["containers"]} == {"train"}


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
