"""Promises of exporter/web/per_round.py and exporter/api/near.py: a flood of requests costs one request a round."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from weakref import ref

import aiohttp
import pytest
from prometheus_client.core import Metric

from exporter.api import explanation
from exporter.api.near import LONGEST, NEAR, Names
from exporter.base.clock import SystemClock
from exporter.daemon import render
from exporter.metrics.exposition import Exposition
from exporter.model import PodUid, Snapshot
from exporter.rounds.latest import Latest, Tally
from exporter.web.app import Answers
from serving.node import busy, serving

FLOOD = 60
CONNECTIONS = 16


class Counting:
    """A judge that counts what it is asked."""

    def __init__(self) -> None:
        self.told: object = "first"
        self.asked: list[str] = []

    def hear(self, snapshot: Snapshot) -> None:
        raise AssertionError("no sampler runs")

    def families(self, _snapshot: Snapshot) -> Iterator[Metric]:
        return iter(())

    def summary(self) -> dict[str, Any] | None:
        self.asked.append("summary")
        return {"mode": "observe"}

    def decisions(self) -> dict[str, Any]:
        self.asked.append("decisions")
        return {"recent": []}

    def preview(self) -> dict[str, Any] | None:
        self.asked.append("preview")
        return {"would_act_on": []}

    def standings(self, _pod: PodUid) -> list[dict[str, Any]]:
        return []

    def actions(self, _namespace: str, _pod: str) -> list[dict[str, Any]]:
        return []


async def flood(url: str, *paths: str) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session:

        async def ask(path: str) -> None:
            async with session.get(f"{url}{path}") as answer:
                assert answer.status in {200, 404}
                assert (await answer.json()) is not None

        await asyncio.gather(*(ask(path) for path in paths * (FLOOD // len(paths))))


async def test_documents_are_made_once_a_round() -> None:
    """However many ask; a new round, and for what was decided a new decision, make them anew."""
    judge = Counting()
    paths = ("/api/v1/preview", "/api/v1/decisions", "/api/v1/snapshot")
    async with serving(busy(), judge=judge) as (server, latest):
        await flood(server.url, *paths)
        assert sorted(judge.asked) == ["decisions", "preview", "summary"]
        judge.told = "another decision"
        await flood(server.url, *paths)
        assert sorted(judge.asked) == ["decisions", "decisions", "preview", "summary", "summary"]
        latest.publish(busy(), Tally())
        await flood(server.url, *paths)
        assert judge.asked.count("preview") == 2


async def test_an_earlier_round_is_forgotten() -> None:
    """A request once a day must not keep a snapshot and its documents until the next; those of a round stay in it."""

    class Document:
        pass

    latest, clock = Latest(), SystemClock()
    exposition = Exposition(latest, node="gpu-node-1", version="1.2.3")
    answers = Answers(latest, exposition, interval=lambda: 5.0, clock=clock, program="x", started=0.0)
    latest.publish(replace(busy(), round=1), Tally())
    rendering = asyncio.create_task(render(latest, exposition, answers))
    assert latest.snapshot is not None
    kept = ref(answers.documents.get(latest.snapshot, "snapshot", Document))
    await asyncio.sleep(0)
    assert kept() is not None
    latest.publish(replace(busy(), round=2), Tally())
    async with asyncio.timeout(10):
        while kept() is not None:
            await asyncio.wait({rendering}, timeout=0.001)
            assert not rendering.done()
    rendering.cancel()


async def test_names_are_taken_apart_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request asks for another pod that does not exist, and gets its suggestions."""
    made: list[Snapshot] = []
    of = explanation.gpu_users

    def counted(snapshot: Snapshot) -> Names:
        made.append(snapshot)
        return of(snapshot)

    monkeypatch.setattr("exporter.web.app.gpu_users", counted)
    async with serving(busy()) as (server, _):
        await flood(server.url, *(f"/api/v1/explain?namespace=research&pod=llama-{number}" for number in range(1, 50)))
    assert len(made) == 1


async def test_a_flood_leaves_turns_for_the_last_look() -> None:
    """What the daemon does beside the flood (a last look takes some 50 turns of the event loop) ends within it."""
    judge = Counting()
    async with serving(busy(), judge=judge) as (server, _):
        flooding = asyncio.create_task(flood(server.url, "/api/v1/preview", "/api/v1/explain?namespace=n&pod=x"))
        async with asyncio.timeout(3):  # after which a last look is too late
            for _ in range(50):
                await asyncio.sleep(0)
        assert not flooding.done()
        await flooding


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("research/lama-0", ("research/llama-0",)),
        ("notebooks/llama-0", ("research/llama-0", "notebooks/anna")),
        ("nowhere/zzz", ()),
        ("research/" + "llama-0" * 100, ()),
    ],
)
def test_names_that_are_near(wanted: str, near: tuple[str, ...]) -> None:
    """A typing error, or another namespace; nothing for what is like none, or longer than any name."""
    assert Names.of(["research/llama-0", "notebooks/anna"]).near(wanted) == near


def test_few_names_are_suggested() -> None:
    """Of many alike the most alike."""
    names = Names.of([f"team/worker-{number}" for number in range(100)])
    found = names.near("team/worker-100")
    assert len(found) == NEAR and found[0] == "team/worker-10"
    assert names.near("x" * (LONGEST + 1)) == ()
