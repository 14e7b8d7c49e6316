"""
Mode enforce on the real cluster: `gpusteward run` evicts, is kept from it, and kills, with what deploy/ ships.

In: one pod of a Deployment far over its limit, and a neighbour that may still take more memory than is free. Then a
bystander with the labels of the first, and a namesake elsewhere. Out: the pods that live, the journal, the audit log,
metrics, Events. Law: the daemon has the token of a pod of the node and exactly the shipped rights. A pod that is not
over its limit lives, and each no is seen before it counts.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.client import Object, until
from cluster.fixtures import fresh_namespace
from cluster.manifests import disruption_budget
from cluster.stage import NAMESPACE, RUN, Stage, ready_pods
from cluster.test_decide import (
    CONSENT,
    TOTAL,
    bare,
    create,
    deployment,
    label,
    lives,
    logged,
    pods_of,
    told_on,
)
from daemon.running import Daemon
from daemon.running import until as becomes
from driver.node import GiB
from enforcer.journal.records import decode
from journals import decided
from scraped import series

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

TIMES = {"warn_after": "5s", "grace": "30s", "hold_off": "0s", "spacing": "10s"}
GREEDY = deployment("greedy", "3GiB", "1Gi")
REVIEW = ("create", "selfsubjectaccessreviews")
"""The question whether the daemon may act in a namespace: it changes nothing."""


@dataclass
class Scene:
    """The pods on the shared GPU, and what is done to them."""

    stage: Stage
    namespace: str
    elsewhere: str
    pods: list[Object] = field(default_factory=list)

    @property
    def victim(self) -> Object:
        """The pod that is over."""
        return next(one for one in self.pods if one["metadata"]["name"].startswith("greedy-"))

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.victim["metadata"]["name"])

    async def play(self, greedy: Object = GREEDY) -> None:
        """Have them run: one is over, and a neighbour may still take more than is free."""
        for one in (self.namespace, self.elsewhere):
            await label(self.stage, one, CONSENT)
        neighbour = bare("neighbour", "1GiB", f"{TOTAL - 2 * GiB}")
        bystander = bare("bystander", "1GiB", "2Gi")
        bystander["metadata"]["labels"] = {"app": "greedy"}
        await create(self.stage, self.namespace, greedy, neighbour, bystander)
        self.pods = await ready_pods(self.stage, self.namespace, 3)
        await create(self.stage, self.elsewhere, bare(self.name, "1GiB", "2Gi"))
        self.pods += await ready_pods(self.stage, self.elsewhere, 1)

    async def now(self) -> list[Object]:
        """The pods as they are."""
        return await pods_of(self.stage, self.namespace, self.elsewhere)

    async def others_live(self) -> None:
        """See that no pod but the victim was touched."""
        uid = self.victim["metadata"]["uid"]
        before = {one: life for one, life in lives(self.pods).items() if one != uid}
        now = lives([one for one in await self.now() if one["metadata"]["uid"] in before])
        assert now == before == dict.fromkeys(before, ("Running", 0, False))
        assert len(before) == 3

    async def evictions(self, count: int) -> list[tuple[str, int, str]]:
        """Path, answer and id of each request for an eviction but the canary's, once there are so many."""

        async def written() -> list[tuple[str, int, str]] | None:
            found = [
                (one["requestURI"], int(one["responseStatus"]["code"]), one["auditID"])
                for one in self.stage.requests()
                if one["objectRef"].get("subresource") == "eviction" and one["objectRef"]["namespace"] != NAMESPACE
            ]
            return found if len(found) >= count else None

        return await until(written, f"{count} evictions in the audit log") if count else await written() or []

    def changed(self) -> set[tuple[str, str]]:
        """Verb and resource of all else that the daemon asked for and that may change something."""
        return {
            (one["verb"], one["objectRef"]["resource"])
            for one in self.stage.requests()
            if one["verb"] not in {"get", "list", "watch"} and one["objectRef"].get("subresource") != "eviction"
        } - {REVIEW}

    @property
    def path(self) -> str:
        """Where the victim is evicted."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/eviction"


def enforcing(
    stage: Stage,
    name: str = "first",
    *,
    journal: str = "",
    port: int | None = None,
    enter: Sequence[str] = (),
    learns: bool = False,
    **policy: object,
) -> Daemon:
    """
    Start `gpusteward run --mode enforce` with the shortest times that the policy takes, and files of its own.

    `port`, `enter` and `learns` as in `Stage.daemon`; `policy` adds keys to that section.
    """
    folder = stage.folder / name
    folder.mkdir(mode=0o700)
    files = {"stop_file": str(folder / "stop"), "journal": str(stage.folder / (journal or name) / "journal")}
    (folder / "config.yaml").write_text(json.dumps({"policy": {**TIMES, **files, **policy}}))
    flags = (f"--config={folder / 'config.yaml'}", "--sampling.interval=2s", "--mode=enforce")
    return stage.daemon(*flags, command=RUN, port=port, enter=enter, learns=learns)


def journal(stage: Stage, name: str = "first") -> list[dict[str, Any]]:
    """The records of decisions, but for those whose last look failed: nothing was asked for these."""
    return decided(written(stage, name))


def written(stage: Stage, name: str) -> list[dict[str, Any]]:
    """The records of all decisions, as they are on the disk; each line is whole."""
    lines = (stage.folder / name / "journal").read_bytes().split(b"\n")[:-1]
    assert all(map(decode, lines))
    return [one for one in map(json.loads, lines) if "decision" in one]


def told(records: list[dict[str, Any]]) -> list[str]:
    """Each record in a word or two."""
    return [" ".join([one["record"], *filter(None, [one.get("result")])]) for one in records]


def mode(daemon: Daemon, wanted: str) -> None:
    """Wait until this is the node's mode."""

    def there() -> bool | None:
        return series(daemon.get("/metrics")[1], "enforcement_mode", "mode") == {(wanted,): 1} or None

    becomes(there, f"the mode {wanted}", daemon)


