"""
The limit holds: the twelve cases of the policy at once, on a real node, with the shipped chart and shortened times.

In: the chart, installed by helm; `twelve`: sixteen pods above their limits, each in its own way, and forty innocent
ones. Out: what becomes of each, the journal, the audit log, metrics and Events. Law: each case ends as docs/policy.md
says. It is acted on within the documented time, or it is held with its reason and kind. No innocent pod notices, and
all that is said agrees.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from cluster import image as daemon_image
from cluster import requirements, twelve
from cluster.bed import Bed
from cluster.beside import beside
from cluster.client import Api, Object, until
from cluster.fixtures import fresh_namespace, require
from cluster.installed import Release, released, values
from cluster.manifests import disruption_budget
from cluster.proxy import Passing, Proxy, proxied
from cluster.scene_pods import Scenery
from cluster.scenes import played
from cluster.stage import Stage, ready_pods, staged
from cluster.test_decide import CONSENT, bare, create, events, label, lives
from cluster.twelve import ACTED, EXCESS, GUARDED, HELD, PERIOD, QUIET, SHARES, Case
from default_rules import default_rules
from driver.node import MiB, WorkloadError
from journals import decided
from scraped import series
from tools.policy_reference import latest

pytestmark = pytest.mark.cluster

RULES = default_rules(warn_after=5.0, grace=15.0, interval=1.0, spacing=2.0)
POLICY = {
    "mode": "enforce",
    "warn_after": "5s",
    "grace": "15s",
    "hold_off": "5s",
    "spacing": "2s",
    "budgets": {"node": "30/10m", "namespace": "30/10m"},
}
TURN = 10.0
"""Seconds that an earlier action keeps a later one waiting at most: the pause after a blocked one is 5 s."""
AWAY = 10.0
"""Seconds for which the API server is away after it accepted an eviction."""
BUSY = 20.0
"""Seconds for what no bound can promise on two busy cores: eighteen Events through a proxy, rounds of sixty pods."""
FOLLOWS = "will be evicted"


@dataclass
class Play:
    """The pods of all cases by name, the innocent ones, and the release whose daemon acts on them."""

    stage: Stage
    scenery: Scenery
    proxy: Proxy
    release: Release
    work: str
    unbound: str
    cases: dict[str, list[Object]] = field(default_factory=dict)
    innocents: list[Object] = field(default_factory=list)
    exceeded_at: float = 0.0
    all_over: float = 0.0

    @property
    def namespaces(self) -> list[str]:
        """Where the pods are."""
        return [self.work, self.unbound, *self.scenery.namespaces]

    async def now(self) -> dict[str, Object]:
        """All pods as they are, by UID."""
        found = [await self.stage.api.get(f"/api/v1/namespaces/{name}/pods") for name in self.namespaces]
        return {pod["metadata"]["uid"]: pod for answer in found for pod in answer["items"]}

    def exceed(self, case: Case) -> None:
        """Let the pods of a case take more than they may."""
        for pod in self.cases[case.name]:
            workload = self.stage.bed.driver.workload(pod["metadata"]["uid"] + case.speaker)
            workload.alloc(case.device, case.excess, *case.kinds)

    def burst(self, name: str, ended: threading.Event) -> None:
        """Let a pod be above its limit for its share of each period, until it is gone."""
        (pod,) = self.cases[name]
        workload, over = self.stage.bed.driver.workload(pod["metadata"]["uid"]), PERIOD * SHARES[name]
        try:
            while not ended.is_set():
                workload.alloc("visible", EXCESS)
                ended.wait(over)
                workload.free("visible")
                workload.alloc("visible", 64 * MiB)
                ended.wait(PERIOD - over)
        except (WorkloadError, TimeoutError, OSError):
            return  # it was evicted

    def records(self) -> list[dict[str, Any]]:
        """The journal's records of decisions."""
        return [one for one in self.release.journal() if "decision" in one]

    def requests(self) -> list[tuple[str, str, int]]:
        """Decision, path and answer of each eviction that the server was asked for, without the admission probe's."""
        user = f"system:serviceaccount:{self.release.namespace}:{self.release.account}"
        return [
            (one["auditID"], one["requestURI"], int(one["responseStatus"]["code"]))
            for one in self.stage.bed.control_plane.audit()
            if one["user"].get("username") == user
            and one["objectRef"].get("subresource") == "eviction"
            and one["objectRef"]["namespace"] != self.release.namespace
        ]

    async def document(self) -> Object:
        """The daemon's JSON document, asked for at its pod's address."""
        address = (await self.release.pod())["status"]["podIP"]
        url = f"http://{address}:9478/api/v1/snapshot"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
            return dict(await answer.json())


