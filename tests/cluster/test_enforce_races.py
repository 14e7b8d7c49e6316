"""
What happens between the decision and the call, on the real cluster: the last look sees it, or the API server does.

In: pods over their limit that are all due. While a request of the daemon waits in a proxy, one of them changes. Out:
the journal and the audit log say why it was spared; it lives, or something other than the daemon ended it. Law: of all
these pods only the one that did not change is evicted.

Each has a daemon of its own, which acts where a label of its own consents: so half of the graces run at once.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Any

import pytest

from cluster.client import ApiError, until
from cluster.fixtures import fresh_namespace
from cluster.offering import replicas
from cluster.proxy import proxied
from cluster.races import EVACUATES, NO, Race, made_anew, races
from cluster.stage import SHARED, Stage, ready_pods
from cluster.test_decide import GRANT, bare, create, deployment, label, lives
from cluster.test_enforce import enforcing
from cluster.webhook import webhook
from daemon.running import Daemon

pytestmark = pytest.mark.cluster

FEW: dict[str, Any] = {"trigger": "limit", "admission": "ignore"}
MANY = 32
"""Replicas of the shared GPU: each race has two pods, and some are made anew."""


def started(race: Race, port: int) -> Daemon:
    """Start its daemon, which asks through the proxy."""
    ladder, consent = ["notify", race.ladder], {"label": f"{race.consent}=yes"}
    return enforcing(race.stage, race.name, port=port, ladder=ladder, namespaces=consent, **FEW)


async def anew_from_zero(race: Race, daemon: Daemon) -> None:
    """The pod that has the name now is warned anew: it has a grace of its own."""
    first = race.records()[0]
    before = first["action"]["pod_uid"], first["action"]["container_id"]

    def told() -> bool:
        found = [one for one in daemon.snapshot()["policy"]["standings"] if one["namespace"] == race.namespace]
        mine = [one for one in found if one["pod"] == race.victim["metadata"]["name"] and one["state"] == "grace"]
        others = [one for one in mine if (one["pod_uid"], one["container_id"]) != before]
        return any(one["over_since"] > first["time"] for one in others)

    await until(lambda: asyncio.to_thread(told), f"{race.name}: a grace from its beginning")


async def moves_away(race: Race, _: Daemon) -> None:
    """The pod is ended from outside, as its webhook promised."""

    async def promised() -> bool:
        return any(one.get("answer", {}).get("heard") == "evacuating" for one in race.records())

    await until(promised, "the promise to be heard")
    await race.stage.api.delete(race.pod)


async def concluded(race: Race, daemon: Daemon) -> str:
    """See its first action to the end, and what follows; then nothing more comes of its daemon."""
    if race.name == "evacuated":
        await moves_away(race, daemon)

    async def ended() -> str:
        return race.end()

    end = await until(ended, f"{race.name}: an end")
    if race.happens is made_anew:
        await anew_from_zero(race, daemon)
    await asyncio.to_thread(daemon.stop)
    return end


async def set_up(stage: Stage, stack: AsyncExitStack, race: Race) -> None:
    """Have its two pods run, in a namespace of its own."""
    race.stage, race.namespace = stage, await stack.enter_async_context(fresh_namespace(stage.api))
    await label(stage, race.namespace, {race.consent: "yes", **GRANT})
    bystander = bare("bystander", "512MiB", "1Gi")
    bystander["metadata"]["labels"] = {"app": "greedy"}
    await create(stage, race.namespace, race.victims(), bystander)


async def look(race: Race) -> None:
    """Wait for its pods."""
    for one in await ready_pods(race.stage, race.namespace, 2):
        if one["metadata"]["name"] == "bystander":
            race.bystander = one
        else:
            race.victim = one


async def clear(race: Race) -> None:
    """Have its pods gone."""
    with suppress(ApiError):  # it may be going, or gone, already
        await race.stage.api.delete(f"/api/v1/namespaces/{race.namespace}")
    await race.stage.api.delete(race.pods)

    async def empty() -> bool:
        return not (await race.stage.api.get(race.pods))["items"]

    await until(empty, f"no pod left in {race.namespace}")


@pytest.mark.fault(8, 12, 16, 17, 20, 38, 39, 41, 58, 66)
async def test_what_happens_between_decision_and_call_is_seen(stage: Stage, namespace: str) -> None:
    """
    Eleven pods over their limit, all due; one is evicted, and each other one changes in its own way in the last moment.

    Two are made anew under their name, before the look and after it. One's namespace takes its consent back, one is
    exempted, one frees its memory, one's work is done, one's namespace is deleted, one's container restarts. For one a
    webhook says no; for another one a webhook moves the pod away by itself. The journal has the reason, the audit log
    no eviction beyond that; all others live.
    """
    await stage.enforcing()
    await stage.unguard()
    all_races = races()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(replicas(stage.bed, stage.api, SHARED, MANY))
        plane = stage.bed.control_plane
        proxy = await stack.enter_async_context(proxied(plane.admin, plane.authority))
        await stack.enter_async_context(stage.as_pod())
        await create(stage, namespace, deployment("quiet", "512MiB", "1Gi", replicas=3))  # else too many are over
        for race in all_races:
            await set_up(stage, stack, race)
            stack.push_async_callback(clear, race)
        for race in all_races:
            await look(race)
        await ready_pods(stage, namespace, 3)
        await stage.may_evict(*(race.namespace for race in all_races))
        by_name = {race.name: race for race in all_races}
        by_namespace = {race.namespace: race for race in all_races}

        async def before(path: str) -> None:
            race = by_namespace.get(path.removeprefix("/api/v1/namespaces/").partition("/")[0])
            if race is not None:
                await race.before(path)

        proxy.before = before
        refused, evacuated = by_name["refused"].namespace, by_name["evacuated"].namespace
        hooked = webhook(stage.bed, stage.api, refused=(refused, 403, NO), evacuated=(evacuated, 429, EVACUATES))
        await stack.enter_async_context(hooked)
        told: dict[str, str] = {}
        for some in (all_races[::2], all_races[1::2]):  # two cores are too few for eleven daemons that look at once
            with ExitStack() as running:
                daemons = [running.enter_context(started(race, proxy.port)) for race in some]
                ends = await asyncio.gather(*map(concluded, some, daemons))
            told |= {race.name: end for race, end in zip(some, ends, strict=True)}
        wrong = [one for one in all_races if not any(words in told[one.name] for words in one.expected)]
        assert not wrong, "\n".join(f"{one.name}: {told[one.name]}, expected {one.expected}" for one in wrong)
        assert all(race.happened for race in all_races)
        await asked_for(stage, by_name)
        await who_lives(by_name)


async def asked_for(stage: Stage, by_name: dict[str, Race]) -> None:
    """See which evictions were asked for, and what was answered."""
    wanted = {"nothing": {201}, "anew-after": {409}, "namespace": {403}, "refused": {403}, "evacuated": {429}}
    names = {race.namespace: name for name, race in by_name.items()}

    async def written() -> dict[str, set[int]] | None:
        found: dict[str, set[int]] = {}
        for one in stage.requests():
            if one["objectRef"].get("subresource") == "eviction" and one["objectRef"]["namespace"] in names:
                found.setdefault(names[one["objectRef"]["namespace"]], set()).add(one["responseStatus"]["code"])
        return found if found.keys() >= wanted.keys() else None

    assert await until(written, "the evictions in the audit log") == wanted


async def who_lives(by_name: dict[str, Race]) -> None:
    """See which pods live, and that none of them was touched."""
    others = {"finished": ("Succeeded", 0, False), "restarted": ("Running", 1, False)}
    for name, race in by_name.items():
        now = {one["metadata"]["uid"]: one for one in (await race.stage.api.get(race.pods))["items"]}
        untouched = [] if name == "namespace" else [now[race.bystander["metadata"]["uid"]]]
        if race.happens is made_anew:
            untouched += [one for one in now.values() if one["metadata"]["name"] == race.victim["metadata"]["name"]]
        if name in ("nothing", "evacuated") or race.happens is made_anew:
            assert race.uid not in now or "deletionTimestamp" in now[race.uid]["metadata"], name
        elif name != "namespace":
            assert [*lives([now[race.uid]]).values()] == [others.get(name, ("Running", 0, False))], name
        assert set(lives(untouched).values()) <= {("Running", 0, False)}, name
        assert len(untouched) == (name != "namespace") + (race.happens is made_anew), name
