"""A DRA driver for the fake GPUs: it registers with a kubelet, publishes a ResourceSlice, and prepares claims.

In: the bed, an admin's client, devices. Out: while it runs, the real scheduler allocates claims of these devices and
the real kubelet lets pods have them.
Law: it hands out what the scheduler allocated and decides nothing. As NVIDIA's does, it writes a CDI specification for
each claim, by which containerd gives the pod its device.

    with beside(lambda: driving(bed, {"gpu-0": uuid}, memory="80Gi")): ...
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from cluster import kubelet_pb2 as api
from cluster.bed import NODE_NAME, Bed
from cluster.client import Api, ApiError, Object, until
from cluster.toolkit import STATE
from kubelet.listening import Listening

DRIVER = "gpu.nvidia.com"
CDI_KIND = f"k8s.{DRIVER}/claim"
SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
RESOURCES = "/apis/resource.k8s.io/v1"
SEEN_BY_KUBELET = "/var/lib/kubelet"
"""What `Node.kubelet_folder` is to the kubelet."""


class _Registration:
    """What the kubelet asks at a socket that it finds among the plugins."""

    def __init__(self, endpoint: str) -> None:
        self.registered = False
        self.refused = ""
        self._endpoint = endpoint

    def __mapping__(self) -> dict[str, Handler]:
        unary = Cardinality.UNARY_UNARY
        return {
            "/pluginregistration.Registration/GetInfo": Handler(self._info, unary, api.Empty, api.PluginInfo),
            "/pluginregistration.Registration/NotifyRegistrationStatus": Handler(
                self._status, unary, api.RegistrationStatus, api.Empty
            ),
        }

    async def _info(self, stream: Stream[api.Empty, api.PluginInfo]) -> None:
        await stream.recv_message()
        info = api.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=self._endpoint, supported_versions=["v1.DRAPlugin"]
        )
        await stream.send_message(info)

    async def _status(self, stream: Stream[api.RegistrationStatus, api.Empty]) -> None:
        if (status := await stream.recv_message()) is not None:
            self.registered, self.refused = status.plugin_registered, status.error
        await stream.send_message(api.Empty())


class _Plugin:
    """Prepares claims: says which of the devices that the scheduler allocated are this driver's."""

    def __init__(self, admin: Api, bed: Bed, uuids: Mapping[str, str]) -> None:
        assert bed.node.containerd is not None
        self._admin = admin
        self._cdi = bed.node.containerd.cdi
        self._state = bed.driver.folder
        self._uuids = uuids

    def __mapping__(self) -> dict[str, Handler]:
        unary = Cardinality.UNARY_UNARY
        return {
            f"{SERVICE}/NodePrepareResources": Handler(self._prepare, unary, api.Claims, api.PreparedClaims),
            f"{SERVICE}/NodeUnprepareResources": Handler(self._unprepare, unary, api.Claims, api.UnpreparedClaims),
        }

    async def _prepare(self, stream: Stream[api.Claims, api.PreparedClaims]) -> None:
        request = await stream.recv_message()
        prepared = api.PreparedClaims()
        for claim in request.claims if request is not None else ():
            prepared.claims[claim.uid].CopyFrom(await self._prepared(claim))
        await stream.send_message(prepared)

    async def _prepared(self, claim: api.Claim) -> api.PreparedClaim:
        try:
            found = await self._admin.get(f"{RESOURCES}/namespaces/{claim.namespace}/resourceclaims/{claim.name}")
        except ApiError as error:
            return api.PreparedClaim(error=str(error))
        results = [one for one in found["status"]["allocation"]["devices"]["results"] if one["driver"] == DRIVER]
        names = {one["device"]: f"{claim.uid}-{one['device']}" for one in results}
        draft, specification = self._cdi / f"{claim.uid}.draft", self._specification(claim)
        draft.write_text(json.dumps(self._injecting(names)))
        draft.rename(specification)
        devices = [
            api.ClaimedDevice(
                request_names=[one["request"]],
                pool_name=one["pool"],
                device_name=one["device"],
                cdi_device_ids=[f"{CDI_KIND}={names[one['device']]}"],
            )
            for one in results
        ]
        return api.PreparedClaim(devices=devices)

    def _specification(self, claim: api.Claim) -> Path:
        return self._cdi / f"{CDI_KIND.replace('/', '-')}_{claim.uid}.json"

    def _injecting(self, names: Mapping[str, str]) -> Object:
        mount = {"hostPath": str(self._state), "containerPath": STATE, "options": ["rbind", "rw"]}
        devices = [
            {
                "name": name,
                "containerEdits": {"env": [f"NVIDIA_VISIBLE_DEVICES={self._uuids[device]}"], "mounts": [mount]},
            }
            for device, name in names.items()
        ]
        return {"cdiVersion": "0.5.0", "kind": CDI_KIND, "devices": devices}

    async def _unprepare(self, stream: Stream[api.Claims, api.UnpreparedClaims]) -> None:
        request = await stream.recv_message()
        done = api.UnpreparedClaims()
        for claim in request.claims if request is not None else ():
            self._specification(claim).unlink(missing_ok=True)
            done.claims[claim.uid].CopyFrom(api.UnpreparedClaim())
        await stream.send_message(done)


