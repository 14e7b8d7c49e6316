"""
The pods of this node, as a list and the changes since.

What comes in: answers of the API server and the time. What goes out: the next state, with pods and containers.

The rule: the UID identifies a pod, and names are for display only. A deleted pod is remembered for a while, because its
processes may outlive it (a forced deletion does not wait). Their cgroups still carry its UID. A pod that cannot be
decoded is missing, and does not affect the others. Above 300 lines, because the states, the events between them and the
fields of a pod's object are read together.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from exporter.kube.errors import INVALID, UNREACHABLE, UNREADABLE, KubeError, decoded, status_error
from exporter.model import Container, ContainerId, ContainerKind, DeclaredPod, Pod, PodUid
from exporter.objects.metadata import Described, Metadata, ObjectList, OwnerReference, WatchEvent
from exporter.objects.pod import ContainerStatus, PodObject, PodSpec, declared_pod

QUEUES = (
    "kueue.x-k8s.io/queue-name",
    "kai.scheduler/queue",
    "runai/queue",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
    "yunikorn.apache.org/queue",
    "scheduler.tensorstack.dev/queue",
)
"""
Where schedulers write the queue of a pod: as a label, else as an annotation. The first one found counts.

The last is T9k Scheduler's: t9k/user-manuals e76e8e6 src/modules/computing-resources/scheduler/queue.md.
"""
LINGERS = 300.0
"""Seconds for which a deleted pod keeps its names; ten times the usual grace of a termination."""
EARLIER = 4
"""Ids of earlier generations that are kept for each container, newest last."""
GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL if a pod sets none; the API server writes them into each pod."""
MIRROR = "kubernetes.io/config.mirror"
CONFIG_HASH = "kubernetes.io/config.hash"

_LIST = msgspec.json.Decoder(ObjectList)
_EVENT = msgspec.json.Decoder(WatchEvent)
_POD = msgspec.json.Decoder(PodObject)
_DESCRIBED = msgspec.json.Decoder(Described)
_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class KnownPod:
    """
    A pod of the API.

    Attributes:
        node: the node that it runs on; empty while it has none.
        pod: its names. The workload is missing there: it takes more requests.
        containers: of each container the earlier generations first and the present one last.
        controller: the owner that controls it, if any.
        finished: it has ended (phase Succeeded or Failed), and holds no devices.
        declared: the source of its limits; None of a pod that finished while it was in the API.

    """

    node: str
    pod: Pod
    containers: tuple[Container, ...]
    controller: OwnerReference | None = None
    finished: bool = False
    declared: DeclaredPod | None = None


@dataclass(frozen=True, slots=True)
class Departed:
    """A deleted pod, and the monotonic time at which its names are forgotten."""

    known: KnownPod
    until: float


@dataclass(frozen=True, slots=True)
class Pods:
    """
    The known pods of the node.

    Attributes:
        version: resourceVersion from which a watch goes on; empty before the first list.
        broken: namespace/name of pods that could not be decoded, with the reason.

    """

    version: str = ""
    known: Mapping[PodUid, KnownPod] = field(default_factory=dict)
    departed: Mapping[PodUid, Departed] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """The complete list at one version."""

    version: str
    pods: tuple[PodObject, ...]
    broken: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changed:
    """
    The change up to the version in `metadata`.

    Attributes:
        metadata: the pod's, as far as it could be read.
        pod: the pod; None if it could not be decoded, and for a bookmark, which is no change.
        deleted: it is gone, and `pod` is its last state.
        why: the reason why it could not be decoded.

    """

    metadata: Metadata
    pod: PodObject | None = None
    deleted: bool = False
    why: str = ""


Event = Listed | Changed


def parse_list(body: bytes) -> Listed:
    """Decode the answer to a list. Raises KubeError if it is not a list."""
    answer: ObjectList = decoded(_LIST, body)
    pods: list[PodObject] = []
    broken: dict[str, str] = {}
    for raw in answer.items or ():
        try:
            pods.append(_POD.decode(raw))
        except UNREADABLE as error:
            broken[_called(_metadata(raw))] = str(error)
    return Listed(answer.metadata.resource_version, tuple(pods), broken)


def parse_pod(body: bytes) -> KnownPod:
    """Decode a single pod. Raises KubeError."""
    return know(decoded(_POD, body))


def parse_event(line: bytes) -> Event:
    """
    Decode a line of a watch.

    Raises KubeError if the line is an error (410: the server no longer has the changes).
    """
    event: WatchEvent = decoded(_EVENT, line)
    if event.type == "ERROR":
        raise status_error(event.object, KubeError(UNREACHABLE, INVALID, "an error that says nothing"))
    if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
        return Changed(_metadata(event.object))
    deleted = event.type == "DELETED"
    try:
        pod = _POD.decode(event.object)
    except UNREADABLE as error:
        return Changed(_metadata(event.object), None, deleted, str(error))
    return Changed(pod.metadata, pod, deleted)


