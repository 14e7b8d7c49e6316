"""
A Pod, and its declarations about devices.

What comes in: a pod's JSON from the API server, or the same data from a file. What goes out: a struct with the API's
own names, and the facts in it that limits are read from.

The rule: all values stay as written, and nothing is interpreted here. Of an environment, only variables about devices
are kept (`environment`).
"""

from collections.abc import Iterable

import msgspec

from exporter.model import ClaimUse, DeclaredContainer, DeclaredPod
from exporter.objects.environment import EnvVar, about_devices
from exporter.objects.metadata import Metadata, Part, Quantities, texts


class ContainerClaim(Part, frozen=True):
    """A container's use of a claim of its pod."""

    name: str
    request: str = ""


class Resources(Part, frozen=True):
    """The resources and claims that a container asks for; quantities as written."""

    limits: Quantities | None = None
    requests: Quantities | None = None
    claims: list[ContainerClaim] | None = None


class ContainerSpec(Part, frozen=True):
    """A container as declared. `env` holds only variables about devices with literal values."""

    name: str
    resources: Resources | None = None
    env: list[EnvVar] | None = None
    restart_policy: str | None = None

    def __post_init__(self) -> None:
        if self.env is not None:
            msgspec.structs.force_setattr(self, "env", about_devices(self.env))


class PodClaim(Part, frozen=True):
    """A claim by its name within the pod; `resource_claim_name` in the status is the claim that was created."""

    name: str
    resource_claim_name: str | None = None


class PodSpec(Part, frozen=True):
    """A pod's spec."""

    node_name: str | None = None
    scheduler_name: str = ""
    priority_class_name: str | None = None
    priority: int | None = None
    termination_grace_period_seconds: int | None = None
    containers: list[ContainerSpec] | None = None
    init_containers: list[ContainerSpec] | None = None
    ephemeral_containers: list[ContainerSpec] | None = None
    resource_claims: list[PodClaim] | None = None


class Terminated(Part, frozen=True):
    """The state of a container that has ended."""

    container_id: str = msgspec.field(name="containerID", default="")


class ContainerState(Part, frozen=True):
    """A container's state. Only `terminated` is read, because waiting and running name no id."""

    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True):
    """A container's status: the id of the present generation, and of the one before it."""

    name: str
    container_id: str = msgspec.field(name="containerID", default="")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class RequestMapping(Part, frozen=True):
    """The request of an `ExtendedClaim` that serves a container; the container itself does not name it."""

    container_name: str = ""
    request_name: str = ""


class ExtendedClaim(Part, frozen=True):
    """The claim that serves a pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: list[RequestMapping] | None = None


class PodStatus(Part, frozen=True):
    """A pod's status."""

    phase: str = ""
    resource_claim_statuses: list[PodClaim] | None = None
    extended_resource_claim_status: ExtendedClaim | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class PodObject(Part, frozen=True):
    """A Pod: metadata, spec and status."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def declared_pod(pod: PodObject) -> DeclaredPod:
    """Convert a pod's declarations; init containers come first."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    claims = {claim.name: claim.resource_claim_name for claim in spec.resource_claims or ()}
    claims |= {claim.name: claim.resource_claim_name for claim in status.resource_claim_statuses or ()}
    served: dict[str, list[ClaimUse]] = {}
    if (extended := status.extended_resource_claim_status) is not None:
        # The scheduler served an extended resource (nvidia.com/gpu) by a claim that no container names.
        claims[""] = extended.resource_claim_name
        for mapping in extended.request_mappings or ():
            served.setdefault(mapping.container_name, []).append(ClaimUse("", mapping.request_name))
    return DeclaredPod(
        metadata.uid,
        metadata.namespace or "default",
        metadata.name,
        metadata.labels or {},
        metadata.annotations or {},
        (
            *(_container(member, served.get(member.name, ()), init=True) for member in spec.init_containers or ()),
            *(_container(member, served.get(member.name, ()), init=False) for member in spec.containers or ()),
        ),
        {own: name for own, name in claims.items() if name},
        spec.scheduler_name,
    )


def _container(spec: ContainerSpec, served: Iterable[ClaimUse], *, init: bool) -> DeclaredContainer:
    resources = spec.resources or Resources()
    return DeclaredContainer(
        spec.name,
        texts(resources.limits),
        texts(resources.requests),
        {variable.name: str(variable.value) for variable in spec.env or ()},
        (*(ClaimUse(use.name, use.request) for use in resources.claims or ()), *served),
        init=init,
        stays=not init or spec.restart_policy == "Always",
    )
