"""
The action `fence` on the real cluster: `gpusteward run` caps a container in the fake driver of R615, and evicts later.

In: the pods of `test_enforce`. Out: the pods that may take more memory, Events, journal, metrics. Law: as there; and
only the victim is capped at any moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cluster.client import Object, until
from cluster.stage import RUN, Stage, stage
from cluster.test_decide import LIMIT, events
from cluster.test_enforce import Scene, ended, enforcing, mode, scene
from cluster.test_enforce import journal as decisions
from cluster.test_enforce import told as in_words
from daemon.running import Daemon
from daemon.running import until as becomes
from default_rules import default_rules
from driver.node import GiB, Workload
from enforcer.actions.fence.fences import Fence
from enforcer.journal import file as journal_file
from scraped import series
from sources.limits import R615, out_of_memory

__all__ = ["scene", "stage"]

pytestmark = pytest.mark.cluster

LADDER = ["notify", "fence", "evict"]


@pytest.fixture
def limiting(stage: Stage) -> Iterator[None]:
    """Let the node's driver be one that limits cgroups."""
    driver = stage.bed.driver
    driver.write(driver.gpus, driver=R615)
    yield
    driver.write(driver.gpus)


def workload(scene: Scene, name: str) -> Workload:
    """The workload of the first pod whose name begins so."""
    pod = next(one for one in scene.pods if one["metadata"]["name"].startswith(name))
    return scene.stage.bed.driver.workload(pod["metadata"]["uid"])


def refused(pod: Workload, size: int) -> bool:
    """Have it take more of the GPU that was handed to it; say whether that fails."""
    return out_of_memory(pod, size, "visible")


def fences(stage: Stage) -> list[Fence]:
    """The fences that the journal says may stand."""
    return list(journal_file.fences(stage.folder / "first" / "journal", default_rules()).values())


def counted(daemon: Daemon, scene: Scene) -> tuple[float, float]:
    """How often the daemon has fenced and evicted in the namespace, by the page of its last round."""
    begun = series(daemon.get("/metrics")[1], "actions_total", "action", "namespace")
    return begun["fence", scene.namespace], begun["evict", scene.namespace]


def fallen(stage: Stage, daemon: Daemon) -> None:
    """Wait until no fence stands."""
    becomes(lambda: not fences(stage) or None, "the fence to fall", daemon)


def observing(stage: Stage) -> Daemon:
    """Start `gpusteward run --mode observe` with the journal of the one that enforced."""
    file = stage.folder / "observing.yaml"
    file.write_text(json.dumps({"policy": {"journal": str(stage.folder / "first" / "journal")}}))
    return stage.daemon(f"--config={file}", "--sampling.interval=2s", "--mode=observe", command=RUN)


def nexts(daemon: Daemon) -> list[str]:
    """The next actions of the pods whose grace runs; a daemon that is not armed yet does not know of any fence."""
    return [one["next"] for one in daemon.snapshot()["policy"]["standings"] if one["state"] == "grace"]


async def reasons(stage: Stage, pod: Object, wanted: set[str]) -> None:
    """Wait until these are the reasons of the Events on a pod."""
    names = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): "pod"}

    async def same() -> bool:
        return {reason for _, reason in await events(stage, names)} == wanted

    await until(same, f"Events {wanted}")


def innocents_take(scene: Scene) -> None:
    """See that the others may take a little more, and give it back."""
    for name in ("neighbour", "bystander"):
        other = workload(scene, name)
        assert not refused(other, 1 << 20), name


async def test_growth_stops_and_after_another_grace_the_pod_is_evicted(scene: Scene, limiting: None) -> None:
    """
    Fenced at what it holds: more is refused inside the container, which lives, and the pod gets an Event.

    A restarted daemon finds the fence in place. A pod that frees nothing is evicted, and the fence goes with its
    container.
    """
    stage = scene.stage
    await stage.guard()
    await scene.play()
    greedy = workload(scene, "greedy")
    with enforcing(stage, ladder=LADDER) as daemon:
        mode(daemon, "enforce")
        ended(daemon, "verified")
        assert in_words(decisions(stage)) == ["intent", "sent", "acked", "ended verified"]
        (fence,) = fences(stage)
        assert (fence.hard, fence.limit) == (3 * GiB, 1 * GiB)
        assert scene.victim["metadata"]["uid"] in fence.cgroup
        assert refused(greedy, 1) and greedy.says().total == 3 * GiB
        innocents_take(scene)
        becomes(lambda: counted(daemon, scene) == (1, 0) or None, "the fence on the page", daemon)
        assert daemon.stop()[0] == 0
    assert refused(greedy, 1), "a fence outlives its daemon"
    with enforcing(stage, "again", journal="first", ladder=LADDER) as daemon:
        becomes(lambda: nexts(daemon) == ["evict"] or None, "the grace before the next rung", daemon)
        ended(daemon, "verified")
        assert [one["action"]["rung"] for one in decisions(stage) if one["record"] == "intent"] == ["fence", "evict"]
        fallen(stage, daemon)
    await reasons(stage, scene.victim, {f"GPUMemoryLimit{one}" for one in ("Exceeded", "Fenced", "Evicted")})
    assert len(await scene.evictions(1)) == 1


async def test_a_fence_stands_under_a_lower_limit_and_falls_when_the_mode_is_another(
    scene: Scene, limiting: None
) -> None:
    """
    A tenant that lowers its own limit is not fenced anew, so that the next step of the ladder can follow.

    Nothing of ours stays in the driver without its reason, also when another daemon starts that does not enforce.
    """
    stage = scene.stage
    await stage.unguard()
    await scene.play()
    greedy = workload(scene, "greedy")
    pod = f"/api/v1/namespaces/{scene.namespace}/pods/{scene.name}"
    with enforcing(stage, ladder=["notify", "fence"]) as daemon:
        ended(daemon, "verified")
        assert fences(stage) and refused(greedy, 1)
        await stage.api.patch(pod, {"metadata": {"annotations": {LIMIT: "768Mi"}}})

        def lowered() -> bool | None:
            found = daemon.snapshot()["policy"]["standings"]
            return 768 << 20 in {one["limit_bytes"] for one in found if one["pod"] == scene.name} or None

        becomes(lowered, "the lower limit", daemon)
        assert [fence.limit for fence in fences(stage)] == [GiB] and refused(greedy, 1)
        assert daemon.stop()[0] == 0
    assert refused(greedy, GiB)
    with observing(stage) as daemon:
        fallen(stage, daemon)
    assert not refused(greedy, 1 << 20)
    innocents_take(scene)
    assert not await scene.evictions(0)
