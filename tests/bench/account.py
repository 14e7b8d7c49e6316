"""
The account of the measured daemons: the ServiceAccount and the rights that deploy/ ships, and its tokens in files.

In: an admin's client. Out: folders with `token` and `ca.crt`, as a kubelet mounts them. Law: no other rights.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from cluster.bed import Bed
from cluster.client import Api, until

RBAC = Path(__file__).parents[2] / "deploy/exporter/rbac.yaml"
NAMESPACE = "gpusteward"
ACCOUNT = "gpusteward-exporter"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
PATHS = {"ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"}
PATHS |= {k: f"/apis/rbac.authorization.k8s.io/v1/{k.lower()}s" for k in ("ClusterRole", "ClusterRoleBinding")}


async def grant(api: Api) -> None:
    """Create what deploy/ ships, in its namespace, and wait until the rights are in force."""
    await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for thing in yaml.safe_load_all(RBAC.read_text()):
        await api.create(PATHS[thing["kind"]], thing)

    async def in_force() -> bool:
        asked = {"resource": "pods", "verb": "watch"}
        review = {"spec": {"user": USER, "resourceAttributes": asked}}
        answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    await until(in_force, "the rights to be in force")


async def mount(bed: Bed, api: Api, folders: Sequence[Path]) -> None:
    """Fill each folder as the kubelet does for a pod: a token of its own, and whom to trust."""
    authority = bed.control_plane.authority.certificate.read_bytes()
    tokens = await asyncio.gather(*(api.token(NAMESPACE, ACCOUNT) for _ in folders))
    for folder, credentials in zip(folders, tokens, strict=True):
        assert credentials.token is not None
        folder.mkdir(parents=True)
        (folder / "token").write_text(credentials.token)
        (folder / "ca.crt").write_bytes(authority)


def kubeconfig(bed: Bed, folder: Path) -> Path:
    """Write a kubeconfig that reads the token and the authority of such a folder."""
    cluster = {"server": bed.control_plane.admin.server, "certificate-authority": str(folder / "ca.crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": cluster}],
        "users": [{"name": "daemon", "user": {"tokenFile": str(folder / "token")}}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "daemon"}}],
        "current-context": "bed",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return file
