"""
The node's own objects: its capacity and labels, and the devices that DRA drivers publish for it.

What comes in: a client, the node's name. What goes out: the node's facts, and (driver, pool, device) → UUID of
ResourceSlices, as last known.

The rule: both are read once a minute, because they change only with the node's setup. What cannot be read stays as it
was. Slices are read only while there is a claim.
"""

from collections.abc import Callable, Mapping
from random import Random

import msgspec

from exporter.base.clock import Clock
from exporter.kube.client import Client, segment
from exporter.kube.errors import KubeError, decoded
from exporter.model import NodeFacts
from exporter.objects.claim import ClaimedUuids, SliceList, slice_uuids
from exporter.objects.node import NodeObject, node_facts

FRESH = 60.0
"""Seconds between two readings."""
SLICES = ("v1", "v1beta2", "v1beta1")
"""Versions of resource.k8s.io that have slices with devices in them: 1.34, 1.33, 1.32."""


_NODE = msgspec.json.Decoder(NodeObject)
_SLICES = msgspec.json.Decoder(SliceList)


class OwnNode:
    """Reads the node; one task calls `run`, any code may read `facts` and `uuids`."""

    def __init__(
        self, client: Client, name: str, *, clock: Clock, random: Random, has_claims: Callable[[], bool]
    ) -> None:
        self.facts: NodeFacts | None = None
        self.uuids: ClaimedUuids = {}
        self.error: KubeError | None = None
        self._client = client
        self._name = name
        self._clock = clock
        self._random = random
        self._has_claims = has_claims

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's labels; none before it was read."""
        return self.facts.labels if self.facts else {}

    @property
    def asked(self) -> bool:
        """Whether the node is known, or could not be read. Before that, a declaration may have another meaning."""
        return self.facts is not None or self.error is not None

    async def run(self) -> None:
        """Read about once a minute until cancelled, more often after a failure; never all nodes at once."""
        while True:
            try:
                await self.look()
                self.error = None
            except KubeError as error:
                self.error = error
            asked_for = (self.error.retry_after or 0.0) if self.error else 0.0
            pause = FRESH if self.error is None else FRESH / 6
            await self._clock.sleep(max(asked_for, pause * self._random.uniform(0.75, 1.25)))

    async def look(self) -> None:
        """Read the node, and slices if there are claims. Raises KubeError."""
        node: NodeObject = decoded(_NODE, await self._client.get(f"/api/v1/nodes/{segment(self._name)}"))
        self.facts = node_facts(node)
        if self._has_claims():
            await self.look_at_devices()

    async def look_at_devices(self) -> None:
        """Read the slices now: a claim has devices that are not known yet. Raises KubeError."""
        self.uuids = await self._slices()

    async def _slices(self) -> ClaimedUuids:
        query = {"fieldSelector": f"spec.nodeName={self._name}"}
        for version in SLICES:
            try:
                body = await self._client.get(f"/apis/resource.k8s.io/{version}/resourceslices", query)
            except KubeError as error:
                if error.status != 404:  # noqa: PLR2004
                    raise
                continue
            slices: SliceList = decoded(_SLICES, body)
            return {device: uuid for item in slices.items for device, uuid in slice_uuids(item.spec).items()}
        return {}
