"""
The admission policies of deploy/enforcer/evasions on a real API server.

In: the files as they are shipped. They are bound to a namespace of the test's own instead of the consent label, so they
do not affect other tests on this server. Out: what the server says to each evasion, and to what is allowed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.client import Api, ApiError, Object, until
from cluster.manifests import pod, pod_spec

pytestmark = pytest.mark.cluster

FOLDER = Path(__file__).parents[2] / "deploy" / "enforcer" / "evasions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GPU = {"nvidia.com/gpu": 1}
DRY = "?dryRun=All"


def budget(**spec: Any) -> Object:
    """Make a PodDisruptionBudget."""
    selector = {"matchLabels": {"app": "train"}}
    return {"metadata": {"name": "own"}, "spec": {"selector": selector, **spec}}


def gpu_pod(finalizers: list[str] | None = None, init: Object | None = None, **spec: Any) -> Object:
    """Make a pod that asks for a GPU."""
    made = pod("train-0", pod_spec(resources=GPU) | spec | ({"initContainers": [init]} if init else {}))
    if finalizers is not None:
        made["metadata"]["finalizers"] = finalizers
    return made


def claims(count: int) -> list[Object]:
    """Name so many claims."""
    return [{"name": f"c{number}", "resourceClaimName": f"c{number}"} for number in range(count)]


INIT: Object = {"name": "load", "image": "load"}
LIMITS: Object = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
POLITE = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
Case = tuple[str, Object, str]
"""The file that decides, the object, and a part of the message; empty where the object is allowed."""
CASES: dict[str, Case] = {
    "no disruption": ("disruption-budgets", budget(maxUnavailable=0, **POLITE), "can block every eviction"),
    "none in percent": ("disruption-budgets", budget(maxUnavailable="0%", **POLITE), "can block every eviction"),
    "all available": ("disruption-budgets", budget(minAvailable="100%", **POLITE), "can block every eviction"),
    "a number available": ("disruption-budgets", budget(minAvailable=1, **POLITE), "can block every eviction"),
    "neither": ("disruption-budgets", budget(**POLITE), "can block every eviction"),
    "never ready": ("disruption-budgets", budget(maxUnavailable=1), "pods that are not ready"),
    "one at a time": ("disruption-budgets", budget(maxUnavailable=1, **POLITE), ""),
    "a tenth at a time": ("disruption-budgets", budget(maxUnavailable="10%", **POLITE), ""),
    "the host's processes": ("pods", gpu_pod(hostPID=True), "hostPID"),
    "shared processes": ("pods", gpu_pod(shareProcessNamespace=True), "shareProcessNamespace"),
    "an hour to end": ("pods", gpu_pod(terminationGracePeriodSeconds=3600), "termination grace"),
    "ten minutes to end": ("pods", gpu_pod(terminationGracePeriodSeconds=600), ""),
    "a class of the system": ("pods", gpu_pod(priorityClassName="system-node-critical"), "priority class"),
    "many claims": ("pods", gpu_pod(resourceClaims=claims(65)), "more than 64 resource claims"),
    "an hour without a GPU": ("pods", pod("web", pod_spec() | {"terminationGracePeriodSeconds": 3600}), ""),
    "a GPU by annotation": (
        "pods",
        {**pod("train-0", pod_spec() | {"hostPID": True})}
        | {"metadata": {"name": "train-0", "annotations": {"gpu-fraction": "0.5"}}},
        "hostPID",
    ),
    "an init container": ("init-containers", gpu_pod(init={**INIT, **LIMITS}), "init containers"),
    "an init container without a GPU": ("init-containers", gpu_pod(init=INIT), ""),
    "a sidecar": ("init-containers", gpu_pod(init={**INIT, **LIMITS, "restartPolicy": "Always"}), ""),
    "a finalizer": ("finalizers", gpu_pod(finalizers=["example.com/keep"]), "finalizer"),
    "a Job's finalizer": ("finalizers", gpu_pod(finalizers=["batch.kubernetes.io/job-tracking"]), ""),
    "no finalizer": ("finalizers", gpu_pod(), ""),
}
EVADES = {
    "disruption-budgets": "no disruption", "pods": "shared processes", "init-containers": "an init container",
    "finalizers": "a finalizer",
}  # fmt: skip
"""Of each file a case that it denies: once that is denied, the policy is in force."""


@asynccontextmanager
async def applied(api: Api, file: str, namespace: str) -> AsyncIterator[None]:
    """Apply a file for one namespace, under a name of its own; take it away afterwards."""
    policy, binding = yaml.safe_load_all((FOLDER / f"{file}.yaml").read_text())
    name = f"{policy['metadata']['name']}-{namespace}"
    policy["metadata"]["name"] = binding["metadata"]["name"] = binding["spec"]["policyName"] = name
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding["spec"]["matchResources"] = {"namespaceSelector": selector}
    await api.create(f"{ADMISSION}/validatingadmissionpolicies", policy)
    await api.create(f"{ADMISSION}/validatingadmissionpolicybindings", binding)
    try:

        async def in_force() -> bool:
            return name in await answer(api, namespace, CASES[EVADES[file]][1])

        await until(in_force, f"{name} to be in force")
        yield
    finally:
        await api.delete(f"{ADMISSION}/validatingadmissionpolicybindings/{name}")
        await api.delete(f"{ADMISSION}/validatingadmissionpolicies/{name}")


async def answer(api: Api, namespace: str, thing: Object) -> str:
    """Try to create it; return what the server says against it, or nothing."""
    place = "/api/v1/namespaces/{}/pods" if thing.get("kind") == "Pod" else (
        "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
    )  # fmt: skip
    try:
        await api.create(place.format(namespace) + DRY, thing)
    except ApiError as error:
        return error.message
    return ""


@pytest.mark.parametrize("file", EVADES)
async def test_each_evasion_is_denied_and_what_is_ordinary_is_not(
    server_api: Api, server_namespace: str, file: str
) -> None:
    """The API server's message names the fix; ordinary budgets and pods are created."""
    async with applied(server_api, file, server_namespace):
        for what, (decides, thing, message) in CASES.items():
            if decides == file:
                said = await answer(server_api, server_namespace, thing)
                assert (message in said and "fix: " in said) if message else not said, (what, said)


async def test_a_finalizer_that_was_there_before_can_be_taken_away(server_api: Api, server_namespace: str) -> None:
    """An existing pod with another finalizer can be changed and released; it gets no further one."""
    pods = f"/api/v1/namespaces/{server_namespace}/pods"
    await server_api.create(pods, gpu_pod(finalizers=["example.com/keep", "example.com/other"]))
    async with applied(server_api, "finalizers", server_namespace):
        await server_api.patch(f"{pods}/train-0", {"metadata": {"labels": {"seen": "yes"}}})
        await server_api.patch(f"{pods}/train-0", {"metadata": {"finalizers": ["example.com/keep"]}})
        with pytest.raises(ApiError, match="finalizer"):
            await server_api.patch(f"{pods}/train-0", {"metadata": {"finalizers": ["example.com/new"]}})
        await server_api.patch(f"{pods}/train-0", {"metadata": {"finalizers": []}})