def uid_of(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def path_of(pod: Object) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Bed]:
    """Start a cluster for this file: its GPUs, and what its device plugin serves, are the scene's."""
    require(requirements.missing(node=True))
    with Bed(gpus=(), inventory={resource: [] for resource in twelve.RESOURCES}) as bed:
        yield bed


@pytest.fixture
def image(cluster: Bed) -> str:
    """Name of the daemon's image, which this file's node has."""
    require(requirements.missing_for_image())
    cluster.node.import_image(daemon_image.archive(), daemon_image.NAME)
    return daemon_image.NAME


@pytest.fixture
async def stage(cluster: Bed, node_api: Api, tmp_path: Path) -> Stage:
    """Stand on this file's cluster."""
    return await staged(cluster, node_api, tmp_path, inventory={})


@asynccontextmanager
async def set_up(stage: Stage, image: str) -> AsyncIterator[Play]:
    """Have all pods run within their limits, and install the chart; what has a namespace is left to the bed's end."""
    async with AsyncExitStack() as stack:
        scenery = await stack.enter_async_context(played(stage.bed, stage.api, twelve.systems(), twelve.RESOURCES))
        work = await stack.enter_async_context(fresh_namespace(stage.api))
        unbound = await stack.enter_async_context(fresh_namespace(stage.api))
        release = await stack.enter_async_context(released(stage.bed, stage.api, stage.folder))
        control_plane, service = stage.bed.control_plane, stage.bed.node.network.api_service
        proxy = stack.enter_context(beside(lambda: proxied(control_plane.admin, control_plane.authority, service)))
        play = Play(stage, scenery, proxy, release, work, unbound)
        for name in (work, unbound):
            await label(stage, name, CONSENT)
        budgets = f"/apis/policy/v1/namespaces/{work}/poddisruptionbudgets"
        await stage.api.create(budgets, disruption_budget("guarded", {"app": "guarded"}, min_available=GUARDED))
        own = twelve.controlled()
        await create(stage, work, *own, twelve.exact(), twelve.quiet(0), *map(twelve.quiet, range(2, QUIET)))
        await create(stage, work, bare("obeying", "256MiB", twelve.LIMIT))
        await create(stage, unbound, twelve.unbound(), twelve.quiet(1))
        pods = await ready_pods(stage, work, len(own) + GUARDED - 1 + QUIET + 1)
        pods += await ready_pods(stage, unbound, 2)
        by_app: dict[str, list[Object]] = {}
        for pod in pods:
            by_app.setdefault(pod["metadata"]["labels"]["app"], []).append(pod)
        for name, pod in scenery.pods.items():
            by_app[name] = [pod]
        over = {case.name for case in (*ACTED, *HELD)}
        play.cases = {name: group for name, group in by_app.items() if name in over}
        play.innocents = [pod for name, group in by_app.items() if name not in over for pod in group]
        assert play.cases.keys() == over and len(play.innocents) == 40
        bound = [work, *(name for name in scenery.namespaces if name.startswith("team-"))]
        given = values(stage.bed, image, POLICY, evict={"namespaces": bound})
        given["config"]["sampling"]["interval"] = "1s"
        given["extraEnv"].append({"name": "KUBERNETES_SERVICE_PORT", "value": str(proxy.port)})
        release.helm("install", values=given)
        yield play


def disappears(play: Play) -> None:
    """Let the API server be away as soon as it has accepted one pod's eviction, and come back."""
    (pod,) = play.cases["server-away"]
    proxy = play.proxy

    async def accident(passing: Passing) -> web.StreamResponse:
        if passing.request.path != path_of(pod):
            proxy.faults.append(accident)
            return await passing.forward()
        await passing.forward()

        async def away() -> None:
            await proxy.leave()
            await asyncio.sleep(AWAY)
            await proxy.listen()

        tasks.append(asyncio.ensure_future(away()))
        return passing.cut()

    tasks: list[asyncio.Future[None]] = []
    proxy.faults.append(accident)


