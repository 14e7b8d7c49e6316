"""
Pods of the guest that hold memory of its fake GPUs, and processes of the node beside them.

In: a bed, sizes. Out: pods that run, and hold these bytes.

The rule: each process speaks by a name of its own, so that what it holds is asked of itself.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.bed import WORKLOAD
from cluster.client import Api, Object, until
from cluster.stage import SHARED
from hosts.bed import GuestBed
from hosts.contents import STATE
from hosts.guest import PROGRAMS

CONSENT = {"gpusteward.io/mode": "enforce"}
LIMIT = "nvidia.com/container.main.gpu-memory.limit"


def box(name: str, *commands: str, script: str = "", gpu: bool = True, **more: object) -> Object:
    """
    Describe a container that runs the workload with these commands, or a script.

    A container with `gpu` speaks by the name `POD.CONTAINER`; `more` goes into it.
    """
    made: Object = {
        "name": name,
        "image": WORKLOAD,
        "command": ["sh", "-c", script] if script else ["/bin/workload", *commands],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "WORKLOAD_NAME", "value": f"$(POD).{name}"},
        ],
    }
    given = dict(more)
    if gpu:
        resources: Any = given.pop("resources", {})
        given["resources"] = {**resources, "limits": {**resources.get("limits", {}), SHARED: "1"}}
    return made | given


def pod(name: str, *boxes: Object, limit: str | None = None, **spec: object) -> Object:
    """Describe a pod of these containers; `limit`: declared for the container `main`; `spec`: more of it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": {LIMIT: limit} if limit else {}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": list(boxes), **spec},
    }


def deployment(made: Object) -> Object:
    """Describe a Deployment of one such pod."""
    template = {key: made[key] for key in ("metadata", "spec")}
    name = template["metadata"].pop("name")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }


@dataclass
class Workloads:
    """The pods of one namespace."""

    bed: GuestBed
    api: Api
    namespace: str

    async def create(self, *things: Object) -> None:
        """Create pods and Deployments without waiting."""
        for one in things:
            group = "/api/v1" if one["kind"] == "Pod" else "/apis/apps/v1"
            await self.api.create(f"{group}/namespaces/{self.namespace}/{one['kind'].lower()}s", one)

    async def runtime_class(self, handler: str) -> None:
        """Let pods ask for another runtime than crun, by its name."""
        path = "/apis/node.k8s.io/v1/runtimeclasses"
        if await self.api.missing(f"{path}/{handler}"):
            await self.api.create(path, {"metadata": {"name": handler}, "handler": handler})

    async def keep(self, *apps: str) -> None:
        """Let a PodDisruptionBudget forbid all evictions of these apps, once it has counted them."""
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        chosen = {"matchExpressions": [{"key": "app", "operator": "In", "values": [*apps]}]}
        await self.api.create(path, {"metadata": {"name": "keep"}, "spec": {"maxUnavailable": 0, "selector": chosen}})

    async def consent(self) -> None:
        """Label the namespace as one in which the daemon may act."""
        await self.api.patch(f"/api/v1/namespaces/{self.namespace}", {"metadata": {"labels": CONSENT}})

    async def ready(self, *apps: str) -> dict[str, Object]:
        """Wait until the pods with these labels `app` are ready; return them by label."""
        found: dict[str, Object] = {}

        async def all_ready() -> bool:
            found.clear()
            for one in (await self.api.get(self.pods))["items"]:
                conditions = {c["type"]: c["status"] for c in one["status"].get("conditions", [])}
                if conditions.get("Ready") == "True" and "deletionTimestamp" not in one["metadata"]:
                    found[one["metadata"]["labels"]["app"]] = one
            return found.keys() >= set(apps)

        try:
            await until(all_ready, f"the pods {apps} to be ready")
        except TimeoutError as error:
            error.add_note(self.bed.kubectl("-n", self.namespace, "describe", "pods"))
            raise
        return found

    async def held(self, *names: str) -> dict[str, int]:
        """Wait until these workloads did their commands; the bytes that each says that it holds."""
        return await asyncio.to_thread(held, self.bed, names)

    def execute(self, pod: str, container: str, script: str) -> str:
        """Run a script in a container, as `kubectl exec` does; what it printed."""
        return self.bed.kubectl("-n", self.namespace, "exec", pod, "-c", container, "--", "sh", "-euc", script)

    @property
    def pods(self) -> str:
        """Path of the pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"


def held(bed: GuestBed, names: tuple[str, ...]) -> dict[str, int]:
    """Wait until these workloads, of pods or of the node, did their commands; the bytes that each holds."""
    files = " ".join(f"{STATE}/says/{name}" for name in names)
    ready = f"for file in {files}; do until grep -q '\"ready\": true' $file 2>/dev/null; do sleep 0.2; done; done"
    lines = bed.guest.shell(f"{ready}; cat {files}").splitlines()
    said = [json.loads(line) for line in lines]
    assert not [one["error"] for one in said if one["error"]], said
    return {name: sum(one["held"].values()) for name, one in zip(names, said, strict=True)}


def background(name: str, *commands: str, program: str = "/bin/workload") -> str:
    """Write the line of a shell that starts a workload, and does not wait for it."""
    words = shlex.join([program, "--name", name, *commands])
    return f"setsid {words} </dev/null >/dev/null 2>&1 &"


def on_the_node(name: str, *commands: str) -> str:
    """Write the command of a workload of the node's own."""
    return shlex.join([f"{PROGRAMS}/bin/workload", "--name", name, *commands])


def container_id(made: Mapping[str, Any], name: str) -> str:
    """Return the id of a pod's container."""
    (found,) = (one["containerID"] for one in made["status"]["containerStatuses"] if one["name"] == name)
    return str(found).removeprefix("containerd://")


def cgroup_of(made: Object, name: str) -> str:
    """Name the folders of a container as the kubelet and its runtime do with systemd's driver."""
    uid, tier = made["metadata"]["uid"].replace("-", "_"), made["status"]["qosClass"].lower()
    above, prefix = ("", "kubepods") if tier == "guaranteed" else (f"kubepods-{tier}.slice/", f"kubepods-{tier}")
    return f"kubepods.slice/{above}{prefix}-pod{uid}.slice/cri-containerd-{container_id(made, name)}.scope"


__all__ = [
    "LIMIT",
    "Workloads",
    "background",
    "box",
    "cgroup_of",
    "container_id",
    "deployment",
    "held",
    "on_the_node",
    "pod",
]
