"""
Workloads that fight back, on the real cluster, with the whole daemon in mode enforce.

In: containers deaf to SIGTERM, in fork storms, that restart and exec in their grace. A Job that is made anew for ever.
A pod with a finalizer and a preStop hook that hangs, and one that was deleted already. Out: the pods that live, the
pods that are held with their reasons, the journal, the audit log. Law: a pod that is not over its limit lives, and each
no is recorded before it counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from cluster.bed import GPUS, MIG_GPU
from cluster.client import Object, until
from cluster.fighters import OWN_GRACE, clinging, eternal, leaving, restless, storming, stubborn
from cluster.offering import replicas
from cluster.stage import NAMESPACE, SHARED, Stage, ready_pods
from cluster.test_decide import CONSENT, create, deployment, label, lives, logged
from cluster.test_enforce import enforcing, journal, mode, told
from daemon.running import Daemon
from daemon.running import until as becomes
from driver.namespaces import in_new_namespace
from driver.node import FakeProcess, GiB
from scraped import series

pytestmark = pytest.mark.cluster

TWICE: dict[str, Any] = {"spacing": "2s", "budgets": {"node": "5/10m", "namespace": "2/24h"}}
"""Two actions in the namespace."""
NOBODY = int(Path("/proc/sys/kernel/pid_max").read_text())
"""A number that no process has."""


def by_app(pods: list[Object]) -> dict[str, Object]:
    """Name pods by their label; of several the last one."""
    return {one["metadata"]["labels"]["app"]: one for one in pods}


def uid_of(one: Object) -> str:
    return str(one["metadata"]["uid"])


def status(one: Object, container: str = "main") -> Object:
    """What the kubelet says of a container."""
    return dict(next(each for each in one["status"]["containerStatuses"] if each["name"] == container))


def id_of(one: Object) -> str:
    """The id of its container of this moment."""
    return str(status(one).get("containerID", "")).rpartition("/")[2]


def stands(daemon: Daemon, pod: Object, state: str, reason: str | None = None) -> dict[str, Any]:
    """Wait until this is where one generation of a pod's container stands."""

    def there() -> dict[str, Any] | None:
        mine = [one for one in daemon.snapshot()["policy"]["standings"] if one["pod_uid"] == uid_of(pod)]
        return next((one for one in mine if (one["state"], one["reason"]) == (state, reason)), None)

    return becomes(there, f"{state} {reason} of {pod['metadata']['name']}", daemon)


def graces(daemon: Daemon, pod: Object) -> int:
    """How often the start of a pod's grace was logged, until it was acted on."""
    mine = [line["event"] for line in logged(daemon) if line.get("pod") == pod["metadata"]["name"]]
    return [*takewhile("enforcer.acting".__ne__, mine)].count("enforcer.grace")


def intended(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What was intended, by the pod's UID."""
    return {one["action"]["pod_uid"]: one for one in records if one["record"] == "intent"}


def story(records: list[dict[str, Any]], pod: Object) -> list[dict[str, Any]]:
    """All records of what was decided about a pod."""
    decision = intended(records)[uid_of(pod)]["decision"]
    return [one for one in records if one["decision"] == decision]


def ghosts(daemon: Daemon) -> float:
    """Memory of the shared GPU that is of dead processes, in bytes."""
    page = series(daemon.get("/metrics")[1], "device_memory_ghost_bytes", "uuid", "gpu_instance")
    return page.get((GPUS[1].uuid, ""), 0)


async def pods(stage: Stage, namespace: str, app: str) -> list[Object]:
    """The pods of an app, the oldest first."""
    found = (await stage.api.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"app={app}"))["items"]
    return sorted(found, key=lambda one: str(one["metadata"]["creationTimestamp"]))


