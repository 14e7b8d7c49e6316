"""
The API server's word on one pod, asked for at this moment.

What comes in: an action. What goes out: its pod and the labels of its namespace as they are, or `KubeError`.

The law: a quorum read, never the server's or our own memory of it: neither request has a resourceVersion. Nor is an
answer kept for long: the other one has to come soon after it. Who only rehearses has no right to get a pod, and asks
for a list of those of its name instead, which is as fresh.
"""

import asyncio
from dataclasses import dataclass

import msgspec

from enforcer.policy.history import Action
from enforcer.policy.last_look import FRESH, Live
from exporter.kube.client import METADATA_ONLY, Client, segment
from exporter.kube.errors import UNREACHABLE, KubeError, decoded
from exporter.kube.pods import parse_pod
from exporter.objects.metadata import Described, ObjectList

NOT_FOUND = 404

_NAMESPACE = msgspec.json.Decoder(Described)
_LIST = msgspec.json.Decoder(ObjectList)


@dataclass(frozen=True, slots=True)
class LivePods:
    """Asks one API server. `listing`: with the right to list pods alone, which observing has."""

    client: Client
    listing: bool = False

    async def __call__(self, action: Action) -> Live:
        """Read pod and namespace at the same time. Raises KubeError when either cannot be read, or comes late."""
        namespace = f"/api/v1/namespaces/{segment(action.namespace)}"
        asked = (
            asyncio.ensure_future(
                self._listed(namespace, action.pod) if self.listing else self._pod(namespace, action.pod)
            ),
            asyncio.ensure_future(self.client.get(namespace, accept=METADATA_ONLY)),
        )
        try:
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            if (await asyncio.wait(asked, timeout=FRESH))[1]:
                message = f"pod and namespace were not told within {FRESH:.0f} s of one another"
                raise KubeError(UNREACHABLE, "Timeout", message)
            pod, labels = await asyncio.gather(*asked)
        finally:
            for request in asked:
                request.cancel()
        described: Described = decoded(_NAMESPACE, labels)
        if pod is None:
            return Live(None, (), "", described.metadata.labels or {})
        known = parse_pod(pod)
        return Live(known.pod, known.containers, known.object.spec.node_name or "", described.metadata.labels or {})

    async def _listed(self, namespace: str, pod: str) -> bytes | None:
        pods: ObjectList = decoded(
            _LIST, await self.client.get(f"{namespace}/pods", {"fieldSelector": f"metadata.name={pod}"})
        )
        return bytes(pods.items[0]) if pods.items else None

    async def _pod(self, namespace: str, pod: str) -> bytes | None:
        try:
            return await self.client.get(f"{namespace}/pods/{segment(pod)}")
        except KubeError as error:
            if error.status == NOT_FOUND:
                return None
            raise
