"""
Objects as kubectl prints them, to facts.

What comes in: YAML or JSON text (`kubectl get -o yaml`, one object, a List, several documents), or decoded objects of
the API server. What goes out: pods, claims and a node as the resolver takes them, or ManifestError with the path.

The law: no more of an environment than limits are read from; and a fact that is not written is absent, not empty text.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from exporter.base.text_files import MalformedError, documents, show
from exporter.limits.facts import (
    Claim,
    ClaimConfig,
    ClaimedDevice,
    ClaimUse,
    DeclaredContainer,
    DeclaredPod,
    LeafDevice,
    NodeFacts,
)
from exporter.limits.registers import registered
from exporter.model import DeviceKey, GpuUuid, Sharing
from exporter.objects import manifest_objects

LONGEST = 16 << 20
_ENV = ("CUDA", "NVIDIA", "GPU", "NPU", "ASCEND")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")
_MIB = 2**20
_REGISTER = "hami.io/node-nvidia-register"
_STRATEGY = "nvidia.com/gpu.sharing-strategy"
_MOST_DEVICES = 64
_NEITHER = "neither YAML nor JSON as kubectl prints it"


class ManifestError(ValueError):
    """The file is not what `kubectl get` prints; the message says where."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    What a file holds. ResourceSlices in it give the claims' devices their UUIDs.

    `others`: the kinds of what nothing is read from, for those who look for what is missing.
    """

    pods: tuple[DeclaredPod, ...] = ()
    claims: tuple[Claim, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    others: tuple[str, ...] = field(default=(), compare=False)


def read(text: str, source: str = "manifest") -> Manifest:
    """Read all that a file holds. Raises ManifestError."""
    if len(text) > LONGEST:
        raise ManifestError(f"{source}: longer than {LONGEST} characters")
    return collect(_flat(_documents(text, source), source), source)


def collect(objects: Iterable[Mapping[str, Any]], source: str = "manifest") -> Manifest:
    """Sort decoded objects. Raises ManifestError."""
    pods, claims, nodes = [], [], []
    others: dict[str, None] = {}
    uuids: dict[tuple[str, str, str], str] = {}
    for found in objects:
        try:
            match found.get("kind"):
                case "Pod":
                    pods.append(pod_of(found))
                case "Node":
                    nodes.append(node_of(found))
                case "ResourceClaim":
                    claims.append(claim_of(found))
                case "ResourceSlice":
                    uuids |= slice_uuids(found)
                case other:
                    others[show(other) if isinstance(other, str) else "an object without a kind"] = None
        except msgspec.ValidationError as error:
            name = found.get("metadata", {}).get("name", "") if isinstance(found.get("metadata"), dict) else ""
            raise ManifestError(f"{source}: {found.get('kind')} {name}: {error}") from error
    return Manifest(tuple(pods), tuple(with_uuids(claim, uuids) for claim in claims), tuple(nodes), tuple(others))


def pod_of(found: Mapping[str, Any]) -> DeclaredPod:
    """Take what limits are read from out of a pod. Raises msgspec.ValidationError."""
    pod = msgspec.convert(found, manifest_objects.Pod)
    claims = {each.name: each.resource_claim_name for each in pod.spec.resource_claims or ()}
    claims |= {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()}
    served: dict[str, list[ClaimUse]] = {}
    if (extended := pod.status.extended_resource_claim_status) is not None:
        # An extended resource (nvidia.com/gpu) that the scheduler served by a claim; no container names it.
        claims[""] = extended.resource_claim_name
        for mapping in extended.request_mappings or ():
            served.setdefault(mapping.container_name, []).append(ClaimUse("", mapping.request_name))
    containers = [
        *(_container(each, served.get(each.name, ()), init=True) for each in pod.spec.init_containers or ()),
        *(_container(each, served.get(each.name, ()), init=False) for each in pod.spec.containers or ()),
    ]
    return DeclaredPod(
        pod.metadata.uid,
        pod.metadata.namespace or "default",
        pod.metadata.name,
        pod.metadata.labels or {},
        pod.metadata.annotations or {},
        tuple(containers),
        {own: name for own, name in claims.items() if name},
        pod.spec.scheduler_name,
    )


def node_of(found: Mapping[str, Any]) -> NodeFacts:
    """Take what limits are checked against out of a node. Raises msgspec.ValidationError."""
    node = msgspec.convert(found, manifest_objects.Node)
    return NodeFacts(
        _texts(node.status.capacity),
        _texts(node.status.allocatable),
        node.metadata.labels or {},
        node.metadata.annotations or {},
    )


def claim_of(found: Mapping[str, Any]) -> Claim:
    """
    Take the allocation out of a ResourceClaim (v1, v1beta1, v1beta2). Raises msgspec.ValidationError.

    Devices with admin access are left out: whoever has that looks on, and is given nothing of the device.
    """
    claim = msgspec.convert(found, manifest_objects.Claim)
    devices = claim.status.allocation.devices if claim.status.allocation else manifest_objects.Devices()
    return Claim(
        claim.metadata.namespace or "default",
        claim.metadata.name,
        tuple(
            ClaimedDevice(
                each.request, each.driver, each.pool, each.device, each.share_id, _texts(each.consumed_capacity)
            )
            for each in devices.results or ()
            if not each.admin_access
        ),
        tuple(
            ClaimConfig(each.opaque.driver, tuple(each.requests or ()), each.opaque.parameters or {})
            for each in devices.config or ()
            if each.opaque is not None
        ),
        len(claim.status.reserved_for or ()),
    )


def slice_uuids(found: Mapping[str, Any]) -> dict[tuple[str, str, str], str]:
    """Read the UUIDs of a ResourceSlice: (driver, pool, device) to UUID. Raises msgspec.ValidationError."""
    spec = msgspec.convert(found, manifest_objects.Slice).spec
    uuids = {}
    for device in spec.devices or ():
        attribute = (device.attributes or device.basic.attributes or {}).get("uuid")
        if attribute is not None and attribute.string:
            uuids[spec.driver, spec.pool.name, device.name] = attribute.string
    return uuids


def with_uuids(claim: Claim, uuids: Mapping[tuple[str, str, str], str]) -> Claim:
    """Give a claim's devices the UUIDs of their slices."""
    devices = tuple(
        replace(each, uuid=uuids.get((each.driver, each.pool, each.device), each.uuid)) for each in claim.devices
    )
    return replace(claim, devices=devices)


