"""
The facts of Kubernetes: pods, containers, and their allocations.

What comes in: nothing. What goes out: the types in which the sources of names answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exporter.model.declared import Claim, DeclaredPod, NodeFacts
from exporter.model.devices import Sharing
from exporter.model.identity import ContainerId, DeviceKey, Fault, PodUid


@dataclass(frozen=True, slots=True)
class Pod:
    """
    A pod of this node. It is identified by its UID; the names are for display only.

    Attributes:
        config_hash: for static pods: their cgroup has this hash of the kubelet, not the UID of their mirror pod.
        phase: as the kubelet reports it; empty if unknown.
        priority: None if unknown.
        controller_kind: kind of the owner that controls it (ReplicaSet, Job, DaemonSet); empty for a bare pod.
        grace_seconds: seconds that the pod wants between SIGTERM and SIGKILL.
        labels: the pod's own; not trusted without its namespace's consent. The same applies to `annotations`.
        version: resourceVersion of the last report; empty if unknown.
        deleted: it is gone from the API server, and only remembered for the memory that it may still hold.
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
    deleted: bool = False


class ContainerKind(StrEnum):
    """The list of a pod's spec that a container is in. A sidecar is an init container that keeps running."""

    REGULAR = "regular"
    INIT = "init"
    SIDECAR = "sidecar"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True)
class Container:
    """One generation of one container of a pod: a restart makes a new id, hence a new `Container`."""

    pod_uid: PodUid
    name: str
    id: ContainerId | None
    kind: ContainerKind = ContainerKind.REGULAR


@dataclass(frozen=True, slots=True)
class Allocation:
    """The replicas of a device that the kubelet handed to a container, used or not."""

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
        sharing: device to its sharing and its number of replicas, as far as Kubernetes reports them.
        declared: declarations of the pods that have not ended; empty until the node's own facts were requested.
        node: None if unknown.
        namespaces: labels of the pods' namespaces, at most a minute and a half old. A namespace that could not be read
            is missing; one without labels has an empty mapping.
        live: False while the source does not answer, and the facts are remembered ones.

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
    """False until the source has answered once: until then no container has a name."""
    live: bool = False
    faults: tuple[Fault, ...] = ()
