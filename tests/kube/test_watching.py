"""The loop of list and watch, against a server that does what real ones do seldom."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from exporter.base.clock import Clock, SystemClock
from exporter.kube.client import Client
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.watching import Patience, PodWatch
from sources.kube_api import Server, bookmark, event, kubeconfig, listing, pod, refusal, serving, status, until

HURRIED = Patience(first=0.01, most=0.05, watch=(60, 60), idle=5.0)
CLOCK = SystemClock()
LOT = Random(1)


class Pods:
    """The pods resource: a list, and watches into which a test writes. What is put in `refusals` is answered first."""

    def __init__(self) -> None:
        self.list = listing(pod(), version="10")
        self.refusals: list[web.Response] = []
        self.watch_refusals: list[web.Response] = []
        self.watches: list[web.StreamResponse] = []
        self._ends: list[asyncio.Event] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        watching = "watch" in request.query
        refusals = self.watch_refusals if watching else self.refusals
        if refusals:
            return refusals.pop(0)
        if not watching:
            return web.Response(body=self.list)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        end = asyncio.Event()
        self.watches.append(response)
        self._ends.append(end)
        await end.wait()
        return response

    async def say(self, line: bytes) -> None:
        """Write a line into the newest watch."""
        await self.watches[-1].write(line + b"\n")

    def end(self) -> None:
        """End the newest watch as the server does when its time is over."""
        self._ends[-1].set()

    def cut(self) -> None:
        """Reset the connection of the newest watch."""
        request = self.watches[-1]._req
        assert request is not None
        assert request.transport is not None
        request.transport.abort()


@asynccontextmanager
async def watching(
    server: Server,
    folder: Path,
    *,
    patience: Patience = HURRIED,
    clock: Clock = CLOCK,
    random: Random = LOT,
) -> AsyncIterator[PodWatch]:
    """A watch that runs."""
    client = Client(from_kubeconfig(kubeconfig(folder / "config", server.url)), clock=SystemClock(), deadline=2.0)
    watch = PodWatch(client, "n1", clock=clock, random=random, patience=patience)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


def asked(server: Server) -> list[tuple[str, str]]:
    """List and watch requests with the version they asked for."""
    return [("watch" if "watch" in seen.query else "list", seen.query["resourceVersion"]) for seen in server.seen]


async def test_it_lists_from_memory_and_watches_from_there(tmp_path: Path) -> None:
    """The first list asks for any version, which costs the server little; the watch goes on from the list's."""
    api = Pods()
    async with serving(api.answer) as server, watching(server, tmp_path) as watch:
        await until(lambda: api.watches)
        await until(lambda: watch.live)
        assert set(watch.pods.known) == {"uid-1"}
        assert asked(server) == [("list", "0"), ("watch", "10")]
        assert {seen.query["fieldSelector"] for seen in server.seen} == {"spec.nodeName=n1"}


async def test_events_and_bookmarks_move_on(tmp_path: Path) -> None:
    """A watch that ended is resumed from the last event or bookmark, without a new list."""
    api = Pods()
    async with serving(api.answer) as server, watching(server, tmp_path) as watch:
        await until(lambda: api.watches)
        await api.say(event("ADDED", pod("q", "uid-2", version="11")))
        await until(lambda: len(watch.pods.known) == 2)
        await api.say(bookmark("500"))
        await until(lambda: watch.pods.version == "500")
        api.end()
        await until(lambda: len(api.watches) == 2)
        assert asked(server) == [("list", "0"), ("watch", "10"), ("watch", "500")]
        assert watch.live


async def test_a_cut_watch_is_resumed_and_nobody_notices(tmp_path: Path) -> None:
    """A reset connection loses nothing: the next watch begins at the last version, and the names stay live."""
    api = Pods()
    async with serving(api.answer) as server, watching(server, tmp_path) as watch:
        await until(lambda: api.watches)
        await until(lambda: watch.live)
        api.cut()
        await until(lambda: len(api.watches) == 2)
        assert asked(server)[1:] == [("watch", "10"), ("watch", "10")]
        assert watch.live


