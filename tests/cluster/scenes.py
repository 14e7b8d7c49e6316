"""
A scene of the scenario book (`tests/systems/`) on a real node: its GPUs, its Node, its pods.

In: a scene. Out: a while in which the scene's pods run. Meanwhile the fake driver has its GPUs, the kubelet offers its
devices, and the Node says what the system's components write.
Law: when the while is over, the Node and the offer are as before, also after a failure.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import msgspec

from cluster.bed import NODE_NAME, Bed
from cluster.beside import beside
from cluster.client import Api
from cluster.dra_plugin import driving
from cluster.offering import offer_to_kubelet, on_the_node
from cluster.scene_pods import Scenery, allocation
from driver.node import FakeComputeInstance, FakeGpu, FakeGpuInstance
from exporter.base.quantities import parse_bytes
from systems.book import GpuRow, SceneRow, expanded, gpu_uuid, mig_uuid
from systems.world import NODE, RESERVED

NODE_PATH = f"/api/v1/nodes/{NODE_NAME}"


@asynccontextmanager
async def played(bed: Bed, api: Api, scene: SceneRow, resources: Iterable[str]) -> AsyncIterator[Scenery]:
    """Have a scene on the bed's node; `resources`: all that its device plugin serves."""
    scene = msgspec.json.decode(msgspec.json.encode(scene).replace(NODE.encode(), NODE_NAME.encode()), type=SceneRow)
    bed.driver.write([_gpu(index, row) for index, row in enumerate(scene.gpus)])
    nothing: dict[str, Sequence[str]] = dict.fromkeys(resources, ())
    async with AsyncExitStack() as stack:
        offered = {resource: list(expanded(ids)) for resource, ids in scene.allocatable.items()}
        assert offered.keys() <= nothing.keys(), "the device plugin of the bed serves them from its start"
        stack.push_async_callback(offer_to_kubelet, bed, nothing)
        await offer_to_kubelet(bed, {**nothing, **offered})
        await stack.enter_async_context(_written(api, scene, set(offered)))
        if scene.claims:
            uuids = {f"gpu-{index}": gpu_uuid(index) for index, _ in enumerate(scene.gpus)}
            stack.enter_context(beside(lambda: driving(bed, uuids, memory=scene.gpus[0].memory)))
        stack.enter_context(_of_the_host(bed, scene))
        scenery = Scenery(bed, api, scene)
        stack.push_async_callback(scenery.remove)
        await scenery.create()
        await on_the_node(api, {**nothing, **offered})
        yield scenery


@asynccontextmanager
async def _written(api: Api, scene: SceneRow, served: set[str]) -> AsyncIterator[None]:
    """Write labels, annotations and extended resources on the Node; what a plugin serves the kubelet writes itself."""
    node = scene.node
    capacity = {name: count for name, count in node.capacity.items() if name not in served}
    metadata = {"labels": node.labels, "annotations": node.annotations}
    status = {"capacity": capacity, "allocatable": capacity}
    before = await api.get(NODE_PATH)
    restored = {key: _as_before(new, before["metadata"].get(key, {})) for key, new in metadata.items()}
    gone = {key: _as_before(new, before["status"].get(key, {})) for key, new in status.items()}
    try:
        await api.patch(NODE_PATH, {"metadata": metadata})
        await api.patch(f"{NODE_PATH}/status", {"status": status})
        yield
    finally:
        await api.patch(NODE_PATH, {"metadata": restored})
        await api.patch(f"{NODE_PATH}/status", {"status": gone})


def _as_before(new: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str | None]:
    return {key: before.get(key) for key in new}


@contextmanager
def _of_the_host(bed: Bed, scene: SceneRow) -> Iterator[None]:
    """Run the processes that are no pod's, such as an MPS server."""
    running = [bed.driver.spawn(allocation(row)) for row in scene.processes if not row.pod]
    try:
        yield
    finally:
        for workload in running:
            workload.close()


def _gpu(index: int, row: GpuRow) -> FakeGpu:
    instances = tuple(
        FakeGpuInstance(
            id=each.id,
            memory=parse_bytes(each.memory),
            profile=each.profile,
            slices=int(each.profile.partition("g.")[0]),
            computes=(FakeComputeInstance(uuid=mig_uuid(index, each.id), slot=slot),),
        )
        for slot, each in enumerate(row.mig)
    )
    return FakeGpu(
        uuid=gpu_uuid(index),
        name=row.model,
        pci=f"00000000:{index + 0x10:02X}:00.0",
        minor=index,
        total=parse_bytes(row.memory),
        reserved=RESERVED,
        mig="on" if instances else "off",
        instances=instances,
    )


def together(scene: SceneRow, other: SceneRow, system: str, prefix: str) -> SceneRow:
    """
    Put a second scene of one GPU, of `system`, on a GPU of its own beside a first one; its pods' names get a prefix.

    Its plugin counts both GPUs, as plugins do: what it advertises is twice as much.
    """
    gpu, text = len(scene.gpus), msgspec.json.encode(other).decode()
    for name in [manifest["metadata"]["name"] for manifest in other.pods]:
        text = text.replace(f'"{name}"', f'"{prefix}{name}"')
    text = text.replace(gpu_uuid(0), gpu_uuid(gpu))
    raw, base = json.loads(text), msgspec.to_builtins(scene)
    for row in (*raw["processes"], *raw["expect"]["sharing"], *raw["expect"]["limits"]):
        row["gpu"] = gpu
    raw["node"]["capacity"] = {name: str(2 * int(count)) for name, count in raw["node"]["capacity"].items()}
    for row in raw["expect"]["limits"]:
        row["system"] = row["system"] or system
    for key in ("labels", "annotations", "capacity"):
        base["node"][key] = {**raw["node"][key], **base["node"][key]}
    for key in ("gpus", "allocations", "pods", "processes"):
        base[key] += raw[key]
    for key in ("sharing", "limits", "verdicts"):
        base["expect"][key] += raw["expect"][key]
    return msgspec.convert(base, SceneRow)
