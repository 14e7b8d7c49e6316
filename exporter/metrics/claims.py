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
CEILING = gauge(
    "claim_memory_ceiling_bytes",
    ("namespace", "claim", *LEAF),
    "Memory of the leaf device above which those who share the ResourceClaim are over its limit together, in bytes.",
)
USED = gauge(
    "claim_memory_used_bytes",
    ("namespace", "claim", *LEAF),
    "Memory of the leaf device that the containers which share the ResourceClaim hold together, in bytes; absent where "
    "one of them is unknown, or holds two claims of one device.",
)

FAMILIES = (LIMIT, CEILING, USED)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the families of claims."""
    labels_of = NodeLabels(snapshot).device
    limits: dict[tuple[str, DeviceKey], int] = {}
    ceilings: dict[tuple[str, DeviceKey], int] = {}
    for limit in snapshot.limits:
        # Each pod has its own view of the one declaration, and one of them may be a round behind.
        for amounts, amount in ((limits, limit.memory), (ceilings, limit.ceiling)):
            if limit.scope == "claim" and amount is not None:
                key = limit.claim, limit.device
                amounts[key] = min(amounts.get(key, amount), amount)
    for family, amounts in ((LIMIT, limits), (CEILING, ceilings)):
        yield family.of(
            (labels_of(device, **_named(claim)), amount) for (claim, device), amount in sorted(amounts.items(), key=str)
        )
    yield USED.of(
        (labels_of(used.device, namespace=used.namespace, claim=used.claim), used.memory_used)
        for used in snapshot.claim_usages
    )


def _named(claim: str) -> dict[str, str]:
    namespace, _, name = claim.partition("/")
    return {"namespace": namespace, "claim": name}
