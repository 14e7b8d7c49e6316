"""
Which systems a node runs, and which a pod uses.

What comes in: the node's resources, labels and annotations, the pod, its claims. What goes out: systems, each with the
sign that shows it.

The rule: one resource name has several meanings. `nvidia.com/gpu` is a device, a replica, a MIG instance, or a HAMi
vGPU. So rows count only for detected systems, and a system yields to one that gives its names another meaning. It never
yields to a sign that a user can write: a pod's label or annotation adds candidates, and removes none. The operator's
list of systems overrides all signs.
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
    """A system, and the sign that shows it."""

    system: System
    because: str
    proven: bool = True
    """The sign is of the node, the kubelet, a resource or a claim; not a label, annotation or scheduler of the pod."""
    forgeable: bool = False
    """
    The only sign is in the pod itself. A pod that is bound by hand (`spec.nodeName`) can run with an extended resource
    that its node lacks: kubernetes/kubernetes pkg/kubelet/lifecycle/predicate.go, removeMissingExtendedResources.
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
    """Return a sign that is not mere text of the pod, and whether it comes from the pod's spec alone."""
    signs = system.detect
    if signs.always:
        return "always", False
    # GPUs of one node may be shared differently. If the kubelet reports the pod's devices, only those matter.
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
