"""Labels of namespaces: a minute and a half old at most, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from aiohttp import web

from exporter.base.clock import SystemClock
from exporter.kube.client import METADATA_ONLY, Client
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.kept import FRESH, SETTLES
from exporter.kube.namespaces import LASTS, Namespaces
from sources.kube_api import Server, kubeconfig, refusal, serving

ENFORCE = {"gpusteward.io/mode": "enforce"}


class Later(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Api:
    """A server with namespaces that all have the same labels; it can refuse."""

    def __init__(self) -> None:
        self.labels = dict(ENFORCE)
        self.refusals: dict[str, tuple[int, str]] = {}
        self.names = ["a", "b"]
        self.clock = Later()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if found := self.refusals.get(name):
            return refusal(*found)
        return web.json_response({"metadata": {"name": name, "labels": self.labels}})

    @asynccontextmanager
    async def asked(self, folder: Path) -> AsyncIterator[tuple[Namespaces, Server]]:
        async with serving(self.answer) as server:
            client = Client(from_kubeconfig(kubeconfig(folder / "c", server.url)), clock=SystemClock())
            yield Namespaces(client, lambda: self.names, clock=self.clock, random=Random(1)), server
            await client.close()


async def test_only_namespaces_of_own_pods_are_read_and_only_about_once_a_minute(tmp_path: Path) -> None:
    """One question a minute for each, metadata only; a change is seen then, and what has no pod here is forgotten."""
    api = Api()
    async with api.asked(tmp_path) as (namespaces, server):
        await namespaces.look()
        await namespaces.look()
        assert namespaces.labels == {"a": ENFORCE, "b": ENFORCE}
        assert [seen.path for seen in server.seen] == ["/api/v1/namespaces/a", "/api/v1/namespaces/b"]
        assert {seen.headers["Accept"] for seen in server.seen} == {METADATA_ONLY}
        api.labels.clear()
        api.names = ["a"]
        api.clock.ahead = FRESH * 0.74
        await namespaces.look()
        assert namespaces.labels == {"a": ENFORCE} and len(server.seen) == 2
        api.clock.ahead = FRESH * 1.26
        await namespaces.look()
        assert namespaces.labels == {"a": {}}, "read, and without labels"


async def test_an_old_answer_is_no_consent(tmp_path: Path) -> None:
    """While the server is away an answer counts for a minute and a half; then the namespace is unknown."""
    api = Api()
    async with api.asked(tmp_path) as (namespaces, server):
        await namespaces.look()
        api.refusals = dict.fromkeys("ab", (503, "ServiceUnavailable"))
        api.clock.ahead = LASTS - 1
        asked = len(server.seen)
        await namespaces.look()
        assert len(server.seen) == asked + 1, "of a server that is away, one question is enough"
        assert namespaces.labels == {"a": ENFORCE, "b": ENFORCE}
        api.clock.ahead = LASTS + 1
        await namespaces.look()
        assert namespaces.labels == {}
        assert namespaces.faults == (), "that the server is away is told by the watch of the pods"
        api.refusals.clear()
        api.clock.ahead += 20.0
        await namespaces.look()
        assert namespaces.labels == {"a": ENFORCE, "b": ENFORCE}


async def test_a_namespace_that_is_gone_consents_to_nothing_at_once(tmp_path: Path) -> None:
    """404: its labels are dropped with the answer, and the others stay."""
    api = Api()
    async with api.asked(tmp_path) as (namespaces, _):
        await namespaces.look()
        api.refusals["a"] = (404, "NotFound")
        api.clock.ahead = FRESH * 1.26
        await namespaces.look()
        assert namespaces.labels == {"b": ENFORCE}


async def test_a_missing_right_is_told_once_and_not_of_a_server_that_starts(tmp_path: Path) -> None:
    """403: one fault that leaves the round complete, after ten seconds; a namespace that is granted is read."""
    api = Api()
    api.refusals["a"] = (403, "Forbidden")
    async with api.asked(tmp_path) as (namespaces, server):
        await namespaces.look()
        assert namespaces.labels == {"b": ENFORCE} and not namespaces.faults
        api.clock.ahead = SETTLES + 3
        await namespaces.look()
        (fault,) = namespaces.faults
        assert (fault.source, fault.reason, fault.incomplete) == ("api", "namespaces_forbidden", False)
        assert "get namespaces" in fault.message
        asked = len(server.seen)
        api.clock.ahead += 30.0
        await namespaces.look()
        assert len(server.seen) == asked, "who is refused does not insist"
        api.refusals.clear()
        api.clock.ahead += 60.0
        await namespaces.look()
        assert namespaces.labels == {"a": ENFORCE, "b": ENFORCE} and namespaces.faults == ()
