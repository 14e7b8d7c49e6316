"""
The seccomp profiles on the real cluster: the kubelet and its runtime take them, and the daemon under them acts.

In: the profiles where the kubelet looks for them; pods of which one is over its limit. Out: what the kernel says of a
container, what the daemon did. Law: the daemon is the real one in mode enforce, with the rights that deploy/ ships.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cluster.client import Api, Object, until
from cluster.manifests import pod, pod_spec
from cluster.stage import Stage, stage
from cluster.test_enforce import Scene, ended, enforcing, scene
from cluster.test_enforce import journal as decisions
from cluster.test_enforce import told as in_words
from daemon.running import Daemon
from enforcer.actions.processes import read
from profiles.test_seccomp import KILL, OBSERVE, under

__all__ = ["scene", "stage"]

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("profile", [OBSERVE, KILL], ids=lambda one: one.stem)
async def test_the_runtime_takes_it(stage: Stage, node_api: Api, namespace: str, profile: Path) -> None:
    """
    A container that names the file starts under it, with the daemon's rights.

    Its program runs; where it wants another process beside it, there is no such call.
    """
    folder = stage.bed.node.kubelet_folder / "seccomp"
    folder.mkdir(exist_ok=True)
    shutil.copy(profile, folder)
    made = pod_spec(restart="Never")
    made["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "Localhost", "localhostProfile": profile.name},
    }
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for name, script in (("alone", "exec cat /proc/self/status"), ("two", "cat /proc/self/status; exit 0")):
        made["containers"][0]["command"] = ["sh", "-c", script]
        await node_api.create(pods, pod(name, made))

    async def over() -> list[Object] | None:
        found = [(await node_api.get(f"{pods}/{name}"))["status"] for name in ("alone", "two")]
        return found if all(one["phase"] in ("Succeeded", "Failed") for one in found) else None

    alone, _ = await until(over, "both to end")
    assert alone["phase"] == "Succeeded"
    assert "Seccomp:\t2\n" in stage.bed.kubectl("-n", namespace, "logs", "alone")
    said = stage.bed.kubectl("-n", namespace, "logs", "two")
    assert "can't fork: Function not implemented" in said and "Seccomp" not in said


def held(daemon: Daemon) -> None:
    """See that the daemon is under a filter, and met nothing that it lacks."""
    assert "Seccomp:\t2\n" in read(f"/proc/{daemon.process.pid}/status")
    assert "not implemented" not in daemon.log


async def test_it_evicts_under_the_profile(scene: Scene) -> None:
    """Under the profile the daemon warns, evicts the pod that is over its limit, and writes its journal."""
    stage = scene.stage
    await stage.guard()
    await scene.play()
    with enforcing(stage, ladder=["notify", "evict"], enter=under(OBSERVE)) as daemon:
        ended(daemon, "verified")
        assert in_words(decisions(stage)) == ["intent", "sent", "acked", "ended verified"]
        (action,) = [one["action"] for one in decisions(stage) if one["record"] == "intent"]
        assert (action["rung"], action["pod_uid"]) == ("evict", scene.victim["metadata"]["uid"])
        held(daemon)
        assert daemon.stop()[0] == 0


async def test_it_kills_under_the_profile(scene: Scene) -> None:
    """Under the profile for `kill` the daemon ends the container that is over its limit, and no other."""
    stage = scene.stage
    await stage.unguard()
    await scene.play()
    with enforcing(stage, ladder=["notify", "kill"], enter=under(KILL)) as daemon:
        ended(daemon, "verified")
        assert in_words(decisions(stage)) == ["intent", "sent", "acked", "ended verified"]
        (action,) = [one["action"] for one in decisions(stage) if one["record"] == "intent"]
        assert (action["rung"], action["pod_uid"]) == ("kill", scene.victim["metadata"]["uid"])
        held(daemon)
        assert daemon.stop()[0] == 0
    await scene.others_live()
