"""
The workload of a pod: the top of its chain of controllers.

What comes in: owner references, and the API server's answers about the owners that may be read. What goes out: kind and
name, or None while they are unknown.

The rule: nothing is guessed. A custom kind is taken from the reference itself, because no right to read it is asked
for. The same holds for an owner that is gone, or that we may not read. An owner of the same name with another UID is
another one.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
import structlog

from exporter.base.clock import Clock
from exporter.kube.client import METADATA_ONLY, Client, segment
from exporter.kube.errors import INVALID, UNREACHABLE, KubeError, decoded
from exporter.objects.metadata import Described, OwnerReference

log = structlog.get_logger()

READABLE: Mapping[tuple[str, str], str] = {
    ("apps", "ReplicaSet"): "/apis/apps/v1/namespaces/{}/replicasets/{}",
    ("apps", "StatefulSet"): "/apis/apps/v1/namespaces/{}/statefulsets/{}",
    ("batch", "Job"): "/apis/batch/v1/namespaces/{}/jobs/{}",
}
"""The owners that may have an owner themselves, and that the shipped role permits to read, by API group and kind."""
HIGHEST = 4
"""Levels of the chain. Real ones have two or three (RayCluster's pods, Job over CronJob); a ring must end, too."""
MOST = 4096
"""Owners that are remembered, at most; a node has a few hundred pods."""
APART = 0.1
"""Seconds between two requests: names of pods come first, and a thousand nodes may start together."""
REFUSALS = frozenset(range(400, 500)) - {401, 404, 408, 429}
"""Refusals that will not change soon: a missing right, or a request that this server or its proxy never accepts."""
REFUSED_FOR = 600.0
"""Seconds until an owner that we may not read is asked for again; rights may be granted."""

LONGEST_NAME = 253
"""Characters of a DNS subdomain."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_DECODER = msgspec.json.Decoder(Described)


@dataclass(frozen=True, slots=True)
class Workload:
    """The top controller as far as it can be seen."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Link:
    """
    The owner of an owner.

    `above` is None if there is none, or none can be read; then the answer counts until `until`.
    """

    above: OwnerReference | None
    until: float = float("inf")


def top(controller: OwnerReference, links: Mapping[str, Link], now: float) -> Workload | OwnerReference:
    """Walk up from a pod's controller: return the workload, or the next owner to ask for."""
    owner = controller
    for _ in range(HIGHEST):
        if (owner.group, owner.kind) not in READABLE or not _named(owner.name):
            break
        link = links.get(owner.uid)
        if link is None or link.until <= now:
            return owner
        if link.above is None:
            break
        owner = link.above
    return Workload(owner.kind, owner.name)


def _named(name: str) -> bool:
    """Say whether the name is possible for an object. A user may write another one into the references of a pod."""
    return len(name) <= LONGEST_NAME and _NAME.fullmatch(name) is not None


class Workloads:
    """Keeps owners by UID, and asks for missing ones."""

    def __init__(self, client: Client, *, clock: Clock, apart: float = APART) -> None:
        self._client = client
        self._clock = clock
        self._apart = apart
        self._links: dict[str, Link] = {}

    def of(self, controller: OwnerReference | None) -> Workload | None:
        """
        Return the workload from memory.

        None for a pod without a controller, and while the owners were not read yet.
        """
        if controller is None:
            return None
        workload = top(controller, self._links, float("-inf"))
        return workload if isinstance(workload, Workload) else None

    async def learn(self, controllers: Iterable[tuple[str, OwnerReference]]) -> bool:
        """
        Ask for the missing owners above these (namespace, controller) pairs, one after the other.

        Returns whether all are known now; the next call asks for the rest.
        """
        complete = True
        for namespace, controller in controllers:
            while isinstance(owner := top(controller, self._links, self._clock.monotonic()), OwnerReference):
                try:
                    self._remember(owner.uid, await self._ask(namespace, owner))
                except KubeError as error:
                    if error.status == UNREACHABLE and error.reason != INVALID:
                        return False
                    complete = False
                    break
                await self._clock.sleep(self._apart)
        return complete

    async def _ask(self, namespace: str, owner: OwnerReference) -> Link:
        path = READABLE[owner.group, owner.kind].format(segment(namespace), segment(owner.name))
        try:
            answer: Described = decoded(_DECODER, await self._client.get(path, accept=METADATA_ONLY))
        except KubeError as error:
            if error.status == 404:  # noqa: PLR2004
                return Link(None)
            if error.status in REFUSALS:
                log.warning("kube.owner_refused", kind=owner.kind, message=error.message)
                return Link(None, self._clock.monotonic() + REFUSED_FOR)
            raise
        return Link(answer.metadata.controller if answer.metadata.uid == owner.uid else None)

    def _remember(self, uid: str, link: Link) -> None:
        self._links.pop(uid, None)
        self._links[uid] = link
        while len(self._links) > MOST:
            del self._links[next(iter(self._links))]
