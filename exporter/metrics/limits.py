"""
Limits: what containers and pods declared, on each leaf device where they are.

What comes in: the snapshot. What goes out: bytes where the declaration is per container or per pod, and which
declaration it was.

The law: scope is kept. A pod's limit is never written on its containers, and a process's (MPS) is no limit of the
container. What two generations of one name declared is summed, as what they use is; unknown of one, unknown of both.
A limit that one of them bypasses is bypassed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from exporter.metrics.containers import together
from exporter.metrics.devices import instance_label
from exporter.metrics.family import CONTAINER, LEAF, Labels, gauge, info, labelled
from exporter.metrics.gpus import indices
from exporter.model import DeviceKey, Limit, PodUid, Scope, Snapshot

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
    "device_memory_total_bytes it is over-committed.",
)

BYPASSED = gauge(
    "container_limit_bypassed",
    CONTAINER,
    "1 if a limit that somebody else is said to enforce (hook, kernel, driver, hardware) is exceeded by more than 2 % "
    "and 256 MiB: it does not hold; else 0. No sample where nobody enforces it, where it is enforced for each process "
    "(MPS), and where the use is unknown. The container is empty where the limit is the whole pod's.",
)

FAMILIES = (CONTAINER_LIMIT, POD_LIMIT, INFO, COMPUTE, DECLARED, BYPASSED)

Named = tuple[str, str, str, DeviceKey]


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the families of limits."""
    index = indices(snapshot)

    def device_labels(device: DeviceKey) -> dict[str, str]:
        return {
            "gpu": index.get(device.uuid, ""),
            "uuid": device.uuid,
            "gpu_instance": instance_label(device),
        }

    def labels_of(named: Named, **more: str) -> Labels:
        namespace, pod, container, device = named
        own = {"namespace": namespace, "pod": pod, "container": container, **device_labels(device)}
        return labelled(snapshot.node, **own, **more)

    for family, wanted in ((CONTAINER_LIMIT, _of_container), (POD_LIMIT, _of_pod)):
        yield family.of(
            (labels_of(named), together(limit.memory for limit in limits))
            for named, limits in _by_name(snapshot, wanted).items()
        )
    told = {
        (named, limit.system, limit.source, limit.scope, limit.enforced_by)
        for named, limits in _by_name(snapshot, _has_something).items()
        for limit in limits
    }
    yield INFO.of(
        (labels_of(named, system=system, source=source, scope=scope, enforced_by=enforced_by), 1)
        for named, system, source, scope, enforced_by in sorted(told, key=str)
    )
    yield COMPUTE.of(
        (labels_of(named), _compute(limits))
        for named, limits in _by_name(snapshot, lambda limit: bool(limit.container)).items()
    )
    yield DECLARED.of(
        (labelled(snapshot.node, **device_labels(device)), amount)
        for device, amount in snapshot.memory_declared.items()
    )
    yield BYPASSED.of(
        (labels_of(named), _bypassed(limits)) for named, limits in _by_name(snapshot, _may_be_bypassed).items()
    )


def _bypassed(limits: list[Limit]) -> int | None:
    found = {limit.bypassed for limit in limits}
    return 1 if True in found else None if None in found else 0


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
    return together(min(found, default=None) for found in shares.values())


def _has_something(limit: Limit) -> bool:
    return not limit.claim and (limit.memory is not None or limit.compute is not None)


def _by_name(snapshot: Snapshot, wanted: Callable[[Limit], bool]) -> dict[Named, list[Limit]]:
    found: dict[Named, list[Limit]] = defaultdict(list)
    for limit in snapshot.limits:
        if (pod := snapshot.pods.get(limit.pod_uid)) is not None and wanted(limit):
            found[pod.namespace, pod.name, limit.container, limit.device].append(limit)
    return found
