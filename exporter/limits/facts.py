"""
What the resolver is told: a pod as declared, the node, its claims, its devices. Frozen, and nothing more than is read.

What comes in: nothing; this module knows only the model. What goes out: the words in which the rest of `limits` speaks.

The law: text stays text here. Quantities, annotations and environments are as somebody wrote them, believed by nobody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exporter.model import DeviceKey, Gpu, Sharing


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A container's use of a pod's claim: the pod's own name of the claim, and one of its requests ("" for all)."""

    name: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class DeclaredContainer:
    """A container of a pod's spec. `stays` tells a sidecar (a restartable init container) from one that ends."""

    name: str
    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[ClaimUse, ...] = ()
    init: bool = False
    stays: bool = True

    def resources(self) -> dict[str, str]:
        """Merge requests and limits; limits come first, as HAMi and Volcano read them."""
        return {**self.requests, **self.limits}


@dataclass(frozen=True, slots=True)
class Held:
    """What the kubelet handed to a container, as far as its ids are true: see `exporter.kube.device_ids`."""

    container: str
    resource: str
    device: DeviceKey
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class DeclaredPod:
    """
    A pod as declared.

    Attributes:
        containers: init containers first, then the others, in the order of the spec.
        claims: the pod's own name of each claim to the name of the ResourceClaim that was made for it.
        held: what the kubelet handed out; empty where nobody asked it.

    """

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[DeclaredContainer, ...] = ()
    claims: Mapping[str, str] = field(default_factory=dict)
    scheduler: str = ""
    held: tuple[Held, ...] = ()

    def container(self, name: str) -> DeclaredContainer | None:
        """Find a container by its name."""
        return next((each for each in self.containers if each.name == name), None)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node: what it advertises, and what sharing systems wrote on it."""

    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def advertised(self) -> dict[str, str]:
        """Merge allocatable and capacity: what is unhealthy now still tells the unit."""
        return {**self.allocatable, **self.capacity}


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """One result of a claim's allocation. `uuid` is that of its ResourceSlice, None where nobody read it."""

    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None = None
    consumed: Mapping[str, str] = field(default_factory=dict)
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimConfig:
    """An opaque configuration of a claim's allocation, for some of its requests or (empty) for all of them."""

    driver: str
    requests: tuple[str, ...]
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim's status. `consumers` counts the pods that it is reserved for; several share one amount."""

    namespace: str
    name: str
    devices: tuple[ClaimedDevice, ...] = ()
    configs: tuple[ClaimConfig, ...] = ()
    consumers: int = 1


@dataclass(frozen=True, slots=True)
class LeafDevice:
    """
    A leaf device that declarations can be about.

    `key` is None offline, where a node's labels tell how many devices there are and how large, but not which.
    `replicas` is above 1 where the kubelet hands it out several times.
    """

    key: DeviceKey | None
    index: int
    minor: int | None = None
    memory: int | None = None
    vendor: str = "nvidia"
    mig_uuids: tuple[str, ...] = ()
    sharing: Sharing = Sharing.NONE
    replicas: int = 1

    @property
    def mig(self) -> bool:
        """Whether this is a MIG GPU instance."""
        return self.key is not None and self.key.gpu_instance is not None


@dataclass(frozen=True, slots=True)
class Place:
    """A device as a declaration names it; `key` where that is a leaf device which is known to be there."""

    name: str
    key: DeviceKey | None = None


def device_name(key: DeviceKey) -> str:
    """Name a leaf device in one word: the UUID, for a GPU instance followed by /gi and its id (as GKE does)."""
    return key.uuid if key.gpu_instance is None else f"{key.uuid}/gi{key.gpu_instance}"


def leaf_devices(
    gpus: Iterable[Gpu], sharing: Mapping[DeviceKey, tuple[Sharing, int]] | None = None
) -> tuple[LeafDevice, ...]:
    """Make the resolver's devices of the driver's GPUs and what the kubelet tells of their replicas."""
    found = []
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        uuids = {gi.id: gi.mig_uuids for gi in gpu.instances}
        for key, memory, _ in gpu.leaves():
            kind, replicas = (sharing or {}).get(key, (Sharing.NONE, 1))
            found.append(
                LeafDevice(
                    key,
                    gpu.index,
                    gpu.minor,
                    memory.total if memory else None,
                    gpu.vendor,
                    () if key.gpu_instance is None else uuids[key.gpu_instance],
                    kind,
                    replicas,
                )
            )
    return tuple(found)
