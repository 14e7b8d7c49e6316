"""
Limits: what containers and pods declared, on each leaf device where they are.

What comes in: the snapshot. What goes out: bytes where the declaration is per container or per pod, and which
declaration it was.

The rule: scope is kept. A pod's limit is never written on its containers, and a process's (MPS) is no limit of the
container. What two generations of one name declared is summed, as what they use is; unknown of one, unknown of both.
A limit that one of them bypasses is bypassed.
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from exporter.metrics.family import gauge, info
from exporter.metrics.labels import CONTAINER, LEAF, Name, NodeLabels, by_name, together
from exporter.model import Limit, PodUid, Scope, Snapshot

CONTAINER_LIMIT = gauge(
    "container_memory_limit_bytes",
    CONTAINER,
    "Memory of the leaf device that the container may hold as declared, in bytes; only where the declaration is the "
    "container's own.",
)
POD_LIMIT = gauge(
    "pod_memory_limit_bytes",
    ("namespace", "pod", *LEAF),
    "Memory of the leaf device that the containers of the pod may hold together as declared, in bytes; only where the "
    "declaration is the pod's.",
)
CONTAINER_CEILING = gauge(
    "container_memory_ceiling_bytes",
    CONTAINER,
    "Memory of the leaf device above which the container is over its limit, in bytes: the limit, policy.tolerance, and "
    "what is allowed for the CUDA contexts of its processes where the limit does not include them.",
)
POD_CEILING = gauge(
    "pod_memory_ceiling_bytes",
    ("namespace", "pod", *LEAF),
    "Memory of the leaf device above which the containers of the pod are over its limit together, in bytes.",
)
INFO = info(
    "container_limit_info",
    (*CONTAINER, "system", "source", "scope", "enforced_by"),
    "Which declaration won; the container is empty where it is the whole pod's. With scope=process (MPS) the container "
    "has no limit in bytes. Always 1.",
)
COMPUTE = gauge(
    "container_compute_limit_ratio",
    CONTAINER,
    "Declared share of the leaf device's compute, 0 to 1; told, never enforced.",
)
DECLARED = gauge(
    "device_memory_declared_bytes",
    LEAF,
    "Sum of the limits of whoever is placed on the leaf device, each declaration once, in bytes. Above "
    "device_memory_total_bytes - device_memory_reserved_bytes it is over-committed.",
)

BYPASSED = gauge(
    "container_limit_bypassed",
    CONTAINER,
    "1 if a limit that somebody else is said to enforce (hook, kernel, driver, hardware) does not hold, as the use is "
    "above the ceiling; else 0. No sample where nobody enforces it, where it is enforced for each process (MPS), and "
    "where the use is unknown. The container is empty where the limit is the whole pod's.",
)

FAMILIES = (CONTAINER_LIMIT, POD_LIMIT, CONTAINER_CEILING, POD_CEILING, INFO, COMPUTE, DECLARED, BYPASSED)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the families of limits."""
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
            (labels.container(*name), together(limit.memory for limit in limits)) for name, limits in of_holders.items()
        )
        yield ceiling_family.of(
            (labels.container(*name), together(limit.ceiling for limit in limits))
            for name, limits in of_holders.items()
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


def _may_be_bypassed(limit: Limit) -> bool:
    return not limit.claim and limit.scope is not Scope.PROCESS


def _of_container(limit: Limit) -> bool:
    return bool(limit.container) and limit.scope is not Scope.PROCESS


def _of_pod(limit: Limit) -> bool:
    return limit.scope is Scope.POD and not limit.claim


def _compute(limits: list[Limit]) -> float | None:
    """Sum up generations; in each, a process's share stands beside its container's, and the smaller counts."""
    shares: dict[PodUid, list[float]] = {limit.pod_uid: [] for limit in limits}
    for limit in limits:
        if limit.compute is not None:
            shares[limit.pod_uid].append(limit.compute)
    return together(min(shares_of_one, default=None) for shares_of_one in shares.values())


def _has_something(limit: Limit) -> bool:
    return not limit.claim and (limit.memory is not None or limit.compute is not None)
