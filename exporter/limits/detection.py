"""
Which systems a node runs, and which a pod uses.

What comes in: what the node advertises and carries, the pod, its claims. What goes out: systems, each with the fact
that told.

The law: one resource name has several meanings (`nvidia.com/gpu` is a device, a replica, a MIG instance, a HAMi vGPU),
so rows count only for systems that show themselves, and a system yields to those which give its names another meaning.
It yields to no sign that a user can write: a label or annotation of the pod adds candidates, and takes none away. The
operator's list beats all of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.limits.decoding import NOTHING_CHOSEN, Options
from exporter.limits.devices import LeafDevice
from exporter.limits.patterns import labelled, matching
from exporter.limits.row_texts import used
from exporter.limits.rows import Catalogue, System
from exporter.model import Claim, DeclaredPod, NodeFacts, Sharing


@dataclass(frozen=True, slots=True)
class Detected:
    """A system, and what told that it is there."""

    system: System
    because: str
    proven: bool = True
    """The node, the kubelet, a resource or a claim told, and not the pod's labels, annotations or scheduler name."""
    forgeable: bool = False
    """
    The pod's spec alone told. A pod that is bound by hand (`spec.nodeName`) runs although it asks for an extended
    resource which its node does not have: kubernetes/kubernetes pkg/kubelet/lifecycle/predicate.go,
    removeMissingExtendedResources.
    """


def detect(
    catalogue: Catalogue,
    *,
    node: NodeFacts | None = None,
    pod: DeclaredPod | None = None,
    devices: Iterable[LeafDevice] = (),
    claims: Iterable[Claim] = (),
    options: Options = NOTHING_CHOSEN,
) -> tuple[Detected, ...]:
    """List the systems that the node runs, or (with `pod`) that matter for this pod."""
    devices, claims = tuple(devices), tuple(claims)
    if options.systems is not None:
        chosen = [system for system in catalogue if system.name in options.systems or system.detect.always]
        return tuple(Detected(system, "configured") for system in chosen)
    present = []
    for system in catalogue:
        because, forgeable = _proven_sign(system, node, pod, devices, claims)
        if because:
            present.append(Detected(system, because, forgeable=forgeable))
        elif pod is not None and (because := _written_sign(system, pod)):
            present.append(Detected(system, because, proven=False, forgeable=True))
    names = {detected.system.name for detected in present if detected.proven}
    return tuple(detected for detected in present if names.isdisjoint(detected.system.yields_to))


def _proven_sign(
    system: System,
    node: NodeFacts | None,
    pod: DeclaredPod | None,
    devices: tuple[LeafDevice, ...],
    claims: tuple[Claim, ...],
) -> tuple[str, bool]:
    """Name a sign that is more than text of the pod's, and say whether the pod's spec alone makes it."""
    signs = system.detect
    if signs.always:
        return "always", False
    # GPUs of one node may be shared differently. Where the kubelet told what the pod holds, those alone matter.
    held = {grant.device for grant in pod.held} if pod is not None else set()
    mine = [device for device in devices if device.vendor == system.vendor and (not held or device.key in held)]
    shared = {device.sharing.value for device in mine}
    if held and signs.sharing and shared == {Sharing.EXCLUSIVE.value}:
        return "", False  # the node offers replicas (nvidia.com/gpu.shared) beside whole GPUs; this pod has whole ones
    if node is not None:
        if key := _key(signs.resources, node.advertised()):
            return f"the node advertises {key}", False
        if key := labelled(signs.node_labels, node.labels):
            return f"node label {key}", False
        if key := _key(signs.node_annotations, node.annotations):
            return f"node annotation {key}", False
    if kind := next((kind for kind in signs.sharing if kind in shared), ""):
        return f"the kubelet's devices are shared: {kind}", False
    if pod is None:
        return "", False
    drivers = {device.driver for claim in used(pod, claims) for device in claim.devices}
    if driver := next((driver for driver in signs.drivers if driver in drivers), ""):
        return f"a claim's driver is {driver}", False
    for container in pod.containers:
        if key := _key(signs.resources, container.resources()):
            return f"the pod asks for {key}", node is not None
    return "", False


def _written_sign(system: System, pod: DeclaredPod) -> str:
    signs = system.detect
    if key := labelled(signs.pod_labels, pod.labels):
        return f"pod label {key}"
    if key := _key(signs.pod_annotations, pod.annotations):
        return f"pod annotation {key}"
    for container in pod.containers if signs.env else ():
        if key := _key(signs.env, container.env):
            return f"env {key}"
    if pod.scheduler and pod.scheduler in signs.schedulers:
        return f"the pod's scheduler is {pod.scheduler}"
    return ""


def _key(patterns: tuple[str, ...], texts: Mapping[str, str]) -> str:
    keys = (key for pattern in patterns for key, _ in matching(pattern, texts))
    return next(keys, "")
