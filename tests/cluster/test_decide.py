"""
The policy on the real cluster: `gpusteward run` judges pods that a real kubelet started, and writes Events for users.

In: pods that hold more than they declared, beside pods that do not. Out: states, Events, log lines, the audit log.
Law: all that is awaited is a state, a line or an Event. The daemon has exactly the rights that deploy/ ships.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pytest

from cluster.bed import GPUS
from cluster.client import Api, Object, until
from cluster.fixtures import fresh_namespace
from cluster.manifests import controller, pod
from cluster.offering import replicas
from cluster.stage import API_AWAY, RUN, SHARED, Stage, ready_pods, spec
from daemon.running import Daemon
from daemon.running import until as becomes
from driver.node import GiB, MiB
from scraped import series

pytestmark = pytest.mark.cluster

LIMIT = "nvidia.com/container.main.gpu-memory.limit"
EXEMPT, GRANT = {"gpusteward.io/exempt": "true"}, {"gpusteward.io/allow-pod-exemption": "true"}
CONSENT = {"gpusteward.io/mode": "enforce"}
TOTAL = GPUS[1].total or 0
EXCEEDED, HELD, INVALID = (f"GPUMemoryLimit{one}" for one in ("Exceeded", "Held", "Invalid"))

Who = tuple[str, str]
"""A namespace, and the name of a pod or of what controls it."""


@dataclass
class Told:
    """The states of each pod, one after the other, as `/metrics` showed them."""

    names: Mapping[Who, str]
    states: dict[str, list[str]] = field(default_factory=dict)

    def look(self, daemon: Daemon) -> dict[str, str]:
        """Read the page once; return the present states."""
        page = series(daemon.get("/metrics")[1], "container_state", "namespace", "pod", "state")
        now = {self.names[namespace, name]: state for namespace, name, state in page}
        for who, state in now.items():
            if self.states.setdefault(who, [state])[-1] != state:
                self.states[who].append(state)
        return now


def become(told: Told, daemon: Daemon, **wanted: str) -> None:
    """Wait until all pods have these states."""
    becomes(lambda: told.look(daemon) == wanted or None, f"the states {wanted}", daemon)


def watched(stage: Stage, *flags: str, **policy: object) -> Daemon:
    """Start `gpusteward run` with the shortest times that the policy takes; `policy` adds keys to it."""
    file = stage.folder / "config.yaml"
    times = {"warn_after": "5s", "grace": "30s", "hold_off": "0s", "spacing": "10m"}
    file.write_text(json.dumps({"policy": {**times, "stop_file": str(stage.folder / "stop"), **policy}}))
    return stage.daemon(f"--config={file}", "--sampling.interval=2s", *flags, command=RUN)


def declaring(thing: Object, limit: str, annotations: Mapping[str, str] | None = None) -> Object:
    """Let a pod, or the pods of a controller, declare a limit."""
    meta = thing["metadata"] if thing["kind"] == "Pod" else thing["spec"]["template"]["metadata"]
    meta["annotations"] = {LIMIT: limit, **(annotations or {})}
    return thing


def deployment(
    name: str, held: str, limit: str, annotations: Mapping[str, str] | None = None, **more: object
) -> Object:
    """Pods that hold so much of the shared GPU."""
    made = controller("Deployment", name, spec(f"alloc visible {held}", resource=SHARED), **more)
    return declaring(made, limit, annotations)


def bare(name: str, held: str, limit: str, annotations: Mapping[str, str] | None = None, **more: object) -> Object:
    """A pod without a controller; `more` goes into its spec."""
    made = spec(f"alloc visible {held}", resource=SHARED) | more
    return declaring(pod(name, made, labels={"app": name}), limit, annotations)


async def create(stage: Stage, namespace: str, *things: Object) -> None:
    """Create pods and controllers."""
    for thing in things:
        group = {"Pod": "/api/v1", "Job": "/apis/batch/v1"}.get(thing["kind"], "/apis/apps/v1")
        await stage.api.create(f"{group}/namespaces/{namespace}/{thing['kind'].lower()}s", thing)


async def label(stage: Stage, namespace: str, labels: Mapping[str, str | None]) -> None:
    """Label a namespace; None takes a label away."""
    await stage.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})


def names_of(pods: list[Object]) -> dict[Who, str]:
    """Name each pod by its label `app`; of several pods of one app, the first alone is worth a name of its own."""
    metas = [one["metadata"] for one in pods]
    return {(one["namespace"], one["name"]): one["labels"]["app"] for one in metas}


async def events(stage: Stage, names: Mapping[Who, str]) -> list[Who]:
    """List (pod, reason) of all Events that the daemon wrote on these pods, sorted."""
    found = (await stage.api.get("/apis/events.k8s.io/v1/events"))["items"]
    ours = [one for one in found if one.get("reportingController") == "gpusteward.io/gpusteward"]
    where = [(names.get((one["regarding"]["namespace"], one["regarding"]["name"])), one["reason"]) for one in ours]
    return sorted((who, reason) for who, reason in where if who is not None)


async def told_on(stage: Stage, names: Mapping[Who, str], expected: list[Who]) -> None:
    """Wait for exactly these Events."""

    async def same() -> bool:
        return await events(stage, names) == sorted(expected)

    try:
        await until(same, "the Events")
    except TimeoutError:
        assert await events(stage, names) == sorted(expected)
        raise


def changes(stage: Stage) -> set[tuple[str, str, str]]:
    """Verb, resource and API group of all that the daemon asked for and that may change something."""
    return {
        (one["verb"], one["objectRef"]["resource"], one["objectRef"].get("apiGroup", ""))
        for one in stage.requests()
        if one["verb"] not in {"get", "list", "watch"} and one["objectRef"]["resource"] != "selfsubjectaccessreviews"
    }


def lives(pods: list[Object]) -> dict[str, tuple[str, int, bool]]:
    """UID to phase, restarts, and whether it is being deleted."""
    return {
        one["metadata"]["uid"]: (
            one["status"]["phase"],
            sum(status["restartCount"] for status in one["status"]["containerStatuses"]),
            "deletionTimestamp" in one["metadata"],
        )
        for one in pods
    }


async def pods_of(stage: Stage, *namespaces: str) -> list[Object]:
    """All pods of these namespaces."""
    found = [await stage.api.get(f"/api/v1/namespaces/{one}/pods") for one in namespaces]
    return [one for answer in found for one in answer["items"]]


def logged(daemon: Daemon, event: str | None = None) -> list[dict[str, Any]]:
    """The daemon's log lines, of one event or all."""
    lines = [json.loads(line) for line in list(daemon.lines) if line.startswith("{")]
    return [line for line in lines if event in (None, line["event"])]