@asynccontextmanager
async def driving(bed: Bed, uuids: Mapping[str, str], *, memory: str, shares: bool = True) -> AsyncIterator[None]:
    """Run the driver of these devices (name to UUID); with `shares` several claims may have parts of one's memory."""
    folder, seen = bed.node.kubelet_folder, f"{SEEN_BY_KUBELET}/plugins/{DRIVER}/dra.sock"
    plugin, registry = folder / "plugins" / DRIVER / "dra.sock", folder / "plugins_registry" / f"{DRIVER}-reg.sock"
    plugin.parent.mkdir(parents=True, exist_ok=True)
    registration = _Registration(seen)
    async with bed.api() as admin:
        servers = Listening([_Plugin(admin, bed, uuids)]), Listening([registration])
        try:
            for server, socket in zip(servers, (plugin, registry), strict=True):
                await server.start(path=str(socket))

            async def registered() -> bool:
                assert not registration.refused, registration.refused
                return registration.registered

            await until(registered, "the kubelet to take the DRA driver")
            await admin.create(f"{RESOURCES}/deviceclasses", device_class())
            await admin.create(f"{RESOURCES}/resourceslices", resource_slice(uuids, memory, shares=shares))
            yield
        finally:
            for path in (f"resourceslices/{DRIVER}", f"deviceclasses/{DRIVER}"):
                if not await admin.missing(f"{RESOURCES}/{path}"):
                    await admin.delete(f"{RESOURCES}/{path}")
            registry.unlink(missing_ok=True)  # by which the kubelet learns that we are gone
            plugin.unlink(missing_ok=True)
            for server in servers:
                await server.hang_up()


def device_class() -> Object:
    """All devices of this driver, under its name, as NVIDIA's chart makes it."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    return {"metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}}


def resource_slice(uuids: Mapping[str, str], memory: str, *, shares: bool) -> Object:
    """The node's devices as NVIDIA's driver publishes them, with or without --consumable-shares=memory."""
    policy = {"requestPolicy": {"default": memory, "validRange": {"min": "1Mi", "step": "1Mi"}}}
    devices = [
        {
            "name": name,
            "attributes": {"uuid": {"string": uuid}, "type": {"string": "gpu"}},
            "capacity": {"memory": {"value": memory, **(policy if shares else {})}},
            **({"allowMultipleAllocations": True} if shares else {}),
        }
        for name, uuid in uuids.items()
    ]
    pool = {"name": NODE_NAME, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": DRIVER},
        "spec": {"driver": DRIVER, "nodeName": NODE_NAME, "pool": pool, "devices": devices},
    }
