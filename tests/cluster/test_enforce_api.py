"""
A daemon in mode enforce whose API server answers wrongly, late or not at all, at each step of an action.

In: a proxy before the real API server that has accidents, and in the second act an API server that is killed. Out:
journals, the audit log, the pods that live. Law: whatever is heard, the server is asked once. A test that something did
not happen waits for what the daemon recorded in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiohttp import web

from cluster.bed import Bed
from cluster.client import until
from cluster.proxy import Fault, Hold, Passing
from cluster.stage import API_AWAY, ENFORCER, in_force
from cluster.stories import Others, Part, Stories, logs, named
from daemon.running import Daemon
from enforcer.actions.notify.actuator import CONTROLLER

pytestmark = pytest.mark.cluster

STORIES = Stories()
UNHEARD = ("intent", "sent", "acked ambiguous", "acked accepted", "ended verified")
"""No answer was heard, and a look has confirmed that it was carried out."""


async def acting(part: Part) -> Daemon:
    """Start a daemon, let it be ready, and have its victim exceed when all are."""
    daemon = part.start()
    await part.armed(daemon)
    await part.exceed()
    return daemon


@STORIES.showing(3)
async def cut_after_it_was_done(part: Part) -> None:
    """Nothing was heard: not asked again, and the effect is seen."""
    part.proxy.faults.append(Fault(forward=True))
    await acting(part)
    await part.told(*UNHEARD)
    await part.gone()
    await part.evictions(201)
    assert len(part.proxy.posts) == 1


@STORIES.showing(15)
async def timed_out_after_it_was_done(part: Part) -> None:
    """A 504 of something between: the same."""
    part.proxy.faults.append(Fault(True, 504, "upstream timed out"))
    await acting(part)
    await part.told(*UNHEARD)
    await part.gone()
    await part.evictions(201)
    assert len(part.proxy.posts) == 1


@STORIES.showing(6)
async def too_many_requests(part: Part) -> None:
    """Fairness's no is no budget's: it failed, which no breaker and no PodDisruptionBudget is made of."""
    busy = Fault(False, 429, "Too many requests, please try again later.\n", {"Retry-After": "1"})
    part.proxy.faults += [busy] * 100  # it is asked again each few seconds
    daemon = await acting(part)
    (*_, heard, ended) = await part.first("intent", "sent", "acked failed", "ended failed")
    assert (heard["answer"]["status"], heard["answer"]["retry_after"]) == (429, 1.0)
    assert "Too many requests" in ended["detail"]
    snapshot = await asyncio.to_thread(daemon.snapshot)
    assert snapshot["policy"]["breakers"] == []
    await part.unharmed()
    await part.evictions()


@STORIES.showing(8, 17, victim=named)
async def made_anew_under_its_name(part: Part) -> None:
    """While the request is on its way the pod is replaced: 409, and the one that has the name now lives."""
    request = Hold(after=False)
    part.proxy.faults.append(request)
    await acting(part)
    await part.reached(request)
    await part.stage.api.delete(part.path, gracePeriodSeconds=0)

    async def another() -> bool:
        there = not await part.stage.api.missing(part.path)
        return there and bool((await part.stage.api.get(part.path))["metadata"]["uid"] != part.uid)

    await until(another, "another pod of that name")  # a request that is held for 40 s is given up
    request.opened.set()
    (*_, heard, _) = await part.told("intent", "sent", "acked changed", "ended abandoned")
    now = await part.successor()
    assert now["metadata"]["name"] == part.victim["metadata"]["name"]
    assert heard["answer"]["status"] == 409
    await part.evictions(409)
    part.victim = now
    await part.unharmed()


@STORIES.showing(9)
async def gone_before_it_was_asked_for(part: Part) -> None:
    """While the request is on its way a user takes the pod away: 404, no success, and no other pod goes instead."""
    request = Hold(after=False)
    part.proxy.faults.append(request)
    daemon = await acting(part)
    await part.reached(request)
    name = part.victim["metadata"]["labels"]["app"]
    deployment = f"/apis/apps/v1/namespaces/{part.namespace}/deployments/{name}"
    await part.stage.api.patch(deployment, {"spec": {"replicas": 0}})
    await part.stage.api.delete(part.path, gracePeriodSeconds=0)  # a request that is held for 40 s is given up
    await part.gone()
    request.opened.set()
    (*_, heard, _) = await part.told("intent", "sent", "acked gone", "ended abandoned")
    assert heard["answer"]["status"] == 404
    await logs(daemon, "enforcer.request_result", result="abandoned")
    await part.evictions(404)


@STORIES.showing(18, 58)
async def changed_behind_a_silent_watch(part: Part) -> None:
    """The watch is open and says nothing; its pod asks to be left alone meanwhile: the last look sees that."""
    daemon = part.start()
    await part.armed(daemon)
    await part.exceed()
    name = part.victim["metadata"]["name"]
    await logs(daemon, "enforcer.grace", pod=name)
    part.proxy.hearing.clear()
    asked = {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}}
    await part.stage.api.patch(part.path, asked)
    (*_, ended) = await part.first("intent", "sent", "ended abandoned")
    assert ended["detail"] == "declaration_changed"
    await part.unharmed()
    await part.evictions()


@STORIES.showing(21)
async def refused_with_an_old_token(part: Part) -> None:
    """Refused with 401, and there is another token by then: asked again with that, as the same decision."""

    async def refuse(_: Passing) -> web.Response:
        await part.stage.rotate()
        return web.Response(status=401, text="Unauthorized")

    part.proxy.faults.append(refuse)
    await acting(part)
    (intent, *_) = await part.told("intent", "sent", "acked accepted", "ended verified")
    await part.gone()
    await part.evictions(201)
    assert part.proxy.posts == [(f"{part.path}/eviction", intent["decision"])] * 2


@STORIES.showing(69)
async def nobody_could_be_told(part: Part) -> None:
    """No Event can be written: the action is the same, and the journal has it."""
    part.proxy.telling = Fault(False, 500, "no room for Events")
    daemon = await acting(part)
    await part.told("intent", "sent", "acked accepted", "ended verified")
    await part.gone()
    await part.evictions(201)
    assert (await logs(daemon, "notify.away"))["status"] == 500
    written = (await part.stage.api.get(f"/apis/events.k8s.io/v1/namespaces/{part.namespace}/events"))["items"]
    ours = [one["regarding"]["uid"] for one in written if one.get("reportingController") == CONTROLLER]
    assert ours and part.uid not in ours, "the other stories' victims were told"


@STORIES.finale(1, 2, 3, 59, parts=4)
async def the_server_is_away(parts: Sequence[Part], others: Others) -> None:
    """
    Killed with four actions on their way, each one step further.

    In its grace: held, and when the server is back looked at and evicted. After the last look: the request finds no
    server, it failed, and when the server is back the pod is evicted by a new decision. After the request: ambiguous,
    and when the server is back the effect is seen. And the stop file holds one between look and request without any
    server.
    """
    early, refused, lost, stopped = parts
    control_plane, node = early.stage.bed.control_plane, early.stage.bed.node
    looked = [refused.look(after=True), stopped.look(after=True)]
    asked, back = Hold(after=True), asyncio.Event()

    async def cut(passing: Passing) -> web.Response:
        await asked(passing)
        return passing.cut()

    async def until_back(_: str) -> None:
        await back.wait()

    lost.proxy.faults.append(cut)
    waiting = early.start(grace="55s")
    daemons = [part.start() for part in parts[1:]]
    for part, daemon in zip(parts, [waiting, *daemons], strict=True):
        await part.armed(daemon)
    await others.ended.wait()
    await asyncio.gather(*(part.exceed() for part in parts[1:]))
    for daemon in daemons:
        await logs(daemon, "enforcer.grace")
    await early.exceed()
    await asyncio.gather(*map(Part.reached, (refused, stopped, lost), (*looked, asked)))
    early.proxy.before = until_back
    await asyncio.to_thread(control_plane.kill_api_server)
    try:
        await refused.proxy.shut()
        stopped.stop_file.touch()
        for hold in (*looked, asked):
            hold.opened.set()
        await refused.told("intent", "sent", "acked failed", "ended failed")
        await lost.told("intent", "sent", "acked ambiguous")
        (*_, ended) = await stopped.told("intent", "sent", "ended abandoned")
        assert ended["detail"] == "stopped"
        await early.held(waiting, *API_AWAY)
        assert not [one for one in early.records() if one["record"] == "intent"]
        assert not refused.proxy.posts and not stopped.proxy.posts
    finally:
        await asyncio.to_thread(control_plane.start_api_server)
        await refused.proxy.listen()
    # A server that was just started refuses until it has read its roles: till then it is away for this one.
    may = {"resource": "pods", "subresource": "eviction", "verb": "create", "namespace": early.namespace}
    await in_force(early.stage.api, ENFORCER, **may)
    back.set()
    await early.evictions(201)
    await asyncio.to_thread(node.restart_kubelet)  # by itself it may take a minute to come back
    await early.told("intent", "sent", "acked accepted", "ended verified")
    await lost.told(*UNHEARD)
    await lost.gone()
    await lost.evictions(201)
    await refused.gone()
    await refused.evictions(201)
    await stopped.unharmed()
    await stopped.evictions()


@pytest.fixture(scope="module")
def ends(cluster: Bed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, BaseException | None]:
    """How each story went."""
    return STORIES.play(cluster, tmp_path_factory.mktemp("stories"))


@pytest.mark.parametrize("story", STORIES.marked)
def test_what_comes_of_an_accident(ends: dict[str, BaseException | None], story: str) -> None:
    """What the story of this name promises."""
    if (wrong := ends[story]) is not None:
        raise wrong