def devices_of(node: NodeFacts) -> tuple[LeafDevice, ...]:
    """
    Tell a node's devices from its own labels and annotations: for `explain` without a driver.

    HAMi registers UUIDs and MiB; GPU feature discovery labels a count and MiB. Empty where neither is there.
    """
    if devices := registered(node.annotations.get(_REGISTER, "")):
        return tuple(
            LeafDevice(DeviceKey(GpuUuid(uuid)), index, memory=memory) for index, (uuid, memory) in enumerate(devices)
        )
    labels = node.labels
    count, memory = _number(labels.get("nvidia.com/gpu.count")), _number(labels.get("nvidia.com/gpu.memory"))
    if not count or not memory or count > _MOST_DEVICES:
        return ()
    replicas = max(1, _number(labels.get("nvidia.com/gpu.replicas")))
    strategies = {kind.value: kind for kind in (Sharing.TIME_SLICING, Sharing.MPS)}
    sharing = strategies.get(labels.get(_STRATEGY, ""), Sharing.NONE)
    return tuple(
        LeafDevice(None, index, memory=memory * _MIB, sharing=sharing, replicas=replicas) for index in range(count)
    )


def _container(found: manifest_objects.Container, served: Iterable[ClaimUse], *, init: bool) -> DeclaredContainer:
    resources = found.resources or manifest_objects.Resources()
    return DeclaredContainer(
        found.name,
        _texts(resources.limits),
        _texts(resources.requests),
        {var.name: str(var.value) for var in found.env or () if _kept(var)},
        (*(ClaimUse(use.name, use.request) for use in resources.claims or ()), *served),
        init=init,
        stays=not init or found.restart_policy == "Always",
    )


def _kept(var: manifest_objects.EnvVar) -> bool:
    name = var.name.upper()
    about_devices = any(word in name for word in _ENV) and not any(word in name for word in _SECRET)
    return var.value is not None and about_devices


def _texts(quantities: Mapping[str, manifest_objects.Quantity] | None) -> dict[str, str]:
    return {key: str(value) for key, value in (quantities or {}).items()}


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004


def _documents(text: str, source: str) -> list[Any]:
    """Decode JSON or YAML. JSON first: the YAML reader takes it too, and a hundred times as long."""
    if text.lstrip().startswith("{"):
        try:
            return [json.loads(text)]
        except json.JSONDecodeError:
            pass  # YAML may start like this too
        except RecursionError as error:
            raise ManifestError(f"{source}: {_NEITHER}: nested too deeply") from error
        except ValueError as error:  # a number of 5000 digits
            raise ManifestError(f"{source}: {_NEITHER}: {error}") from error
    try:
        return documents(text.encode(errors="surrogatepass"))
    except MalformedError as error:
        told = MalformedError(f"{_NEITHER}: {error}", error.line, error.column)
        raise ManifestError(told.at(source)) from error


def _flat(documents: Iterable[Any], source: str) -> Iterable[Mapping[str, Any]]:
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ManifestError(f"{source}: expected an object with a kind, found {show(document)}")
        if str(document.get("kind", "")).endswith("List"):
            items = document.get("items")
            yield from _flat(items if isinstance(items, list) else (), source)
        else:
            yield document
