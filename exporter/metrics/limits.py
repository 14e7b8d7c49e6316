"""
Limits that containers and pods declare, on each device where they are.

What comes in: the snapshot. What goes out: bytes if the declaration is per container or per pod, and the declaration
that won.

The rule: scope is kept. A pod's limit is never written on its containers, and a process's (MPS) is no limit of the
container. The limits of two generations of one name are summed, as their usages are. If one is unknown, so is the sum.
If one generation bypasses its limit, the limit counts as bypassed.
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from exporter.accounts.grouping import total
from exporter.metrics.family import gauge, info
from exporter.metrics.labels import CONTAINER, LEAF, Name, NodeLabels, by_name
from exporter.model import Limit, PodUid, Scope, Snapshot

CONTAINER_LIMIT = gauge(
    "container_memory_limit_bytes",
    CONTAINER,
    "Declared limit of the container's memory on the GPU or MIG instance, in bytes. Only if the declaration is the "
    "container's own.",
)
POD_LIMIT = gauge(
    "pod_memory_limit_bytes",
    ("namespace", "pod", *LEAF),
    "Declared limit of the memory that the pod's containers may hold together on the GPU or MIG instance, in bytes. "
    "Only if the declaration is the pod's.",
)
CONTAINER_CEILING = gauge(
    "container_memory_ceiling_bytes",
    CONTAINER,
    "Memory of the GPU or MIG instance above which the container is over its limit, in bytes: limit + policy.tolerance "
    "+ context allowance. The context allowance is for CUDA contexts that the limit does not include.",
)
POD_CEILING = gauge(
    "pod_memory_ceiling_bytes",
    ("namespace", "pod", *LEAF),
    "Memory of the GPU or MIG instance above which the pod's containers together are over its limit, in bytes.",
)
INFO = info(
    "container_limit_info",
    (*CONTAINER, "system", "source", "scope", "enforced_by"),
    "The declaration that won. The label container is empty if the limit is the whole pod's. With scope=process (MPS) "
    "the container has no limit in bytes. Always 1.",
)
COMPUTE = gauge(
    "container_compute_limit_ratio",
    CONTAINER,
    "Declared share of the compute of the GPU or MIG instance, 0 to 1. Reported, never enforced.",
)
DECLARED = gauge(
    "device_memory_declared_bytes",
    LEAF,
    "Sum of the limits declared on the GPU or MIG instance, each declaration once, in bytes. Above "
    "device_memory_total_bytes - device_memory_reserved_bytes it is over-committed.",
)

BYPASSED = gauge(
    "container_limit_bypassed",
    CONTAINER,
    "1 if the usage is above the ceiling of a limit that another component should enforce (hook, kernel, driver, "
    "hardware), else 0. No sample if no other component enforces it, if it is enforced for each process (MPS), or if "
    "the usage is unknown. The label container is empty if the limit is the whole pod's.",
)

FAMILIES = (CONTAINER_LIMIT, POD_LIMIT, CONTAINER_CEILING, POD_CEILING, INFO, COMPUTE, DECLARED, BYPASSED)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield limits, ceilings, declarations, compute shares and bypassed limits."""
    labels = NodeLabels(snapshot)

    def declared(wanted: Callable[[Limit], bool]) -> dict[Name, list[Limit]]:
        return by_name(
            snapshot,
            ((limit.pod_uid, limit.container, limit.device, limit) for limit in snapshot.limits if wanted(limit)),
        )

    for limit_family, ceiling_family, wanted in (
        (CONTAINER_LIMIT, CONTAINER_CEILING, _of_container),
        (POD_LIMIT, POD_CEILING, _of_pod),
    ):
        of_holders = declared(wanted)
        yield limit_family.of(
            (labels.container(*name), total(limit.memory for limit in limits)) for name, limits in of_holders.items()
        )
        yield ceiling_family.of(
            (labels.container(*name), total(limit.ceiling for limit in limits)) for name, limits in of_holders.items()
        )
    winners = {
        (name, limit.system, limit.source, limit.scope, limit.enforced_by)
        for name, limits in declared(_has_something).items()
        for limit in limits
    }
    yield INFO.of(
        (labels.container(*name, system=system, source=source, scope=scope, enforced_by=enforced_by), 1)
        for name, system, source, scope, enforced_by in sorted(winners, key=str)
    )
    yield COMPUTE.of(
        (labels.container(*name), _compute(limits))
        for name, limits in declared(lambda limit: bool(limit.container)).items()
    )
    yield DECLARED.of((labels.device(device), amount) for device, amount in snapshot.memory_declared.items())
    yield BYPASSED.of(
        (labels.container(*name), _bypassed(limits))
        for name, limits in declared(lambda limit: not limit.claim and limit.scope is not Scope.PROCESS).items()
    )


def _bypassed(limits: list[Limit]) -> int | None:
    states = {limit.bypassed for limit in limits}
    return 1 if True in states else None if None in states else 0


def _of_container(limit: Limit) -> bool:
    return bool(limit.container) and limit.scope is not Scope.PROCESS


def _of_pod(limit: Limit) -> bool:
    return limit.scope is Scope.POD and not limit.claim


def _compute(limits: list[Limit]) -> float | None:
    """Sum over generations; in each, the smaller counts of a process's share and its container's."""
    shares: dict[PodUid, list[float]] = {limit.pod_uid: [] for limit in limits}
    for limit in limits:
        if limit.compute is not None:
            shares[limit.pod_uid].append(limit.compute)
    return total(min(shares_of_one, default=None) for shares_of_one in shares.values())


def _has_something(limit: Limit) -> bool:
    return not limit.claim and (limit.memory is not None or limit.compute is not None)
