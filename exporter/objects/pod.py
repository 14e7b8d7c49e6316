"""
What a Pod looks like, and what it declares about devices.

What comes in: a pod's JSON from the API server, or the same data from a file. What goes out: a struct with the API's
own names, and of it the facts that limits are read from.

The law: everything is taken as it is written, nothing is understood here. Of an environment only variables about
devices are kept (`environment`).
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
    """What a container asks for; quantities as written."""

    limits: Quantities | None = None
    requests: Quantities | None = None
    claims: list[ContainerClaim] | None = None


class ContainerSpec(Part, frozen=True):
    """A container as declared. `env` holds literal values of variables about devices, and no others."""

    name: str
    resources: Resources | None = None
    env: list[EnvVar] | None = None
    restart_policy: str | None = None

    def __post_init__(self) -> None:
        if self.env is not None:
            msgspec.structs.force_setattr(self, "env", about_devices(self.env))


class PodClaim(Part, frozen=True):
    """A claim of the pod, by its own name; in the status with the name of the one that was made."""

    name: str
    resource_claim_name: str | None = None


class PodSpec(Part, frozen=True):
    """A pod as declared."""

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

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def declared_pod(pod: PodObject) -> DeclaredPod:
    """Take out of a pod what it declares, init containers first."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    claims = {claim.name: claim.resource_claim_name for claim in spec.resource_claims or ()}
    claims |= {claim.name: claim.resource_claim_name for claim in status.resource_claim_statuses or ()}
    served: dict[str, list[ClaimUse]] = {}
    if (extended := status.extended_resource_claim_status) is not None:
        # An extended resource (nvidia.com/gpu) that the scheduler served by a claim; no container names it.
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
