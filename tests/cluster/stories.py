"""
Stories of mode enforce, played at the same time: each has a victim of its own, and a daemon behind a proxy of its own.

In: stories. Out: how each of them went; the test of its name reports a story that failed. Law: the victim of one story
is protected, by a label, from the daemons of all others, so that they share a node and its time. No grace is shorter
than 30 s. Beside them stands a bystander that no label protects, and that lives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from cluster.bed import Bed
from cluster.client import Object, until
from cluster.fixtures import fresh_namespace
from cluster.manifests import controller
from cluster.offering import replicas
from cluster.proxy import Hold, Look, Proxy, proxied
from cluster.stage import RUN, SHARED, Stage, ready_pods, spec, staged
from cluster.test_decide import CONSENT, bare, create, declaring, label, lives, logged
from daemon.running import Daemon
from driver.node import MiB
from enforcer.journal.records import decode
from journals import decided
from patience import PATIENCE
from scraped import series

TIMES = {"warn_after": "5s", "grace": "30s", "hold_off": "0s", "spacing": "10s"}
ONCE = {"budgets": {"node": "1/24h", "namespace": "1/24h"}}
"""One action, so that its spent token is seen."""
LIMIT, EXCESS = "512Mi", 1536 * MiB


class Part:
    """What one story has: its victim, a proxy before the API server, a journal, and daemons."""

    def __init__(self, name: str, stage: Stage, namespace: str, proxy: Proxy, stack: AsyncExitStack) -> None:
        self.name, self.stage, self.namespace, self.proxy = name, stage, namespace, proxy
        self.victim: Object = {}
        self.spared: Mapping[str, str] = {}
        """Labels of the other stories' victims."""
        self._stack = stack
        self.folder = stage.folder / name
        self.folder.mkdir(mode=0o700)
        self.state = self.folder / "state"
        self.journal = self.state / "journal"
        self.stop_file = self.folder / "stop"
        self.enter: Sequence[str] = ()
        """Words before the daemon's command."""

    @property
    def uid(self) -> str:
        return str(self.victim["metadata"]["uid"])

    @property
    def path(self) -> str:
        """Where the victim is, in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.victim['metadata']['name']}"

    def start(self, **policy: object) -> Daemon:
        """Start a daemon in mode enforce; one that is there already goes on."""
        files = {"stop_file": str(self.stop_file), "journal": str(self.state / "journal")}
        protect = {"protect": {"labels": self.spared}}
        written = {**TIMES, **files, **protect, "trigger": "limit", "admission": "ignore", **ONCE, **policy}
        config = self.folder / "config.yaml"
        config.write_text(json.dumps({"policy": written}))
        flags = (f"--config={config}", "--sampling.interval=2s", "--mode=enforce")
        daemon = self.stage.daemon(*flags, command=RUN, port=self.proxy.port, enter=self.enter)
        self._stack.enter_context(daemon)
        return daemon

    async def exceed(self) -> None:
        """Let the victim take more than its limit."""
        await asyncio.to_thread(self.stage.bed.driver.workload(self.uid).alloc, "visible", EXCESS)

    async def end(self) -> None:
        """Let the victim end by itself."""
        await asyncio.to_thread(self.stage.bed.driver.workload(self.uid).exit)

    async def successor(self) -> Object:
        """The pod that was made in the victim's place, once it runs."""
        label = self.victim["metadata"]["labels"]["app"]

        async def there() -> list[Object]:
            found = (await self.stage.api.get(f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
            named = [one for one in found if one["metadata"]["labels"]["app"] == label]
            return [one for one in named if one["status"].get("phase") == "Running"]

        (pod,) = await until(there, "the victim's successor")
        await asyncio.to_thread(self.stage.bed.driver.workload(pod["metadata"]["uid"]).ready)
        return pod

    def look(self, *, after: bool) -> Look:
        """Hold the last look of its next action: before the server hears of it, or (`after`) its answers."""
        self.proxy.look = Look(lambda: any(one["record"] == "intent" for one in self.records()), after=after)
        return self.proxy.look

    async def reached(self, hold: Hold) -> None:
        """Wait until a request is held."""
        async with asyncio.timeout(PATIENCE):
            await hold.reached.wait()

    async def armed(self, daemon: Daemon, unfinished: int = 0) -> None:
        """Wait until it may act, and knows of so many actions of the one before it."""
        line = await logs(daemon, "enforcer.armed")
        assert line["unfinished"] == unfinished, line

    async def held(self, daemon: Daemon, *reasons: str) -> dict[str, Any]:
        """Wait until the victim is refused for one of these reasons."""
        return await logs(daemon, "enforcer.held", pod=self.victim["metadata"]["name"], reason=reasons)

    def records(self) -> list[dict[str, Any]]:
        """The journal, as it is on the disk; each line is whole."""
        try:
            lines = self.journal.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        assert all(map(decode, lines))
        return [*map(json.loads, lines)]

    async def told(self, *steps: str) -> list[dict[str, Any]]:
        """Wait until the journal has exactly these steps of one decision, and return them."""

        async def written() -> list[dict[str, Any]] | None:
            found = decided(self.records())
            return found if steps == tuple(map(_step, found)) else None

        try:
            found: list[dict[str, Any]] = await until(written, f"{self.name}: {steps} in the journal")
        except TimeoutError as error:
            error.add_note(str([*map(_step, self.records())]))
            raise
        assert len({one["decision"] for one in found}) == 1
        assert found[0]["action"]["pod_uid"] == self.uid
        return found

    async def first(self, *steps: str) -> list[dict[str, Any]]:
        """Wait until the first decision has exactly these steps, and return them; others may follow."""

        async def written() -> list[dict[str, Any]] | None:
            found = decided(self.records())
            found = [one for one in found if one["decision"] == found[0]["decision"]]
            return found if steps == tuple(map(_step, found)) else None

        found: list[dict[str, Any]] = await until(written, f"{self.name}: {steps} in the journal")
        return found

    async def each(self, *stories: tuple[str, ...]) -> None:
        """Wait until the journal has exactly these steps of so many decisions, one after the other, on the victim."""

        def now() -> list[tuple[str, ...]]:
            steps: dict[str, list[str]] = {}
            for one in decided(self.records()):
                steps.setdefault(one["decision"], []).append(_step(one))
            return [*map(tuple, steps.values())]

        async def written() -> bool:
            return now() == [*stories]

        try:
            await until(written, f"{self.name}: {stories} in the journal")
        except TimeoutError as error:
            error.add_note(str(now()))
            raise
        assert {one["action"]["pod_uid"] for one in self.records() if one["record"] == "intent"} == {self.uid}

    async def evictions(self, *answers: int) -> None:
        """See that the server was asked to evict the victim's name so often, and answered so."""

        def found() -> list[tuple[int, str]]:
            path = f"{self.path}/eviction"
            asked = [one for one in self.stage.requests() if one["requestURI"] == path]
            return [(int(one["responseStatus"]["code"]), one["auditID"]) for one in asked]

        async def all_there() -> bool:
            return len(await asyncio.to_thread(found)) >= len(answers)

        await until(all_there, f"{len(answers)} evictions in the audit log")
        asked = await asyncio.to_thread(found)
        assert [code for code, _ in asked] == [*answers]
        noted = {one["decision"] for one in self.records() if one["record"] == "sent"}
        assert {decision for _, decision in asked} <= noted, "each was noted before it was made"

    async def spent(self, daemon: Daemon) -> None:
        """See that the token of the namespace is gone."""

        async def left() -> bool:
            page = (await asyncio.to_thread(daemon.get, "/metrics"))[1]
            return series(page, "budget_remaining", "scope").get(("namespace",)) == 0

        await until(left, "the token to be spent")

    async def unharmed(self) -> None:
        """See that the victim lives, in the same containers."""
        pod = await self.stage.api.get(self.path)
        assert lives([pod]) == {self.uid: ("Running", 0, False)}

    async def gone(self) -> None:
        """Wait until the victim is gone."""

        async def away() -> bool:
            return await self.stage.api.missing(self.path)

        await until(away, "the victim to be gone")


Play = Callable[[Part], Coroutine[Any, Any, None]]


@dataclass
class Others:
    """The stories that are played beside the last one."""

    parts: Sequence[Part]
    ended: asyncio.Event = field(default_factory=asyncio.Event)


Finale = Callable[[Sequence[Part], Others], Coroutine[Any, Any, None]]


def evictable(name: str) -> Object:
    """Make a Deployment."""
    return controller("Deployment", name, spec("alloc visible 64MiB", resource=SHARED))


def slow(name: str) -> Object:
    """Make a Deployment whose pod does not heed SIGTERM, and may take ten minutes."""
    return _deaf(name, 600)


def deaf(name: str) -> Object:
    """Make a Deployment whose pod does not heed SIGTERM, and may take 20 s."""
    return _deaf(name, 20)


def named(name: str) -> Object:
    """Make a StatefulSet: its pod comes back under its name."""
    return controller("StatefulSet", name, spec("alloc visible 64MiB", resource=SHARED))


def _deaf(name: str, grace: int) -> Object:
    made = spec("alloc visible 64MiB", "ignore-term", resource=SHARED)
    return controller("Deployment", name, {**made, "terminationGracePeriodSeconds": grace})


@dataclass
class Stories:
    """The stories of one module, in the order in which they were written down."""

    plays: dict[str, Play] = field(default_factory=dict)
    last: dict[str, tuple[Finale, Sequence[str]]] = field(default_factory=dict)
    victims: dict[str, Callable[[str], Object]] = field(default_factory=dict)
    shows: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def showing(self, *faults: int, victim: Callable[[str], Object] = evictable) -> Callable[[Play], Play]:
        """Write a story down: the faults that it shows, and what is over its limit in it."""

        def write(play: Play) -> Play:
            name = play.__name__
            self.plays[name], self.victims[name], self.shows[name] = play, victim, faults
            return play

        return write

    def finale(self, *faults: int, parts: int) -> Callable[[Finale], Finale]:
        """Write down a story of several victims that disturbs all others: it may wait for their end."""

        def write(play: Finale) -> Finale:
            name = play.__name__
            names = [f"{name}_{number}" for number in range(parts)]
            self.last[name], self.shows[name] = (play, names), faults
            self.victims |= dict.fromkeys(names, evictable)
            return play

        return write

    @property
    def marked(self) -> list[ParameterSet]:
        """Their names, for tests."""
        return [
            pytest.param(name, marks=pytest.mark.fault(*self.shows[name]), id=name.replace("_", " "))
            for name in self.shows
        ]

    def play(self, bed: Bed, folder: Path) -> dict[str, BaseException | None]:
        """Play all of them; say what went wrong in each."""
        return asyncio.run(self._play(bed, folder))

    async def _play(self, bed: Bed, folder: Path) -> dict[str, BaseException | None]:
        async with self._set(bed, folder) as parts:
            others = Others([parts[name] for name in self.plays])
            last = [play([parts[name] for name in names], others) for play, names in self.last.values()]
            finale = asyncio.gather(*last, return_exceptions=True)
            ends = await asyncio.gather(
                *(play(parts[name]) for name, play in self.plays.items()), return_exceptions=True
            )
            others.ended.set()
            return dict(zip((*self.plays, *self.last), (*ends, *await finale), strict=True))

    @asynccontextmanager
    async def _set(self, bed: Bed, folder: Path) -> AsyncIterator[dict[str, Part]]:
        """Have the victims run, each at ease, and a bystander; take them away in the end."""
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(bed.api())
            stage = await staged(bed, api, folder)
            await stage.enforcing()
            await stage.unguard()
            await stack.enter_async_context(replicas(bed, api, SHARED, 30))
            namespace = await stack.enter_async_context(emptied(stage))
            await stage.may_evict(namespace)
            await label(stage, namespace, CONSENT)
            bystander = bare("bystander", "256MiB", LIMIT)
            apps = {name: name.replace("_", "-") for name in self.victims}
            made = [_labelled(declaring(make(apps[name]), LIMIT), name) for name, make in self.victims.items()]
            await create(stage, namespace, bystander, *made)
            parts = {}
            for name in self.victims:
                proxy = await stack.enter_async_context(proxied(bed.control_plane.admin, bed.control_plane.authority))
                parts[name] = Part(name, stage, namespace, proxy, stack)
                parts[name].spared = {other: "victim" for other in apps if other != name}
            pods = {one["metadata"]["labels"]["app"]: one for one in await ready_pods(stage, namespace, len(made) + 1)}
            bystander = pods["bystander"]
            for name, part in parts.items():
                part.victim = pods[apps[name]]
            yield parts
            now = await api.get(f"/api/v1/namespaces/{namespace}/pods/bystander")
            assert lives([now]) == {bystander["metadata"]["uid"]: ("Running", 0, False)}


@asynccontextmanager
async def emptied(stage: Stage) -> AsyncIterator[str]:
    """A namespace whose pods are gone in the end, also those that would take their time."""
    async with fresh_namespace(stage.api) as name:
        try:
            yield name
        finally:
            await stage.api.delete(f"/api/v1/namespaces/{name}")
            await stage.api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=1)

            async def empty() -> bool:
                return not (await stage.api.get(f"/api/v1/namespaces/{name}/pods"))["items"]

            await until(empty, f"no pod left in {name}")


def _labelled(thing: Object, name: str) -> Object:
    thing["spec"]["template"]["metadata"]["labels"][name] = "victim"
    return thing


def _step(record: Mapping[str, Any]) -> str:
    """Tell a record in two words at most."""
    answer = record.get("answer") or {}
    return " ".join(filter(None, [record["record"], record.get("result"), answer.get("heard")]))


async def logs(daemon: Daemon, event: str, **wanted: str | tuple[str, ...]) -> dict[str, Any]:
    """Wait until the daemon wrote such a line, and return it; a tuple has the values that will do."""
    choices = {name: value if isinstance(value, tuple) else (value,) for name, value in wanted.items()}

    async def there() -> dict[str, Any] | None:
        assert daemon.process.poll() is None, daemon.log
        lines = logged(daemon, event)
        return next((one for one in lines if all(one.get(name) in choices[name] for name in choices)), None)

    try:
        line: dict[str, Any] = await until(there, f"{event} {wanted}")
    except TimeoutError as error:
        error.add_note(daemon.log)
        raise
    return line
