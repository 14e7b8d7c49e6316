"""
The pod templates of a Kubernetes object, found by their shape.

What comes in: an object of any kind as plain data. What goes out: each pod template in it with its path; and each
request for devices outside of a template.

The rule: only the kind Pod is known by name. A pod template is a mapping whose `spec` has a list `containers`. Some
objects (KServe, Knative's Revision) hold that spec without the template around it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_BESIDE = {"metadata", "status"}
"""Parts of an object that hold no pod templates."""
_PARTIAL = re.compile(r"(?:^override|Override|^patch|Patch)(?:es|s)?$")
"""Keys of changes to a template in another place, such as TrainJob's podTemplateOverrides."""
_CONTAINER_KEYS = {"image", "resources", "env", "command", "args"}
_ASKING = ("resources", "resourcesPerNode", "computeResources")
"""Keys of requests and limits: a container's, TrainJob's, Tekton's."""
_MOST_OUTSIDE = 3
"""Requests outside of templates that are reported per object."""
_LONGEST_PATH = 300
"""Characters. A hundred thousand templates may be under one key that is as long as the file."""
_Trail = tuple["_Trail", str | int] | None
"""The keys down to a place, the last one first. Only the few places that are shown get a path as text."""
_Parts = Iterator[tuple[str | int, Any]]


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """
    A pod template.

    `path` leads to the mapping with `spec`. If the object has the spec without a template (`bare`), it leads to the
    spec.
    """

    path: str
    spec: Any
    metadata: Any = None
    bare: bool = False


@dataclass(frozen=True, slots=True)
class PodTemplates:
    """The templates of an object, and (path, resource) of requests for devices outside of them."""

    templates: list[PodTemplate] = field(default_factory=list)
    outside: list[tuple[str, str]] = field(default_factory=list)


def pod_templates(data: Mapping[str, Any]) -> PodTemplates:
    """Find the pod templates of an object that is no Pod, in order. The time is proportional to the object's size."""
    result = PodTemplates()
    # Iterators in a list, without recursion: JSON may be nested a thousand levels deep, and hold millions of values.
    waiting: list[tuple[_Parts, _Trail]] = [(_parts_of(data, None, result), None)]
    while waiting:
        parts, trail = waiting[-1]
        for key, value in parts:
            if isinstance(value, dict | list) and value:
                below = (trail, key)
                waiting.append((_parts_of(value, below, result), below))
                break
        else:
            waiting.pop()
    return result


def _parts_of(value: Any, trail: _Trail, result: PodTemplates) -> _Parts:
    """Note a template or a request for devices; return the parts to search further, none within a template."""
    if isinstance(value, list):
        return enumerate(value)
    if (template := _template(value, trail)) is not None:
        result.templates.append(template)
        return iter(())
    for resource in _devices(value):
        if len(result.outside) < _MOST_OUTSIDE:
            result.outside.append((_path(trail), resource))
    return ((key, part) for key, part in value.items() if key not in _BESIDE and not _PARTIAL.search(key))


def _template(value: Mapping[str, Any], trail: _Trail) -> PodTemplate | None:
    spec = value.get("spec")
    if trail is None:
        return None
    if isinstance(spec, dict) and "containers" in spec and value.get("kind", "Pod") == "Pod":
        # A mapping that is named a template counts as one, also with a mistake: then the mistake is reported.
        if str(trail[1]).lower().endswith("template") or "kind" in value or _has_containers(spec):
            return PodTemplate(_path(trail), spec, value.get("metadata"))
        return None
    return PodTemplate(_path(trail), value, bare=True) if _has_containers(value) else None


def _has_containers(spec: Mapping[str, Any]) -> bool:
    containers = spec.get("containers")
    if not isinstance(containers, list):
        return False
    return bool(containers) and all(
        isinstance(item, dict) and isinstance(item.get("name"), str) and not _CONTAINER_KEYS.isdisjoint(item)
        for item in containers
    )


def _devices(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield the device resources that a mapping itself asks for, as a container or a virtual machine does."""
    for key in _ASKING:
        asked: Any = value.get(key)
        parts: list[Any] = [asked.get("limits"), asked.get("requests")] if isinstance(asked, dict) else []
        for part in parts:
            names = [name for name in part if "/" in name] if isinstance(part, dict) else []
            if names:
                yield names[0]
                break
    name = value.get("name")
    if isinstance(name, str) and name.find("/") > 0 and "quantity" in value:  # SparkApplication's gpu
        yield name
    name = value.get("deviceName")  # in KubeVirt's devices.gpus a resource, elsewhere perhaps a path
    if isinstance(name, str) and name.find("/") > 0:
        yield name


def _path(trail: _Trail) -> str:
    path = ""
    while trail is not None:
        trail, key = trail
        path = f"[{key}]{path}" if isinstance(key, int) else f".{key}{path}"
        if len(path) > _LONGEST_PATH:
            return f"...{path[-_LONGEST_PATH:]}"
    return path.removeprefix(".")
