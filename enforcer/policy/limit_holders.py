"""
Who is compared with what: the cases of one snapshot.

What comes in: a snapshot. What goes out: one case for each declared limit and whoever it holds for, with what is
known of both.

The law: **doubt is per subject.** A reading counts when the subject's own GPU was read in this round, its memory too,
and all of its own processes are known. What is wrong with others on the device only lowers what is certain: where the
lists exceed the device's use by so many bytes, so many bytes of the subject's use are not believed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from enforcer.policy.mps import clients
from enforcer.policy.vocabulary import Reason
from exporter.model import (
    Container,
    ContainerId,
    ContainerKind,
    Device,
    DeviceAccount,
    DeviceKey,
    Limit,
    Pod,
    PodUid,
    Scope,
    Snapshot,
    Usage,
    processes_of,
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
class Target:
    """The container, in one generation, that `kill` and `fence` act on."""

    container: str
    id: ContainerId


@dataclass(frozen=True, slots=True)
class Case:
    """
    A declared limit, and what is known of its subject now.

    Attributes:
        pod: None where Kubernetes told nothing of it.
        device: None while the driver does not name it.
        processes: bytes of each process of the holder; None where they are not all known.
        used: bytes that are certain; None when there is no reading this round (`unknown` says why).
        present: the container is the present generation of its name; always true for pods and claims.
        pods: of the pods that share the amount; more than one for a claim only.
        sole_user: of a pod's limit, the only container of the pod that uses the device; None where several do.
        clients: the containers of its pod that are MPS clients; see `enforcer.policy.mps`.

    """

    key: CaseKey
    limit: Limit
    pod: Pod | None
    device: Device | None
    used: int | None
    unknown: Reason | None = None
    present: bool = True
    kind: ContainerKind = ContainerKind.REGULAR
    pods: int = 1
    processes: tuple[int, ...] | None = None
    sole_user: Target | None = None
    clients: Mapping[str, str] = field(default_factory=dict)

    @property
    def victim(self) -> str:
        """Name the container that `kill` and `fence` would act on; empty where there is none."""
        return self.key.container if self.key.container_id else self.sole_user.container if self.sole_user else ""

    @property
    def namespace(self) -> str:
        """Of the pod; empty where that is unknown."""
        return self.pod.namespace if self.pod else ""

    @property
    def owned(self) -> bool:
        """Whether `workload` is known: the owner of a pod's controller may not have been read yet."""
        return self.pod is None or not self.pod.controller_kind or bool(self.pod.workload)

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
    """Compare each limit with its subject. A key occurs once: of two limits that bind it the smaller counts."""
    devices = {device.key: device for device in snapshot.devices}
    usages: dict[tuple[PodUid, DeviceKey], list[Usage]] = defaultdict(list)
    for usage in snapshot.usages:
        usages[usage.subject.pod_uid, usage.device].append(usage)
    held = listed(snapshot)
    present = {(one.pod_uid, one.name): one for one in snapshot.containers}
    claims = _claims(snapshot, usages)
    remembered = any(fault.source == ALLOCATIONS for fault in snapshot.faults)
    mps = clients(snapshot)
    found: dict[CaseKey, Case] = {}
    for limit in snapshot.limits:
        device = devices.get(limit.device)
        blind = _blind(snapshot, limit, device, remembered=remembered)
        look = _Look(device, blind, overshoot(device.account, held[limit.device]) if device else 0)
        for case in _of_limit(limit, snapshot, look, usages=usages, present=present, claims=claims):
            known = found.get(case.key)
            if known is None or _rank(case) < _rank(known):
                found[case.key] = replace(case, clients=mps.get(limit.pod_uid, {}))
    return tuple(found[key] for key in sorted(found))


def _rank(case: Case) -> tuple[bool, float, str, str, str]:
    """Order the limits of one subject: what binds nobody must not hide what does, and no list's order decides."""
    limit = case.limit
    binds = limit.memory is not None and not limit.report_only and limit.scope is not Scope.PROCESS
    amount = float("inf") if limit.memory is None else limit.memory
    return not binds, amount, limit.pod_uid, limit.system, limit.source


@dataclass(frozen=True, slots=True)
class _Look:
    """What was seen of a limit's device: why nothing, if so, and the bytes of any figure there that are in doubt."""

    device: Device | None
    blind: Reason | None
    doubt: int


@dataclass(slots=True)
class _Claimed:
    """Who shares a claim, and what they hold by it; None where that is unknown, or cannot be told from the rest."""

    pods: set[PodUid] = field(default_factory=set)
    used: int | None = None
    processes: tuple[int, ...] | None = None


