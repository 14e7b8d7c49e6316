"""
Reads one pod from the API server at this moment.

What comes in: an action. What goes out: its pod and the labels of its namespace as they are now, or `KubeError`.

The rule: each read is a quorum read, never a cached one of the server or the daemon: no request has a resourceVersion.
Both answers have to come soon after one another. A daemon in a dry run has no right to get a pod. It lists the pods of
that name instead, which is as fresh.
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
    """Asks one API server. `listing`: the daemon may list pods, but not get one, as below mode `enforce`."""

    client: Client
    listing: bool = False

    async def __call__(self, action: Action) -> Live:
        """Read the pod and its namespace at the same time. Raises KubeError if one cannot be read, or comes late."""
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
                message = f"pod and namespace did not come within {FRESH:.0f} s of one another"
                raise KubeError(UNREACHABLE, "Timeout", message)
            pod, labels = await asyncio.gather(*asked)
        finally:
            for request in asked:
                request.cancel()
        described: Described = decoded(_NAMESPACE, labels)
        if pod is None:
            return Live(None, (), "", described.metadata.labels or {})
        known = parse_pod(pod)
        return Live(known.pod, known.containers, known.node, described.metadata.labels or {})

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