async def exceed(play: Play, pool: ThreadPoolExecutor, ended: threading.Event) -> None:
    """Let all cases exceed their limits at once, and one innocent pod, which obeys when it is warned."""
    play.exceeded_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    steady = [case for case in (*ACTED, *HELD) if case.name not in SHARES]
    for name in SHARES:
        pool.submit(play.burst, name, ended)
    await asyncio.gather(*(asyncio.to_thread(play.exceed, case) for case in steady))
    play.all_over = time.clock_gettime(time.CLOCK_BOOTTIME)
    (obeying,) = [pod for pod in play.innocents if pod["metadata"]["name"] == "obeying"]
    workload = play.stage.bed.driver.workload(uid_of(obeying))
    await asyncio.to_thread(workload.alloc, "visible", EXCESS)
    names = {(play.work, "obeying"): "obeying"}

    async def warned() -> bool:
        return bool(await events(play.stage, names))

    await until(warned, "the warning of the pod that obeys")
    await asyncio.to_thread(workload.free, "visible")
    await asyncio.to_thread(workload.alloc, "visible", 256 * MiB)


async def standings(play: Play) -> dict[str, set[tuple[str, str | None, str | None]]]:
    """State, reason and kind of all limit holders, by pod UID."""
    found: dict[str, set[tuple[str, str | None, str | None]]] = {}
    for one in (await play.document())["policy"]["standings"]:
        found.setdefault(one["pod_uid"], set()).add((one["state"], one["reason"], one["reason_kind"]))
    return found


async def come_to_their_end(play: Play) -> None:
    """Wait until each case that is acted on was evicted, and each other one is held for its reason."""
    waiting: set[str] = set()

    async def all_there() -> bool:
        await asyncio.sleep(1)
        now, states = await play.now(), await standings(play)
        tried = {one["action"]["pod_uid"] for one in play.records() if one["record"] == "intent"}
        waiting.clear()
        for case in ACTED:
            for pod in play.cases[case.name]:
                if "deletionTimestamp" not in now.get(uid_of(pod), {"metadata": {"deletionTimestamp": ""}})["metadata"]:
                    waiting.add(case.name)
        for case in HELD:
            for pod in play.cases[case.name]:
                if ("held", *(case.held or ())) not in states.get(uid_of(pod), set()):
                    waiting.add(f"{case.name} {states.get(uid_of(pod))}")
                if case.name == "guarded" and uid_of(pod) not in tried:
                    waiting.add(f"{pod['metadata']['name']} to be tried")
        return not waiting

    try:
        await until(all_there, "the twelve cases to end")
    except TimeoutError as error:
        error.add_note(f"waiting for {sorted(waiting)}\n{play.release.log()}")
        raise


async def test_the_twelve_cases_end_as_the_policy_says(stage: Stage, image: str) -> None:
    """
    All at once: eleven pods are evicted in time, seven are held for their reasons, and forty innocent pods live on.

    The journal, the audit log, the metrics and the Events say the same of it, and no Event announces what does not
    follow.
    """
    async with AsyncExitStack() as stack:
        play = await stack.enter_async_context(set_up(stage, image))
        pool, ended = stack.enter_context(ThreadPoolExecutor()), threading.Event()
        stack.callback(ended.set)
        await until(lambda: _in_earnest(play), "the daemon to enforce")
        disappears(play)
        await exceed(play, pool, ended)
        await come_to_their_end(play)
        print("\n".join(_timeline(play)))
        await _lives(play)
        with suppress(TimeoutError):  # gauges and Events are written later than what they tell
            await until(lambda: _said(play), "the page and the Events to say so")
        _held(play, await play.release.page())
        await _events(play)
        assert not (await play.document())["policy"]["breakers"], play.release.log()
        stop_file = stage.bed.folder / "run-gpusteward" / "stop"
        stop_file.touch()
        stack.callback(stop_file.unlink)
        await until(lambda: _has_stopped(play), "the daemon to observe")
        records = play.records()
        _in_time(play, records)
        _journal_and_audit_log(play, records)
        _counters(play, await play.release.page(), records)


async def _in_earnest(play: Play) -> bool:
    """Tell whether the daemon enforces, and finds every pod of every case within its limit."""
    states = await standings(play)
    pods = [pod for group in play.cases.values() for pod in group]
    ready = all({state for state, _, _ in states.get(uid_of(pod), ())} == {"ok"} for pod in pods)
    return ready and series(await play.release.page(), "enforcement_mode", "mode") == {("enforce",): 1}


