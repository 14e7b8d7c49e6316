"""
The parts of Kubernetes objects that are read.

What comes in: JSON of the API server. What goes out: structs with the API's own names.

The law: only needed fields, so that a server's new fields and a pod's 3 kB of managed fields cost nothing; and no more
of an environment than limits can be read from, so that nobody's secrets lie in this process.
"""

from datetime import datetime

import msgspec

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""A second copy of the whole manifest, with the whole environment in it."""
KEPT_ENV = ("CUDA", "NVIDIA", "GPU", "NPU", "ASCEND")
"""Parts of the names of variables that device plugins and sharing systems read."""
SECRET_ENV = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")
"""... of which these are none of our business: NVIDIA_API_KEY."""


class Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an object; unknown fields are passed over."""


class OwnerReference(Part, frozen=True):
    """Who made the object, or looks after it (`controller`)."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None

    @property
    def group(self) -> str:
        """The API group, empty for the core."""
        return self.api_version.rpartition("/")[0]


class Metadata(Part, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    def __post_init__(self) -> None:
        if self.annotations is not None:
            self.annotations.pop(LAST_APPLIED, None)

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that controls the object, if any."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class EnvVar(Part, frozen=True):
    """A variable with a literal value; references to secrets and the like have none."""

    name: str
    value: str | None = None


Quantities = dict[str, str | int | float]
"""As written: people leave the quotes away."""


class ClaimUse(Part, frozen=True):
    """A container's use of a claim of its pod."""

    name: str
    request: str = ""


class Resources(Part, frozen=True):
    """What a container asks for; quantities as written."""

    limits: Quantities | None = None
    requests: Quantities | None = None
    claims: list[ClaimUse] | None = None


class ContainerSpec(Part, frozen=True):
    """A container as declared. `env` holds literal values of variables about devices, and no others."""

    name: str
    resources: Resources = Resources()
    env: list[EnvVar] | None = None
    restart_policy: str | None = None

    def __post_init__(self) -> None:
        if self.env is not None:
            msgspec.structs.force_setattr(self, "env", [var for var in self.env if _kept(var)] or None)


class PodClaim(Part, frozen=True):
    """A claim of the pod, by its own name; in the status with the name of the one that was made."""

    name: str
    resource_claim_name: str | None = None


class PodSpec(Part, frozen=True):
    """A pod as declared."""

    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    termination_grace_period_seconds: int | None = None
    runtime_class_name: str | None = None
    containers: list[ContainerSpec] | None = None
    init_containers: list[ContainerSpec] | None = None
    ephemeral_containers: list[ContainerSpec] | None = None
    resource_claims: list[PodClaim] | None = None


class Terminated(Part, frozen=True):
    """How a container ended."""

    container_id: str = msgspec.field(name="containerID", default="")


class ContainerState(Part, frozen=True):
    """Of waiting, running and terminated only the last names an id."""

    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True):
    """A container as it is: the id of the present one, and of the one before it."""

    name: str
    container_id: str = msgspec.field(name="containerID", default="")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class RequestMapping(Part, frozen=True):
    """Which request of that claim serves which container; the container does not name it."""

    container_name: str = ""
    request_name: str = ""


class ExtendedClaim(Part, frozen=True):
    """The claim by which an extended resource is served."""

    resource_claim_name: str = ""
    request_mappings: list[RequestMapping] | None = None


class PodStatus(Part, frozen=True):
    """A pod as it is."""

    phase: str = ""
    resource_claim_statuses: list[PodClaim] | None = None
    extended_resource_claim_status: ExtendedClaim | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class PodObject(Part, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeStatus(Part, frozen=True):
    """What a node advertises."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class NodeObject(Part, frozen=True):
    """A node."""

    metadata: Metadata = Metadata()
    status: NodeStatus = NodeStatus()


class Described(Part, frozen=True):
    """Any object, of which only the metadata matter."""

    metadata: Metadata = Metadata()


class ObjectList(Part, frozen=True):
    """A list, whose items are decoded one by one: a broken one must not lose the others."""

    metadata: Metadata = Metadata()
    items: list[msgspec.Raw] | None = None


class WatchEvent(Part, frozen=True):
    """A line of a watch. `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


def _kept(var: EnvVar) -> bool:
    name = var.name.upper()
    return (
        var.value is not None
        and any(word in name for word in KEPT_ENV)
        and not any(word in name for word in SECRET_ENV)
    )