def ends(daemon: Daemon, **wanted: str) -> list[dict[str, Any]]:
    """How dry runs ended, of those lines that have these values."""
    return [line for line in logged(daemon, "enforcer.dry_run_ended") if wanted.items() <= line.items()]


def standing(daemon: Daemon, name: str) -> dict[str, Any]:
    """Where a pod stands, by the JSON document."""
    (found,) = (one for one in daemon.snapshot()["policy"]["standings"] if one["pod"] == name)
    return dict(found)


@pytest.fixture
async def enforcer(stage: Stage) -> Stage:
    """The stage for `gpusteward run`, with its own ServiceAccount and both roles."""
    await stage.enforcing()
    return stage


@pytest.fixture
async def roomy(enforcer: Stage) -> AsyncIterator[Stage]:
    """The same with the shared GPU in twenty replicas instead of four."""
    async with replicas(enforcer.bed, enforcer.api, SHARED, 20):
        yield enforcer


@pytest.fixture
async def another(node_api: Api) -> AsyncIterator[str]:
    """A second namespace; its pods are gone when the test is over."""
    async with fresh_namespace(node_api) as name:
        yield name
        await node_api.delete(f"/api/v1/namespaces/{name}")
        await node_api.delete(f"/api/v1/namespaces/{name}/pods")

        async def empty() -> bool:
            return not (await node_api.get(f"/api/v1/namespaces/{name}/pods"))["items"]

        await until(empty, f"no pod left in {name}")


@pytest.fixture
async def system_pod(node_api: Api) -> AsyncIterator[Object]:
    """A pod above its limit in kube-system; it is gone when the test is over."""
    path = "/api/v1/namespaces/kube-system/pods"
    yield await node_api.create(path, bare("system", "3GiB", "1Gi"))
    await node_api.delete(f"{path}/system")

    async def gone() -> bool:
        return await node_api.missing(f"{path}/system")

    await until(gone, "the pod in kube-system to be gone")


