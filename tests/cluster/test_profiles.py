"""
The seccomp profiles on the real cluster: the daemon's pod under them evicts, kills and fences, and can do little else.

In: the chart with `seccompProfile`, the profiles where the kubelet looks for them. Out: what the kernel says of the
container, what the daemon did, what is refused to a program in its pod. Law: the runtime loads the profile, not a test.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster.bed import Bed
from cluster.client import until
from cluster.installed import PATIENT, Release, released, values
from cluster.stage import Stage, ready_pods
from cluster.test_decide import CONSENT, bare, create, deployment, label, lives
from cluster.test_enforce import Scene, ended, enforcing, scene
from cluster.test_enforce import journal as decisions
from cluster.test_enforce import told as in_words
from cluster.test_fence import fences, limiting, refused, workload
from cluster.test_helm import CAP_KILL
from enforcer.actions.processes import read
from profiles.test_seccomp import KILL, OBSERVE, under
from scraped import series

__all__ = ["limiting", "scene"]

pytestmark = pytest.mark.cluster

PROFILES = {"evict": OBSERVE, "kill": KILL}
FORBIDDEN = """
import ctypes, fcntl, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0
def raw(name):
    def call():
        if getattr(libc, name)(*[ctypes.c_long(-1)] * 5) == -1:
            raise OSError(ctypes.get_errno(), name)
    return call
ours, _ = socket.socketpair()
print(json.dumps({
    "status": [line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp:")],
    "kill": of(os.kill, 1, 0),
    "own": of(fcntl.fcntl, ours, fcntl.F_SETOWN, 1),
    "fork": of(os.fork),
    **{name: of(raw(name)) for name in ("ptrace", "process_vm_readv", "mount", "setns", "unshare", "setpriority")},
}))
"""
"""What a program in the daemon's pod tries."""


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart; the kubelet has the profiles."""
    folder = cluster.node.kubelet_folder / "seccomp"
    folder.mkdir(exist_ok=True)
    for profile in (OBSERVE, KILL):
        shutil.copy(profile, folder)
    async with released(cluster, stage.api, tmp_path) as made:
        yield made


def held(release: Release) -> None:
    """See that a program in the daemon's container can do nothing of the above."""
    found: dict[str, Any] = json.loads(release.inside(FORBIDDEN))
    assert found.pop("status") == ["2"], "a filter is loaded"
    assert found == dict.fromkeys(found, 38), "calls that this kernel does not have, as it seems"


@pytest.mark.parametrize("rung", PROFILES)
async def test_the_daemon_acts_under_the_profile(
    release: Release, stage: Stage, namespace: str, image: str, rung: str
) -> None:
    """Its pod starts under the profile, warns, acts, writes its journal, and answers `gpusteward check`."""
    await label(stage, namespace, CONSENT)
    await create(stage, namespace, deployment("greedy", "3GiB", "1Gi"), bare("quiet", "1GiB", "2Gi"))
    pods = {one["metadata"]["labels"]["app"]: one for one in await ready_pods(stage, namespace, 2)}
    policy = {"mode": "enforce", "trigger": "limit", "ladder": ["notify", rung]}
    named = {"type": "Localhost", "localhostProfile": PROFILES[rung].name}
    given = values(stage.bed, image, policy, evict={"namespaces": [namespace]}, seccompProfile=named)
    release.helm("install", values=given)
    await release.mode("enforce")
    assert release.capabilities() == (CAP_KILL if rung == "kill" else 0)
    held(release)

    async def acted() -> bool:
        return any(one.get("result") == "verified" for one in release.journal())

    try:
        await until(acted, "the action on the pod that is over its limit", PATIENT)
    except TimeoutError as error:
        release.explain(error)
        raise
    (intent,) = [one["action"] for one in release.journal() if one["record"] == "intent"]
    assert (intent["rung"], intent["pod_uid"]) == (rung, pods["greedy"]["metadata"]["uid"])
    quiet = await stage.api.get(f"/api/v1/namespaces/{namespace}/pods/quiet")
    assert lives([quiet]) == lives([pods["quiet"]])
    said = stage.bed.kubectl("-n", release.namespace, "exec", f"ds/{release.account}", "--", "gpusteward", "check")
    assert "fail" not in said, said
    assert "not implemented" not in release.log()


async def test_without_pidfds_it_kills_nothing_and_says_why(
    release: Release, stage: Stage, namespace: str, image: str
) -> None:
    """Under the profile that is not for `kill` the daemon is not armed, and names the profile as the cause."""
    policy = {"mode": "enforce", "ladder": ["notify", "kill"]}
    named = {"type": "Localhost", "localhostProfile": OBSERVE.name}
    given = values(stage.bed, image, policy, evict={"namespaces": [namespace]}, seccompProfile=named)
    release.helm("install", values=given)
    await release.shows(lambda page: series(page, "enforcement_mode", "mode") or None, "a mode")

    async def said() -> bool:
        lines = [one for one in release.log().splitlines() if "enforcer.not_armed" in one]
        return any("seccomp profile" in one for one in lines)

    await until(said, "the daemon to name the profile", PATIENT)
    assert series(await release.page(), "enforcement_mode", "mode") != {("enforce",): 1}


async def test_it_fences_under_the_profile(scene: Scene, limiting: None) -> None:
    """As a process under the profile, because no runtime puts a privileged container under one, it caps the pod."""
    stage = scene.stage
    await stage.unguard()
    await scene.play()
    with enforcing(stage, ladder=["notify", "fence"], enter=under(OBSERVE)) as daemon:
        ended(daemon, "verified")
        assert in_words(decisions(stage)) == ["intent", "sent", "acked", "ended verified"]
        assert fences(stage) and refused(workload(scene, "greedy"), 1)
        assert "Seccomp:\t2\n" in read(f"/proc/{daemon.process.pid}/status")
        assert "not implemented" not in daemon.log
