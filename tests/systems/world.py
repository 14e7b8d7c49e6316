"""
A node of the book at its borders: what the driver, `/proc`, the kubelet and the API server answer.

What comes in: a scene, and the seconds since its processes began. What goes out: the same bytes and structures that the
real ones hand over. Everything behind these borders is the program's own code.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

from exporter.base.quantities import parse_bytes
from exporter.devices import DevicesSample, Identify
from exporter.host.procfs import ProcFs
from exporter.kube import pod_resources
from exporter.kube import source as kube_source
from exporter.kube.credentials import in_cluster
from exporter.kube.errors import KubeError
from exporter.kube.proto import pod_resources_pb2 as api
from exporter.kube.source import KubernetesSource
from exporter.model import DeviceKey, Gpu, GpuInstance, GpuProcess, GpuSample, GpuUuid, Memory, ProcessKind
from systems.book import GpuRow, ProcessRow, SceneRow, expanded, gpu_uuid, mig_uuid

NODE = "gpu-node-1"
CONSENT = {"gpusteward.io/mode": "enforce"}
RESERVED = 512 * 2**20
"""Bytes that the driver keeps for itself on each device."""
CREATED = "2026-08-01T00:00:00Z"
TURNS = 40
"""Turns of the event loop after which all tasks wait for time again; mostly fewer are needed."""
INSTANT = 0.5
"""Seconds: a shorter pause of the program only lets other tasks run."""
STAT = "{pid} (python) S 1 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 {ticks} 1 1 18446744073709551615"
FIRST_PID = 1000


class SteppedClock:
    """Time that passes only in `step`."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._waiting: list[tuple[float, asyncio.Event]] = []

    def time(self) -> float:
        """Unix time."""
        return 1_790_000_000.0 + self.now

    def monotonic(self) -> float:
        """Seconds since the node's start."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Wait until the time was stepped so far."""
        if seconds < INSTANT:
            await asyncio.sleep(0)
            return
        wake = asyncio.Event()
        self._waiting.append((self.now + seconds, wake))
        await wake.wait()

    async def step(self, seconds: float) -> None:
        """Let time pass, and all tasks do what is due."""
        self.now += seconds
        due = [wake for at, wake in self._waiting if at <= self.now]
        self._waiting = [(at, wake) for at, wake in self._waiting if at > self.now]
        for wake in due:
            wake.set()
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # tasks that can go on now
        for _ in range(TURNS if due else 1):
            await asyncio.sleep(0)
            if not ready:
                return


