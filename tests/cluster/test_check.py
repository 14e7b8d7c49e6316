"""`gpusteward check` on the real cluster: a real kubelet, a real API server, a ServiceAccount and its rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import yaml

from cluster.bed import NODE_NAME, Bed
from cluster.client import Api, Object, until
from cluster.manifests import pod, pod_spec
from patience import PATIENCE
from sources.kube_api import kubeconfig

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

COMMAND = Path(sys.executable).with_name("gpusteward")
MANIFEST = Path(__file__).parents[2] / "deploy" / "exporter" / "rbac.yaml"
ENFORCER_MANIFEST = MANIFEST.parents[1] / "enforcer" / "rbac.yaml"
EVICT_MANIFEST = ENFORCER_MANIFEST.with_name("rbac-evict.yaml")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = "checker"
NOTHING = {"apiGroups": ["example.com"], "resources": ["nothing"], "verbs": ["get"]}

Checks = dict[str, tuple[str, str, str]]
"""Verdict, message and fix of each check."""


class Stage:
    """A ServiceAccount in a namespace of its own, and the node as its daemon would see it."""

    def __init__(self, bed: Bed, api: Api, namespace: str, folder: Path) -> None:
        self.bed, self.api, self.namespace, self.folder = bed, api, namespace, folder
        self.role = f"{ACCOUNT}-{namespace}"
        self.host = folder / "host"
        (self.host / "var/log").mkdir(parents=True)
        (self.host / "proc").symlink_to("/proc")
        (self.host / "var/log/containers").symlink_to(bed.folder / "log" / "containers")
        self.token = folder / "token"
        self.kubeconfig = kubeconfig(
            folder / "kubeconfig",
            bed.control_plane.server,
            user={"tokenFile": str(self.token)},
            authority=bed.control_plane.authority.certificate,
        )

    async def make(self, rules: list[Object]) -> None:
        """Make the account with these rights, and write its token."""
        accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        await self.api.create(accounts, {"metadata": {"name": ACCOUNT}})
        await self.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": self.role}, "rules": rules})
        binding = {
            "metadata": {"name": self.role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.role},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": self.namespace}],
        }
        await self.api.create(f"{RBAC}/clusterrolebindings", binding)
        token = (await self.api.token(self.namespace, ACCOUNT)).token
        assert token is not None
        self.token.write_text(token)

    async def grant(self, rules: list[Object]) -> None:
        """Give it other rights."""
        await self.api.patch(f"{RBAC}/clusterroles/{self.role}", {"rules": rules or [NOTHING]})

    async def check(self, *flags: str) -> tuple[int, Checks]:
        """Run it as the daemon's pod would: exit code, and verdict, message and fix of each check."""
        command = [
            str(COMMAND),
            "check",
            "--json",
            "--names.source=kubernetes",
            f"--names.kubeconfig={self.kubeconfig}",
            f"--node.kubelet-root={self.bed.node.kubelet_folder}",
            f"--node.host-root={self.host}",
            f"--node.pods-cgroup={self.bed.node.cgroup_root}/kubepods",
            f"--node-name={NODE_NAME}",
            "--node.trust-pid-namespace",
            "--web.listen-address=127.0.0.1:0",
            *flags,
        ]
        env = {**os.environ, **self.bed.driver.environment()}
        ended = await to_thread(
            subprocess.run, command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert ended.stderr == "", ended.stderr
        checks = json.loads(ended.stdout)["checks"]
        return ended.returncode, {one["check"]: (one["verdict"], one["message"], one["fix"]) for one in checks}

    async def checked(self, condition: Callable[[Checks], bool], what: str, *flags: str) -> tuple[int, Checks]:
        """Check until it says so: the server's authorizer learns of a changed role by a watch."""

        async def ask() -> tuple[int, Checks] | None:
            code, checks = await self.check(*flags)
            return (code, checks) if condition(checks) else None

        return await until(ask, what)

    def asked(self) -> set[tuple[str, str]]:
        """Verb and resource of all that was asked for with the token, from the audit log."""
        user = f"system:serviceaccount:{self.namespace}:{ACCOUNT}"
        events = (event for event in self.bed.control_plane.audit() if event["user"].get("username") == user)
        return {(event["verb"], event.get("objectRef", {}).get("resource", event["requestURI"])) for event in events}


def failed(checks: Checks) -> set[str]:
    """Name the checks that failed. A source that answers late, because the machine is busy, is one of them."""
    return {name for name, (verdict, *_) in checks.items() if verdict == "fail"}


def passes(checks: Checks) -> bool:
    return not failed(checks)


def rights(checks: Checks) -> str:
    """What is said of the rights that the mode needs."""
    return checks.get("mode rights", ("", "", ""))[1]


def shipped(manifest: Path = MANIFEST) -> list[Object]:
    """The rules that deploy/ ships."""
    (role,) = (one for one in yaml.safe_load_all(manifest.read_text()) if one["kind"] == "ClusterRole")
    rules: list[Object] = role["rules"]
    return rules


def without(resource: str) -> list[Object]:
    """The same, without one resource."""
    rules = [{**rule, "resources": [one for one in rule["resources"] if one != resource]} for rule in shipped()]
    return [rule for rule in rules if rule["resources"]]


@pytest.fixture
async def stage(cluster: Bed, node_api: Api, namespace: str, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(cluster, node_api, namespace, tmp_path)
    await made.make(shipped())
    yield made
    await node_api.delete(f"{RBAC}/clusterrolebindings/{made.role}")
    await node_api.delete(f"{RBAC}/clusterroles/{made.role}")


async def test_with_the_shipped_rights_all_is_well(stage: Stage) -> None:
    """Exit code 0 and no failed check, with a pod on the node; nothing was asked that could change anything."""
    pods = f"/api/v1/namespaces/{stage.namespace}/pods"
    await stage.api.create(pods, pod("train", pod_spec(resources={"nvidia.com/gpu": 1})))
    await stage.api.ready_pod(stage.namespace, "train")

    def allocated(checks: Checks) -> bool:  # the kubelet lists a device some seconds after its pod has it
        return "1 device allocated" in checks["kubelet"][1] and passes(checks)

    code, checks = await stage.checked(allocated, "the kubelet to tell of the pod's device")
    assert code == 0, checks
    # The pods of a second cluster on this machine are a doubt about the cgroups, and rightly so.
    sure = {name: verdict for name, (verdict, *_) in checks.items() if name not in {"pid domain", "cgroup view"}}
    assert set(sure.values()) == {"ok"}, checks
    assert f"pods are in {stage.bed.node.cgroup_root}/kubepods" in checks["cgroup view"][1]
    assert "Kubernetes v1." in checks["api server"][1]
    assert checks["node name"][1] == f"{NODE_NAME} is a node of the cluster"
    assert "pod-resources v1 answers" in checks["kubelet"][1]

    async def written() -> bool:
        return len(stage.asked()) >= 3

    await until(written, "the audit log")
    assert stage.asked() == {("get", "/version"), ("create", "selfsubjectaccessreviews"), ("get", "nodes")}


async def test_a_missing_right_is_told(stage: Stage) -> None:
    """Without jobs it warns and passes, and says what is lost; without pods no pod can be named, and it fails."""
    await stage.grant(without("jobs"))
    code, checks = await stage.checked(
        lambda checks: checks["api rights"][0] == "warn" and passes(checks), "a warning of the rights"
    )
    assert code == 0, checks
    assert "get jobs.batch (" in checks["api rights"][1] and "pods" not in checks["api rights"][1]
    await stage.grant(without("pods"))
    code, checks = await stage.checked(lambda checks: checks["api rights"][0] == "fail", "the rights to fail")
    assert code == 1
    assert "list pods (" in checks["api rights"][1] and "watch pods (" in checks["api rights"][1]
    assert "deploy/exporter/rbac.yaml" in checks["api rights"][2]
    await stage.grant([])
    code, checks = await stage.checked(lambda checks: "403" in checks["node name"][1], "the node to be unreadable")
    assert (code, checks["node name"][0]) == (1, "warn")


@pytest.mark.parametrize("mode", ["warn", "dry-run"])
async def test_a_right_that_the_mode_needs_is_told(stage: Stage, mode: str) -> None:
    """With the exporter's role alone it fails and names each verb, in mode observe it passes; with both it passes."""
    code, checks = await stage.checked(passes, "the exporter's rights")
    assert code == 0 and "mode rights" not in checks, f"who only observes is asked nothing: {checks}"
    code, checks = await stage.checked(
        lambda checks: failed(checks) == {"mode rights"}, "one failure", f"--mode={mode}"
    )
    assert (code, checks["mode rights"][0], checks["api rights"][0]) == (1, "fail", "ok")
    for words in (f"mode {mode}", "create events.events.k8s.io (", "patch events.events.k8s.io ("):
        assert words in checks["mode rights"][1]
    assert "deploy/enforcer/rbac.yaml" in checks["mode rights"][2]
    both = [*shipped(), *shipped(ENFORCER_MANIFEST)]
    await stage.grant([*shipped(), {**both[-1], "verbs": ["create"]}])
    code, checks = await stage.checked(
        lambda checks: "create events" not in rights(checks) and "patch events.events.k8s.io (" in rights(checks),
        "the right to create",
        f"--mode={mode}",
    )
    assert code == 1
    await stage.grant(both)
    code, checks = await stage.checked(passes, "both roles to be in force", f"--mode={mode}")
    assert (code, checks["mode rights"][0]) == (0, "ok"), checks
    assert stage.asked() == {("get", "/version"), ("create", "selfsubjectaccessreviews"), ("get", "nodes")}


async def test_a_namespace_that_consents_without_its_role_binding_is_named(stage: Stage, tmp_path: Path) -> None:
    """In mode enforce the line `consent` fails, names the namespace and the fix; with the RoleBinding it passes."""
    label, file = f"test.gpusteward.io/{stage.namespace}", tmp_path / "config.json"
    file.write_text(json.dumps({"policy": {"mode": "enforce", "namespaces": {"label": f"{label}=yes"}}}))
    await stage.api.patch(f"/api/v1/namespaces/{stage.namespace}", {"metadata": {"labels": {label: "yes"}}})
    await stage.api.create(f"/api/v1/namespaces/{stage.namespace}/pods", pod("train", pod_spec()))
    await stage.api.ready_pod(stage.namespace, "train")
    await stage.grant([*shipped(), *shipped(ENFORCER_MANIFEST)])
    code, checks = await stage.checked(
        lambda checks: checks["consent"][0] == "fail", "the missing right", f"--config={file}"
    )
    assert code == 1
    _, message, fix = checks["consent"]
    assert "create pods/eviction" in message and message.endswith(f"not granted in {stage.namespace}")
    assert fix.startswith("bind the ClusterRole gpusteward-evict ")
    roles = f"{RBAC}/namespaces/{stage.namespace}"
    await stage.api.create(f"{roles}/roles", {"metadata": {"name": "evict"}, "rules": shipped(EVICT_MANIFEST)})
    binding = {
        "metadata": {"name": "evict"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "evict"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": stage.namespace}],
    }
    await stage.api.create(f"{roles}/rolebindings", binding)
    _, checks = await stage.checked(
        lambda checks: checks["consent"][0] == "ok", "the RoleBinding to be in force", f"--config={file}"
    )
    assert "evictions are allowed in 1 namespace" in checks["consent"][1]
    assert {verb for verb, _ in stage.asked()} <= {"get", "list", "create"}
    assert {what for verb, what in stage.asked() if verb == "create"} == {"selfsubjectaccessreviews"}


async def test_a_node_that_is_not_in_the_cluster_is_told(stage: Stage) -> None:
    """A wrong name would show no pods: exit code 1, and how to set it."""
    code, checks = await stage.checked(
        lambda checks: "no node elsewhere" in checks["node name"][1],
        "the name to be looked up",
        "--node-name=elsewhere",
    )
    assert (code, checks["node name"][0]) == (1, "fail")
    assert "NODE_NAME" in checks["node name"][2]


async def test_a_token_that_is_not_accepted_is_told(stage: Stage) -> None:
    """Exit code 1; what hangs on the answer is not called good."""
    stage.token.write_text("no.such.token")
    code, checks = await stage.checked(
        lambda checks: "401" in checks["api server"][1] and checks["kubelet"][0] == "ok",
        "the token to be refused, and the kubelet to be asked all the same",
    )
    assert (code, checks["api server"][0]) == (1, "fail")
    assert "ServiceAccount" in checks["api server"][2]
    assert {checks[name][0] for name in ("api rights", "node name")} == {"warn"}


async def test_a_kubelet_that_is_elsewhere_is_told(stage: Stage, tmp_path: Path) -> None:
    """A folder that is not the kubelet's: exit code 1, and the key that names it."""
    code, checks = await stage.check(f"--node.kubelet-root={tmp_path}")
    assert (code, checks["kubelet"][0]) == (1, "fail")
    assert "node.kubelet_root" in checks["kubelet"][2]