async def _said(play: Play) -> bool:
    """Tell whether the gauges and the Events say what has happened."""
    try:
        _held(play, await play.release.page())
        await _events(play)
    except (AssertionError, KeyError):
        return False
    return True


async def _has_stopped(play: Play) -> bool:
    """Tell whether the stop file has stopped it, and no action is in flight."""
    idle = not any(state == "acting" for states in (await standings(play)).values() for state, _, _ in states)
    return idle and series(await play.release.page(), "enforcement_mode", "mode") == {("observe",): 1}


def _timeline(play: Play) -> Iterator[str]:
    """Say when each action began and how it ended, for a person."""
    names = {uid_of(pod): pod["metadata"]["name"] for group in play.cases.values() for pod in group}
    decided = {one["decision"]: one["action"] for one in play.records() if one["record"] == "intent"}
    for one in play.records():
        action = decided[one["decision"]]
        what = " ".join(filter(None, [one["record"], one.get("result"), (one.get("answer") or {}).get("heard")]))
        after = one["boottime"] - play.exceeded_at
        yield f"{after:7.1f} s {names.get(action['pod_uid'])} {what} {one.get('detail', '')}"


async def _lives(play: Play) -> None:
    """See that all innocent pods live in the same containers, and so do those that are held."""
    now = await play.now()
    spared = [*play.innocents, *(pod for case in HELD for pod in play.cases[case.name])]
    expected = {uid_of(pod): ("Running", 0, False) for pod in spared}
    assert lives([now[uid] for uid in expected if uid in now]) == expected
    (deaf,) = play.cases["deaf"]
    assert lives([now[uid_of(deaf)]]) == {uid_of(deaf): ("Running", 0, True)}, "evicted, and it takes its hour"


def _in_time(play: Play, records: list[dict[str, Any]]) -> None:
    """See that each action began within the documented time, and for what came before it one turn each."""
    begun = [one for one in records if one["record"] == "intent"]
    intents = [(one["boottime"] - play.exceeded_at, one["action"]["pod_uid"]) for one in begun]
    for case in ACTED:
        for pod in play.cases[case.name]:
            (at,) = [at for at, uid in intents if uid == uid_of(pod)][:1]
            bound = latest(RULES, SHARES.get(case.name, 1.0), PERIOD)
            assert bound is not None
            earlier = sum(1 for other, _ in intents if other < at)
            wait = bound + earlier * TURN + AWAY + BUSY
            assert at <= play.all_over - play.exceeded_at + wait, f"{case.name} after {at:.1f} s, bound {bound:.1f} s"
            assert at >= RULES.capacity(RULES.grace), f"{case.name} after {at:.1f} s, before its grace was over"


def _journal_and_audit_log(play: Play, records: list[dict[str, Any]]) -> None:
    """See that each request was noted before, came once, and was answered as the journal says."""
    by_decision: dict[str, list[dict[str, Any]]] = {}
    for one in records:
        by_decision.setdefault(one["decision"], []).append(one)
    sent = {decision for decision, steps in by_decision.items() if any(one["record"] == "sent" for one in steps)}
    asked = play.requests()
    assert sorted(decision for decision, _, _ in asked) == sorted(sent - _unsent(by_decision)), "each once"
    granted = Counter(path for _, path, code in asked if code == 201)
    victims = [pod for case in ACTED for pod in play.cases[case.name]]
    assert granted == Counter(map(path_of, victims))
    paths = {path_of(pod) for pod in play.cases["guarded"]}
    assert {path for _, path, code in asked if code == 429} == paths
    assert {code for _, _, code in asked} == {201, 429}
    for decision, path, code in asked:
        heard = [one["answer"]["heard"] for one in by_decision[decision] if one["record"] == "acked"]
        (away,) = play.cases["server-away"]
        wanted = "blocked" if code == 429 else "ambiguous" if path == path_of(away) else "accepted"
        assert heard[:1] == [wanted], (path, heard)


def _unsent(by_decision: Mapping[str, list[dict[str, Any]]]) -> set[str]:
    """Name the decisions whose last look ended them; `sent` stands in the journal before it."""
    return {
        decision
        for decision, steps in by_decision.items()
        if not any(one["record"] == "acked" for one in steps) and steps[-1]["record"] == "ended"
    }


