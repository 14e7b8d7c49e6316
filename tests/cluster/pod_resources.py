"""Which pod holds which device, as the kubelet says: its pod-resources API, without the daemon's code.

In: the kubelet's socket. Out: device ids by pod, container and resource.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import Message
from grpclib.client import Channel
from grpclib.const import Cardinality

from cluster import kubelet_pb2 as api

Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class Holding:
    """Devices of one resource that one container holds."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


async def holdings(socket: Path) -> list[Holding]:
    """Every device that is handed out on the node (List)."""
    answer = await _ask(socket, "List", api.ListPodResourcesResponse)
    return [
        Holding(pod.namespace, pod.name, container.name, devices.resource_name, tuple(devices.device_ids))
        for pod in answer.pod_resources
        for container in pod.containers
        for devices in container.devices
    ]


async def allocatable(socket: Path) -> dict[str, list[str]]:
    """Every device that could be handed out, by resource (GetAllocatableResources)."""
    answer = await _ask(socket, "GetAllocatableResources", api.AllocatableResourcesResponse)
    found: dict[str, list[str]] = {}
    for devices in answer.devices:  # the kubelet writes one entry for each id
        found.setdefault(devices.resource_name, []).extend(devices.device_ids)
    return {resource: sorted(ids) for resource, ids in found.items()}


async def _ask(socket: Path, call: str, kind: type[Answer]) -> Answer:
    async with Channel(path=str(socket)) as channel:
        path = f"/v1.PodResourcesLister/{call}"
        async with channel.request(path, Cardinality.UNARY_UNARY, api.Empty, kind) as stream:
            await stream.send_message(api.Empty(), end=True)
            answer: Answer | None = await stream.recv_message()
    if answer is None:
        raise ConnectionError(f"the kubelet did not answer {call}")
    return answer