async def test_a_dry_run_judges_each_by_its_own_and_touches_no_pod(
    roomy: Stage, namespace: str, another: str, system_pod: Object
) -> None:
    """
    Eight pods that are over or unclear, each in another way, beside nine in good order: each is warned, held or tried.

    Each has its twin beside it: with consent and without, exempt with its namespace's permission and without, a
    Deployment's pod, a DaemonSet's pod and a bare pod. Nothing but Events was written, and all pods live.
    """
    stage = roomy
    await label(stage, namespace, CONSENT | GRANT)
    agent = controller("DaemonSet", "agent", spec("alloc visible 3GiB", resource=SHARED))
    await create(
        stage,
        namespace,
        deployment("greedy", "3GiB", "1Gi"),
        declaring(agent, "1Gi"),
        bare("bare", "3GiB", "1Gi"),
        bare("spared", "3GiB", "1Gi", EXEMPT),
        bare("critical", "3GiB", "1Gi", priorityClassName="system-node-critical"),
        bare("unclear", "3GiB", "2Gx"),
        deployment("neighbour", "1GiB", f"{TOTAL - 4 * GiB}"),  # what it may still take is far more than is free
        *(deployment(f"quiet-{number}", "1GiB", "2Gi") for number in range(8)),
    )
    await create(stage, another, deployment("unheard", "3GiB", "1Gi", EXEMPT))
    pods = [*await ready_pods(stage, namespace, 15), *await ready_pods(stage, another, 1)]
    pods.append(await stage.api.ready_pod("kube-system", "system"))
    stage.bed.driver.workload(system_pod["metadata"]["uid"]).ready()
    names, before = names_of(pods), lives(pods)
    orderly = {"neighbour", *(f"quiet-{number}" for number in range(8))}
    shielded = {"spared", "critical", "system"}
    acted, held = {"greedy", "agent", "bare"}, {"unheard": "no_consent"}
    wanted = dict.fromkeys(orderly, "ok") | dict.fromkeys(shielded, "exempt") | dict.fromkeys(held, "held")
    wanted |= dict.fromkeys(acted, "due") | {"unclear": "unjudged"}
    told = Told(names)
    with watched(stage, "--mode=dry-run") as daemon:
        become(told, daemon, **wanted)
        for who in (*acted, *held):
            # Dry runs follow one after the other: those that wait for their turn are held meanwhile.
            states = [state for state in told.states[who] if state != "held" or who in held]
            assert states[-3:] == ["over", "grace", wanted[who]], told.states
        for who in orderly | shielded | {"unclear"}:
            # Until its namespace's labels are read, in the first round or two, no pod is exempt by them.
            never = {"over", "grace", "due", "held"} - ({"over"} if who == "spared" else set())
            assert not never & set(told.states[who]), told.states

        becomes(lambda: len(logged(daemon, "enforcer.dry_run_ended")) == 3 or None, "three dry runs", daemon)
        tried = {names[line["namespace"], line["pod"]]: line for line in logged(daemon, "enforcer.dry_run")}
        assert tried.keys() == acted and len(logged(daemon, "enforcer.dry_run")) == 3
        rehearsed = tried["greedy"]
        assert (rehearsed["action"], rehearsed["used_bytes"], rehearsed["limit_bytes"]) == ("evict", 3 * GiB, GiB)
        ended = logged(daemon, "enforcer.dry_run_ended")
        assert {(one["result"], one["pod_uid"]) for one in ended} == {
            ("rehearsed", line["pod_uid"]) for line in tried.values()
        }, "looked at, and not spared"
        page = daemon.get("/metrics")[1]
        would = series(page, "dry_run_actions_total", "action", "namespace")
        assert (would["evict", namespace], would["evict", another]) == (3, 0)
        assert series(page, "held_containers", "reason", "namespace") == {("no_consent", another): 1}
        shields = {"spared": "exempt", "critical": "priority", "system": "namespace", "unclear": "limit_invalid"}
        reasons = held | shields | dict.fromkeys(acted, "dry_run")

        def all_said() -> bool:
            found = daemon.snapshot()["policy"]["standings"]
            return {names[one["namespace"], one["pod"]]: one["reason"] for one in found if one["reason"]} == reasons

        becomes(all_said, f"the reasons {reasons}", daemon)  # the round after the last dry run
        await told_on(
            stage,
            names,
            [(who, EXCEEDED) for who in (*acted, *held)] + [(who, HELD) for who in held] + [("unclear", INVALID)],
        )
    _describes(stage, namespace, another)

    async def written() -> bool:
        made = [one for one in stage.requests() if one["verb"] == "create" and one["objectRef"]["resource"] == "events"]
        return len(made) >= len(acted) + 2 * len(held) + 1

    await until(written, "the audit log")
    assert changes(stage) <= {(verb, "events", "events.k8s.io") for verb in ("create", "patch")}
    looks = [one for one in stage.requests() if f"metadata.name%3D{rehearsed['pod']}" in one["requestURI"]]
    assert {(one["verb"], one["responseStatus"]["code"]) for one in looks} == {("list", 200)}, "live, by its name"
    assert {"events", "pods", "namespaces"} <= {resource for _, resource in stage.asked()}, "and nothing was refused"
    after = await pods_of(stage, namespace, another, "kube-system")
    assert lives(after) == before
    assert set(before.values()) == {("Running", 0, False)}


