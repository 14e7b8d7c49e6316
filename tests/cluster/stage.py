"""
What the tests of observation on the cluster share: the daemon as a pod would run it, and what the workloads say.

In: the cluster's bed. Out: a `Stage`. Law: the daemon has a token of its ServiceAccount and the rights that deploy/
ships, and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import pod_resources
from cluster.bed import INVENTORY, MIG_GPU, NODE_NAME, Bed
from cluster.client import Api, Object, until
from cluster.manifests import pod, pod_spec
from containers.cgroupfs import new_token
from daemon.running import COMMAND, Daemon

RBAC = Path(__file__).parents[2] / "deploy/exporter/rbac.yaml"
ENFORCER_RBAC = RBAC.parents[1] / "enforcer/rbac.yaml"
EVICT_RBAC = ENFORCER_RBAC.with_name("rbac-evict.yaml")
ADMISSION = ENFORCER_RBAC.with_name("admission.yaml")
NAMESPACE = "gpusteward"
ACCOUNT = "gpusteward-exporter"
ENFORCER = "gpusteward"
RUN = (Path(sys.executable).with_name("gpusteward"), "run")
PATHS = {"ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"}
PATHS |= {k: f"/apis/rbac.authorization.k8s.io/v1/{k.lower()}s" for k in ("ClusterRole", "ClusterRoleBinding")}
ADMISSIONS = "/apis/admissionregistration.k8s.io/v1"
PATHS |= {
    "ValidatingAdmissionPolicy": f"{ADMISSIONS}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSIONS}/validatingadmissionpolicybindings",
}
GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
LABELS = ("namespace", "pod", "container", "uuid", "gpu_instance")
API_AWAY = ("names_stale", "namespace_unknown")
"""Reasons while the API server does not answer. The labels of a namespace count for 90 s: either may come first."""


class Stage:
    """The daemon on the cluster's node, and what the workloads say."""

    def __init__(self, bed: Bed, api: Api, folder: Path) -> None:
        self.bed, self.api, self.folder = bed, api, folder
        self.account = ACCOUNT
        self.own_pod: Object | None = None
        self.began = datetime.now(UTC).isoformat()
        host = folder / "host"
        (host / "var/log").mkdir(parents=True)
        (host / "proc").symlink_to("/proc")
        (host / "var/log/containers").symlink_to(bed.folder / "log" / "containers")
        (folder / "ca.crt").write_bytes(bed.control_plane.authority.certificate.read_bytes())

    async def rotate(self) -> None:
        """Put a new token of the daemon's ServiceAccount in the place of the old one, at once, as the kubelet does."""
        bound = {"boundObjectRef": _reference(self.own_pod)} if self.own_pod else {}
        asked = {"spec": {"expirationSeconds": 3600, **bound}}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{self.account}/token"
        (self.folder / "token.new").write_text((await self.api.create(path, asked))["status"]["token"])
        (self.folder / "token.new").rename(self.folder / "token")

    async def enforcing(self) -> None:
        """Be the ServiceAccount that deploy/ ships for `gpusteward run`, which is bound to both roles."""
        await _apply(self.api, ENFORCER_RBAC)
        await in_force(self.api, ENFORCER, resource="pods", verb="watch")
        await in_force(self.api, ENFORCER, resource="events", group="events.k8s.io", verb="patch")
        self.account = ENFORCER
        await self.rotate()

    async def may_evict(self, *namespaces: str) -> None:
        """Bind the role that evicts in these namespaces, as the comment in deploy/ says."""
        await _apply(self.api, EVICT_RBAC)
        (written,) = yaml.safe_load_all(EVICT_RBAC.read_text().partition("# ---\n")[2].replace("# ", ""))
        for one in namespaces:
            path = f"{PATHS['ClusterRole'].rpartition('/')[0]}/namespaces/{one}/rolebindings"
            if await self.api.missing(f"{path}/{written['metadata']['name']}"):
                await self.api.create(path, {**written, "metadata": {**written["metadata"], "namespace": one}})
            await in_force(self.api, ENFORCER, resource="pods", subresource="eviction", verb="create", namespace=one)

    @asynccontextmanager
    async def as_pod(self) -> AsyncIterator[None]:
        """Have the token of a real pod of this node, which says so; the policy on evictions wants that."""
        made = {**pod_spec(command=["sleep", "86400"]), "serviceAccountName": self.account}
        name, pods = f"steward-{new_token()}", f"/api/v1/namespaces/{NAMESPACE}/pods"
        await self.api.create(pods, pod(name, made))
        try:
            self.own_pod = await self.api.ready_pod(NAMESPACE, name)
            await self.rotate()
            yield
        finally:
            self.own_pod = None
            await self.api.delete(f"{pods}/{name}")

    async def guard(self) -> None:
        """Apply the shipped policy on evictions."""
        await _apply(self.api, ADMISSION)

    async def unguard(self) -> None:
        """Take the shipped policy on evictions away, if it is there."""
        for thing in reversed(_things(ADMISSION)):
            path = f"{_path(thing)}/{thing['metadata']['name']}"
            if not await self.api.missing(path):
                await self.api.delete(path)

    def daemon(
        self,
        *flags: str,
        command: Sequence[str | Path] = (COMMAND,),
        port: int | None = None,
        enter: Sequence[str] = (),
        learns: bool = False,
    ) -> Daemon:
        """
        Start the daemon as a pod would run it: a token, the host's pids, the kubelet's folder; and more flags.

        `port`: of a proxy before the API server; `enter`: words before the command; `learns`: it has to find out where
        the pods' cgroups are.
        """
        kubeconfig = self.folder / (f"kubeconfig-{port}" if port else "kubeconfig")
        server = f"https://127.0.0.1:{port}" if port else self.bed.control_plane.server
        cluster = {"server": server, "certificate-authority": str(self.folder / "ca.crt")}
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
            *([] if learns else [f"--node.pods-cgroup={self.bed.node.cgroup_root}/kubepods"]),
            *flags,
            env={**self.bed.driver.environment(), **self._own()},
            command=command,
            enter=enter,
        )

    def _own(self) -> dict[str, str]:
        """What the downward API tells of the daemon's own pod."""
        if self.own_pod is None:
            return {}
        meta = self.own_pod["metadata"]
        return {"POD_UID": meta["uid"], "POD_NAME": meta["name"], "POD_NAMESPACE": meta["namespace"]}

    async def run(self, namespace: str, name: str, *commands: str, resource: str | None = GPU, count: int = 1) -> None:
        """Create a pod whose first process is the workload, and wait until it did its commands."""
        await self.api.create(
            f"/api/v1/namespaces/{namespace}/pods", pod(name, spec(*commands, resource=resource, count=count))
        )
        await self.api.ready_pod(namespace, name)

    def asked(self) -> set[tuple[str, str]]:
        """
        Verb and resource of all that the daemon asked for in this test, from the audit log; every one was granted.

        (A server that was just started by an earlier test refuses for a moment, until it has read its own roles.)
        """
        mine = self.requests()
        refused = [event for event in mine if event.get("responseStatus", {}).get("code") == 403]
        assert not refused, refused
        return {(event["verb"], event["objectRef"]["resource"]) for event in mine}

    def requests(self) -> list[Object]:
        """All that was asked with the daemon's token in this test, from the audit log."""
        user = f"system:serviceaccount:{NAMESPACE}:{self.account}"
        return [
            event
            for event in self.bed.control_plane.audit()
            if event["user"].get("username") == user and event["requestReceivedTimestamp"] >= self.began
        ]