class World:
    """
    A scene, played.

    Attributes:
        seconds: since the processes of the scene began; negative before.
        ended: pods that were acted on: their processes hold nothing any more.

    """

    name = "nvml"

    def __init__(self, scene: SceneRow, proc: Path) -> None:
        self.clock = SteppedClock()
        self.seconds = -1.0
        self.ended: set[str] = set()
        self.scene = scene
        self.pods = {pod["metadata"]["name"]: pod for pod in map(completed, scene.pods)}
        if len(self.pods) != len(scene.pods):
            raise ValueError("two pods of a scene have the same name")
        self._processes = [(FIRST_PID + number, row) for number, row in enumerate(scene.processes)]
        self._objects = self._api_objects()
        for pid, row in self._processes:
            _write_process(proc, pid, self._cgroup(row))
        for name in ("1", "self"):
            _write_process(proc, name, "0::/init.scope\n")
        self.host = ProcFs(proc, trusted=True)

    # --- the driver ---

    async def sample(self, only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        """Answer as a `DeviceSource`."""
        gpus = [self._gpu(index, row) for index, row in enumerate(self.scene.gpus)]
        samples = tuple(
            GpuSample(gpu, self.clock.time(), tuple(self._listed(gpu)) if row.listed else None)
            for gpu, row in zip(gpus, self.scene.gpus, strict=True)
            if only is None or gpu.uuid in only
        )
        return DevicesSample({gpu.uuid: gpu.index for gpu in gpus}, samples)

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Answer as a `DeviceSource`."""
        sample = await self.sample(only)
        return {key: size for each in sample.samples for key, size, _ in each.gpu.leaves() if size is not None}

    async def close(self) -> None:
        """Answer as a `DeviceSource`."""

    def _gpu(self, index: int, row: GpuRow) -> Gpu:
        return Gpu(
            GpuUuid(row.uuid or gpu_uuid(index)),
            index,
            row.model,
            row.vendor,
            pci_bus_id=row.pci or f"00000000:{index + 0x10:02X}:00.0",
            driver_version="580.95.05",
            mig=bool(row.mig),
            memory=_filled(row.memory, sum(self._held(index, None))),
            instances=tuple(
                GpuInstance(
                    each.id,
                    each.profile,
                    tuple(each.uuids or [mig_uuid(index, each.id)]),
                    _filled(each.memory, sum(self._held(index, each.id)), reserved=0),
                )
                for each in row.mig
            ),
            minor=index if row.minor is None else row.minor,
            names=tuple(row.names),
        )

    def _held(self, gpu: int, mig: int | None) -> Iterator[int]:
        for _, row in self._processes:
            if row.gpu == gpu and (mig is None or row.mig == mig):
                yield self._memory(row)

    def _listed(self, gpu: Gpu) -> Iterator[GpuProcess]:
        for pid, row in self._processes:
            if row.gpu == gpu.index and (held := self._memory(row)):
                memory = None if row.hidden else held
                yield GpuProcess(DeviceKey(gpu.uuid, row.mig), pid, _lists(row.kind), memory)

    def _memory(self, row: ProcessRow) -> int:
        return 0 if row.pod in self.ended else row.held(self.seconds)

    # --- the kernel ---

    def _cgroup(self, row: ProcessRow) -> str:
        if not row.pod:
            return "0::/system.slice/host.service\n"
        pod = self.pods[row.pod]
        uid, container = pod["metadata"]["uid"], row.container or first_container(pod)
        slices = f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid.replace('-', '_')}.slice"
        return f"0::/{slices}/cri-containerd-{container_id(uid, container)}.scope\n"

    # --- the kubelet ---

    def pod_resources(self, kind: type[Any]) -> Any:
        """Answer `List` or `GetAllocatableResources`, through the bytes on the wire."""
        answer = self._list() if kind is api.ListResponse else self._allocatable()
        return kind.FromString(answer.SerializeToString())

    def _list(self) -> api.ListResponse:
        answer = api.ListResponse()
        for name, pod in self.pods.items():
            listed = answer.pod_resources.add(name=name, namespace=pod["metadata"]["namespace"])
            for container in _containers(pod):
                entry = listed.containers.add(name=container["name"])
                for row in self.scene.allocations:
                    if row.pod == name and (row.container or first_container(pod)) == container["name"]:
                        if row.resource:
                            entry.devices.add(resource_name=row.resource, device_ids=list(expanded(row.ids)))
                        else:
                            claim = entry.dynamic_resources.add(claim_name=row.claim, claim_namespace=listed.namespace)
                            claim.claim_resources.add(
                                driver_name=row.driver, pool_name=row.pool or NODE, device_name=row.device
                            )
        return answer

    def _allocatable(self) -> api.AllocatableResponse:
        answer = api.AllocatableResponse()
        for resource, ids in self.scene.allocatable.items():
            answer.devices.add(resource_name=resource, device_ids=list(expanded(ids)))
        return answer

    # --- the API server ---

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, accept: str = "") -> bytes:
        """Answer as the API server's client."""
        if (found := self._objects.get(path)) is not None:
            return found
        kind, _, name = path.rpartition("/")
        if kind == "/api/v1/namespaces":
            return _json({"metadata": {"name": name, "labels": self.scene.namespaces.get(name, CONSENT)}})
        if kind.endswith("/statefulsets"):
            return _json({"metadata": {"name": name, "uid": made_uid("owner", name)}})
        raise KubeError(404, "NotFound", path)

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str], **_: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch in which nothing ever happens."""
        yield _silence()

    def _api_objects(self) -> dict[str, bytes]:
        scene, dra = self.scene, "/apis/resource.k8s.io/v1"
        node = {
            "metadata": {"name": NODE, "labels": scene.node.labels, "annotations": scene.node.annotations},
            "status": {
                "capacity": scene.node.capacity,
                "allocatable": scene.node.capacity if scene.node.allocatable is None else scene.node.allocatable,
            },
        }
        objects = {
            "/api/v1/pods": _json({"metadata": {"resourceVersion": "1"}, "items": [*self.pods.values()]}),
            f"/api/v1/nodes/{NODE}": _json(node),
            f"{dra}/resourceslices": _json({"items": scene.slices}),
        }
        for claim in scene.claims:
            metadata = claim["metadata"]
            namespace = metadata.get("namespace", "default")
            objects[f"{dra}/namespaces/{namespace}/resourceclaims/{metadata['name']}"] = _json(claim)
        return objects


@contextmanager
def inventory_of(world: World, folder: Path) -> Iterator[KubernetesSource]:
    """Make the real source of names and allocations, whose API server and kubelet are the world's."""
    socket = folder / "kubelet.sock"
    socket.touch()

    async def call(_channel: object, _version: str, _name: str, kind: type[Any]) -> Any:
        return world.pod_resources(kind)

    with (
        patch.object(kube_source, "Client", lambda *_, **__: world),
        patch.object(pod_resources, "_call", call),
    ):
        yield KubernetesSource(in_cluster(folder), NODE, clock=world.clock, socket=socket)


