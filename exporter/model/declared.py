"""
What pods, their claims and their node declare about devices, as they wrote it.

What comes in: nothing. What goes out: the facts that limits are read from.

The law: text stays text here. Quantities, annotations and environments are as they were written, and are not believed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.identity import DeviceKey


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
        held: what the kubelet handed out; empty where it was not asked.

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

    @property
    def regular(self) -> tuple[DeclaredContainer, ...]:
        """The containers that are not init containers."""
        return tuple(container for container in self.containers if not container.init)

    def container(self, name: str) -> DeclaredContainer | None:
        """Find a container by its name."""
        return next((container for container in self.containers if container.name == name), None)


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
    """A ResourceClaim's status. `consumers` counts the pods that it is reserved for, which share its amount."""

    namespace: str
    name: str
    devices: tuple[ClaimedDevice, ...] = ()
    configs: tuple[ClaimConfig, ...] = ()
    consumers: int = 1
