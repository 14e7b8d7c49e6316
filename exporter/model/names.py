"""What Kubernetes says: pods, containers, and what the kubelet handed to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.declared import Claim, DeclaredPod, NodeFacts
from exporter.model.devices import Sharing
from exporter.model.identity import ContainerId, DeviceKey, Fault, PodUid


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of this node. The UID decides; the names only display."""

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
    """Static pods: their cgroup carries this hash of the kubelet's, not the UID of their mirror pod."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container of one pod, in one generation: a restart makes a new id, hence a new container."""

    pod_uid: PodUid
    name: str
    id: ContainerId | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the kubelet handed to a container: replicas of a leaf device, used or not."""

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
        sharing: leaf device to its sharing and its number of replicas, as far as Kubernetes tells.
        declared: what the pods that have not ended declare; empty until the node's own facts were asked for.
        node: None where nobody can tell.
        live: False while the source is away and these are remembered facts.

    """

    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    sharing: Mapping[DeviceKey, tuple[Sharing, int]] = field(default_factory=dict)
    declared: Mapping[PodUid, DeclaredPod] = field(default_factory=dict)
    node: NodeFacts | None = None
    claims: tuple[Claim, ...] = ()
    known: bool = False
    """False until the source answered once: then nothing can be named."""
    live: bool = False
    faults: tuple[Fault, ...] = ()
