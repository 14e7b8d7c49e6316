"""
Who is compared with what: the cases of one snapshot.

What comes in: a snapshot. What goes out: one case for each declared limit and whoever it holds for, with what is
known of both.

The law: **doubt is per subject.** A reading counts when the subject's own GPU was read in this round and all of its own
processes are known. What is wrong with others on the device only lowers what is certain: where the lists exceed the
device's use by so many bytes, so many bytes of the subject's use are not believed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from enforcer.terms import Reason
from exporter.model import (
    Container,
    ContainerId,
    ContainerKind,
    DeclaredLimit,
    Device,
    DeviceAccount,
    DeviceKey,
    Pod,
    PodUid,
    Snapshot,
    Usage,
)

ALLOCATIONS = "allocations"
"""Source of the kubelet's faults: who was handed what is then remembered only, and limits may hang on it."""


@dataclass(frozen=True, slots=True, order=True)
class CaseKey:
    """
    One subject on one leaf device.

    A container in one generation (a restart is a new subject), a pod (`container` empty), or a claim (`claim` set).
    """

    pod_uid: PodUid
    container: str
    container_id: ContainerId
    claim: str
    uuid: str
    gpu_instance: int = -1

    @property
    def device(self) -> tuple[str, int]:
        """The leaf device, as it sorts."""
        return self.uuid, self.gpu_instance


@dataclass(frozen=True, slots=True)
class Case:
    """
    A declared limit, and what is known of its subject now.

    Attributes:
        pod: None where Kubernetes told nothing of it.
        device: None while the driver does not name it.
        used: bytes that are certain; None when there is no reading this round (`unknown` says why).
        present: the container is the present generation of its name; always true for pods and claims.
        pods: of the pods that share the amount; more than one for a claim only.

    """

    key: CaseKey
    limit: DeclaredLimit
    pod: Pod | None
    device: Device | None
    used: int | None
    unknown: Reason | None = None
    present: bool = True
    kind: ContainerKind = ContainerKind.REGULAR
    pods: int = 1

    @property
    def namespace(self) -> str:
        """Of the pod; empty where that is unknown."""
        return self.pod.namespace if self.pod else ""

    @property
    def workload(self) -> tuple[str, str, str]:
        """Namespace, kind and name of the top controller; of a bare pod its own."""
        pod = self.pod
        if pod is None:
            return "", "Pod", self.key.pod_uid
        return (pod.namespace, pod.workload_kind, pod.workload) if pod.workload else (pod.namespace, "Pod", pod.name)


def key_of(
    device: DeviceKey, pod: PodUid, container: str = "", id_: ContainerId | None = None, *, claim: str = ""
) -> CaseKey:
    """Make the key of a subject on a leaf device."""
    instance = -1 if device.gpu_instance is None else device.gpu_instance
    return CaseKey(pod, container, id_ or ContainerId(""), claim, device.uuid, instance)


def cases(snapshot: Snapshot) -> tuple[Case, ...]:
    """Compare each limit with its subject. A key occurs once: of two limits for one subject the smaller counts."""
    devices = {device.key: device for device in snapshot.devices}
    usages: dict[tuple[PodUid, DeviceKey], list[Usage]] = defaultdict(list)
    for usage in snapshot.usages:
        usages[usage.subject.pod_uid, usage.device].append(usage)
    present = {(one.pod_uid, one.name): one for one in snapshot.containers}
    claimants: dict[tuple[str, DeviceKey], set[PodUid]] = defaultdict(set)
    for limit in snapshot.limits:
        if limit.scope == "claim":
            claimants[limit.claim, limit.device].add(limit.pod_uid)
    found: dict[CaseKey, Case] = {}
    for limit in snapshot.limits:
        device = devices.get(limit.device)
        for case in _of_limit(limit, snapshot, device, usages=usages, present=present, claimants=claimants):
            known = found.get(case.key)
            if known is None or _amount(case) < _amount(known):
                found[case.key] = case
    return tuple(found[key] for key in sorted(found))


def _amount(case: Case) -> float:
    return float("inf") if case.limit.memory is None else case.limit.memory


def _of_limit(
    limit: DeclaredLimit,
    snapshot: Snapshot,
    device: Device | None,
    *,
    usages: Mapping[tuple[PodUid, DeviceKey], list[Usage]],
    present: Mapping[tuple[PodUid, str], Container],
    claimants: Mapping[tuple[str, DeviceKey], set[PodUid]],
) -> Iterable[Case]:
    pod = snapshot.pods.get(limit.pod_uid)
    blind = _blind(snapshot, limit, device)
    mine = usages.get((limit.pod_uid, limit.device), [])
    if limit.scope == "claim":
        # The amount is shared by all that hold the claim: its subject is none of the pods, so the key names none.
        pods = claimants[limit.claim, limit.device]
        everybody = [usage for uid in pods for usage in usages.get((uid, limit.device), ())]
        only = pod if len(pods) == 1 else None
        key = key_of(limit.device, only.uid if only else PodUid(""), claim=limit.claim)
        yield Case(key, limit, pod, device, *_reading(everybody, device, blind), pods=len(pods))
    elif not limit.container:
        key = key_of(limit.device, limit.pod_uid)
        yield Case(key, limit, pod, device, *_reading(mine, device, blind))
    else:
        now = present.get((limit.pod_uid, limit.container))
        seen = [usage for usage in mine if usage.subject.container == limit.container]
        ids = {usage.subject.container_id for usage in seen} or {now.id if now else None}
        for id_ in ids:
            generation = [usage for usage in seen if usage.subject.container_id == id_]
            yield Case(
                key_of(limit.device, limit.pod_uid, limit.container, id_),
                limit,
                pod,
                device,
                *_reading(generation, device, blind),
                present=now is not None and now.id is not None and now.id == id_,
                kind=now.kind if now else ContainerKind.REGULAR,
            )


def _blind(snapshot: Snapshot, limit: DeclaredLimit, device: Device | None) -> Reason | None:
    """Say why nothing can be said of this device's use now, whoever asks."""
    if limit.memory is None:
        return Reason.PROCESS_SCOPE if limit.scope == "process" else Reason.LIMIT_INVALID
    if limit.scope == "process":
        return Reason.PROCESS_SCOPE  # each process may hold so much, and how many there may be nobody said
    if not snapshot.pid_domain_proven:
        return Reason.PID_DOMAIN
    if any(fault.source == ALLOCATIONS for fault in snapshot.faults):
        return Reason.ALLOCATIONS_STALE
    if device is None or device.key.uuid not in snapshot.gpus_read:
        return Reason.READING_UNKNOWN
    return None


def _reading(usages: Iterable[Usage], device: Device | None, blind: Reason | None) -> tuple[int | None, Reason | None]:
    if blind is not None or device is None:
        return None, blind
    held = [usage.memory_used for usage in usages]
    known = [one for one in held if one is not None]
    if not held or len(known) < len(held):
        return None, Reason.READING_UNKNOWN
    return max(0, sum(known) - overshoot(device.account)), None


def overshoot(account: DeviceAccount) -> int:
    """Return the bytes by which the process lists exceed the device's use: so much of any one figure may be wrong."""
    parts = (account.attributed, account.ghost, account.host)
    if account.memory is None:
        return 0
    listed = sum(part for part in parts if part is not None)
    return max(account.clamped, listed - account.memory.used, 0)
