"""
Kubernetes objects as kubectl prints them, read from a file.

What comes in: YAML or JSON text (`kubectl get -o yaml`, one object, a List, several documents). What goes out: pods,
claims and nodes as the resolver takes them, or ManifestError with the path.

The law: a file is parsed by the same structs as the API server's answers, so `explain -f` reads what the daemon reads.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from exporter.base.text_files import MalformedError, documents, show
from exporter.model import Claim, DeclaredPod, NodeFacts
from exporter.objects.claim import ClaimObject, SliceObject, declared_claim, slice_uuids, with_uuids
from exporter.objects.node import NodeObject, node_facts
from exporter.objects.pod import PodObject, declared_pod

LONGEST = 16 << 20
METADATA = {"name", "namespace", "uid", "labels", "annotations"}
POD = {
    "spec": {"schedulerName", "containers", "initContainers", "resourceClaims"},
    "status": {"resourceClaimStatuses", "extendedResourceClaimStatus"},
}
"""What limits are read from. A mistake elsewhere in a file that a person wrote is none of our business."""
_NEITHER = "neither YAML nor JSON as kubectl prints it"


class ManifestError(ValueError):
    """The file is not what `kubectl get` prints; the message says where."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    What a file holds. ResourceSlices in it give the claims' devices their UUIDs.

    `others`: the kinds of objects that nothing is read from, for messages about missing objects.
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
    for data in objects:
        needed = _only(data, {"metadata": METADATA, **(POD if data.get("kind") == "Pod" else {})})
        try:
            match data.get("kind"):
                case "Pod":
                    pods.append(declared_pod(msgspec.convert(needed, PodObject)))
                case "Node":
                    nodes.append(node_facts(msgspec.convert(needed, NodeObject)))
                case "ResourceClaim":
                    claims.append(declared_claim(msgspec.convert(needed, ClaimObject)))
                case "ResourceSlice":
                    uuids |= slice_uuids(msgspec.convert(needed, SliceObject).spec)
                case other:
                    others[show(other) if isinstance(other, str) else "an object without a kind"] = None
        except msgspec.ValidationError as error:
            metadata = data.get("metadata")
            name = metadata.get("name", "") if isinstance(metadata, dict) else ""
            raise ManifestError(f"{source}: {data.get('kind')} {name}: {error}") from error
    return Manifest(tuple(pods), tuple(with_uuids(claim, uuids) for claim in claims), tuple(nodes), tuple(others))


def _only(data: Mapping[str, Any], wanted: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Keep of some parts of an object the wanted keys; what is no mapping is left for the parser to refuse."""
    return {
        part: {key: value for key, value in content.items() if key in wanted[part]}
        if part in wanted and isinstance(content, dict)
        else content
        for part, content in data.items()
    }


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
        malformed = MalformedError(f"{_NEITHER}: {error}", error.line, error.column)
        raise ManifestError(malformed.at(source)) from error


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
