"""
A node without a kubelet: real processes in real cgroups, as Pod objects of a real API server and in a small server's
answers about devices.

What comes in: a name, a GPU, a limit. What goes out: a pod that runs, and an end of it as a kubelet makes one. The
rule: what the API server did not hear because it was away is said again until it hears.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp

from cluster import kubelet_pb2 as kubelet_api
from cluster.client import Api, ApiError, Object
from cluster.manifests import pod, pod_spec
from containers import cgroupfs
from containers.cgroupfs import Ledger
from driver.node import FakeNode
from driver.workload import Workload, WorkloadError
from kubelet.fake import FakeKubelet

T = TypeVar("T")

RESOURCE = "nvidia.com/gpu.shared"
LIMIT = "nvidia.com/container.main.gpu-memory.limit"
REPLICAS = 4
AGAIN_S = 0.3
BUSY = (403, 429, 500, 503, 504)
"""Answers of a server that is starting; 403 until its admission plugins are ready."""


@dataclass
class Running:
    """A pod of this node; `replica` is the device that it holds, None without one."""

    namespace: str
    name: str
    uid: str
    gpu: int | None
    replica: str | None
    owner: str | None
    container: str = ""
    restarts: int = 0
    workload: Workload | None = field(default=None)

    @property
    def path(self) -> str:
        """Where it is, in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


async def heard(call: Callable[[], Awaitable[T]]) -> T:
    """Ask until the API server answers. Raises ApiError where it refuses."""
    while True:
        try:
            return await call()
        except ApiError as error:
            if error.status not in BUSY:
                raise
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        await asyncio.sleep(AGAIN_S)