def _claims(
    snapshot: Snapshot, usages: Mapping[tuple[PodUid, DeviceKey], list[Usage]]
) -> Mapping[tuple[str, DeviceKey], _Claimed]:
    found: dict[tuple[str, DeviceKey], _Claimed] = defaultdict(_Claimed)
    for limit in snapshot.limits:
        if limit.scope is Scope.CLAIM:
            found[limit.claim, limit.device].pods.add(limit.pod_uid)
    for usage in snapshot.claim_usages:
        claimed = found[f"{usage.namespace}/{usage.claim}", usage.device]
        claimed.used = usage.memory_used
        pods = {subject.pod_uid for subject in usage.subjects}
        held = [one for uid in sorted(pods) for one in usages[uid, usage.device] if one.subject in usage.subjects]
        claimed.processes = processes_of(held) if held else None
        claimed.pods |= pods
    return found


def _of_limit(
    limit: Limit,
    snapshot: Snapshot,
    look: _Look,
    *,
    usages: Mapping[tuple[PodUid, DeviceKey], list[Usage]],
    present: Mapping[tuple[PodUid, str], Container],
    claims: Mapping[tuple[str, DeviceKey], _Claimed],
) -> Iterable[Case]:
    pod = snapshot.pods.get(limit.pod_uid)
    mine = usages.get((limit.pod_uid, limit.device), [])
    if limit.scope is Scope.CLAIM:
        # The amount is shared by all that hold the claim: its subject is none of the pods, so the key names none.
        shared = claims[limit.claim, limit.device]
        only = pod if len(shared.pods) == 1 else None
        key = key_of(limit.device, only.uid if only else PodUid(""), claim=limit.claim)
        yield Case(
            key,
            limit,
            pod,
            look.device,
            *_reading([shared.used], look),
            pods=len(shared.pods),
            processes=shared.processes,
        )
    elif not limit.container:
        key = key_of(limit.device, limit.pod_uid)
        reading = _reading([usage.memory_used for usage in mine], look)
        alone, processes = _only_user(mine, present), processes_of(mine)
        yield Case(key, limit, pod, look.device, *reading, sole_user=alone, processes=processes)
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
                look.device,
                *_reading([usage.memory_used for usage in generation], look),
                present=now is not None and now.id is not None and now.id == id_,
                kind=now.kind if now else ContainerKind.REGULAR,
                processes=processes_of(generation),
            )


def _only_user(usages: Iterable[Usage], present: Mapping[tuple[PodUid, str], Container]) -> Target | None:
    """Name the container that alone uses a device, of all of its pod; None where several do, or may."""
    users = {usage.subject for usage in usages if usage.memory_used != 0 or usage.processes}
    if len(users) != 1:
        return None
    user = users.pop()
    now = present.get((user.pod_uid, user.container))
    if now is None or now.id is None or now.id != user.container_id:
        return None
    return None if now.kind in (ContainerKind.INIT, ContainerKind.EPHEMERAL) else Target(now.name, now.id)


def _blind(snapshot: Snapshot, limit: Limit, device: Device | None, *, remembered: bool) -> Reason | None:
    """Say why nothing can be said of this device's use now, whoever asks."""
    if limit.undeclared:
        return Reason.UNDECLARED
    if limit.memory is None:
        return Reason.PROCESS_SCOPE if limit.scope is Scope.PROCESS else Reason.LIMIT_INVALID
    if limit.scope is Scope.PROCESS:
        return Reason.PROCESS_SCOPE  # each process may hold so much, and how many there may be nobody said
    if not snapshot.pid_domain_proven:
        return Reason.PID_DOMAIN
    if remembered:
        return Reason.ALLOCATIONS_STALE
    if device is None or device.key.uuid not in snapshot.gpus_read or device.account.memory is None:
        return Reason.READING_UNKNOWN
    return None


def _reading(held: Sequence[int | None], look: _Look) -> tuple[int | None, Reason | None]:
    if look.blind is not None:
        return None, look.blind
    known = [one for one in held if one is not None]
    if not held or len(known) < len(held):
        return None, Reason.READING_UNKNOWN
    return max(0, sum(known) - look.doubt), None


def listed(snapshot: Snapshot) -> Mapping[DeviceKey, int]:
    """Add up what containers are known to hold of each device; those of whom something is unknown hold more."""
    found: dict[DeviceKey, int] = defaultdict(int)
    for usage in snapshot.usages:
        found[usage.device] += usage.memory_used or 0
    return found


def overshoot(account: DeviceAccount, held: int) -> int:
    """
    Return the bytes by which the process lists exceed the device's use: so much of any one figure may be wrong.

    `held` by containers, as far as it is known: one neighbour's unknown process must not hide what the others' say.
    """
    if account.memory is None:
        return 0
    return max(account.clamped, held + (account.ghost or 0) + (account.host or 0) - account.memory.used, 0)
