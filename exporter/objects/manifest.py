"""
Kubernetes objects as kubectl prints them, read from a file.

What comes in: YAML or JSON text (`kubectl get -o yaml`, one object, a List, several documents). What goes out: pods and
pod templates, claims and nodes as input of the resolver; and a problem with its path for each invalid object.

The rule: a file is parsed by the same structs as the API server's answers, so `explain -f` reads what the daemon reads.
An object that cannot be read does not stop the others.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from exporter.base.text_files import show
from exporter.model import Claim, DeclaredPod, NodeFacts
from exporter.objects.claim import ClaimObject, SliceObject, declared_claim, slice_uuids, with_uuids
from exporter.objects.error_keys import with_key
from exporter.objects.manifest_text import Problem, TextObject, objects_of, within
from exporter.objects.metadata import Described, Metadata
from exporter.objects.node import NodeObject, node_facts
from exporter.objects.pod import PodObject, declared_pod
from exporter.objects.pod_templates import PodTemplate, pod_templates

LONGEST = 16 << 20
METADATA = {"name", "namespace", "uid", "labels", "annotations"}
POD = {
    "spec": {"schedulerName", "containers", "initContainers", "resourceClaims"},
    "status": {"resourceClaimStatuses", "extendedResourceClaimStatus"},
}
"""The parts that limits are read from. A mistake anywhere else in a manifest is ignored."""
_NAMES = {"name", "namespace"}
_LONGEST_NAME = 253
"""Characters, as in Kubernetes: each template may have a problem, and each problem repeats the owner's name."""


