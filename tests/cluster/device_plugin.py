"""A device plugin for the fake driver: it registers with a kubelet, lists what it has, and answers Allocate.

In: an inventory file, `{resource: [device id, …]}`; it may be replaced while we run. An id may be a replica, `UUID::n`.
Out: per resource a registration and a stream of device lists. For each allocation, the variable NVIDIA_VISIBLE_DEVICES
(uuids without `::n`, as NVIDIA's plugin writes them) and a mount of the fake driver's state.
Law: it hands out what the kubelet asks for and decides nothing.

    python -m cluster.device_plugin INVENTORY STATE_FOLDER [PLUGIN_FOLDER]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpclib.client import Channel
from grpclib.const import Cardinality, Handler
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Server, Stream

from cluster import kubelet_pb2 as api

VERSION = "v1beta1"
STATE_IN_CONTAINER = "/run/fake-nvml"  # where the fake driver looks unless a variable says otherwise
LOOK_EVERY_S = float(os.environ.get("LOOK_EVERY_S", "0.1"))
"""An emulated processor looks less often."""

Inventory = Mapping[str, Sequence[str]]


def uuids(device_ids: Sequence[str]) -> list[str]:
    """The devices behind these replicas, each once, in the order of the ids."""
    return list(dict.fromkeys(device_id.partition("::")[0] for device_id in device_ids))


class Plugin:
    """The service of one resource. `inventory` is read anew whenever it changed; a missing resource has no devices."""

    def __init__(self, resource: str, inventory: Path, state: Path) -> None:
        self.resource = resource
        self.endpoint = f"gpusteward-test-{resource.replace('/', '-')}.sock"
        self._inventory = inventory
        self._state = state

    def __mapping__(self) -> dict[str, Handler]:
        """The calls, as grpclib wants them."""
        unary = (Cardinality.UNARY_UNARY, api.Empty, api.DevicePluginOptions)
        return {
            "/v1beta1.DevicePlugin/GetDevicePluginOptions": Handler(self._options, *unary),
            "/v1beta1.DevicePlugin/ListAndWatch": Handler(
                self._list_and_watch, Cardinality.UNARY_STREAM, api.Empty, api.ListAndWatchResponse
            ),
            "/v1beta1.DevicePlugin/Allocate": Handler(
                self._allocate, Cardinality.UNARY_UNARY, api.AllocateRequest, api.AllocateResponse
            ),
        }

    def allocate(self, device_ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """What a container with these devices is given."""
        return api.ContainerAllocateResponse(
            envs={"NVIDIA_VISIBLE_DEVICES": ",".join(uuids(device_ids))},
            mounts=[api.Mount(container_path=STATE_IN_CONTAINER, host_path=str(self._state))],
        )

    async def _options(self, stream: Stream[api.Empty, api.DevicePluginOptions]) -> None:
        await stream.recv_message()
        await stream.send_message(api.DevicePluginOptions())

    async def _list_and_watch(self, stream: Stream[api.Empty, api.ListAndWatchResponse]) -> None:
        await stream.recv_message()
        sent = None
        while True:
            listed = read(self._inventory).get(self.resource, [])
            if listed != sent:
                devices = [api.Device(ID=device_id, health="Healthy") for device_id in listed]
                await stream.send_message(api.ListAndWatchResponse(devices=devices))
                sent = listed
            await asyncio.sleep(LOOK_EVERY_S)

    async def _allocate(self, stream: Stream[api.AllocateRequest, api.AllocateResponse]) -> None:
        request = await stream.recv_message()
        if request is not None:
            answers = [self.allocate(list(container.devices_ids)) for container in request.container_requests]
            await stream.send_message(api.AllocateResponse(container_responses=answers))


def read(inventory: Path) -> Inventory:
    """The inventory file's content; a rename replaces the file, so it is always whole."""
    found: Inventory = json.loads(inventory.read_text())
    return found


async def serve(inventory: Path, state: Path, folder: Path) -> None:
    """
    Register every resource that is in the inventory, and serve until cancelled.

    A kubelet that starts anew empties the folder: then everything is registered again, as soon as it listens. It may do
    so at any moment of its start, also after it took a registration.
    """
    while True:
        servers: list[Server] = []
        try:
            sockets = await _offer(inventory, state, folder, servers)
            while all(socket.exists() for socket in sockets):
                await asyncio.sleep(LOOK_EVERY_S)
        except (OSError, StreamTerminatedError):
            await asyncio.sleep(LOOK_EVERY_S)  # no kubelet listens yet
        finally:
            for server in servers:
                server.close()


async def _offer(inventory: Path, state: Path, folder: Path, servers: list[Server]) -> list[Path]:
    sockets = []
    for resource in read(inventory):
        plugin = Plugin(resource, inventory, state)
        socket = folder / plugin.endpoint
        socket.unlink(missing_ok=True)
        server = Server([plugin])
        await server.start(path=str(socket))
        servers.append(server)
        sockets.append(socket)
        await _register(folder / "kubelet.sock", plugin)
        print(f"registered {resource}", flush=True)
    return sockets


async def _register(kubelet: Path, plugin: Plugin) -> None:
    async with Channel(path=str(kubelet)) as channel:
        request = api.RegisterRequest(version=VERSION, endpoint=plugin.endpoint, resource_name=plugin.resource)
        path = "/v1beta1.Registration/Register"
        async with channel.request(path, Cardinality.UNARY_UNARY, api.RegisterRequest, api.Empty) as stream:
            await stream.send_message(request, end=True)
            await stream.recv_message()


if __name__ == "__main__":
    arguments = [Path(word) for word in sys.argv[1:]]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(*arguments[:2], *(arguments[2:] or [Path("/var/lib/kubelet/device-plugins")])))
