"""
The pods of a scene of the scenario book (`tests/systems/`), on a real cluster.

In: a scene whose node is ready. Out: its pods, which hold the memory of the book's processes.
Law: pods are the book's own manifests. Added is only what a scheduler, a controller and an image would bring: the node,
a StatefulSet (the pod's name gets its ordinal) and the fake workload.
"""

from __future__ import annotations

from copy import deepcopy

from cluster.bed import NODE_NAME, WORKLOAD, Bed
from cluster.client import Api, Object, until
from cluster.dra_plugin import RESOURCES
from cluster.manifests import controller, pod
from systems.book import ProcessRow, SceneRow, gpu_uuid, mig_uuid
from systems.world import CONSENT

STATE = "/fake-nvml"
"""Where the fake driver's state is in each container of a scene, whatever its device plugin mounts."""
CLAIMS = ("resourceclaims", "resourceclaimtemplates")


class Scenery:
    """
    A scene that is on.

    Attributes:
        scene: what is played.
        pods: the pods as they began, by name.

    """

    def __init__(self, bed: Bed, api: Api, scene: SceneRow) -> None:
        self.bed, self.api, self.scene = bed, api, scene
        self.pods: dict[str, Object] = {}

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of the scene's pods."""
        return sorted({_namespace(pod) for pod in self.scene.pods})

    async def lives(self, name: str) -> bool:
        """Whether a pod is the same as at first, and is not being deleted."""
        was = self.pods[name]["metadata"]
        path = f"/api/v1/namespaces/{was['namespace']}/pods/{was['name']}"
        if await self.api.missing(path):
            return False
        now = (await self.api.get(path))["metadata"]
        return now["uid"] == was["uid"] and "deletionTimestamp" not in now

    async def create(self) -> None:
        """Create the pods, and wait until each of them holds its memory."""
        for namespace in self.namespaces:
            await self._namespace(namespace)
        for manifest in self.scene.pods:
            await self._create(manifest)
        for manifest in self.scene.pods:
            name = manifest["metadata"]["name"]
            ready = self.pods[name] = await self._ready(manifest)
            for container in ready["spec"]["containers"]:
                for number, _ in enumerate(self._rows(name, container["name"], ready) or [None]):
                    self.bed.driver.workload(_speaker(ready["metadata"]["uid"], container["name"], number)).ready()

    async def remove(self) -> None:
        """End the pods, and delete what was created for them."""
        for namespace in self.namespaces:
            kinds = (f"/apis/apps/v1/namespaces/{namespace}/statefulsets", f"/api/v1/namespaces/{namespace}/pods")
            claims = [f"{RESOURCES}/namespaces/{namespace}/{kind}" for kind in CLAIMS]
            for path in (*kinds, *claims):
                await self.api.delete(path)

        async def empty() -> bool:
            listed = [await self.api.get(f"/api/v1/namespaces/{namespace}/pods") for namespace in self.namespaces]
            return not any(answer["items"] for answer in listed)

        await until(empty, "no pod left of the scene")

    async def _ready(self, manifest: Object) -> Object:
        namespace, name = _namespace(manifest), _named(manifest)

        async def there() -> bool:
            return not await self.api.missing(f"/api/v1/namespaces/{namespace}/pods/{name}")

        await until(there, f"the pod {name} to be created")
        return await self.api.ready_pod(namespace, name)

    async def _namespace(self, name: str) -> None:
        labels = self.scene.namespaces.get(name, CONSENT)
        if await self.api.missing(f"/api/v1/namespaces/{name}"):
            await self.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})

        async def has_account() -> bool:
            return not await self.api.missing(f"/api/v1/namespaces/{name}/serviceaccounts/default")

        await until(has_account, f"the ServiceAccount of {name}")

    async def _create(self, manifest: Object) -> None:
        namespace, name = _namespace(manifest), manifest["metadata"]["name"]
        if account := manifest["spec"].get("serviceAccountName"):
            accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            if await self.api.missing(f"{accounts}/{account}"):
                await self.api.create(accounts, {"metadata": {"name": account}})
        await self._templates(manifest)
        metadata = {key: value for key, value in manifest["metadata"].items() if key not in ("uid", "namespace")}
        spec = self._spec(manifest)
        if "ownerReferences" in metadata:
            await self.api.create(f"/api/v1/namespaces/{namespace}/pods", pod(name, spec) | {"metadata": metadata})
            return
        made = controller("StatefulSet", name, spec, serviceName=name)
        template = made["spec"]["template"]["metadata"]
        template["labels"] |= metadata.get("labels", {})
        template["annotations"] = metadata.get("annotations", {})
        await self.api.create(f"/apis/apps/v1/namespaces/{namespace}/statefulsets", made)

    async def _templates(self, manifest: Object) -> None:
        """Create the ResourceClaimTemplates that a pod names; the real scheduler allocates the claims."""
        named = {one["name"]: one["resourceClaimName"] for one in _claim_statuses(manifest)}
        for claim in manifest["spec"].get("resourceClaims", []):
            (spec,) = (one["spec"] for one in self.scene.claims if one["metadata"]["name"] == named[claim["name"]])
            path = f"{RESOURCES}/namespaces/{_namespace(manifest)}/resourceclaimtemplates"
            body = {"metadata": {"name": claim["resourceClaimTemplateName"]}, "spec": {"spec": spec}}
            await self.api.create(path, body)

    def _spec(self, manifest: Object) -> Object:
        spec: Object = deepcopy(manifest["spec"])
        if "resourceClaims" not in spec:
            spec["nodeName"] = NODE_NAME  # bound, as by its system's own scheduler, of which there is none here
        spec |= {
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "driver", "hostPath": {"path": str(self.bed.driver.folder)}}],
        }
        for container in spec["containers"]:
            container["image"] = WORKLOAD
            container["command"] = self._command(manifest, container["name"])
            container.pop("args", None)
            container["volumeMounts"] = [{"name": "driver", "mountPath": STATE}]
            own = [
                {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                {"name": "FAKE_NVML_STATE", "value": STATE},
            ]
            container["env"] = [*own, *container.get("env", [])]
        return spec

    def _command(self, manifest: Object, container: str) -> list[str]:
        """Start a workload for each process; without a process, one that holds nothing."""
        rows = self._rows(manifest["metadata"]["name"], container, manifest)
        commands = [f"'{allocation(row)}'" for row in rows] or [""]
        names = (_speaker("$(POD_UID)", container, number) for number, _ in enumerate(commands))
        started = [f"/bin/workload --name {name} {one}" for name, one in zip(names, commands, strict=True)]
        return ["sh", "-c", " & ".join([*started[:-1], f"exec {started[-1]}"])]

    def _rows(self, pod: str, container: str, manifest: Object) -> list[ProcessRow]:
        first = manifest["spec"]["containers"][0]["name"]
        return [row for row in self.scene.processes if row.pod == pod and (row.container or first) == container]


def allocation(row: ProcessRow) -> str:
    """Say to a workload what a process of the book holds in the end."""
    device = gpu_uuid(row.gpu) if row.mig is None else mig_uuid(row.gpu, row.mig)
    kinds = "mps+compute" if row.kind == "mps" else row.kind
    return f"alloc {device} {row.held(row.last_change)} {kinds}"


def _named(manifest: Object) -> str:
    """Name a pod as the cluster does: its StatefulSet adds an ordinal; a pod without an owner keeps its name."""
    name = str(manifest["metadata"]["name"])
    return name if "ownerReferences" in manifest["metadata"] else f"{name}-0"


def _namespace(manifest: Object) -> str:
    return str(manifest["metadata"].get("namespace", "default"))


def _claim_statuses(manifest: Object) -> list[Object]:
    return list(manifest.get("status", {}).get("resourceClaimStatuses", []))


def _speaker(uid: str, container: str, number: int) -> str:
    return f"{uid}-{container}-{number}"
