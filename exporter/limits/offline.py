"""
`explain -f`: a manifest, and perhaps its node, to what was declared; without a daemon, a cluster or a driver.

What comes in: the text of a file with pods (claims and slices may lie beside them), the text of a node's. What goes
out: the limits of each pod as text, or as one JSON list. The devices are those that the node's own labels and
annotations list.

The law: the answer names what is missing in the files and would have changed it.
"""

import json
from collections.abc import Iterator, Sequence

from exporter.limits.decoding import NOTHING_CHOSEN, Options
from exporter.limits.devices import LeafDevice
from exporter.limits.explaining import as_data, as_text
from exporter.limits.node_devices import devices_of
from exporter.limits.resolver import resolve
from exporter.limits.rows import Catalogue
from exporter.model import NodeFacts
from exporter.objects.manifest import Manifest, ManifestError, read

_KINDS = 3


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
    """Explain every pod of a file; a node may also lie in it. Raises ManifestError, which names the source."""
    manifest = read(text, source)
    if not manifest.pods:
        raise ManifestError(f"{source}: expected a Pod as kubectl get -o yaml prints it, found {_kinds(manifest)}")
    node = _only_node(manifest, source) if node_text is None else _given_node(node_text, node_source)
    devices = devices_of(node) if node else ()
    resolutions = [
        resolve(pod, node, devices, catalogue, claims=manifest.claims, options=options) for pod in manifest.pods
    ]
    if as_json:
        return json.dumps([entry for resolution in resolutions for entry in as_data(resolution)], indent=2) + "\n"
    return "\n".join([*map(as_text, resolutions), *(f"{line}\n" for line in _missing(manifest, node, devices))])


def _given_node(text: str, source: str) -> NodeFacts | None:
    manifest = read(text, source)
    if not manifest.nodes:
        raise ManifestError(f"{source}: expected a Node as kubectl get -o yaml prints it, found {_kinds(manifest)}")
    return _only_node(manifest, source)


def _only_node(manifest: Manifest, source: str) -> NodeFacts | None:
    nodes = manifest.nodes
    if len(nodes) > 1:
        raise ManifestError(f"{source}: expected one Node, found {len(nodes)}: show the one that the pods run on")
    return nodes[0] if nodes else None


def _missing(manifest: Manifest, node: NodeFacts | None, devices: Sequence[LeafDevice]) -> Iterator[str]:
    """Name what was not shown and may change the answer."""
    if node is None:
        yield (
            "no node was shown: units are not checked against its devices, and a share of a device has no amount "
            "(--node FILE)"
        )
    elif not devices:
        yield (
            "the node does not say how large its devices are (labels nvidia.com/gpu.count and nvidia.com/gpu.memory, "
            "or what HAMi registers): units are not checked, and a share of a device has no amount"
        )
    known = {(claim.namespace, claim.name) for claim in manifest.claims}
    absent = sorted({(pod.namespace, name) for pod in manifest.pods for name in pod.claims.values()} - known)
    for namespace, name in absent:
        yield (
            f"claim {namespace}/{name} was not shown, and what it allocates may be a limit "
            "(kubectl get pods,resourceclaims,resourceslices -o yaml)"
        )


def _kinds(manifest: Manifest) -> str:
    kinds = ["Pod"] * bool(manifest.pods) + ["Node"] * bool(manifest.nodes) + ["ResourceClaim"] * bool(manifest.claims)
    kinds += manifest.others
    return ", ".join(kinds[:_KINDS]) + (", ..." if len(kinds) > _KINDS else "") if kinds else "nothing"
