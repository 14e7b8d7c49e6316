"""
The declarations of pods, claims and the node about devices, as written.

What comes in: nothing. What goes out: the facts that limits are read from.

The rule: text stays text here. Quantities, annotations and environments are as written, and not trusted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.identity import DeviceKey


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A container's use of a pod's claim: the claim's name within the pod, and one of its requests ("" for all)."""

    name: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class DeclaredContainer:
    """A container of a pod's spec. `stays` is False only for init containers that end; a sidecar stays."""

    name: str
    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[ClaimUse, ...] = ()
    init: bool = False
    stays: bool = True

    def resources(self) -> dict[str, str]:
        """Merge requests and limits; limits take precedence, as in HAMi and Volcano."""
        return {**self.requests, **self.limits}


@dataclass(frozen=True, slots=True)
class Held:
    """A device that the kubelet handed to a container; only ids that name a device (`exporter.kube.device_ids`)."""

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
        claims: name of each claim within the pod, to the name of its ResourceClaim.
        held: the devices from the kubelet; empty if it was not asked.

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
        """Find a container by its name; None if there is none."""
        return next((container for container in self.containers if container.name == name), None)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node: its resources, and the labels and annotations that sharing systems wrote on it."""

    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def advertised(self) -> dict[str, str]:
        """Merge allocatable and capacity: an unhealthy device still counts for the unit."""
        return {**self.allocatable, **self.capacity}


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """One result of a claim's allocation. `uuid` is from the ResourceSlice, None if that was not read."""

    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None = None
    consumed: Mapping[str, str] = field(default_factory=dict)
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimConfig:
    """An opaque configuration of a claim's allocation; `requests` is empty if it is for all requests."""

    driver: str
    requests: tuple[str, ...]
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Claim:
    """
    A ResourceClaim's status.

    Attributes:
        devices: that it hands out.
        watched: that it only monitors, by admin access; it gets no part of them.

    """

    namespace: str
    name: str
    devices: tuple[ClaimedDevice, ...] = ()
    configs: tuple[ClaimConfig, ...] = ()
    watched: tuple[ClaimedDevice, ...] = ()