def _describes(stage: Stage, namespace: str, another: str) -> None:
    """See what the users of two pods read: that nothing follows in this mode, and what would change it."""
    described = stage.bed.kubectl("describe", "pod", "-l", "app=greedy", "-n", namespace).partition("Events:")[2]
    assert 'Container "main" uses 3 GiB of' in described and "1.5 GiB more than its limit of 1 GiB" in described
    assert "plus 512 MiB allowed for CUDA contexts" in described
    assert "For now, only this message follows: the mode is dry-run." in described
    unheard = stage.bed.kubectl("describe", "pod", "-l", "app=unheard", "-n", another).partition("Events:")[2]
    assert "gpusteward.io/mode: enforce" in unheard, "what would change it is told"


@pytest.mark.fault(1, 58)
async def test_the_api_server_away_and_consent_withdrawn(enforcer: Stage, namespace: str, another: str) -> None:
    """
    Away during a grace: the time over the limit counts on, no dry run is made, and the warnings follow when it is back.

    Then the namespace of the second pod withdraws its consent: it is held.
    """
    stage = enforcer
    await label(stage, namespace, CONSENT)
    await label(stage, another, CONSENT)
    await create(stage, namespace, deployment("first", "4GiB", "1Gi"), bare("neighbour", "1GiB", f"{TOTAL - 4 * GiB}"))
    await create(stage, another, deployment("second", "1GiB", "1Gi"))
    pods = [*await ready_pods(stage, namespace, 2), *await ready_pods(stage, another, 1)]
    names = names_of(pods)
    first, second = (next(name for (_, name), who in names.items() if who == app) for app in ("first", "second"))
    (uid,) = (one["metadata"]["uid"] for one in pods if one["metadata"]["name"] == second)
    told = Told(names)
    with watched(stage, "--mode=dry-run") as daemon:
        become(told, daemon, first="grace", second="ok", neighbour="ok")
        await told_on(stage, names, [("first", EXCEEDED)])
        began = standing(daemon, first)["over_since"]
        stage.bed.control_plane.kill_api_server()
        try:
            daemon.until(lambda s: not s["names_live"], "names that are not live")
            stage.bed.driver.workload(uid).alloc("visible", 2 * GiB)
            become(told, daemon, first="held", second="held", neighbour="ok")
            assert told.states["second"][-3:] == ["over", "grace", "held"], "all of it was seen in the dark"
            assert {standing(daemon, one)["reason"] for one in (first, second)} <= {*API_AWAY}
            assert abs(standing(daemon, first)["over_since"] - began) < 1, "the evidence of before counts"
            assert not logged(daemon, "enforcer.dry_run"), "nobody, while nobody knows who lives"
            assert daemon.snapshot()["complete"]
        finally:
            stage.bed.control_plane.start_api_server()
        await label(stage, another, {"gpusteward.io/mode": None})
        becomes(lambda: ends(daemon, result="rehearsed") or None, "a dry run that nothing prevents", daemon)
        becomes(lambda: standing(daemon, second)["reason"] == "no_consent" or None, "no consent", daemon)
        become(told, daemon, first="due", second="held", neighbour="ok")
        withdrawn = [("second", EXCEEDED), ("second", HELD)]  # each says that the namespace does not consent
        await told_on(stage, names, [("first", EXCEEDED), ("second", EXCEEDED), *withdrawn])
        (other,) = (one["metadata"]["uid"] for one in pods if one["metadata"]["name"] == first)
        assert {one["pod_uid"] for one in ends(daemon, result="rehearsed")} == {other}
        # The round may know the labels of before: then the last look, which asks the server, spares the second one.
        spared = ends(daemon, pod_uid=uid)
        assert {one["detail"] for one in spared if one["result"] == "abandoned"} <= {"no_consent"}
        lines = [line["event"] for line in logged(daemon)]
        assert lines.index("kube.away") < lines.index("kube.back") < lines.index("enforcer.dry_run")
        story = [key for key, _ in groupby(steps(daemon, second))]
        assert (story[:2], story[-1]) == (["over", "grace"], "held no_consent")
        tried = {"due", "dry_run", "due dry_run"} if spared else set()
        assert set(story[2:-1]) <= {f"held {reason}" for reason in API_AWAY} | tried
    assert changes(stage) <= {(verb, "events", "events.k8s.io") for verb in ("create", "patch")}
    assert lives(await pods_of(stage, namespace, another)) == lives(pods)
    stage.bed.node.restart_kubelet()  # by itself it may take a minute to come back; the pods are to end sooner