class Machine:
    """The pods of one node. `root`: the cgroup that has its `kubepods`."""

    def __init__(self, api: Api, node: str, driver: FakeNode, kubelet: FakeKubelet, ledger: Ledger) -> None:
        self.node, self.driver = node, driver
        self.root = f"/gpusteward-day-{ledger.token}"
        self.begun = 0
        self._serial = itertools.count()
        self._api, self._kubelet, self._ledger = api, kubelet, ledger
        self._running: dict[str, Running] = {}
        self._free = {
            index: [f"{gpu.uuid}::{replica}" for replica in range(REPLICAS)] for index, gpu in enumerate(driver.gpus)
        }
        ledger.open()
        ledger.own(self.root)
        self._say()

    async def start(
        self, namespace: str, name: str, *commands: str, gpu: int | None = None, limit: str = "", account: str = ""
    ) -> Running:
        """Run a pod; one with a GPU has a ReplicaSet of its own."""
        replica = self._free[gpu].pop() if gpu is not None else None
        spec = pod_spec(resources={RESOURCE: 1} if replica else None) | {"nodeName": self.node}
        made = pod(name, {**spec, **({"serviceAccountName": account} if account else {})}, labels={"app": name})
        owner = None
        if limit:
            made["metadata"]["annotations"] = {LIMIT: limit}
            owner = f"/apis/apps/v1/namespaces/{namespace}/replicasets/{name}"
            made["metadata"]["ownerReferences"] = [await self._owner(owner, made)]
        path = f"/api/v1/namespaces/{namespace}/pods"
        uid = (await self._created(path, made))["metadata"]["uid"]
        running = Running(namespace, name, uid, gpu, replica, owner)
        self._running[uid] = running
        self.begun += 1
        self._say()
        await self._run(running, *commands)
        return running

    async def restart(self, running: Running, *commands: str) -> None:
        """Let its container crash, and run another in its place."""
        await asyncio.to_thread(self._clear, running)
        running.restarts += 1
        await self._run(running, *commands)

    async def going(self, running: Running) -> bool:
        """Tell whether the pod is being deleted, or was."""
        try:
            found = await heard(lambda: self._api.get(running.path))
        except ApiError as error:
            if error.status == 404:
                return True
            raise
        return "deletionTimestamp" in found["metadata"] or found["metadata"]["uid"] != running.uid

    async def end(self, running: Running) -> None:
        """End its processes, give its device back, and take its objects away."""
        await asyncio.to_thread(self._clear, running)
        self._running.pop(running.uid, None)
        if running.gpu is not None and running.replica is not None:
            self._free[running.gpu].append(running.replica)
        self._say()
        for path in filter(None, (running.path, running.owner)):
            await self._deleted(path)

    async def _owner(self, path: str, made: Object) -> Object:
        """Create a ReplicaSet, and refer to it."""
        labels = made["metadata"]["labels"]
        spec = {"replicas": 0, "selector": {"matchLabels": labels}}
        spec["template"] = {"metadata": {"labels": labels}, "spec": pod_spec()}
        body = {"metadata": {"name": made["metadata"]["name"]}, "spec": spec}
        found = await self._created(path.rpartition("/")[0], body)
        kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
        return {**kind, "name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}

    async def _created(self, path: str, body: Object) -> Object:
        try:
            return await heard(lambda: self._api.create(path, body))
        except ApiError as error:  # it was created by a call whose answer was lost
            if error.status != 409:
                raise
        return await heard(lambda: self._api.get(f"{path}/{body['metadata']['name']}"))

    async def _deleted(self, path: str) -> None:
        with suppress(ApiError):
            await heard(lambda: self._api.delete(path, gracePeriodSeconds=0, propagationPolicy="Background"))

    async def _run(self, running: Running, *commands: str) -> None:
        running.container = uuid.uuid4().hex * 2
        if commands:
            running.workload = await self._spawn(running, commands)
        status = {
            "name": "main",
            "image": "x",
            "imageID": "x",
            "ready": True,
            "restartCount": running.restarts,
            "containerID": f"containerd://{running.container}",
            "state": {"running": {"startedAt": "2026-11-01T10:00:00Z"}},
        }
        conditions = [{"type": "Ready", "status": "True"}]
        body = {"status": {"phase": "Running", "conditions": conditions, "containerStatuses": [status]}}
        with suppress(ApiError):  # it may be gone by now
            await heard(lambda: self._api.patch(f"{running.path}/status", body))

    async def _spawn(self, running: Running, commands: tuple[str, ...]) -> Workload:
        """Start its process, as often as it takes: without a driver it finds no device."""
        while True:
            try:
                return await asyncio.to_thread(self._spawned, running, commands)
            except (WorkloadError, TimeoutError):
                await asyncio.sleep(AGAIN_S)

    def _spawned(self, running: Running, commands: tuple[str, ...]) -> Workload:
        path = f"{self._cgroup(running)}/{running.container}"
        folders = [cgroupfs.make(root, path) for root in self._ledger.mounts.kubelet]
        enter = "".join(f'echo $$ > "{folder}/cgroup.procs" && ' for folder in folders)
        name = f"{running.uid}-{next(self._serial)}"
        return self.driver.spawn(*commands, name=name, prefix=["sh", "-c", f'{enter}exec "$@"', "sh"])

    def _clear(self, running: Running) -> None:
        """End what runs in its cgroups, and remove them."""
        for root in self._ledger.mounts.kubelet:
            cgroupfs.remove(cgroupfs.below(root, self._cgroup(running)))
        if running.workload is not None:
            running.workload.close()
            running.workload = None

    def _cgroup(self, running: Running) -> str:
        return f"{self.root}/kubepods/burstable/pod{running.uid}"

    def _say(self) -> None:
        """Answer about devices as a kubelet does."""
        held = [
            kubelet_api.PodResources(
                name=one.name,
                namespace=one.namespace,
                containers=[
                    kubelet_api.ContainerResources(
                        name="main",
                        devices=[kubelet_api.ContainerDevices(resource_name=RESOURCE, device_ids=[one.replica])],
                    )
                ],
            )
            for one in self._running.values()
            if one.replica is not None
        ]
        every = [f"{gpu.uuid}::{replica}" for gpu in self.driver.gpus for replica in range(REPLICAS)]
        offered = [kubelet_api.ContainerDevices(resource_name=RESOURCE, device_ids=[one]) for one in every]
        self._kubelet.answer(
            listed=kubelet_api.ListPodResourcesResponse(pod_resources=held),
            allocatable=kubelet_api.AllocatableResourcesResponse(devices=offered),
        )