async def restarted(stage: Stage, pod: Object, count: int) -> Object:
    """Wait until the kubelet has started a pod's container so often anew, and it runs; the pod."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"

    async def runs() -> Object | None:
        now = await stage.api.get(path)
        main = status(now)
        return now if main["restartCount"] == count and "running" in main["state"] else None

    return await until(runs, f"restart {count} of {pod['metadata']['name']}")


async def untouched(stage: Stage, namespace: str, **apps: int) -> None:
    """See that of each of these apps so many pods run, as they did from the beginning."""
    for app, count in apps.items():
        assert [*lives(await pods(stage, namespace, app)).values()] == [("Running", 0, False)] * count, app


async def evictions(stage: Stage, count: int) -> dict[str, tuple[str, int]]:
    """Path and answer of each eviction that was asked for but the canary's, by decision, once there are so many."""

    async def written() -> dict[str, tuple[str, int]] | None:
        found = {
            one["auditID"]: (one["objectRef"]["name"], int(one["responseStatus"]["code"]))
            for one in stage.requests()
            if one["objectRef"].get("subresource") == "eviction" and one["objectRef"]["namespace"] != NAMESPACE
        }
        return found if len(found) >= count else None

    return await until(written, f"{count} evictions in the audit log")


@pytest.fixture
async def ground(stage: Stage, namespace: str) -> AsyncIterator[Stage]:
    """`gpusteward run` with the shipped rights, in a namespace that consents, and room on the shared GPU."""
    await stage.enforcing()
    await label(stage, namespace, CONSENT)
    async with replicas(stage.bed, stage.api, SHARED, 20), stage.as_pod():
        await stage.may_evict(namespace)
        yield stage
        await stage.unguard()


@pytest.mark.fault(33, 38, 43, 44, 46)
async def test_a_container_that_resists_sigterm_is_killed_once_and_alone(ground: Stage, namespace: str) -> None:
    """
    Deaf, forking, its memory with another child each time: warned, and after its own grace killed; its sidecar lives.

    Another container restarts in its grace. The time over the limit counts on, through an exec as well, and it ends at
    SIGTERM. Both come back and do it again: held, as the budget of their namespace is spent. A neighbour that starts
    many processes, and 2 GiB of a dead process, protect neither.
    """
    stage = ground
    await stage.unguard()
    dead = FakeProcess(NOBODY, 2 * GiB)
    stage.bed.driver.write([GPUS[0], replace(GPUS[1], processes=(dead,)), MIG_GPU])
    await create(stage, namespace, stubborn(), restless(), storming(), deployment("quiet", "1GiB", "2Gi", replicas=2))
    apps = by_app(await ready_pods(stage, namespace, 5))
    deaf, born = apps["stubborn"], apps["restless"]
    try:
        with enforcing(stage, ladder=["notify", "kill"], **TWICE) as daemon:
            mode(daemon, "enforce")
            stands(daemon, born, "grace")
            stage.bed.driver.workload(uid_of(born)).exit(1)
            anew = await restarted(stage, born, 1)
            assert id_of(anew) not in ("", id_of(born))
            becomes(lambda: ghosts(daemon) >= 2 * GiB or None, "the dead process's memory", daemon)
            becomes(lambda: graces(daemon, born) == 2 or None, "a grace of its own", daemon)
            stage.bed.driver.workload(uid_of(born)).exec()

            stands(daemon, deaf, "held", "budget_namespace")
            back = await restarted(stage, deaf, 1)
            becomes(lambda: uid_of(born) in ended_well(stage) or None, "the other one's end", daemon)
            records = journal(stage)
            first, second = story(records, deaf), story(records, born)
            assert told(first) == ["intent", "sent", "acked", "acked", "ended verified"], "SIGTERM, SIGKILL"
            term, kill = (one for one in first if one["record"] == "acked")
            assert term["answer"]["heard"] == kill["answer"]["heard"] == "accepted"
            assert term["answer"]["detail"] == "SIGTERM was sent, which its first process does not handle"
            assert kill["answer"]["detail"] == "SIGKILL was sent after its grace"
            assert kill["boottime"] - term["boottime"] >= OWN_GRACE, "not before its own grace was over"
            assert status(back)["lastState"]["terminated"]["exitCode"] == 137
            assert status(back, "side")["restartCount"] == 0
            assert first[0]["action"]["container_id"] == id_of(deaf) != id_of(back)

            assert told(second) == ["intent", "sent", "acked", "ended verified"], "it heard SIGTERM"
            assert second[0]["action"]["container_id"] == id_of(anew), "the next generation, by its own excess"
            assert graces(daemon, born) == 2, "an exec is no other container"
            back = await restarted(stage, born, 2)
            assert status(back)["lastState"]["terminated"]["exitCode"] == 143
            assert len(intended(records)) == len([one for one in records if one["record"] == "intent"]) == 2
            assert not daemon.snapshot()["policy"]["breakers"]
    finally:
        stage.bed.driver.write([*GPUS, MIG_GPU])
    await untouched(stage, namespace, storming=1, quiet=2)