def _counters(play: Play, page: str, records: list[dict[str, Any]]) -> None:
    """See that the counters say what the audit log and the journal say."""
    asked = [(path.split("/")[4], code) for _, path, code in play.requests()]
    sent = {
        namespace: count
        for (action, namespace), count in series(page, "actions_total", "action", "namespace").items()
        if action == "evict" and count
    }
    assert sent == Counter(namespace for namespace, _ in asked)
    failed = series(page, "action_failures_total", "action", "namespace", "reason")
    where = {one["decision"]: one["action"]["namespace"] for one in records if one["record"] == "intent"}
    ended = Counter((where[one["decision"]], one["result"]) for one in records if one["record"] == "ended")
    counted = {(namespace, reason): count for (_, namespace, reason), count in failed.items()}
    assert counted == {key: ended[key] for key in counted}
    results = {one["result"] for one in decided(records) if one["record"] == "ended"}
    assert results <= {"verified", "blocked", "abandoned"}, "nothing failed"


def _held(play: Play, page: str) -> None:
    """See that the gauges say what is held, and for which pods an action was due meanwhile."""
    held = series(page, "held_containers", "reason", "kind", "namespace")
    (client,) = play.cases["mps-trainer"]
    assert held["blocked", "evaded", play.work] == GUARDED
    assert held["no_rights", "unknown", play.unbound] == 1
    assert held["mps", "chosen", client["metadata"]["namespace"]] == 1
    assert series(page, "namespace_rights_missing", "namespace") == {(play.unbound,): 1}
    due: dict[tuple[str, str, str], float] = {}
    for metric, seconds in series(
        page, "due_seconds_total", "namespace", "pod", "container", "uuid", "reason", "kind"
    ).items():
        key = (metric[1], metric[4], metric[5])
        due[key] = due.get(key, 0.0) + seconds
    for case in HELD:
        assert case.held is not None
        for pod in play.cases[case.name]:
            assert due.get((pod["metadata"]["name"], *case.held), 0) > 0, f"{case.name}: {due}"
    innocents = {pod["metadata"]["name"] for pod in play.innocents}
    assert not [key for key in due if key[0] in innocents]
    over = series(page, "container_over_limit_seconds_total", "namespace", "pod", "container", "uuid")
    assert {pod for _, pod, _, _ in over} & innocents <= {"obeying"}
    (exact,) = [pod for pod in play.innocents if pod["metadata"]["name"] == "exact"]
    ceilings = series(page, "container_memory_ceiling_bytes", "namespace", "pod", "container", "uuid")
    (ceiling,) = [size for (_, name, _, _), size in ceilings.items() if name == "exact"]
    assert ceiling == twelve.TOLERANCE.above(twelve.EXACT_LIMIT) + twelve.TOLERANCE.per_process, exact


async def _events(play: Play) -> None:
    """See that each pod above its limit was warned, and that only those read of an eviction that one follows for."""
    found = (await play.stage.api.get("/apis/events.k8s.io/v1/events"))["items"]
    ours = [one for one in found if one.get("reportingController") == "gpusteward.io/gpusteward"]
    by_uid: dict[str, list[Object]] = {}
    for one in ours:
        by_uid.setdefault(one["regarding"]["uid"], []).append(one)
    asked = {path for _, path, _ in play.requests()}
    quiet = [pod for pod in play.innocents if pod["metadata"]["name"] != "obeying"]
    assert not [pod["metadata"]["name"] for pod in quiet if uid_of(pod) in by_uid]
    for case in (*ACTED, *HELD):
        for pod in play.cases[case.name]:
            mine = by_uid.get(uid_of(pod), [])
            reasons = {one["reason"] for one in mine}
            announced = [one["note"] for one in mine if FOLLOWS in one["note"]]
            assert "GPUMemoryLimitExceeded" in reasons, case.name
            assert not announced or path_of(pod) in asked, f"{case.name}: {announced}"
            assert ("GPUMemoryLimitEvicted" in reasons) == (case.held is None), f"{case.name}: {reasons}"
            if case.name in ("guarded", "unbound", "mps-trainer"):
                assert case.name == "mps-trainer" or "GPUMemoryLimitHeld" in reasons, f"{case.name}: {reasons}"
