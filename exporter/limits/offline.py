"""
`explain -f`: the limits that a manifest declares, without a daemon, a cluster or a driver.

What comes in: a file with pods or objects that make pods, perhaps with claims and slices; and a file with the node.
What goes out: the limits of each pod as text, or as one JSON list; and a problem for each object that cannot be
explained. The devices are those in the node's own labels and annotations.

The rule: the answer names missing input that may change it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.base.printable import printable
from exporter.limits.answers import Resolution
from exporter.limits.decoding import NOTHING_CHOSEN, Options, shown
from exporter.limits.devices import LeafDevice
from exporter.limits.explaining import as_data, as_text
from exporter.limits.node_devices import devices_of, missing_sizes
from exporter.limits.patterns import matching
from exporter.limits.resolver import resolve
from exporter.limits.rows import Catalogue, Star
from exporter.model import DeclaredPod, NodeFacts
from exporter.objects.manifest import Manifest, ManifestError, Origin, read

_KINDS = 3


@dataclass(frozen=True, slots=True)
class Explained:
    """
    The printed text, and what is wrong with the file.

    Attributes:
        problems: a line for each object that could not be explained.
        mistakes: a line for each declaration that is invalid, or that is for a container which its pod does not have.

    """

    text: str
    problems: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()


def explain(
    text: str,
    node_text: str | None,
    catalogue: Catalogue,
    options: Options = NOTHING_CHOSEN,
    *,
    as_json: bool = False,
    source: str = "manifest",
    node_source: str = "node",
) -> Explained:
    """Explain every pod of a file; the file may also hold the node. Raises ManifestError, which names the source."""
    manifest = read(text, source)
    if not manifest.pods:
        raise ManifestError(*manifest.problems, _expected(source, "a Pod or an object with a pod template", manifest))
    node = _only_node(manifest, source) if node_text is None else _given_node(node_text, node_source)
    devices = devices_of(node) if node else ()
    resolutions = [
        resolve(pod, node, devices, catalogue, claims=manifest.claims, options=options) for pod in manifest.pods
    ]
    explained = list(zip(manifest.origins, resolutions, strict=True))
    mistakes = (*dict.fromkeys(_invalid(resolutions)), *_misnamed(manifest.pods, catalogue))
    if as_json:
        rows = [
            {"object": _object(origin), **entry} for origin, resolution in explained for entry in as_data(resolution)
        ]
        return Explained(json.dumps(rows, indent=2) + "\n", manifest.problems, mistakes)
    texts = [as_text(resolution, _made_by(origin)) for origin, resolution in explained]
    notes = [f"{printable(line)}\n" for line in _missing(manifest, node, devices, catalogue, options)]
    return Explained("\n".join([*texts, *notes]), manifest.problems, mistakes)


def _object(origin: Origin) -> dict[str, Any]:
    return {
        "api_version": origin.api_version or None,
        "kind": origin.kind,
        "namespace": origin.namespace,
        "name": origin.name,
        "path": origin.path or None,
        "document": origin.document,
    }


def _made_by(origin: Origin) -> str:
    return f"{origin.kind} {origin.name}, {origin.path}" if origin.path else ""


def _given_node(text: str, source: str) -> NodeFacts | None:
    manifest = read(text, source)
    if manifest.problems:
        raise ManifestError(*manifest.problems)
    if not manifest.nodes:
        raise ManifestError(_expected(source, "a Node", manifest))
    return _only_node(manifest, source)


def _only_node(manifest: Manifest, source: str) -> NodeFacts | None:
    nodes = manifest.nodes
    if len(nodes) > 1:
        raise ManifestError(f"{source}: expected one Node, found {len(nodes)}: give the one that the pods run on")
    return nodes[0] if nodes else None


def _missing(
    manifest: Manifest,
    node: NodeFacts | None,
    devices: Sequence[LeafDevice],
    catalogue: Catalogue,
    options: Options,
) -> Iterator[str]:
    """Describe missing input that may change the answer."""
    if node is None:
        yield (
            "no Node was given: units are not checked against its devices, and a share of a device has no amount "
            "(--node FILE)"
        )
    else:
        yield from missing_sizes(node, devices, manifest.pods, fair_share=options.fair_share)
    if manifest.others:
        yield f"no pod template was found in: {_listed(manifest.others)}"
    yield from _misnamed(manifest.pods, catalogue)
    known = {(claim.namespace, claim.name) for claim in manifest.claims}
    absent = sorted({(pod.namespace, name) for pod in manifest.pods for name in pod.claims.values()} - known)
    for namespace, name in absent:
        yield (
            f"claim {namespace}/{name} was not given; its allocation may be a limit "
            "(kubectl get pods,resourceclaims,resourceslices -o yaml)"
        )
    for name in sorted({name for origin in manifest.origins for name in origin.claim_templates}):
        yield (
            f"claims from the ResourceClaimTemplate {name} are made with each pod; their allocation may be a "
            "limit: explain a running pod with its claims"
        )


def _invalid(resolutions: Iterable[Resolution]) -> Iterator[str]:
    """Name the declarations that cannot be read as an amount, or whose amount is impossible."""
    for resolution in resolutions:
        for candidate in (each for limit in resolution.limits for each in limit.candidates if each.invalid):
            pod, written = f"{resolution.namespace}/{resolution.name}", shown(candidate.text)
            yield f"pod {pod}: {candidate.name} = {written!r}: {candidate.excluded}"


def _misnamed(pods: Sequence[DeclaredPod], catalogue: Catalogue) -> Iterator[str]:
    """Report annotations that name a container which the pod does not have: they declare nothing."""
    patterns = {row.key for system in catalogue for row in system.rows if row.star is Star.CONTAINER}
    for pod in pods:
        starred = {key: stars[0] for pattern in patterns for key, stars in matching(pattern, pod.annotations)}
        for annotation, name in sorted(starred.items()):
            if pod.container(name) is None:
                yield f"{annotation} declares nothing: pod {pod.namespace}/{pod.name} has no container {name}"


def _expected(source: str, wanted: str, manifest: Manifest) -> str:
    return f"{source}: expected {wanted} as kubectl get -o yaml prints it, found {_kinds(manifest)}"


def _kinds(manifest: Manifest) -> str:
    kinds = ["Pod"] * bool(manifest.pods) + ["Node"] * bool(manifest.nodes) + ["ResourceClaim"] * bool(manifest.claims)
    return _listed([*kinds, *manifest.others])


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(kinds[:_KINDS]) + (", ..." if len(kinds) > _KINDS else "") if kinds else "nothing"
