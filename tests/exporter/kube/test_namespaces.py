"""Labels of namespaces, a minute old at most."""

from pathlib import Path

import pytest
from aiohttp import web

from exporter.clock import SystemClock
from exporter.kube.client import Client, from_kubeconfig
from exporter.kube.errors import KubeError
from exporter.kube.namespaces import FRESH, Namespaces
from sources.kube_api import kubeconfig, refusal, serving


class Later(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


async def test_labels_are_read_when_asked_for_and_kept_for_a_minute(tmp_path: Path) -> None:
    """One question a minute for each namespace that somebody asks for; a change is seen after that minute."""
    labels = {"gpusteward.io/mode": "enforce"}
    clock = Later()

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"name": "x", "labels": labels}})

    async with serving(answer) as server:
        client = Client(from_kubeconfig(kubeconfig(tmp_path / "c", server.url)), clock=SystemClock())
        namespaces = Namespaces(client, clock=clock)
        for name in ("a", "a", "b"):
            assert await namespaces.labels(name) == {"gpusteward.io/mode": "enforce"}
        assert [seen.path for seen in server.seen] == ["/api/v1/namespaces/a", "/api/v1/namespaces/b"]
        labels.clear()
        clock.ahead = FRESH + 1
        assert await namespaces.labels("a") == {}
        await client.close()


async def test_an_old_answer_is_no_consent(tmp_path: Path) -> None:
    """What cannot be read anew is an error, however well it was known a minute ago."""
    clock, away = Later(), False

    async def answer(_: web.Request) -> web.StreamResponse:
        return refusal(503, "ServiceUnavailable") if away else web.json_response({"metadata": {"name": "x"}})

    async with serving(answer) as server:
        client = Client(from_kubeconfig(kubeconfig(tmp_path / "c", server.url)), clock=SystemClock())
        namespaces = Namespaces(client, clock=clock)
        assert await namespaces.labels("a") == {}
        away, clock.ahead = True, FRESH + 1
        with pytest.raises(KubeError):
            await namespaces.labels("a")
        await client.close()
