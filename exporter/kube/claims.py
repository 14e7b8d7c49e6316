"""
ResourceClaims (DRA) of this node's pods: the devices of each claim, and how much of them.

What comes in: a client, the pods' declarations, the UUIDs in ResourceSlices. What goes out: claims for the resolver.

The rule: a claim is read by its name, because a pod here names it; nothing is listed or watched. An allocation never
changes while it exists, so it is read seldom. When other pods name a claim, it is read again: it may be a new one of
this name.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from random import Random

import msgspec

from exporter.base.clock import Clock
from exporter.kube.client import Client, segment
from exporter.kube.errors import KubeError, decoded
from exporter.kube.kept import FRESH, LOOK, Kept
from exporter.model import Claim, DeclaredPod, Fault
from exporter.objects.claim import ClaimedUuids, ClaimObject, declared_claim, with_uuids

VERSIONS = ("v1", "v1beta2", "v1beta1")
"""Of resource.k8s.io: 1.34, 1.33, 1.32."""
MOST = 256
"""Claims of one pod that are read, one after the other: the claims of other pods wait for them."""
SELDOM = 600.0
"""Seconds until an allocated claim is read again."""

_CLAIM = msgspec.json.Decoder(ClaimObject)

ClaimName = tuple[str, str]
"""Namespace and name."""


class Claims:
    """
    Reads and keeps claims; `pods` returns the declarations of the pods here, `learn_devices` reads the ResourceSlices.

    A claim that cannot be read is missing, as is one that no pod names any more.
    """

    def __init__(
        self,
        client: Client,
        pods: Callable[[], Iterable[DeclaredPod]],
        learn_devices: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._client = client
        self._learn_devices = learn_devices
        self._clock = clock
        self._version: str | None = None
        self._kept: Kept[ClaimName, Claim] = Kept(
            "resourceclaims", lambda: named(pods()), self._ask, clock=clock, random=random, pause=_pause
        )

    def found(self, uuids: ClaimedUuids) -> tuple[Claim, ...]:
        """Return the known claims; their devices have the UUIDs of their slices."""
        return tuple(with_uuids(claim, uuids) for _, claim in sorted(self._kept.values.items()))

    def asked(self, pod: DeclaredPod) -> bool:
        """Say whether all claims of a pod were asked for. Before that, its declaration may have another meaning."""
        return all(self._kept.asked(name) for name in named((pod,)))

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Report a missing right to read them."""
        return self._kept.forbidden(
            "claims_forbidden",
            "a right is missing: get resourceclaims.resource.k8s.io (ClusterRole); limits of claims are not known",
        )

    async def run(self, uuids: Callable[[], ClaimedUuids]) -> None:
        """Ask until cancelled; `uuids` returns the known UUIDs."""
        while True:
            await self.look(uuids)
            await self._clock.sleep(LOOK)

    async def look(self, uuids: Callable[[], ClaimedUuids]) -> None:
        """Ask for the claims that are due, and for the slices if a new claim's device is unknown."""
        if not await self._kept.look():
            return
        known = uuids()
        devices = (device for claim in self._kept.values.values() for device in claim.devices)
        if any((device.driver, device.pool, device.device) not in known for device in devices):
            with suppress(KubeError):  # the node's own reading once a minute asks again, and reports it
                await self._learn_devices()

    async def _ask(self, name: ClaimName) -> Claim:
        versions = VERSIONS if self._version is None else (self._version, *VERSIONS)
        missing: KubeError | None = None
        for version in dict.fromkeys(versions):
            path = f"/apis/resource.k8s.io/{version}/namespaces/{segment(name[0])}/resourceclaims/{segment(name[1])}"
            try:
                claim = declared_claim(decoded(_CLAIM, await self._client.get(path)))
            except KubeError as error:
                if error.status != 404:  # noqa: PLR2004
                    raise
                missing = error  # the claim, or this version of the API
                continue
            self._version = version
            return claim
        raise missing or KubeError(404, "NotFound", "no version of resource.k8s.io")


def named(pods: Iterable[DeclaredPod]) -> Mapping[ClaimName, frozenset[str]]:
    """List the claims that pods name, with the UIDs of those pods. First those that containers use."""
    users: dict[ClaimName, set[str]] = {}
    for pod in pods:
        used = {"", *(use.name for container in pod.containers for use in container.claims)}  # "": of the scheduler
        for claim in islice([pod.claims[name] for name in sorted(pod.claims, key=lambda name: name not in used)], MOST):
            users.setdefault((pod.namespace, claim), set()).add(pod.uid)
    return {name: frozenset(uids) for name, uids in users.items()}


def _pause(claim: Claim) -> float:
    return SELDOM if claim.devices else FRESH
