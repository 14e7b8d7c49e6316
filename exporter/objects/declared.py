"""
What the API server's objects declare about devices.

What comes in: a pod or the node, decoded. What goes out: the same as facts that limits are read from.

The law: all is taken as it is written, nothing is understood here.
"""

from collections.abc import Iterable, Mapping

from exporter.model import ClaimUse, DeclaredContainer, DeclaredPod, NodeFacts
from exporter.objects.api_objects import ContainerSpec, NodeObject, PodObject, Quantities


def declared_pod(found: PodObject) -> DeclaredPod:
    """Take out of a pod what it declares, init containers first."""
    metadata, spec, status = found.metadata, found.spec, found.status
    claims = {each.name: each.resource_claim_name for each in spec.resource_claims or ()}
    claims |= {each.name: each.resource_claim_name for each in status.resource_claim_statuses or ()}
    served: dict[str, list[ClaimUse]] = {}
    if (extended := status.extended_resource_claim_status) is not None:
        # An extended resource (nvidia.com/gpu) that the scheduler served by a claim; no container names it.
        claims[""] = extended.resource_claim_name
        for mapping in extended.request_mappings or ():
            served.setdefault(mapping.container_name, []).append(ClaimUse("", mapping.request_name))
    return DeclaredPod(
        metadata.uid,
        metadata.namespace,
        metadata.name,
        metadata.labels or {},
        metadata.annotations or {},
        (
            *(_container(each, served.get(each.name, ()), init=True) for each in spec.init_containers or ()),
            *(_container(each, served.get(each.name, ()), init=False) for each in spec.containers or ()),
        ),
        {own: name for own, name in claims.items() if name},
        spec.scheduler_name,
    )


def node_facts(found: NodeObject) -> NodeFacts:
    """Take out of a node what it advertises, and what sharing systems wrote on it."""
    metadata, status = found.metadata, found.status
    return NodeFacts(
        _texts(status.capacity), _texts(status.allocatable), metadata.labels or {}, metadata.annotations or {}
    )


def _container(found: ContainerSpec, served: Iterable[ClaimUse], *, init: bool) -> DeclaredContainer:
    resources = found.resources
    return DeclaredContainer(
        found.name,
        _texts(resources.limits),
        _texts(resources.requests),
        {var.name: var.value for var in found.env or () if var.value is not None},
        (*(ClaimUse(use.name, use.request) for use in resources.claims or ()), *served),
        init=init,
        stays=not init or found.restart_policy == "Always",
    )


def _texts(quantities: Quantities | None) -> Mapping[str, str]:
    return {key: str(value) for key, value in (quantities or {}).items()}
