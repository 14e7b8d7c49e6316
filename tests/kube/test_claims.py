"""ResourceClaims by name: what was allocated, read seldom, and forgotten with the last pod that names it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from aiohttp import web

from exporter.base.clock import SystemClock
from exporter.kube.claims import MOST, SELDOM, VERSIONS, Claims, named
from exporter.kube.client import Client
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.errors import KubeError
from exporter.kube.kept import FRESH
from exporter.model import ClaimUse, DeclaredContainer, DeclaredPod
from exporter.objects.claim import ClaimedUuids, ClaimObject, declared_claim
from sources.kube_api import Server, kubeconfig, refusal, serving

Object = dict[str, Any]
DEVICE = ("gpu.nvidia.com", "n1", "gpu-0")


def claim(name: str = "shared", *, pods: int = 1, allocated: bool = True) -> Object:
    """As the API server writes one (resource.k8s.io/v1, consumable capacity)."""
    result = {
        "request": "gpu",
        "driver": DEVICE[0],
        "pool": DEVICE[1],
        "device": DEVICE[2],
        "shareID": "e6b2",
        "consumedCapacity": {"memory": "10Gi"},
    }
    found: Object = {"kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": name}, "spec": {}}
    if allocated:
        reserved = [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in range(pods)]
        found["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    return found


def pod(uid: str, **claims: str) -> DeclaredPod:
    return DeclaredPod(uid, "ns", f"pod-{uid}", claims=claims)


class Later(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Api:
    """A server of one version of the API, with claims by name."""

    def __init__(self, version: str = "v1") -> None:
        self.version = version
        self.claims = {"shared": claim()}
        self.refusal: web.Response | None = None
        self.pods = [pod("u0", gpu="shared")]
        self.uuids: dict[tuple[str, str, str], str] = {}
        self.looked_at_devices = 0
        self.clock = Later()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.refusal is not None:
            return web.Response(status=self.refusal.status, body=self.refusal.body)
        *_, version, _, namespace, resource, name = request.path.split("/")
        if version != self.version or (namespace, resource) != ("ns", "resourceclaims") or name not in self.claims:
            return refusal(404, "NotFound")
        return web.Response(body=json.dumps(self.claims[name]))

    async def learn_devices(self) -> None:
        self.looked_at_devices += 1
        self.uuids = {DEVICE: "GPU-1"}

    def known(self) -> ClaimedUuids:
        return self.uuids

    @asynccontextmanager
    async def asked(self, folder: Path) -> AsyncIterator[tuple[Claims, Server]]:
        async with serving(self.answer) as server:
            client = Client(from_kubeconfig(kubeconfig(folder / "c", server.url)), clock=SystemClock())
            yield Claims(client, lambda: self.pods, self.learn_devices, clock=self.clock, random=Random(1)), server
            await client.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_claim_is_read_by_its_name_in_the_version_that_the_cluster_has(tmp_path: Path, version: str) -> None:
    """Devices and amounts are as `explain` reads them, with the UUID of the device's slice; asked for once."""
    api = Api(version)
    async with api.asked(tmp_path) as (claims, server):
        assert not claims.asked(api.pods[0])
        await claims.look(api.known)
        assert claims.asked(api.pods[0])
        (found,) = claims.found(api.uuids)
        (wanted,) = declared_claim(msgspec.convert(api.claims["shared"], ClaimObject)).devices
        assert (found.namespace, found.name) == ("ns", "shared")
        assert (found.devices[0].consumed, found.devices[0].share_id) == (wanted.consumed, wanted.share_id)
        assert found.devices[0].uuid == "GPU-1" and api.looked_at_devices == 1
        tried = len(server.seen)
        assert tried == VERSIONS.index(version) + 1
        api.clock.ahead = SELDOM * 1.26
        await claims.look(api.known)
        assert len(server.seen) == tried + 1, "the version is remembered"
        assert api.looked_at_devices == 1, "its device is known"