def ended_well(stage: Stage) -> set[str]:
    """UIDs of the pods of which an action has ended verified."""
    records = journal(stage)
    by_decision = {one["decision"]: uid for uid, one in intended(records).items()}
    return {by_decision[one["decision"]] for one in records if one.get("result") == "verified"}


@pytest.mark.fault(47, 64, 65, 71)
async def test_a_pod_that_does_not_go_is_evicted_once_and_delays_no_other(ground: Stage, namespace: str) -> None:
    """
    A Job that ignores disruptions is made anew free of charge: evicted once, then held by the namespace's budget.

    A hanging preStop hook and a finalizer: one eviction, seen by its effect; the pod that stays in name stops nothing.
    A pod deleted in its grace is left to that. A daemon that cannot prove its PID domain judges no pod.
    """
    stage = ground
    await stage.guard()
    quiet = {f"quiet-{number}": 1 for number in range(4)}  # more workloads than those that are over
    orderly = [deployment(name, "1GiB", "2Gi") for name in quiet]
    await create(stage, namespace, eternal(), clinging(), leaving(), *orderly)
    apps = by_app(await ready_pods(stage, namespace, 7))
    leaves = f"/api/v1/namespaces/{namespace}/pods/leaving"
    elsewhere = in_new_namespace("--kill-child")
    try:
        with enforcing(stage, **TWICE) as daemon, enforcing(stage, "blind", enter=elsewhere, **TWICE) as blind:
            mode(daemon, "enforce")
            for app in ("eternal", "clinging", "leaving"):
                stands(blind, apps[app], "unjudged", "pid_domain")
            assert not blind.snapshot()["policy"]["breakers"]
            stands(daemon, apps["leaving"], "grace")
            await stage.api.delete(leaves)
            stands(daemon, apps["leaving"], "held", "terminating")

            async def again() -> Object | None:
                found = [
                    one for one in await pods(stage, namespace, "eternal") if uid_of(one) != uid_of(apps["eternal"])
                ]
                return found[0] if found else None

            second = await until(again, "the Job to make another pod")
            standing = stands(daemon, second, "held", "budget_namespace")
            assert standing["over"] and not daemon.snapshot()["policy"]["breakers"]
            both = {uid_of(apps["eternal"]), uid_of(apps["clinging"])}
            becomes(lambda: ended_well(stage) >= both or None, "both to be verified", daemon)
            records = journal(stage)
            assert set(intended(records)) == both
            for app in ("eternal", "clinging"):
                assert told(story(records, apps[app])) == ["intent", "sent", "acked", "ended verified"]
            decisions = {one["decision"]: (one["action"]["pod"], 201) for one in intended(records).values()}
            assert await evictions(stage, 2) == decisions, "each once, and the one that was deleted never"
            remains = await stage.api.get(f"/api/v1/namespaces/{namespace}/pods/{apps['clinging']['metadata']['name']}")
            assert uid_of(remains) == uid_of(apps["clinging"]) and "deletionTimestamp" in remains["metadata"]
            assert not (await stage.api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/eternal"))["status"].get(
                "failed"
            )

            left = await stage.api.get(leaves)
            assert uid_of(left) == uid_of(apps["leaving"]) and "running" in status(left)["state"]
            assert status(left)["restartCount"] == 0
            stands(daemon, apps["leaving"], "held", "terminating")
            stands(blind, second, "unjudged", "pid_domain")
            assert not journal(stage, "blind") and not logged(blind, "enforcer.grace")
    finally:
        stage.bed.driver.workload(uid_of(apps["leaving"])).exit()
        for one in await pods(stage, namespace, "clinging"):
            await stage.api.patch(
                f"/api/v1/namespaces/{namespace}/pods/{one['metadata']['name']}", {"metadata": {"finalizers": None}}
            )
    await untouched(stage, namespace, **quiet)
