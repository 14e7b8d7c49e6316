"""
A stolen token of the daemon, on a real API server with what deploy/manifests/evict ships.

In: tokens of the daemon's ServiceAccount, bound to pods as the kubelet binds them, and unbound ones. Out: a `Scene` in
which both admission policies are in force, with a victim and a thief on one node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from cluster import simulated_nodes
from cluster.client import Api, ApiError, Credentials, Object, until
from cluster.manifests import pod, pod_spec
from containers.cgroupfs import new_token

SHIPPED = Path(__file__).parents[2] / "deploy" / "manifests" / "evict" / "gpusteward.yaml"
OWN, POLICY, OWN_NODE = "gpusteward", "gpusteward-evictions", "gpusteward-own-node"
RBAC, ADMISSION = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "RoleBinding": f"{RBAC}/namespaces/{{}}/rolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
CONSENT = {"gpusteward.io/mode": "enforce"}


def denied(policy: str) -> str:
    """How the server begins a refusal by this policy."""
    return f"ValidatingAdmissionPolicy '{policy}'"


async def apply(api: Api, *things: Object) -> None:
    """Create what the daemon's rights are made of; its pods and config play no part here."""
    for one in things:
        if one["kind"] in PLACES:
            meta = one["metadata"]
            path = PLACES[one["kind"]].format(meta.get("namespace"))
            if await api.missing(f"{path}/{meta['name']}"):
                await api.create(path, one)


async def bind(api: Api, namespace: str, account: str = OWN, role: str = "gpusteward-evict", own: str = OWN) -> None:
    """Bind the role in a namespace, as docs/deploy.md says, and wait until the authorizer knows."""
    binding = {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": own}],
    }
    await api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    asked = {"resource": "pods", "subresource": "eviction", "verb": "create", "namespace": namespace}
    review = {"spec": {"user": f"system:serviceaccount:{own}:{account}", "resourceAttributes": asked}}

    async def allowed() -> bool:
        answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    await until(allowed, "the right to evict")


async def consent(api: Api, namespace: str, labels: dict[str, str | None]) -> None:
    """Label a namespace."""
    await api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})


async def run_pod(api: Api, namespace: str, name: str, node: str, account: str = "default") -> str:
    """A pod that a simulated node has; its UID."""
    thing = pod(name, pod_spec() | {"nodeName": node, "serviceAccountName": account})
    made = await api.create(f"/api/v1/namespaces/{namespace}/pods", thing)
    return str(made["metadata"]["uid"])


async def stolen(api: Api, namespace: str, account: str, name: str = "", uid: str = "") -> Credentials:
    """A token as the kubelet asks for it: bound to the pod that it is for. Without a pod: bound to nothing."""
    bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}} if name else {}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = await api.create(path, {"spec": {"expirationSeconds": 3600, **bound}})
    return api.credentials.with_token(answer["status"]["token"])


@dataclass
class Scene:
    """A namespace with a pod that may be evicted, and a thief with the token of a daemon's pod on the same node."""

    api: Api
    thief: Api
    namespace: str
    node: str
    uid: str
    own_pod: tuple[str, str]

    async def answer(self, api: Api, *, namespace: str = "", **options: Any) -> tuple[int, str]:
        """Evict; what the server says."""
        try:
            await api.evict(namespace or self.namespace, "victim", **options)
        except ApiError as error:
            return error.status, error.message
        return 201, ""

    async def lives(self, namespace: str = "") -> bool:
        """Whether nothing deletes the victim."""
        found = await self.api.get(f"/api/v1/namespaces/{namespace or self.namespace}/pods/victim")
        return "deletionTimestamp" not in found["metadata"]


@asynccontextmanager
async def theft(
    api: Api, namespace: str, labels: dict[str, str | None] | None = None, own: str = OWN, account: str = OWN
) -> AsyncIterator[Scene]:
    """Consent, a victim, and a thief; once both policies are in force there."""
    (node,) = await simulated_nodes.add(api, 1, prefix=f"node-{new_token()}")
    await consent(api, namespace, labels or {**CONSENT})
    await bind(api, namespace, account, f"{account}-evict", own)
    name = f"daemon-{new_token()}"
    own_uid = await run_pod(api, own, name, node, account)
    uid = await run_pod(api, namespace, "victim", node)
    async with Api(await stolen(api, own, account, name, own_uid)) as thief:
        made = Scene(api, thief, namespace, node, uid, (name, own_uid))

        async def in_force() -> bool:
            asked: tuple[dict[str, Any], ...] = ({}, {"preconditions": {"uid": str(uuid4())}})
            said = [(await made.answer(thief, dryRun=["All"], **options))[1] for options in asked]
            return all(f"{denied(policy)} " in one for policy, one in zip((POLICY, OWN_NODE), said, strict=True))

        await until(in_force, "the policies to be in force")
        yield made
