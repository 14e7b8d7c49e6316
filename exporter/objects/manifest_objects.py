"""
The parts of Kubernetes objects that limits are read from.

What comes in: decoded JSON of pods, nodes, claims and slices. What goes out: structs with the API's own names; unknown
fields are passed over, wrong types refused with their path.
"""

from typing import Any

import msgspec

Quantity = str | int | float
"""A quantity as written: people leave the quotes away."""


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object; unknown fields are passed over."""


class Metadata(Part, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class EnvVar(Part, frozen=True):
    """A variable; references to secrets and the like have no value."""

    name: str
    value: Quantity | None = None


class ClaimUse(Part, frozen=True):
    """A container's use of a claim of its pod."""

    name: str
    request: str = ""


class Resources(Part, frozen=True):
    """What a container asks for."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None
    claims: list[ClaimUse] | None = None


class Container(Part, frozen=True):
    """A container as declared."""

    name: str
    resources: Resources | None = None
    env: list[EnvVar] | None = None
    restart_policy: str | None = None


class PodClaim(Part, frozen=True):
    """A claim of the pod, by its own name; in the status with the name of the one that was made."""

    name: str
    resource_claim_name: str | None = None


class Spec(Part, frozen=True):
    """A pod's spec."""

    scheduler_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resource_claims: list[PodClaim] | None = None


class RequestMapping(Part, frozen=True):
    """Which request of that claim serves which container; the container does not name it."""

    container_name: str = ""
    request_name: str = ""


class Extended(Part, frozen=True):
    """The claim by which an extended resource is served."""

    resource_claim_name: str = ""
    request_mappings: list[RequestMapping] | None = None


class Status(Part, frozen=True):
    """A pod's status."""

    resource_claim_statuses: list[PodClaim] | None = None
    extended_resource_claim_status: Extended | None = None


class Pod(Part, frozen=True):
    """A pod."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()


class NodeStatus(Part, frozen=True):
    """What a node advertises."""

    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None


class Node(Part, frozen=True):
    """A node."""

    metadata: Metadata = Metadata()
    status: NodeStatus = NodeStatus()


class Result(Part, frozen=True):
    """An allocated device."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    admin_access: bool | None = None
    consumed_capacity: dict[str, Quantity] | None = None


class Opaque(Part, frozen=True):
    """A driver's own parameters."""

    driver: str = ""
    parameters: dict[str, Any] | None = None


class Config(Part, frozen=True):
    """A configuration that was allocated."""

    requests: list[str] | None = None
    opaque: Opaque | None = None


class Devices(Part, frozen=True):
    """All of an allocation."""

    results: list[Result] | None = None
    config: list[Config] | None = None


class Allocation(Part, frozen=True):
    """What a claim got."""

    devices: Devices = Devices()


class ClaimStatus(Part, frozen=True):
    """A claim's status."""

    allocation: Allocation | None = None
    reserved_for: list[dict[str, Any]] | None = None


class Claim(Part, frozen=True):
    """A ResourceClaim."""

    metadata: Metadata = Metadata()
    status: ClaimStatus = ClaimStatus()


class Text(Part, frozen=True):
    """An attribute of a device; only text matters here."""

    string: str | None = None


class Basic(Part, frozen=True):
    """Where v1beta1 puts what later versions have in the device itself."""

    attributes: dict[str, Text] | None = None


class SliceDevice(Part, frozen=True):
    """A device of a ResourceSlice."""

    name: str
    attributes: dict[str, Text] | None = None
    basic: Basic = Basic()


class Pool(Part, frozen=True):
    """The pool of a ResourceSlice."""

    name: str = ""


class SliceSpec(Part, frozen=True):
    """The devices that a driver offers."""

    driver: str = ""
    pool: Pool = Pool()
    devices: list[SliceDevice] | None = None


class Slice(Part, frozen=True):
    """A ResourceSlice."""

    spec: SliceSpec = SliceSpec()