def stands(daemon: Daemon, scene: Scene, state: str, reason: str | None = None) -> None:
    """Wait until this is where the victim stands."""

    def there() -> bool | None:
        found = [one for one in daemon.snapshot()["policy"]["standings"] if one["pod_uid"] == uid]
        return any((one["state"], one["reason"]) == (state, reason) for one in found) or None

    uid = scene.victim["metadata"]["uid"]
    becomes(there, f"{state} {reason}", daemon)


def ended(daemon: Daemon, result: str) -> None:
    """Wait until an action has ended so."""

    def there() -> bool | None:
        return any(line["result"] == result for line in logged(daemon, "enforcer.effect_result")) or None

    becomes(there, f"an action to end {result}", daemon)


def gone_by_us(daemon: Daemon, scene: Scene) -> bool | None:
    """Tell whether `gpusteward explain` says that the victim is gone, and that this daemon evicted it."""
    status, body = daemon.get(f"/api/v1/explain?namespace={scene.namespace}&pod={scene.name}")
    found = json.loads(body)
    evicted = f"gpusteward evicted pod {scene.namespace}/{scene.name}, because "
    gone = any("the pod is gone" in note for note in found["notes"])
    return (status == 200 and gone and evicted in found["text"]) or None


@pytest.fixture
async def scene(stage: Stage, namespace: str) -> AsyncIterator[Scene]:
    """The rights of `gpusteward run` that may evict in two namespaces, and in its own for the canary."""
    await stage.enforcing()
    async with fresh_namespace(stage.api) as elsewhere, stage.as_pod():
        await stage.may_evict(namespace, elsewhere)
        made = Scene(stage, namespace, elsewhere)
        yield made
        await made.others_live()
        await stage.unguard()
        await stage.api.delete(f"/api/v1/namespaces/{elsewhere}")


@pytest.mark.fault(53)
async def test_the_one_that_is_over_is_evicted_once(scene: Scene) -> None:
    """
    It gets an Event, and 30 s later it is evicted; its Deployment makes a new pod. Nothing else was changed, and no
    other pod.

    A second daemon with the same journal only observes, and does nothing of it again.
    """
    stage = scene.stage
    await stage.guard()
    await scene.play()
    with enforcing(stage) as daemon:
        mode(daemon, "enforce")
        stands(daemon, scene, "grace")
        with enforcing(stage, "second", journal="first") as second:
            mode(second, "observe")
            (said,) = logged(second, "enforcer.not_armed")[-1:]
            assert said["reason"] == "not_owner" and f"process {daemon.process.pid}" in said["detail"]
            ended(daemon, "verified")
            assert not logged(second, "enforcer.effect_result") and not logged(second, "enforcer.acting")
        (intent, *_) = written = journal(stage)
        assert told(written) == ["intent", "sent", "acked", "ended verified"]
        assert intent["action"]["pod_uid"] == scene.victim["metadata"]["uid"]
        assert {one["decision"] for one in written} == {intent["decision"]}
        count = "action_duration_seconds_count"
        becomes(lambda: series(daemon.get("/metrics")[1], count, "action") or None, "the end on the page", daemon)
        page = daemon.get("/metrics")[1]
        begun = series(page, "actions_total", "action", "namespace")
        assert (begun["evict", scene.namespace], begun["evict", scene.elsewhere]) == (1, 0)
        assert series(page, count, "action") == {("evict",): 1}
        assert series(page, "action_duration_seconds_sum", "action")["evict",] >= 35
        last = series(page, "last_action_timestamp_seconds", "namespace", "pod", "container", "action")
        assert list(last) == [(scene.namespace, scene.name, "main", "evict")]
        assert await scene.evictions(1) == [(scene.path, 201, intent["decision"])]
        names = {(scene.namespace, scene.name): "greedy", (scene.elsewhere, scene.name): "namesake"}
        await told_on(stage, names, [("greedy", "GPUMemoryLimitExceeded"), ("greedy", "GPUMemoryLimitEvicted")])
        anew = await ready_pods(stage, scene.namespace, 3)
        assert len(lives(anew).keys() - lives(scene.pods).keys()) == 1, "in place of the one that is gone"
        becomes(lambda: gone_by_us(daemon, scene), "explain to name the eviction", daemon)
        assert not journal(stage)[4:]
        assert daemon.stop()[0] == 0
    assert scene.changed() == {("create", "events")}, "and Events alone"


