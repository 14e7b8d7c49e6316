"""
Facts for tests, built in one line each: what a test does not say has a plain value.

What comes in: the few fields that a test is about. What goes out: frozen facts of `exporter.model`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256

from exporter.accounts.integrals import Known, advance
from exporter.model import (
    Allocation,
    Attribution,
    ClaimUsage,
    ContainerId,
    Context,
    Device,
    DeviceAccount,
    DeviceIntegral,
    DeviceKey,
    EnforcedBy,
    Fault,
    Gpu,
    GpuInstance,
    GpuUuid,
    Hardware,
    Health,
    Limit,
    Mechanism,
    Memory,
    Pod,
    PodUid,
    ProcessKey,
    Scope,
    Sharing,
    Snapshot,
    Subject,
    Usage,
    Utilization,
    XidCounts,
)

MIB = 2**20
GIB = 2**30
NODE = "gpu-node-1"
TAKEN_AT = 1_700_000_000.0
MONOTONIC = 5_000.0


def gpu_uuid(index: int) -> GpuUuid:
    """Name the GPU with this index."""
    return GpuUuid(f"GPU-{index:08x}-1111-2222-3333-444444444444")


def leaf(index: int = 0, gpu_instance: int | None = None) -> DeviceKey:
    """Name a device by the index of its GPU."""
    return DeviceKey(gpu_uuid(index), gpu_instance)


def memory(total: int = 80 * GIB, used: int = 0, reserved: int = 512 * MIB) -> Memory:
    """Make device memory of which `used` bytes are in use."""
    return Memory(total, free=total - used - reserved, reserved=reserved)


def gpu(
    index: int = 0,
    *,
    memory: Memory | None = None,
    utilization: Utilization = Utilization(),
    health: Health = Health(),
    hardware: Hardware = Hardware(),
    instances: tuple[GpuInstance, ...] = (),
) -> Gpu:
    """Make a GPU; it has MIG on when it has instances."""
    return Gpu(
        gpu_uuid(index),
        index,
        "NVIDIA H100 80GB HBM3",
        pci_bus_id=f"00000000:{index:02X}:00.0",
        driver_version="580.95.05",
        mig=bool(instances),
        memory=memory,
        utilization=utilization,
        health=health,
        hardware=hardware,
        instances=instances,
    )


def device(
    gpu: Gpu,
    gpu_instance: int | None = None,
    *,
    attributed: int | None = None,
    ghost: int | None = 0,
    host: int | None = 0,
    sharing: Sharing = Sharing.NONE,
    replicas: int = 1,
    containers: int | None = None,
    sampled_at: float = TAKEN_AT,
) -> Device:
    """Make a device of `gpu`. Used memory that no argument explains is unattributed, so that the account closes."""
    key, its_memory, utilization = next(found for found in gpu.leaves() if found[0].gpu_instance == gpu_instance)
    instance = next((found for found in gpu.instances if found.id == gpu_instance), None)
    rest = None
    if its_memory is not None and attributed is not None and ghost is not None and host is not None:
        rest = its_memory.used - attributed - ghost - host
    return Device(
        key,
        gpu,
        DeviceAccount(key, its_memory, attributed, ghost, host, unattributed=rest),
        utilization,
        sampled_at,
        sharing,
        replicas,
        instance.profile if instance else "",
        instance.mig_uuids if instance else (),
        containers,
    )


def pod(
    name: str = "trainer-0",
    namespace: str = "team-a",
    *,
    uid: str | None = None,
    workload_kind: str = "",
    workload: str = "",
    queue: str = "",
    priority_class: str = "",
    created_at: float = TAKEN_AT - 3600,
    terminating: bool = False,
) -> Pod:
    """Make a pod; without a UID it gets one that its names tell."""
    return Pod(
        PodUid(uid or f"uid-{namespace}-{name}"),
        namespace,
        name,
        workload_kind,
        workload,
        queue,
        priority_class,
        created_at,
        terminating,
    )


def subject(pod: Pod, container: str = "main", generation: int = 0) -> Subject:
    """Make a container of `pod`; a restart is another generation."""
    return Subject(pod.uid, container, ContainerId(sha256(f"{pod.uid} {container} {generation}".encode()).hexdigest()))


def usage(
    who: Subject | Pod,
    where: DeviceKey,
    memory_used: int | None = GIB,
    *,
    memory_peak: int | None = None,
    sm: float | None = None,
    encoder: float | None = None,
    decoder: float | None = None,
    pids: Iterable[int] = (),
    kernel_limit: int | None = None,
    evicted: float | None = None,
    mps: bool = False,
) -> Usage:
    """Make what a container (or the container `main` of a pod) holds of a device."""
    return Usage(
        subject(who) if isinstance(who, Pod) else who,
        where,
        memory_used,
        memory_peak,
        sm,
        encoder,
        decoder,
        frozenset(ProcessKey(pid, start_ticks=1000 + pid) for pid in pids),
        kernel_limit=kernel_limit,
        evicted=evicted,
        mps=mps,
    )


def allocation(
    pod: Pod, where: DeviceKey, replicas: int = 1, *, container: str = "main", resource: str = "nvidia.com/gpu"
) -> Allocation:
    """Make what the kubelet handed to a container."""
    return Allocation(pod.namespace, pod.name, container, resource, where, replicas)


def limit(
    who: Pod,
    where: DeviceKey,
    memory: int | None = None,
    *,
    container: str = "main",
    system: str = "gpusteward",
    source: str = "annotation",
    scope: str = "container",
    enforced_by: str = "none",
    compute: float | None = None,
    problems: tuple[str, ...] = (),
    claim: str = "",
    bypassed: bool | None = None,
    mps: bool = False,
    context: Context = Context.UNKNOWN,
    ceiling: int | None = None,
) -> Limit:
    """Make what a pod declares for a container, (scope "pod") for all of them, or what its claim (by name) says."""
    name = "" if scope in {"pod", "claim"} else container
    whose = f"{who.namespace}/{claim}" if claim else ""
    return Limit(
        who.uid,
        name,
        where,
        memory,
        system,
        Mechanism(source),
        Scope(scope),
        EnforcedBy(enforced_by),
        whose,
        compute=compute,
        problems=problems,
        bypassed=bypassed,
        mps=mps,
        context=context,
        ceiling=ceiling,
    )


def fault(reason: str = "gpu_lost", subject: str = "", *, source: str = "devices", incomplete: bool = True) -> Fault:
    """Make a fault."""
    return Fault(source, reason, f"{reason}, says the test", subject, incomplete)


def snapshot(
    *devices: Device,
    round: int = 1,  # noqa: A002  (the field's own name)
    usages: Iterable[Usage] = (),
    pods: Iterable[Pod] = (),
    allocations: Iterable[Allocation] = (),
    limits: Iterable[Limit] = (),
    claim_usages: Iterable[ClaimUsage] = (),
    memory_declared: Mapping[DeviceKey, int] | None = None,
    present: Mapping[GpuUuid, int] | None = None,
    processes: Mapping[Attribution, int] | None = None,
    sources_up: Mapping[str, bool] | None = None,
    xid_errors: XidCounts | None = None,
    faults: Iterable[Fault] = (),
    duration: float = 0.004,
    monotonic: float = MONOTONIC,
    taken_at: float = TAKEN_AT,
    node: str = NODE,
    steady_for: int = 0,
) -> Snapshot:
    """
    Make a snapshot of devices. Their GPUs are those that answered, and all that the driver counts.

    Its sums over time are those of figures that did not change for `steady_for` seconds; there are none without it.
    """
    gpus = {each.gpu.uuid: each.gpu for each in devices}
    made = Snapshot(
        round,
        taken_at,
        monotonic,
        node,
        duration,
        gpus_present={uuid: gpu.index for uuid, gpu in gpus.items()} if present is None else present,
        gpus=tuple(gpus.values()),
        devices=devices,
        usages=tuple(usages),
        pods={each.uid: each for each in pods},
        allocations=tuple(allocations),
        limits=tuple(limits),
        claim_usages=tuple(claim_usages),
        memory_declared=memory_declared or {},
        processes=processes or {},
        sources_up=sources_up or {},
        pid_domain_proven=True,
        names_live=True,
        xid_errors=xid_errors or {},
        faults=tuple(faults),
    )
    return replace(made, integrals=_summed(made, steady_for)) if steady_for else made


def _summed(made: Snapshot, seconds: int) -> Mapping[DeviceKey, DeviceIntegral]:
    tracked: Known = {}
    for ago in (seconds, 0):
        taken_at = made.taken_at - ago
        read = replace(
            made,
            monotonic=made.monotonic - ago,
            taken_at=taken_at,
            devices=tuple(replace(each, sampled_at=taken_at) for each in made.devices),
            gpus_read=frozenset(made.gpus_present),
        )
        tracked = advance(tracked, read, asked=None, interval=seconds)
    return {key: each.sums for key, each in tracked.items()}
