"""
The snapshot as a JSON document, for `/api/v1/snapshot`, the node page and `gpusteward top`.

What comes in: the latest snapshot, the tally, the age of the snapshot. What goes out: the structs of `schema`, or their
bytes.

The rule: unknown is null, never 0. Of a process only its PID is written. A field that has the same name in the model is
copied; only the others are spelled out here.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from exporter.api import schema
from exporter.devices.xids import XIDS
from exporter.model import Device, DeviceKey, Gpu, GpuUuid, Limit, Pod, PodUid, Scope, Snapshot, Usage, XidErrors
from exporter.rounds.latest import Tally

Json = dict[str, Any]

Struct = TypeVar("Struct", bound=msgspec.Struct)

UNLISTED = schema.Xid(xid=0, last_at=0.0)
"""An XID that NVIDIA's catalogue does not have: its cause, meaning and remedy are unknown."""


_PLACES: dict[tuple[Any, ...], list[tuple[str, int]]] = {}
"""
Which source has which field, by the types in a call of `copied`.

Without this cache a document takes 4 times as long.
"""


def joined(begin: schema.Head, rest: bytes) -> tuple[bytes, bytes]:
    """Write a head, and put the JSON object `rest` behind it: two pieces of one object."""
    return encoded(begin)[:-1] + b",", rest[1:]


def tail(snapshot: Snapshot, tally: Tally, policy: Json | None = None) -> bytes:
    """
    Write the document without its head, whose age grows while the rest stays the same for a round.

    `policy` is the enforcer's summary of the node.
    """
    whole = msgspec.structs.replace(
        document(snapshot, tally, head(snapshot, age=0.0, interval=1.0, program="")), policy=policy
    )
    fields = whole.__struct_fields__[len(schema.Head.__struct_fields__) :]
    return encoded({name: getattr(whole, name) for name in fields})


def encoded(described: object) -> bytes:
    """Write JSON. Not-a-number becomes null; bytes that are no text (of a path) are escaped."""
    try:
        return msgspec.json.encode(described)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(described)))


def document(snapshot: Snapshot, tally: Tally, begin: schema.Head) -> schema.Document:
    """Describe the node; `begin` is the head of the same snapshot."""
    return copied(
        schema.Document,
        begin,
        snapshot,
        duration_seconds=snapshot.duration,
        faults=[copied(schema.Fault, fault) for fault in snapshot.faults],
        gpus=list(_gpus(snapshot)),
        devices=[describe_device(device, snapshot) for device in snapshot.devices],
        containers=list(describe_containers(snapshot, snapshot.usages)),
        limits=[_limit(limit, snapshot) for limit in snapshot.limits],
        allocations=[copied(schema.Allocation, handed, handed.device) for handed in snapshot.allocations],
        pods=[copied(schema.Pod, pod) for pod in concerned(snapshot)],
        tally=copied(schema.Tally, tally),
        policy=None,
    )


def head(snapshot: Snapshot, *, age: float, interval: float, program: str) -> schema.Head:
    """
    Make the head of a document: node, round, age and program.

    Args:
        age: seconds since the round began, on the monotonic clock.
        interval: seconds between two rounds.
        program: name and version of the daemon.
    """
    return copied(
        schema.Head,
        snapshot,
        version=schema.VERSION,
        program=program,
        age_seconds=round(age, 3),
        interval_seconds=interval,
        stale=age > schema.STALE_AFTER * interval,
    )


def describe_containers(snapshot: Snapshot, usages: Iterable[Usage]) -> Iterator[schema.Container]:
    """Describe each container's usage, with its own limit (not the pod's, and not one per process) and its share."""
    own: dict[tuple[PodUid, str, DeviceKey], int | None] = {}
    shares: dict[tuple[PodUid, str, DeviceKey], float] = {}
    for limit in snapshot.limits:
        where = limit.pod_uid, limit.container, limit.device
        if limit.container and limit.scope is not Scope.PROCESS:
            own[where] = limit.memory
        if limit.container and limit.compute is not None:
            shares[where] = min(limit.compute, shares.get(where, limit.compute))
    for usage in usages:
        holder, device = usage.subject, usage.device
        pod = snapshot.pods.get(holder.pod_uid)
        yield schema.Container(
            namespace=pod.namespace if pod else None,
            pod=pod.name if pod else None,
            pod_uid=holder.pod_uid,
            container=holder.container,
            container_id=holder.container_id,
            uuid=device.uuid,
            gpu_instance=device.gpu_instance,
            memory_used_bytes=usage.memory_used,
            memory_sure_bytes=usage.memory_used if usage.memory_sure is None else usage.memory_sure,
            memory_peak_bytes=usage.memory_peak,
            memory_kernel_limit_bytes=usage.kernel_limit,
            queue_evicted_seconds=usage.evicted,
            sm_utilization_ratio=usage.sm,
            encoder_utilization_ratio=usage.encoder,
            decoder_utilization_ratio=usage.decoder,
            processes=len(usage.processes) if usage.listed else None,
            pids=sorted(process.pid for process in usage.processes),
            memory_limit_bytes=own.get((holder.pod_uid, holder.container, device)),
            compute_limit_ratio=shares.get((holder.pod_uid, holder.container, device)),
            mps=usage.mps,
        )


