"""
A declared limit as a patch of its workload.

What comes in: declarations with the container of each, the workload. What goes out: a strategic merge patch, and where
it belongs.

The rule: one patch for each workload. Where a workload cannot be patched, the patch is that of the pod template.
"""

from collections.abc import Iterable
from typing import Any

from exporter.advise.declaring import Declared
from exporter.model import Mechanism

WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}
"""Kinds of Kubernetes itself with the pod's template at `spec.template`, which may be changed."""

Patch = dict[str, Any]


def patch(declarations: Iterable[tuple[Declared, str]], kind: str, namespace: str, name: str) -> Patch:
    """
    Make one patch of a workload, from the declarations with the container of each.

    The result is that of the pod template alone where the workload cannot be patched, or its kind is not known.
    """
    pod: Patch = {}
    for declaration, container in declarations:
        _merge(pod, _pod(declaration, container))
    if kind in WORKLOADS:
        spec: Patch = {"template": pod}
    elif kind == "CronJob":
        spec = {"jobTemplate": {"spec": {"template": pod}}}
    else:
        return pod
    api = "batch/v1" if kind == "CronJob" else "apps/v1"
    return {"apiVersion": api, "kind": kind, "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def place(kind: str, name: str) -> str:
    """Say where a patch belongs that is no patch of its workload, or when it counts; empty for an ordinary one."""
    match kind:
        case "Job":
            return (
                f"the template of a Job cannot change: write this into that of {name}, delete the Job, create it anew"
            )
        case "CronJob":
            return "it counts from the next run on"
        case "ReplicaSet":
            return "it counts for new pods: delete the present ones"
        case "Pod":
            return f"write this into the manifest of the pod {name}, delete the pod, create it anew"
        case "StaticPod":
            return f"write this into the manifest of the static pod {name} on its node"
        case _:
            return "" if kind in WORKLOADS else f"in the pod template of {kind} {name}"


def _merge(pod: Patch, other: Patch) -> None:
    """Merge a part of a pod template into another, as a strategic merge patch: containers and variables by name."""
    for key, part in other.items():
        if key not in pod:
            pod[key] = part
        elif isinstance(part, dict):
            _merge(pod[key], part)
        elif isinstance(part, list):
            named = {one["name"]: one for one in pod[key]}
            for one in part:
                if one["name"] in named:
                    _merge(named[one["name"]], one)
                else:
                    pod[key].append(one)


def _pod(declaration: Declared, container: str) -> Patch:
    entry: Patch = {declaration.key: declaration.text}
    both = entry | ({declaration.request: declaration.text} if declaration.request else {})
    match declaration.row.mechanism:
        case Mechanism.RESOURCE:
            # The API server refuses an extended resource whose request differs from its limit.
            resources = {"limits": entry, "requests": dict(entry)}
            return {"spec": {"containers": [{"name": container, "resources": resources}]}}
        case Mechanism.ENV:
            variables = [{"name": key, "value": text} for key, text in both.items()]
            return {"spec": {"containers": [{"name": container, "env": variables}]}}
        case Mechanism.LABEL:
            return {"metadata": {"labels": both}}
        case _:
            return {"metadata": {"annotations": both}}
