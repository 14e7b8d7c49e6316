"""
Each of the plain manifests, applied by kubectl as docs/deploy.md says, from the one that may least upwards.

In: deploy/manifests, with an overlay of a user's own. Out: the mode that the daemon's pod tells, what its account and
its container may, and what is left when it is deleted: nothing.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.bed import Bed
from cluster.client import Api, until
from cluster.installed import Installed, furnished, gpu_node, objects, same_objects
from cluster.overlays import MANIFESTS, overlay
from cluster.stage import NAMESPACE
from exporter.kube.rights import RIGHTS
from patience import PATIENCE
from scraped import series

pytestmark = pytest.mark.cluster

KILL, SYS_ADMIN = 1 << 5, 1 << 21
READS = frozenset({str(right) for right in RIGHTS})
TELLS = READS | {"create events.events.k8s.io", "patch events.events.k8s.io"}
ACTS = TELLS | {"get pods", "create pods/eviction"}
NEVER = ("delete pods", "patch pods", "create pods/exec", "get secrets", "get nodes/proxy", "get configmaps")
ASKED = (*sorted(ACTS), *NEVER)


@dataclass(frozen=True, slots=True)
class Step:
    """A manifest; the mode that it says, `""` where there is none; what its account may in a team's namespace."""

    name: str
    mode: str
    may: frozenset[str]
    capabilities: int = 0


UP = (
    Step("observe", "observe", READS),
    Step("mig", "observe", READS, SYS_ADMIN),
    Step("warn", "warn", TELLS),
    Step("dry-run", "dry-run", TELLS),
    Step("evict", "enforce", ACTS),
    Step("kill", "enforce", ACTS, KILL),
)
ALONE = Step("exporter", "", READS)


async def may(api: Api, account: str, namespace: str) -> set[str]:
    """Ask the server what an account may there."""
    found = set()
    for one in ASKED:
        verb, _, what = one.partition(" ")
        named, _, group = what.partition(".")
        resource, _, sub = named.partition("/")
        asked = {"verb": verb, "resource": resource, "subresource": sub, "group": group, "namespace": namespace}
        spec = {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "resourceAttributes": asked}
        answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
        found |= {one} if answer["status"]["allowed"] else set()
    return found


async def holds(daemon: Installed, namespace: str, rights: frozenset[str]) -> None:
    """Wait until its account has exactly these there; the server reads its roles anew a moment after they changed."""

    async def exactly() -> bool:
        return await may(daemon.api, daemon.account, namespace) == rights

    await until(exactly, f"{daemon.account} to have exactly the rights {sorted(rights)} in {namespace}")


async def stands(daemon: Installed, step: Step, team: str) -> None:
    """Wait until the daemon runs as the manifest says, and look at what it may."""
    try:
        daemon.bed.kubectl(
            "-n", NAMESPACE, "rollout", "status", f"daemonset/{daemon.account}", f"--timeout={PATIENCE:.0f}s"
        )
    except subprocess.CalledProcessError as error:
        daemon.explain(error)
        raise
    if step.mode:
        await daemon.mode(step.mode)
    else:
        assert not series(await daemon.page(), "enforcement_mode", "mode")
    assert daemon.capabilities() == step.capabilities, step.name
    await holds(daemon, team, step.may)
    await holds(daemon, "default", step.may - {"get pods", "create pods/eviction"})


async def test_each_manifest_stands_and_goes(
    cluster: Bed, node_api: Api, namespace: str, image: str, tmp_path: Path
) -> None:
    """
    Applied one over the other, each gives its mode and the rights of it, and deleting the last one takes all away.

    The read-only daemon is another one, and stands and goes alone.
    """
    teams = {"evict": namespace, "kill": namespace}
    steps = (ALONE, *UP)
    assert {step.name for step in steps} == {one.name for one in MANIFESTS.iterdir()}
    made = {one.name: str(overlay(tmp_path, image, one.name, evicts=teams.get(one.name))) for one in steps}

    def delete(name: str) -> None:
        cluster.kubectl("delete", "-k", made[name], "--ignore-not-found", "--wait")

    for name in (ALONE.name, UP[-1].name):
        delete(name)  # what earlier tests left of it
    await until(lambda: furnished(node_api, namespace), "what each namespace is given")
    before = await objects(node_api)
    async with gpu_node(cluster, node_api):
        for walk in ((ALONE,), UP):
            daemon = Installed(
                cluster, node_api, NAMESPACE, "gpusteward-exporter" if walk[0] is ALONE else "gpusteward"
            )
            try:
                for step in walk:
                    cluster.kubectl("apply", "-k", made[step.name])
                    await stands(daemon, step, namespace)
            finally:
                delete(walk[-1].name)
            await same_objects(node_api, before)