@pytest.mark.fault(19)
@pytest.mark.parametrize("as_event", [True, False])
async def test_410_lists_anew(tmp_path: Path, *, as_event: bool) -> None:
    """A version that the server forgot leads to a list that is not older than what is known, and what is gone goes."""
    api = Pods()
    async with serving(api.answer) as server, watching(server, tmp_path) as watch:
        await until(lambda: api.watches)
        api.list = listing(pod("q", "uid-2"), version="90")
        if as_event:
            await api.say(event("ERROR", status(410, "Expired")))
        else:
            api.watch_refusals.append(refusal(410, "Expired"))
        api.end()
        await until(lambda: len(api.watches) == 2)
        assert asked(server)[-2:] == [("list", "10"), ("watch", "90")]
        assert (set(watch.pods.known), set(watch.pods.departed)) == ({"uid-2"}, {"uid-1"})
        assert watch.live


@pytest.mark.parametrize("line", [event("ERROR", status(500, "InternalError")), b"{"])
async def test_what_the_server_cannot_send_is_listed(tmp_path: Path, line: bytes) -> None:
    """An object that breaks the watch breaks it each time: the pods that come after it are found by a list."""
    api = Pods()
    with capture_logs() as logs:
        async with serving(api.answer) as server, watching(server, tmp_path) as watch:
            await until(lambda: api.watches)
            api.list = listing(pod("q", "uid-2"), version="90")
            await api.say(line)
            api.end()
            await until(lambda: len(api.watches) == 2)
            assert asked(server)[-2:] == [("list", "10"), ("watch", "90")]
            assert watch.live and set(watch.pods.known) == {"uid-2"}
    assert [one["event"] for one in logs if one["event"].startswith("kube.")] == ["kube.away", "kube.back"]


@pytest.mark.fault(19)
async def test_what_a_server_forgot_is_not_live_until_it_is_listed(tmp_path: Path) -> None:
    """After an outage the watch opens and says 410: what is known is old, and to list it needs no long wait."""
    api = Pods()
    waits: list[int] = []

    class Counting(Patience):
        def wait(self, failures: int, random: Random, retry_after: float | None = None) -> float:
            waits.append(failures)
            return 0.01

    patience = Counting(watch=(60, 60), idle=5.0)
    async with serving(api.answer) as server, watching(server, tmp_path, patience=patience) as watch:
        await until(lambda: api.watches)
        api.watch_refusals.extend(refusal(503, "ServiceUnavailable") for _ in range(10))
        api.end()
        await until(lambda: len(api.watches) == 2)
        await api.say(event("ERROR", status(410, "Expired")))
        api.end()
        await until(lambda: not watch.live)
        await until(lambda: watch.live)
        assert max(waits) >= 10 and waits[-1] == 1, "the outage made it patient; the forgotten version does not"


async def test_a_list_that_is_forgotten_too_asks_for_the_newest(tmp_path: Path) -> None:
    """When not even the list has that version, the newest is asked for."""
    api = Pods()
    async with serving(api.answer) as server, watching(server, tmp_path):
        await until(lambda: api.watches)
        api.watch_refusals.append(refusal(410, "Expired"))
        api.refusals.append(refusal(410, "Expired"))
        api.end()
        await until(lambda: len(api.watches) == 2)
        assert asked(server)[2:] == [("watch", "10"), ("list", "10"), ("list", ""), ("watch", "10")]


async def test_a_server_that_fell_back_is_listed_anew(tmp_path: Path) -> None:
    """An etcd restored from a backup never came as far as we are: what it has now is the truth."""
    api = Pods()
    async with serving(api.answer) as server, watching(server, tmp_path) as watch:
        await until(lambda: api.watches)
        api.watch_refusals.append(refusal(504, "Timeout", causes=("ResourceVersionTooLarge",)))
        api.list = listing(version="3")
        api.end()
        await until(lambda: len(api.watches) == 2)
        assert asked(server)[-2:] == [("list", ""), ("watch", "3")]
        assert watch.pods.known == {}


@pytest.mark.fault(18)
async def test_a_silent_watch_is_followed_by_a_list(tmp_path: Path) -> None:
    """To a version of the future a real server says nothing at all; a list finds it out."""
    api = Pods()
    patience = replace(HURRIED, idle=0.3)
    async with serving(api.answer) as server, watching(server, tmp_path, patience=patience) as watch:
        await until(lambda: api.watches)
        api.refusals += [refusal(504, "Timeout", causes=("ResourceVersionTooLarge",)), refusal(500, "InternalError")]
        api.list = listing(version="3")
        await until(lambda: watch.error is not None)
        await until(lambda: len(api.watches) == 2)
        assert asked(server)[1:6] == [("watch", "10"), ("list", "10"), ("list", ""), ("list", ""), ("watch", "3")]
        assert watch.pods.known == {}


