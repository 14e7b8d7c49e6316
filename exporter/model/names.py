"""What Kubernetes says: pods, containers, and what the kubelet handed to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exporter.model.declared import Claim, DeclaredPod, NodeFacts
from exporter.model.devices import Sharing
from exporter.model.identity import ContainerId, DeviceKey, Fault, PodUid


@dataclass(frozen=True, slots=True)
class Pod:
    """
    A pod of this node. The UID decides; the names only display.

    Attributes:
        config_hash: static pods: their cgroup carries this hash of the kubelet's, not the UID of their mirror pod.
        phase: as the kubelet reports it; empty where nobody told.
        priority: None where it was not told.
        controller_kind: kind of the owner that controls it (ReplicaSet, Job, DaemonSet); empty for a bare pod.
        grace_seconds: what it wants between SIGTERM and SIGKILL.
        labels: the pod's own, believed by nobody without its namespace's consent; the same holds for `annotations`.
        version: resourceVersion of what was told last; empty where nobody told.
        reservation: the sharing system for which this pod only reserves devices; empty for every other pod.

    """

    uid: PodUid
    namespace: str
    name: str
    workload_kind: str = ""
    workload: str = ""
    queue: str = ""
    priority_class: str = ""
    created_at: float = 0.0
    terminating: bool = False
    config_hash: PodUid | None = None
    phase: str = ""
    priority: int | None = None
    controller_kind: str = ""
    grace_seconds: float = 30.0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    reservation: str = ""


class ContainerKind(StrEnum):
    """How a pod's spec lists a container. A sidecar is an init container that stays."""

    REGULAR = "regular"
    INIT = "init"
    SIDECAR = "sidecar"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True)
class Container:
    """One container of one pod, in one generation: a restart makes a new id, hence a new container."""

    pod_uid: PodUid
    name: str
    id: ContainerId | None
    kind: ContainerKind = ContainerKind.REGULAR


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the kubelet handed to a container: replicas of a device, used or not."""

    namespace: str
    pod: str
    container: str
    resource: str
    device: DeviceKey
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Inventory:
    """
    Names and allocations as last known.

    Attributes:
        sharing: device to its sharing and its number of replicas, as far as Kubernetes tells.
        declared: what the pods that have not ended declare; empty until the node's own facts were asked for.
        node: None where nobody can tell.
        namespaces: labels of the pods' namespaces, at most a minute and a half old; one that could not be read is
            missing, which is not the same as one without labels.
        live: False while the source is away and these are remembered facts.

    """

    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    sharing: Mapping[DeviceKey, tuple[Sharing, int]] = field(default_factory=dict)
    declared: Mapping[PodUid, DeclaredPod] = field(default_factory=dict)
    node: NodeFacts | None = None
    claims: tuple[Claim, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    known: bool = False
    """False until the source answered once: then nothing can be named."""
    live: bool = False
    faults: tuple[Fault, ...] = ()
