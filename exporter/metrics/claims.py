"""
Claims (DRA): what those who share a claim may hold of a device together, and what they hold.

What comes in: the snapshot. What goes out: one series per namespace, claim and device.

The rule: a claim counts once, however many containers and pods share it. A limit of each process (MPS in a claim's
configuration) has no sum, and is none of the claim.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from exporter.metrics.family import gauge
from exporter.metrics.labels import LEAF, NodeLabels
from exporter.model import DeviceKey, Snapshot

LIMIT = gauge(
    "claim_memory_limit_bytes",
    ("namespace", "claim", *LEAF),
    "Memory of the leaf device that all containers and pods which share the ResourceClaim may hold together, in bytes.",
)
USED = gauge(
    "claim_memory_used_bytes",
    ("namespace", "claim", *LEAF),
    "Memory of the leaf device that the containers which share the ResourceClaim hold together, in bytes; absent where "
    "one of them is unknown, or holds two claims of one device.",
)

FAMILIES = (LIMIT, USED)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the families of claims."""
    labels_of = NodeLabels(snapshot).device
    limits: dict[tuple[str, DeviceKey], int] = {}
    for limit in snapshot.limits:
        if limit.scope == "claim" and limit.memory is not None:
            # Each pod has its own view of the one declaration, and one of them may be a round behind.
            known = limits.get((limit.claim, limit.device), limit.memory)
            limits[limit.claim, limit.device] = min(known, limit.memory)
    yield LIMIT.of(
        (labels_of(device, **_named(claim)), amount) for (claim, device), amount in sorted(limits.items(), key=str)
    )
    yield USED.of(
        (labels_of(used.device, namespace=used.namespace, claim=used.claim), used.memory_used)
        for used in snapshot.claim_usages
    )


def _named(claim: str) -> dict[str, str]:
    namespace, _, name = claim.partition("/")
    return {"namespace": namespace, "claim": name}