@pytest.mark.fault(4)
async def test_a_budget_blocks_until_it_is_relaxed(scene: Scene) -> None:
    """Held `blocked`, and it lives; when its PodDisruptionBudget lets it go, it is asked for again, and goes."""
    stage = scene.stage
    await stage.guard()
    await scene.play()
    budgets = f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets"
    await stage.api.create(budgets, disruption_budget("both", {"app": "greedy"}, min_available=2))

    async def counted() -> bool:
        return bool((await stage.api.get(f"{budgets}/both")).get("status", {}).get("currentHealthy") == 2)

    await until(counted, "the budget to count both pods")
    with enforcing(stage) as daemon:
        stands(daemon, scene, "held", "blocked")
        assert told(journal(stage)) == ["intent", "sent", "acked", "ended blocked"]
        assert lives(await scene.now()) == lives(scene.pods)
        await stage.api.patch(f"{budgets}/both", {"spec": {"minAvailable": 1}})
        ended(daemon, "verified")
        written = journal(stage)
        assert told(written)[-4:] == ["intent", "sent", "acked", "ended verified"]
        asked = await scene.evictions(2)
        assert (asked[0][:2], asked[-1][:2]) == ((scene.path, 429), (scene.path, 201))
        noted = [one["decision"] for one in written if one["record"] == "sent"]
        assert noted == [decision for _, _, decision in asked], "each request was noted before it was made"
    assert scene.changed() == {("create", "events")}


@pytest.mark.fault(74)
async def test_without_the_admission_policy_or_beside_a_stop_file_no_pod_is_evicted(scene: Scene) -> None:
    """
    Two daemons are held: one lacks the admission policy that it requires, one finds a stop file in its pod's grace.

    Once the policy is there, the first one evicts the pod. What was missing for a while starts no new grace.
    """
    stage = scene.stage
    await stage.unguard()
    await scene.play()
    with enforcing(stage) as daemon:
        with enforcing(stage, "stopped", admission="ignore") as stopped:
            stands(stopped, scene, "grace")
            mode(stopped, "enforce")
            (stage.folder / "stopped" / "stop").touch()
            stands(daemon, scene, "held", "admission")
            mode(daemon, "dry-run")
            missing = logged(daemon, "enforcer.not_armed")
            assert missing[-1]["reason"] == "admission" and missing[-1]["detail"].startswith(
                "gpusteward-evictions is absent: "
            )
            stands(stopped, scene, "held", "stopped")
            assert not await scene.evictions(0) and not journal(stage) and not journal(stage, "stopped")
            assert lives(await scene.now()) == lives(scene.pods)
        graces = len(logged(daemon, "enforcer.grace"))
        await stage.guard()
        mode(daemon, "enforce")
        ended(daemon, "verified")
        assert len(logged(daemon, "enforcer.grace")) == graces, "no new grace"
        assert told(journal(stage)) == ["intent", "sent", "acked", "ended verified"]
    assert [code for _, code, _ in await scene.evictions(1)] == [201]


async def test_a_container_is_killed_and_its_pod_lives(scene: Scene) -> None:
    """Ladder notify, kill: that container gets its signal, the kubelet starts it anew, its sidecar notices nothing."""
    stage = scene.stage
    await stage.unguard()
    greedy = deployment("greedy", "3GiB", "1Gi")
    pod = greedy["spec"]["template"]["spec"]
    pod["containers"].append({**pod["containers"][0], "name": "sidecar", "command": ["sleep", "3600"], "resources": {}})
    await scene.play(greedy)
    with enforcing(stage, ladder=["notify", "kill"]) as daemon:
        ended(daemon, "verified")
        written = journal(stage)
        assert told(written) == ["intent", "sent", "acked", "ended verified"]
        action, heard = written[0]["action"], written[2]["answer"]["heard"]
        assert (action["rung"], action["container"], heard) == ("kill", "main", "accepted")

        async def restarted() -> dict[str, int] | None:
            (now,) = [one for one in await scene.now() if one["metadata"]["uid"] == scene.victim["metadata"]["uid"]]
            counts = {one["name"]: one["restartCount"] for one in now["status"]["containerStatuses"]}
            return counts if counts["main"] else None

        assert await until(restarted, "the kubelet to start it anew") == {"main": 1, "sidecar": 0}
        assert series(daemon.get("/metrics")[1], "actions_total", "action", "namespace")["kill", scene.namespace] == 1
    assert not await scene.evictions(0)
    assert scene.changed() == {("create", "events")}