async def test_an_allocation_is_read_seldom_and_anew_when_the_pods_change(tmp_path: Path) -> None:
    """A second pod joins: the claim is read again, and is the same, so that no limit is resolved anew."""
    api = Api()
    async with api.asked(tmp_path) as (claims, server):
        await claims.look(api.known)
        api.clock.ahead = SELDOM * 0.74
        await claims.look(api.known)
        assert len(server.seen) == 1
        alone = claims.found({})
        api.claims["shared"] = claim(pods=2)
        api.pods.append(pod("u1", mine="shared"))
        await claims.look(api.known)
        assert claims.found({}) == alone != () and len(server.seen) == 2
        api.pods.clear()
        await claims.look(api.known)
        assert claims.found({}) == () and len(server.seen) == 2


async def test_a_claim_that_waits_is_asked_for_about_once_a_minute(tmp_path: Path) -> None:
    """Until it is allocated; one that an extended resource is served by (no container names it) is one like others."""
    api = Api()
    api.pods = [pod("u0", **{"": "made"})]
    api.claims = {"made": claim("made", allocated=False)}
    async with api.asked(tmp_path) as (claims, server):
        await claims.look(api.known)
        assert [found.devices for found in claims.found({})] == [()]
        assert api.looked_at_devices == 0
        api.claims = {"made": claim("made")}
        api.clock.ahead = FRESH * 0.74
        await claims.look(api.known)
        assert len(server.seen) == 1
        api.clock.ahead = FRESH * 1.26
        await claims.look(api.known)
        assert [len(found.devices) for found in claims.found({})] == [1]


async def test_what_is_known_of_a_claim_outlives_an_outage_and_not_the_claim(tmp_path: Path) -> None:
    """Server away: the allocation stays, for it cannot have changed. Claim gone (404): it ends. Refused: a fault."""
    api = Api()
    async with api.asked(tmp_path) as (claims, _):
        await claims.look(api.known)
        api.refusal = refusal(503, "ServiceUnavailable")
        api.clock.ahead = 10 * SELDOM
        await claims.look(api.known)
        assert len(claims.found({})) == 1 and not claims.faults
        api.refusal, api.claims = None, {}
        api.clock.ahead += 20.0
        await claims.look(api.known)
        assert claims.found({}) == ()
        api.refusal = refusal(403, "Forbidden")
        api.clock.ahead += 80.0
        await claims.look(api.known)
        api.clock.ahead += 13.0
        await claims.look(api.known)
        (fault,) = claims.faults
        assert (fault.reason, fault.incomplete) == ("claims_forbidden", False)
        assert "get resourceclaims.resource.k8s.io" in fault.message


async def test_a_broken_claim_costs_itself(tmp_path: Path) -> None:
    """An answer that is no claim takes nothing from the others, and neither does a look at slices that fails."""
    api = Api()
    api.pods = [pod("u0", a="broken", b="shared")]
    api.claims["broken"] = {"metadata": {"name": "broken"}, "status": {"allocation": {"devices": {"results": 7}}}}

    async def away() -> None:
        raise KubeError(0, "Unreachable", "nobody there")

    async with api.asked(tmp_path) as (claims, _):
        claims._learn_devices = away
        await claims.look(api.known)
        assert [found.name for found in claims.found({})] == ["shared"]
        assert claims.asked(api.pods[0]), "what it declares need not wait for an answer that is none"


def test_of_a_pod_with_thousands_of_claims_some_are_read() -> None:
    """The claims of other pods wait for them. Those that containers use come first."""
    names = {f"c{number}": f"claim-{number}" for number in range(5000)} | {"": "of-the-scheduler", "used": "mine"}
    many = replace(pod("u0", **names), containers=(DeclaredContainer("main", claims=(ClaimUse("used"),)),))
    other = pod("u1", a="shared")
    found = {name for _, name in named([many, other])}
    assert len(found) == MOST + 1 and {"of-the-scheduler", "mine", "shared"} <= found


def test_who_only_looks_on_is_given_nothing() -> None:
    """A device with admin access (a monitoring agent's claim) is no share of its memory."""
    found = claim()
    found["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert declared_claim(msgspec.convert(found, ClaimObject)).devices == ()