async def test_a_silent_watch_of_a_server_that_answers_is_no_outage(tmp_path: Path) -> None:
    """In a cluster where nothing changes, etcd may give no reason for a bookmark: the pods are listed and stay live."""
    api = Pods()
    patience = replace(HURRIED, idle=0.3)
    with capture_logs() as logs:
        async with serving(api.answer) as server, watching(server, tmp_path, patience=patience) as watch:
            await until(lambda: len(api.watches) == 3)
            assert watch.live
        assert asked(server)[:5] == [("list", "0"), ("watch", "10"), ("list", "10"), ("watch", "10"), ("list", "10")]
    assert "kube.away" not in [line["event"] for line in logs]


@pytest.mark.parametrize("code", [429, 500, 503, 504, 403, 401])
async def test_a_refusing_server_is_away_until_it_answers(tmp_path: Path, code: int) -> None:
    """Whatever it refuses with, the pods stay, marked as not live; when it answers again, the watch just goes on."""
    api = Pods()
    async with serving(api.answer) as server, watching(server, tmp_path) as watch:
        await until(lambda: api.watches)
        await until(lambda: watch.live)
        api.watch_refusals += [refusal(code, "Refused") for _ in range(20)]
        api.end()
        await until(lambda: not watch.live)
        assert watch.error is not None
        assert watch.error.status == code
        assert set(watch.pods.known) == {"uid-1"}
        api.watch_refusals.clear()
        await until(lambda: watch.live)
        assert {kind for kind, _ in asked(server)[1:]} == {"watch"}, "it was never listed again"


async def test_a_first_list_is_tried_until_it_comes(tmp_path: Path) -> None:
    """A daemon that starts while the server is away knows no pods, says why, and lists them once the server is back."""
    api = Pods()
    api.refusals += [refusal(503, "ServiceUnavailable") for _ in range(3)]
    async with serving(api.answer) as server, watching(server, tmp_path) as watch:
        await until(lambda: watch.error is not None)
        assert not watch.known
        await until(lambda: watch.live)
        assert asked(server)[:4] == [("list", "0")] * 4


async def test_nonsense_is_no_empty_node(tmp_path: Path) -> None:
    """An answer that is no list (a login page of a proxy) changes nothing."""
    api = Pods()
    api.list = b"<html>please log in</html>"
    async with serving(api.answer) as server, watching(server, tmp_path) as watch:
        await until(lambda: watch.error is not None)
        assert (watch.known, watch.error.reason if watch.error else "") == (False, "Invalid")
        api.list = listing(pod())
        await until(lambda: watch.live)


class NoWaiting(SystemClock):
    """A clock that notes what was to be waited for, and does not wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


class Longest(Random):
    """A lot that always draws the longest wait."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


async def test_a_server_that_ends_each_watch_is_not_pestered(tmp_path: Path) -> None:
    """A watch that ends as soon as it began makes the waits grow as a failure does."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=listing(pod())) if "watch" not in request.query else web.Response()

    clock = NoWaiting()
    patience = Patience(first=1.0, most=30.0, watch=(60, 60))
    async with serving(answer) as server, watching(server, tmp_path, patience=patience, clock=clock, random=Longest()):
        await until(lambda: len(clock.waits) >= 7)
    assert clock.waits[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_waits_grow_are_bounded_and_differ() -> None:
    """The bound doubles up to `most`, whatever the number of failures; the wait is drawn by lot."""
    patience = Patience(first=1.0, most=30.0)
    random = Random(7)
    for failures, bound in [(1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (10**9, 30.0)]:
        waits = [patience.wait(failures, random) for _ in range(1000)]
        assert 0.0 <= min(waits) < bound * 0.1
        assert bound * 0.9 < max(waits) <= bound


def test_a_server_that_asks_for_time_gets_it() -> None:
    """Retry-After is waited for in any case, up to a minute: a server may not silence us for a day."""
    patience = Patience(first=1.0, most=30.0)
    waits = [patience.wait(1, Random(seed), 5.0) for seed in range(100)]
    assert min(waits) >= 5.0 and max(waits) <= 6.0
    assert patience.wait(1, Random(1), 86400.0) <= 61.0