def apply(event: Event, pods: Pods, *, node: str, now: float) -> Pods:
    """
    Return the state after `event`.

    Args:
        event: the server's event.
        pods: the state before it.
        node: pods of other nodes are ignored, even if a server or proxy ignores the selector.
        now: monotonic time.

    """
    departed = {uid: gone for uid, gone in pods.departed.items() if gone.until > now}
    if isinstance(event, Listed):
        known = {
            uid: know(pod, pods.known.get(uid) or _returned(departed, uid))
            for pod in event.pods
            if (uid := PodUid(pod.metadata.uid)) and pod.spec.node_name == node
        }
        departed |= {uid: _depart(last, now) for uid, last in pods.known.items() if uid not in known}
        departed = {uid: gone for uid, gone in departed.items() if uid not in known}
        return Pods(event.version, known, departed, event.broken)
    version, pod = event.metadata.resource_version or pods.version, event.pod
    if pod is None and not event.why:
        return replace(pods, version=version, departed=departed)
    uid, name = PodUid(event.metadata.uid), _called(event.metadata)
    known = dict(pods.known)
    ours = pod is None or (uid != "" and pod.spec.node_name == node)
    if pod is not None and ours:
        known[uid] = know(pod, known.pop(uid, None) or _returned(departed, uid))
        departed.pop(uid, None)
    if event.deleted and ours and uid in known:
        departed[uid] = _depart(known.pop(uid), now)
    broken = {other: why for other, why in pods.broken.items() if other != name}
    if event.why and not event.deleted:
        broken[name] = event.why
    return Pods(version, known, departed, broken)


def container_id(written: str) -> ContainerId | None:
    """Read `containerd://<64 hex>`; None for any other text (a waiting container has no id)."""
    bare = written.rpartition("://")[2]
    return ContainerId(bare) if _ID.fullmatch(bare) else None


def know(pod: PodObject, before: KnownPod | None = None) -> KnownPod:
    """Make a `KnownPod` of a pod; `before` is the last one, with its earlier generations."""
    metadata, status = pod.metadata, pod.status
    uid = PodUid(metadata.uid)
    annotations = metadata.annotations or {}
    earlier: dict[str, list[ContainerId]] = {}
    for container in before.containers if before else ():
        if container.id is not None:
            earlier.setdefault(container.name, []).append(container.id)
    kinds = _kinds(pod.spec)
    containers: list[Container] = []

    def add(name: str, ids: Iterable[ContainerId | None]) -> None:
        kind = kinds.get(name, ContainerKind.REGULAR)
        containers.extend(Container(uid, name, id_, kind) for id_ in ids)

    for container_status in _statuses(pod):
        add(container_status.name, _generations(container_status, earlier.pop(container_status.name, ())))
    # An evicted pod's status may list no containers any more, while their processes still end.
    for name, ids in earlier.items():
        add(name, ids[-EARLIER:])
    mirrored = MIRROR in annotations  # any user may write the hash alone on an own pod
    created = metadata.creation_timestamp
    finished = status.phase in ("Succeeded", "Failed")
    grace = pod.spec.termination_grace_period_seconds
    return KnownPod(
        pod.spec.node_name or "",
        Pod(
            uid,
            metadata.namespace,
            metadata.name,
            queue=_queue(metadata),
            priority_class=pod.spec.priority_class_name or "",
            created_at=created.timestamp() if created else 0.0,
            terminating=metadata.deletion_timestamp is not None,
            config_hash=PodUid(annotations.get(CONFIG_HASH) or annotations[MIRROR]) if mirrored else None,
            phase=status.phase,
            priority=pod.spec.priority,
            controller_kind=metadata.controller.kind if metadata.controller else "",
            grace_seconds=GRACE if grace is None else float(grace),
            labels=metadata.labels or {},
            annotations=annotations,
            version=metadata.resource_version,
        ),
        tuple(containers),
        metadata.controller,
        finished=finished,
        declared=None if finished else declared_pod(pod),
    )


def _kinds(spec: PodSpec) -> dict[str, ContainerKind]:
    """Name the kind of each container that is not a regular one; names are unique over all lists of a pod."""
    kinds = {container.name: ContainerKind.EPHEMERAL for container in spec.ephemeral_containers or ()}
    for container in spec.init_containers or ():
        kinds[container.name] = ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT
    return kinds


def _statuses(pod: PodObject) -> Iterable[ContainerStatus]:
    status = pod.status
    yield from status.init_container_statuses or ()
    yield from status.container_statuses or ()
    yield from status.ephemeral_container_statuses or ()


def _generations(status: ContainerStatus, earlier: Iterable[ContainerId]) -> list[ContainerId | None]:
    """List the ids of a container, the present one last. A dying process or ghost memory may carry an earlier one."""
    present = container_id(status.container_id)
    ended = status.state.terminated, status.last_state.terminated
    ended_ids = [container_id(end.container_id) for end in ended if end is not None]
    before = [id_ for id_ in dict.fromkeys([*earlier, *ended_ids]) if id_ is not None and id_ != present]
    return [*before[-EARLIER:], present]


def _returned(departed: Mapping[PodUid, Departed], uid: PodUid) -> KnownPod | None:
    gone = departed.get(uid)
    return gone.known if gone else None


def _depart(known: KnownPod, now: float) -> Departed:
    return Departed(
        replace(known, pod=replace(known.pod, terminating=True, deleted=True), finished=True), now + LINGERS
    )


def _queue(metadata: Metadata) -> str:
    for written in (metadata.labels or {}, metadata.annotations or {}):
        for key in QUEUES:
            if queue := written.get(key):
                return queue
    return ""


def _metadata(raw: msgspec.Raw) -> Metadata:
    try:
        return _DESCRIBED.decode(raw).metadata
    except UNREADABLE:
        return Metadata()


def _called(metadata: Metadata) -> str:
    return f"{metadata.namespace}/{metadata.name}"