class ManifestError(ValueError):
    """The file is not output of `kubectl get`; each problem is a line with its place."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Origin:
    """
    The object that a pod was read from.

    Attributes:
        path: of the pod template within the object; empty for a Pod.
        document: number of the YAML document, from 1.
        claim_templates: ResourceClaimTemplates of which the pod has no claim yet.

    """

    api_version: str
    kind: str
    namespace: str
    name: str
    path: str
    document: int
    claim_templates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    The content of a file. The UUIDs of claimed devices come from its ResourceSlices.

    Attributes:
        origins: of each pod, in the same order.
        others: the kinds of ignored objects, for messages about missing objects.
        problems: one for each object that cannot be read, and each request for devices outside of a pod template.

    """

    pods: tuple[DeclaredPod, ...] = ()
    claims: tuple[Claim, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    origins: tuple[Origin, ...] = field(default=(), compare=False)
    others: tuple[str, ...] = field(default=(), compare=False)
    problems: tuple[str, ...] = field(default=(), compare=False)


def read(text: str, source: str = "manifest") -> Manifest:
    """Read all objects of a file. Raises ManifestError if nothing can be read."""
    if len(text) > LONGEST:
        raise ManifestError(f"{source}: longer than {LONGEST} characters")
    content = objects_of(text, source)
    manifest = _Collector(source, list(content.problems))
    for item in content.objects:
        manifest.add(item)
    return manifest.done()


class _Collector:
    """Collects the objects of a file into a manifest."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self._source = source
        self._problems = problems
        self._pods: list[tuple[DeclaredPod, Origin]] = []
        self._claims: list[Claim] = []
        self._nodes: list[NodeFacts] = []
        self._others: dict[str, None] = {}
        self._uuids: dict[tuple[str, str, str], str] = {}

    def add(self, item: TextObject) -> None:
        """Read an object, or note why it cannot be read."""
        data = item.data
        needed = _only(data, {"metadata": METADATA, **(POD if data.get("kind") == "Pod" else {})})
        try:
            match data.get("kind"):
                case "Pod":
                    self._add_pod(item, msgspec.convert(needed, PodObject))
                case "Node":
                    self._nodes.append(node_facts(msgspec.convert(needed, NodeObject)))
                case "ResourceClaim":
                    self._claims.append(declared_claim(msgspec.convert(needed, ClaimObject)))
                case "ResourceSlice":
                    self._uuids |= slice_uuids(msgspec.convert(needed, SliceObject).spec)
                case str():
                    self._add_templates(item)
                case kind:
                    found = "none" if kind is None else show(kind)
                    self._problem(item, f"expected an object with a kind, its kind is {found}")
        except msgspec.ValidationError as error:
            self._problem(item, with_key(str(error), needed))

    def done(self) -> Manifest:
        """Make the manifest. Raises ManifestError if there are only problems."""
        problems = tuple(text for _, text in sorted(self._problems, key=lambda problem: problem[0]))
        if problems and not (self._pods or self._claims or self._nodes):
            raise ManifestError(*problems)
        return Manifest(
            tuple(pod for pod, _ in self._pods),
            tuple(with_uuids(claim, self._uuids) for claim in self._claims),
            tuple(self._nodes),
            tuple(origin for _, origin in self._pods),
            tuple(self._others),
            problems,
        )

    def _add_pod(self, item: TextObject, pod: PodObject) -> None:
        declared, templates = declared_pod(pod), _claim_templates(item.data.get("spec"))
        unmade = tuple(template for claim, template in templates if claim not in declared.claims)
        self._pods.append((declared, _origin(item, pod.metadata, claim_templates=unmade)))

    def _add_templates(self, item: TextObject) -> None:
        shapes = pod_templates(item.data)
        if not shapes.templates and not shapes.outside:
            self._others[show(item.data["kind"])] = None
            return
        data = _only({"metadata": item.data.get("metadata") or {}}, {"metadata": _NAMES})
        owner = msgspec.convert(data, Described).metadata
        owner = msgspec.structs.replace(owner, name=owner.name or _name(item))
        for template in shapes.templates:
            data = _template_data(template)
            try:
                pod = _pod_of(data, owner)
            except msgspec.ValidationError as error:
                at = f"`$.{template.path}"
                message = with_key(str(error), data)
                self._problem(item, message.replace("`$.spec" if template.bare else "`$", at, 1))
            else:
                unmade = tuple(name for _, name in _claim_templates(template.spec))
                self._pods.append((declared_pod(pod), _origin(item, owner, template.path, unmade)))
        for path, resource in shapes.outside:
            where = f"{path} asks for {resource}" if path else f"asks for {resource}"
            self._problem(item, f"{where} outside of a pod template: explain the pods that are made of it")

    def _problem(self, item: TextObject, message: str) -> None:
        kind = item.data.get("kind")
        parts = (kind if isinstance(kind, str) else "", _name(item))
        about = " ".join(part[:_LONGEST_NAME] for part in parts if part)
        self._problems.append((item.document, f"{self._source}: {within(item.place, within(about, message))}"))


def _name(item: TextObject) -> str:
    """Return an object's name, or its `generateName` without the last hyphens; empty without either."""
    metadata = item.data.get("metadata")
    names = [metadata.get(key) for key in ("name", "generateName")] if isinstance(metadata, dict) else []
    return next((name.rstrip("-") for name in names if isinstance(name, str) and name), "")


def _template_data(template: PodTemplate) -> dict[str, Any]:
    """Return the parts of a template that limits are read from."""
    own = template.metadata if template.metadata is not None else {}
    return _only({"metadata": own, "spec": template.spec}, {"metadata": METADATA, **POD})


def _pod_of(data: Mapping[str, Any], owner: Metadata) -> PodObject:
    """Read a template's data as the pod that is made of it; without a name it gets its owner's."""
    pod = msgspec.convert(data, PodObject)
    name, namespace = pod.metadata.name or owner.name, pod.metadata.namespace or owner.namespace
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name, namespace=namespace))


def _origin(item: TextObject, owner: Metadata, path: str = "", claim_templates: tuple[str, ...] = ()) -> Origin:
    version = item.data.get("apiVersion")
    return Origin(
        version if isinstance(version, str) else "",
        item.data["kind"],
        owner.namespace or "default",
        owner.name,
        path,
        item.document,
        claim_templates,
    )


def _claim_templates(spec: Any) -> list[tuple[str, str]]:
    """List (claim name within the pod, template name) of each claim that is made from a template."""
    claims = spec.get("resourceClaims") if isinstance(spec, dict) else None
    return [
        (claim["name"], claim["resourceClaimTemplateName"])
        for claim in (claims if isinstance(claims, list) else ())
        if isinstance(claim, dict)
        and isinstance(claim.get("name"), str)
        and isinstance(claim.get("resourceClaimTemplateName"), str)
    ]


def _only(data: Mapping[str, Any], wanted: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Keep the wanted keys of some parts of an object; a part that is no mapping stays, for the parser to refuse."""
    return {
        part: {key: value for key, value in content.items() if key in wanted[part]}
        if part in wanted and isinstance(content, dict)
        else content
        for part, content in data.items()
    }