def steps(daemon: Daemon, name: str) -> Iterator[str]:
    """Tell from the log what became of a pod, without what passes by itself."""
    for line in logged(daemon):
        if line.get("pod") == name and line.get("reason") not in {"in_flight", "queued"}:
            yield " ".join([line["event"].removeprefix("enforcer."), *([line["reason"]] if "reason" in line else [])])


async def test_observing_writes_nothing_and_warning_writes_events(stage: Stage, namespace: str) -> None:
    """The same pod, over in the same way: the exporter's role in mode observe, then both roles in mode warn."""
    await create(stage, namespace, bare("train", "3GiB", "1Gi"))
    names = names_of(await ready_pods(stage, namespace, 1))
    told = Told(names)
    with watched(stage) as daemon:
        become(told, daemon, train="grace")
        page = daemon.get("/metrics")[1]
        assert series(page, "enforcement_mode", "mode") == {("observe",): 1}
        assert logged(daemon, "enforcer.grace") and not [e for e in logged(daemon) if e["event"].startswith("notify.")]
        told_at = daemon.snapshot()["round"]
        snapshot = daemon.until(lambda s: s if s["round"] >= told_at + 5 else None, "time for an Event to be written")
        assert snapshot["complete"] and snapshot["names_live"] and not snapshot["faults"]
    assert changes(stage) == set() and ("watch", "pods") in stage.asked()
    assert await events(stage, names) == []
    await stage.enforcing()
    with watched(stage, "--mode=warn") as daemon:
        await told_on(stage, names, [("train", EXCEEDED)])
        assert series(daemon.get("/metrics")[1], "enforcement_mode", "mode") == {("warn",): 1}
    assert changes(stage) == {("create", "events", "events.k8s.io")}


async def test_warning_without_the_right_is_told_once_and_harms_nothing(stage: Stage, namespace: str) -> None:
    """With the exporter's role alone there is one log line for all missing Events; rounds, names and states go on."""
    await create(stage, namespace, bare("train", "3GiB", "1Gi"), bare("later", "1GiB", "1Gi"))
    pods = await ready_pods(stage, namespace, 2)
    names = names_of(pods)
    (uid,) = (one["metadata"]["uid"] for one in pods if one["metadata"]["name"] == "later")
    told = Told(names)
    with watched(stage, "--mode=warn") as daemon:
        becomes(lambda: logged(daemon, "notify.forbidden") or None, "the missing right to be told", daemon)
        assert told.look(daemon)["later"] == "ok"
        stage.bed.driver.workload(uid).alloc("visible", 2 * GiB + 5 * MiB)
        becomes(lambda: told.look(daemon)["later"] == "grace" or None, "the other one's grace", daemon)
        (forbidden,) = logged(daemon, "notify.forbidden")
        assert forbidden["namespace"] == namespace and "events" in forbidden["message"]
        snapshot = daemon.snapshot()
        assert snapshot["complete"] and snapshot["names_live"] and not snapshot["faults"]
        used = {one["pod"]: one["memory_used_bytes"] for one in snapshot["containers"]}
        assert used == {"train": 3 * GiB, "later": 3 * GiB + 5 * MiB}
    assert await events(stage, names) == []
    refused = [one for one in stage.requests() if one["responseStatus"].get("code") == 403]
    assert {(one["verb"], one["objectRef"]["resource"], one["objectRef"]["namespace"]) for one in refused} == {
        ("create", "events", namespace)
    }
    assert len(refused) == 2, "one at its beginning, one ten seconds later, and then none for five minutes"
