"""
Claims (DRA): limit and usage of all containers that share a claim, per device.

What comes in: the snapshot. What goes out: one series per namespace, claim and device.

The rule: a claim counts once, however many containers and pods share it. A limit of each process (MPS in a claim's
configuration) has no sum, and is not the claim's limit.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from exporter.metrics.family import gauge
from exporter.metrics.labels import LEAF, NodeLabels
from exporter.model import DeviceKey, Snapshot

LIMIT = gauge(
    "claim_memory_limit_bytes",
    ("namespace", "claim", *LEAF),
    "Memory of the GPU or MIG instance that all containers which share the ResourceClaim may hold together, in bytes.",
)
CEILING = gauge(
    "claim_memory_ceiling_bytes",
    ("namespace", "claim", *LEAF),
    "Memory of the GPU or MIG instance above which the containers of the ResourceClaim are over its limit, in bytes.",
)
USED = gauge(
    "claim_memory_used_bytes",
    ("namespace", "claim", *LEAF),
    "Memory of the GPU or MIG instance that all containers which share the ResourceClaim hold together, in bytes. "
    "Absent if the usage of one of them is unknown, or if one of them has two claims on one device.",
)

FAMILIES = (LIMIT, CEILING, USED)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield limit, ceiling and usage of each claim and device."""
    labels_of = NodeLabels(snapshot).device
    limits: dict[tuple[str, DeviceKey], int] = {}
    ceilings: dict[tuple[str, DeviceKey], int] = {}
    for limit in snapshot.limits:
        # Each pod of the claim has a copy of its limit, and one copy may be a round older. The smallest counts.
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