def concerned(snapshot: Snapshot) -> Iterator[Pod]:
    """Pick the pods that use a device, or have one allocated; no other pod of the node is described."""
    users = {usage.subject.pod_uid for usage in snapshot.usages}
    holders = {(allocation.namespace, allocation.pod) for allocation in snapshot.allocations}
    for pod in sorted(snapshot.pods.values(), key=lambda pod: (pod.namespace, pod.name, pod.uid)):
        if pod.uid in users or (pod.namespace, pod.name) in holders:
            yield pod


def copied(struct: type[Struct], *sources: object, **own: Any) -> Struct:
    """Build a struct; a field that is not in `own` is the same-named attribute of the first source that has it."""
    key = (struct, *map(type, sources), *own)
    if (places := _PLACES.get(key)) is None:
        places = _PLACES[key] = [
            (name, next(number for number, source in enumerate(sources) if hasattr(source, name)))
            for name in struct.__struct_fields__
            if name not in own
        ]
    for name, number in places:
        own[name] = getattr(sources[number], name)
    return struct(**own)


def _gpus(snapshot: Snapshot) -> Iterator[schema.Gpu]:
    """
    Describe the GPUs that answered.

    Of the others that the driver counts, only index, UUID and XID errors are known.
    """
    answered = {gpu.uuid: gpu for gpu in snapshot.gpus}
    index: dict[GpuUuid, int] = {**snapshot.gpus_present, **{gpu.uuid: gpu.index for gpu in snapshot.gpus}}
    for uuid in sorted(index, key=lambda uuid: (index[uuid], uuid)):
        xid_errors = _xids(snapshot.xid_errors[uuid]) if uuid in snapshot.xid_errors else None
        if (gpu := answered.get(uuid)) is None:
            yield schema.SilentGpu(uuid=uuid, index=index[uuid], up=False, xid_errors=xid_errors)
        else:
            yield describe_gpu(gpu, xid_errors)


def describe_gpu(gpu: Gpu, xid_errors: list[schema.Xid] | None = None) -> schema.Gpu:
    """Describe a GPU that answered."""
    total = gpu.memory.total if gpu.memory else None
    return copied(schema.Gpu, gpu, gpu.health, gpu.hardware, up=True, memory_total_bytes=total, xid_errors=xid_errors)


def _xids(errors: Mapping[int, XidErrors]) -> list[schema.Xid]:
    """Describe the XID errors that were reported, the latest first."""
    came = [(error.last_at, code) for code, error in errors.items() if error.last_at is not None]
    return [
        copied(schema.Xid, errors[code], XIDS.get(code, UNLISTED), xid=code) for _, code in sorted(came, reverse=True)
    ]


def describe_device(device: Device, snapshot: Snapshot) -> schema.Device:
    """Describe a device."""
    account, memory, utilization = device.account, device.account.memory, device.utilization
    return copied(
        schema.Device,
        device.key,
        device,
        gpu=device.gpu.index,
        memory_total_bytes=memory.total if memory else None,
        memory_used_bytes=memory.used if memory else None,
        memory_free_bytes=memory.free if memory else None,
        memory_reserved_bytes=memory.reserved if memory else None,
        memory_attributed_bytes=account.attributed,
        memory_ghost_bytes=account.ghost,
        memory_host_bytes=account.host,
        memory_unattributed_bytes=account.unattributed,
        memory_clamped_bytes=account.clamped,
        accounts_close=account.closes,
        utilization_ratio=utilization.busy,
        sm_utilization_ratio=utilization.sm,
        memory_controller_utilization_ratio=utilization.memory_controller,
        encoder_utilization_ratio=utilization.encoder,
        decoder_utilization_ratio=utilization.decoder,
        memory_declared_bytes=snapshot.memory_declared.get(device.key),
    )


def _limit(limit: Limit, snapshot: Snapshot) -> schema.Limit:
    pod = snapshot.pods.get(limit.pod_uid)
    return copied(
        schema.Limit,
        limit,
        limit.device,
        namespace=pod.namespace if pod else None,
        pod=pod.name if pod else None,
        memory_bytes=limit.memory,
        compute_ratio=limit.compute,
        declared_in=limit.source,
        problems=list(limit.problems),
        report_only=list(limit.report_only),
        ceiling_bytes=limit.ceiling,
    )


def _escaped(part: Any) -> Any:
    """Write lone surrogates, in which Python keeps bytes that are no text, as a backslash and their code."""
    match part:
        case str():
            return part.encode(errors="backslashreplace").decode()
        case dict():
            return {_escaped(key): _escaped(value) for key, value in part.items()}
        case list() | tuple():
            return [_escaped(each) for each in part]
        case _:
            return part
