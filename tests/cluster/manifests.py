"""Objects that the tests create: pods of the workload image, and what controls pods. In: what differs. Out: JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.bed import WORKLOAD
from cluster.client import Object


def pod_spec(
    *, command: Sequence[str] = (), resources: Mapping[str, int] | None = None, restart: str = "Always"
) -> Object:
    """One container named "main". `resources`: limits, such as {"nvidia.com/gpu": 1}. Its grace is 1 s."""
    container: Object = {"name": "main", "image": WORKLOAD}
    if command:
        container["command"] = list(command)
    if resources:
        container["resources"] = {"limits": {name: str(count) for name, count in resources.items()}}
    return {"containers": [container], "terminationGracePeriodSeconds": 1, "restartPolicy": restart}


def pod(name: str, spec: Object, *, labels: Mapping[str, str] | None = None) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec}


def controller(kind: str, name: str, spec: Object, **more: object) -> Object:
    """A Deployment, StatefulSet or DaemonSet (apps/v1) of pods labelled app=<name>; `more` goes into its spec."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            **more,
        },
    }


def job(name: str, spec: Object, **more: object) -> Object:
    """A Job of one pod, labelled app=<name>; `more` goes into its spec."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}, **more},
    }


def disruption_budget(name: str, labels: Mapping[str, str], *, min_available: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": dict(labels)}},
    }