def completed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Add to a manifest what the API server, its controller and the kubelet write, as far as it is missing."""
    metadata, spec = dict(manifest["metadata"]), dict(manifest["spec"])
    namespace = metadata.setdefault("namespace", "default")
    uid = metadata.setdefault("uid", made_uid("pod", namespace, metadata["name"]))
    metadata.setdefault("creationTimestamp", CREATED)
    metadata.setdefault("resourceVersion", "1")
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"{metadata['name']}-set", "controller": True}
    metadata.setdefault("ownerReferences", [{**owner, "uid": made_uid("owner", f"{metadata['name']}-set")}])
    spec.setdefault("nodeName", NODE)
    spec.setdefault("priority", 0)
    running = [
        {
            "name": each["name"],
            "containerID": f"containerd://{container_id(uid, each['name'])}",
            "state": {"running": {"startedAt": CREATED}},
        }
        for each in spec["containers"]
    ]
    status = {"phase": "Running", "containerStatuses": running, **manifest.get("status", {})}
    return {**manifest, "metadata": metadata, "spec": spec, "status": status}


def first_container(pod: dict[str, Any]) -> str:
    """Name the first container of a pod."""
    return str(pod["spec"]["containers"][0]["name"])


def container_id(uid: str, container: str) -> str:
    """Make the id that the runtime gave to a container."""
    return sha256(f"{uid}/{container}".encode()).hexdigest()


def made_uid(*parts: str) -> str:
    """Make the UID that the API server gave to an object."""
    text = sha256("/".join(parts).encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"


def _containers(pod: dict[str, Any]) -> Iterable[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def _filled(total: str, used: int, reserved: int = RESERVED) -> Memory:
    size = parse_bytes(total)
    if used + reserved > size:
        raise ValueError(f"the processes hold {used} bytes of a device of {total}")
    return Memory(size, size - used - reserved, reserved)


def _lists(kind: ProcessKind) -> frozenset[ProcessKind]:
    """Name the driver's lists in which a process is: an MPS client is in the compute list, too (`M+C`)."""
    return frozenset({kind, ProcessKind.COMPUTE} if kind is ProcessKind.MPS else {kind})


def _write_process(proc: Path, pid: int | str, cgroup: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    number = 1 if pid == "self" else int(pid)
    (folder / "stat").write_text(STAT.format(pid=number, ticks=90_000 + number) + "\n")
    (folder / "status").write_text(f"Name:\tpython\nTgid:\t{number}\nPid:\t{number}\n")
    (folder / "cgroup").write_text(cgroup)


def _json(data: Any) -> bytes:
    return json.dumps(data, default=str).encode()


async def _silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""
