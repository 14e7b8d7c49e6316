"""
The snapshot as a JSON document, for `/api/v1/snapshot`, the node page and `gpusteward top`.

What comes in: the latest snapshot, the tally, the age of the snapshot. What goes out: plain dicts, or their bytes.
docs/api.md describes the fields; within `version` 1 fields are added, never renamed or removed.

The law: unknown is null, never 0; and nothing about a process goes out but its number.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from exporter.devices.xids import XIDS
from exporter.model import (
    Device,
    DeviceKey,
    Gpu,
    GpuUuid,
    Limit,
    Pod,
    Scope,
    Snapshot,
    Usage,
    Utilization,
    XidErrors,
)
from exporter.rounds.latest import Tally

VERSION = 1
STALE_AFTER = 3
"""Intervals after which a snapshot says nothing about now; the metrics are withdrawn then, too."""

Json = dict[str, Any]


def render(
    snapshot: Snapshot, tally: Tally, *, age: float, interval: float, program: str, policy: Json | None = None
) -> bytes:
    """Write the document as JSON, as `encoded` does; `policy` is what the one who decides says of the node."""
    return encoded({**document(snapshot, tally, age=age, interval=interval, program=program), "policy": policy})


def encoded(described: Json) -> bytes:
    """Write JSON; not-a-number becomes null, and bytes that are no text (of a path) are escaped."""
    try:
        return msgspec.json.encode(described)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(described))


def document(snapshot: Snapshot, tally: Tally, *, age: float, interval: float, program: str) -> Json:
    """
    Describe the node.

    Args:
        age: seconds since the round began, on the clock that nobody sets.
        interval: seconds between two rounds.
        program: name and version of the daemon.

    """
    return {
        **head(snapshot, age=age, interval=interval, program=program),
        "duration_seconds": snapshot.duration,
        "complete": snapshot.complete,
        "pid_domain_proven": snapshot.pid_domain_proven,
        "sources_up": snapshot.sources_up,
        "faults": [
            {
                "source": fault.source,
                "reason": fault.reason,
                "message": fault.message,
                "subject": fault.subject,
                "incomplete": fault.incomplete,
            }
            for fault in snapshot.faults
        ],
        "gpus": list(_gpus(snapshot)),
        "devices": [
            {**_device(device), "memory_declared_bytes": snapshot.memory_declared.get(device.key)}
            for device in snapshot.devices
        ],
        "containers": list(containers(snapshot, snapshot.usages)),
        "limits": [_limit(limit, snapshot) for limit in snapshot.limits],
        "allocations": [
            {
                "namespace": allocation.namespace,
                "pod": allocation.pod,
                "container": allocation.container,
                "resource": allocation.resource,
                **_key(allocation.device),
                "replicas": allocation.replicas,
            }
            for allocation in snapshot.allocations
        ],
        "pods": [_pod(pod) for pod in concerned(snapshot)],
        "processes": snapshot.processes,
        "tally": {
            "rounds": tally.rounds,
            "failures": tally.failures,
            "incomplete": tally.incomplete,
            "clamped": tally.clamped,
            "dropped_utilization": tally.dropped_utilization,
            "capped_utilization": tally.capped_utilization,
        },
    }


def head(snapshot: Snapshot, *, age: float, interval: float, program: str) -> Json:
    """Say what each document begins with: of what, of when, by whom."""
    return {
        "version": VERSION,
        "program": program,
        "node": snapshot.node,
        "round": snapshot.round,
        "taken_at": snapshot.taken_at,
        "age_seconds": round(age, 3),
        "interval_seconds": interval,
        "stale": age > STALE_AFTER * interval,
        "names_live": snapshot.names_live,
    }


def _escaped(part: Any) -> Any:
    """Write lone surrogates, in which Python keeps bytes that are no text, as a backslash and their number."""
    match part:
        case str():
            return part.encode(errors="backslashreplace").decode()
        case dict():
            return {_escaped(key): _escaped(value) for key, value in part.items()}
        case list() | tuple():
            return [_escaped(each) for each in part]
        case _:
            return part


def _key(device: DeviceKey) -> Json:
    return {"uuid": device.uuid, "gpu_instance": device.gpu_instance}


def _gpus(snapshot: Snapshot) -> Iterator[Json]:
    """Describe those that answered and, by index and UUID alone, those that the driver counts besides."""
    answered = {gpu.uuid: gpu for gpu in snapshot.gpus}
    index: dict[GpuUuid, int] = {**snapshot.gpus_present, **{gpu.uuid: gpu.index for gpu in snapshot.gpus}}
    for uuid in sorted(index, key=lambda uuid: (index[uuid], uuid)):
        gpu = answered.get(uuid)
        yield {
            "uuid": uuid,
            "index": index[uuid],
            "up": gpu is not None,
            **(_gpu(gpu) if gpu else {}),
            "xid_errors": _xids(snapshot.xid_errors[uuid]) if uuid in snapshot.xid_errors else None,
        }


def _xids(errors: Mapping[int, XidErrors]) -> list[Json]:
    """Describe those that came, the latest first."""
    came = sorted(((one.last_at, code, one) for code, one in errors.items() if one.last_at is not None), reverse=True)
    return [
        {
            "xid": code,
            "count": one.count,
            "last_at": last_at,
            "gpu_instance": one.gpu_instance,
            "cause": row.cause if row else None,
            "meaning": row.meaning if row else None,
            "remedy": row.remedy if row else None,
        }
        for last_at, code, one in came
        for row in (XIDS.get(code),)
    ]


def _gpu(gpu: Gpu) -> Json:
    health = gpu.health
    return {
        "vendor": gpu.vendor,
        "model": gpu.model,
        "pci_bus_id": gpu.pci_bus_id,
        "driver_version": gpu.driver_version,
        "mig": gpu.mig,
        "unified": gpu.unified,
        "memory_total_bytes": gpu.memory.total if gpu.memory else None,
        "power_watts": health.power_watts,
        "energy_joules": health.energy_joules,
        "temperature_celsius": health.temperature_celsius,
        "clocks_hertz": health.clocks_hertz,
        "throttled": health.throttled,
        "ecc_errors": health.ecc_errors,
    }


def _device(device: Device) -> Json:
    account, memory = device.account, device.account.memory
    return {
        **_key(device.key),
        "gpu": device.gpu.index,
        "profile": device.profile,
        "mig_uuids": device.mig_uuids,
        "sharing": device.sharing,
        "replicas": device.replicas,
        "containers": device.containers,
        "sampled_at": device.sampled_at,
        "memory_total_bytes": memory.total if memory else None,
        "memory_used_bytes": memory.used if memory else None,
        "memory_free_bytes": memory.free if memory else None,
        "memory_reserved_bytes": memory.reserved if memory else None,
        "memory_attributed_bytes": account.attributed,
        "memory_ghost_bytes": account.ghost,
        "memory_host_bytes": account.host,
        "memory_unattributed_bytes": account.unattributed,
        "memory_clamped_bytes": account.clamped,
        "accounts_close": account.closes,
        **_utilization(device.utilization),
    }


def _utilization(utilization: Utilization) -> Json:
    return {
        "utilization_ratio": utilization.busy,
        "sm_utilization_ratio": utilization.sm,
        "memory_controller_utilization_ratio": utilization.memory_controller,
        "encoder_utilization_ratio": utilization.encoder,
        "decoder_utilization_ratio": utilization.decoder,
    }


def containers(snapshot: Snapshot, usages: Iterable[Usage]) -> Iterator[Json]:
    """Describe what containers hold, each with the limit that is its own: not its pod's, and not its processes'."""
    own = {
        (limit.pod_uid, limit.container, limit.device): limit.memory
        for limit in snapshot.limits
        if limit.container and limit.scope is not Scope.PROCESS
    }
    for usage in usages:
        yield {
            **_container(usage, snapshot),
            "memory_limit_bytes": own.get((usage.subject.pod_uid, usage.subject.container, usage.device)),
        }


def _limit(limit: Limit, snapshot: Snapshot) -> Json:
    pod = snapshot.pods.get(limit.pod_uid)
    return {
        "namespace": pod.namespace if pod else None,
        "pod": pod.name if pod else None,
        "pod_uid": limit.pod_uid,
        "container": limit.container,
        "claim": limit.claim,
        **_key(limit.device),
        "scope": limit.scope,
        "memory_bytes": limit.memory,
        "compute_ratio": limit.compute,
        "system": limit.system,
        "declared_in": limit.source,
        "enforced_by": limit.enforced_by,
        "bypassed": limit.bypassed,
        "problems": limit.problems,
        "report_only": limit.report_only,
    }


def _container(usage: Usage, snapshot: Snapshot) -> Json:
    subject = usage.subject
    pod = snapshot.pods.get(subject.pod_uid)
    return {
        "namespace": pod.namespace if pod else None,
        "pod": pod.name if pod else None,
        "pod_uid": subject.pod_uid,
        "container": subject.container,
        "container_id": subject.container_id,
        **_key(usage.device),
        "memory_used_bytes": usage.memory_used,
        "memory_sure_bytes": usage.memory_used if usage.memory_sure is None else usage.memory_sure,
        "memory_peak_bytes": usage.memory_peak,
        "memory_kernel_limit_bytes": usage.kernel_limit,
        "memory_evicted_seconds": usage.evicted,
        "sm_utilization_ratio": usage.sm,
        "encoder_utilization_ratio": usage.encoder,
        "decoder_utilization_ratio": usage.decoder,
        "processes": len(usage.processes) if usage.listed else None,
        "pids": sorted(process.pid for process in usage.processes),
    }


def _pod(pod: Pod) -> Json:
    return {
        "uid": pod.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "workload_kind": pod.workload_kind,
        "workload": pod.workload,
        "queue": pod.queue,
        "priority_class": pod.priority_class,
        "created_at": pod.created_at,
        "terminating": pod.terminating,
    }


def concerned(snapshot: Snapshot) -> Iterator[Pod]:
    """Pick the pods that hold or were handed a device; the other pods of the node are none of our business."""
    users = {usage.subject.pod_uid for usage in snapshot.usages}
    holders = {(allocation.namespace, allocation.pod) for allocation in snapshot.allocations}
    for pod in sorted(snapshot.pods.values(), key=lambda pod: (pod.namespace, pod.name, pod.uid)):
        if pod.uid in users or (pod.namespace, pod.name) in holders:
            yield pod
