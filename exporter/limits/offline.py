"""
`explain -f`: a manifest, and perhaps its node, to what was declared; without a daemon, a cluster or a driver.

What comes in: the text of a file with pods (claims and slices may lie beside them), the text of a node's. What goes
out: one resolution per pod, text, or the JSON list. The devices are those that the node's own labels and annotations
tell.

The law: what was not shown and would have changed the answer is named in it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from exporter.limits.answers import Resolution
from exporter.limits.decoding import NOTHING_CHOSEN, Options
from exporter.limits.devices import LeafDevice
from exporter.limits.explaining import as_data, as_text
from exporter.limits.node_devices import devices_of
from exporter.limits.resolver import resolve
from exporter.limits.rows import Catalogue
from exporter.model import NodeFacts
from exporter.objects.manifest import Manifest, ManifestError, read

_KINDS = 3


@dataclass(frozen=True, slots=True)
class Shown:
    """What the files showed: pods and claims; a node and its devices where there is one."""

    found: Manifest
    node: NodeFacts | None
    devices: tuple[LeafDevice, ...]


def shown(text: str, node_text: str | None, source: str = "manifest", node_source: str = "node") -> Shown:
    """Read the files. A node may also lie in the first one. The sources are what errors name. Raises ManifestError."""
    found = read(text, source)
    if not found.pods:
        raise ManifestError(f"{source}: expected a Pod as kubectl get -o yaml prints it, found {_kinds(found)}")
    if node_text is None:
        nodes, of = found.nodes, source
    else:
        other = read(node_text, node_source)
        nodes, of = other.nodes, node_source
        if not nodes:
            raise ManifestError(f"{of}: expected a Node as kubectl get -o yaml prints it, found {_kinds(other)}")
    if len(nodes) > 1:
        raise ManifestError(f"{of}: expected one Node, found {len(nodes)}: show the one that the pods run on")
    return Shown(found, nodes[0] if nodes else None, devices_of(nodes[0]) if nodes else ())


def resolutions(seen: Shown, catalogue: Catalogue, options: Options = NOTHING_CHOSEN) -> tuple[Resolution, ...]:
    """Resolve every pod that was shown."""
    return tuple(
        resolve(pod, seen.node, seen.devices, catalogue, claims=seen.found.claims, options=options)
        for pod in seen.found.pods
    )


def explain(
    text: str,
    node_text: str | None,
    catalogue: Catalogue,
    options: Options = NOTHING_CHOSEN,
    *,
    as_json: bool = False,
    source: str = "manifest",
    node_source: str = "node",
) -> str:
    """Explain every pod of a file, as text or as one JSON list. Raises ManifestError."""
    seen = shown(text, node_text, source, node_source)
    found = resolutions(seen, catalogue, options)
    if as_json:
        return json.dumps([entry for each in found for entry in as_data(each)], indent=2) + "\n"
    return "\n".join([*(as_text(each) for each in found), *(f"{line}\n" for line in missing(seen))])


def missing(seen: Shown) -> Iterator[str]:
    """Name what was not shown and may change the answer."""
    if seen.node is None:
        yield (
            "no node was shown: units are not checked against its devices, and a share of a device has no amount "
            "(--node FILE)"
        )
    elif not seen.devices:
        yield (
            "the node does not say how large its devices are (labels nvidia.com/gpu.count and nvidia.com/gpu.memory, "
            "or what HAMi registers): units are not checked, and a share of a device has no amount"
        )
    known = {(claim.namespace, claim.name) for claim in seen.found.claims}
    absent = sorted({(pod.namespace, name) for pod in seen.found.pods for name in pod.claims.values()} - known)
    for namespace, name in absent:
        yield (
            f"claim {namespace}/{name} was not shown, and what it allocates may be a limit "
            "(kubectl get pods,resourceclaims,resourceslices -o yaml)"
        )


def _kinds(found: Manifest) -> str:
    kinds = ["Pod"] * bool(found.pods) + ["Node"] * bool(found.nodes) + ["ResourceClaim"] * bool(found.claims)
    kinds += found.others
    return ", ".join(kinds[:_KINDS]) + (", ..." if len(kinds) > _KINDS else "") if kinds else "nothing"