def spec(*commands: str, resource: str | None = GPU, count: int = 1, restart: str = "Always") -> Object:
    """A pod of one workload; its name as a speaker is its pod's name, from the downward API."""
    asked = {resource: count} if resource else None
    made = pod_spec(command=["/bin/workload", *commands], resources=asked, restart=restart)
    container = made["containers"][0]
    container["env"] = [{"name": "WORKLOAD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    return made


@pytest.fixture
async def stage(cluster: Bed, node_api: Api, tmp_path: Path) -> Stage:
    """The cluster with what deploy/ ships for the read-only daemon, and no device held by a pod of an earlier test."""
    return await staged(cluster, node_api, tmp_path)


async def staged(cluster: Bed, api: Api, folder: Path, inventory: Mapping[str, Sequence[str]] = INVENTORY) -> Stage:
    """What the fixture gives, for a stage of more than one test, or on a bed with another inventory."""

    async def free() -> bool:
        return not await pod_resources.holdings(cluster.node.pod_resources_socket)

    await until(free, "the devices of earlier tests to be free")

    async def offered() -> bool:
        wanted = {name: sorted(ids) for name, ids in inventory.items() if ids}
        return await pod_resources.allocatable(cluster.node.pod_resources_socket) == wanted

    await until(offered, "the kubelet to have all devices (an earlier test may have restarted it)")
    if await api.missing(f"/api/v1/namespaces/{NAMESPACE}"):
        await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await _apply(api, RBAC)
    await in_force(api, ACCOUNT, resource="pods", verb="watch")
    made = Stage(cluster, api, folder)
    await made.rotate()
    return made


def _reference(thing: Object) -> Object:
    meta = thing["metadata"]
    return {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}


async def _apply(api: Api, manifest: Path) -> None:
    for thing in _things(manifest):
        path = _path(thing)
        if await api.missing(f"{path}/{thing['metadata']['name']}"):
            await api.create(path, thing)


def _path(thing: Object) -> str:
    if thing["kind"] == "RoleBinding":
        return f"/apis/rbac.authorization.k8s.io/v1/namespaces/{thing['metadata']['namespace']}/rolebindings"
    return PATHS[thing["kind"]]


def _things(manifest: Path) -> list[Object]:
    return list(yaml.safe_load_all(manifest.read_text()))


async def in_force(api: Api, account: str, **asked: str) -> None:
    async def allowed() -> bool:
        review = {"spec": {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "resourceAttributes": asked}}
        answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    await until(allowed, f"the rights of {account} to be in force")


def held(snapshot: dict[str, Any]) -> dict[tuple[str, str, str], int]:
    """Read (namespace, pod, GPU) to bytes, without those that hold nothing, or of which it is not known."""
    found: dict[tuple[str, str, str], int] = {}
    for c in snapshot["containers"]:
        key = (c["namespace"], c["pod"], c["uuid"])
        # Before the kubelet tells of a container, its memory is the pod's alone, and its own is unknown.
        found[key] = found.get(key, 0) + (c["memory_used_bytes"] or 0)
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
