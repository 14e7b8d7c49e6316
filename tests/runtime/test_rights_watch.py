"""The rights in each namespace that consents: asked for before anything is due, and held where one is missing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from default_rules import default_rules
from enforcer.actions.evict.admission_probe import OwnPod
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Mode, Place, Reason, Rung
from enforcer.runtime.preflight import beyond, consent
from enforcer.runtime.rights_watch import AGAIN, BEAT, SOON, RightsWatch
from exporter.base.clock import SystemClock
from exporter.check.lines import Verdict
from exporter.config import Arguments, Config, load
from exporter.kube.client import Client
from exporter.kube.credentials import from_kubeconfig
from exporter.model import Snapshot
from policy.scenes import GREEDY, snapshot
from recordings import SteppedClock
from sources.kube_api import Answer, kubeconfig, refusal, serving

CONSENTS = {"gpusteward.io/mode": "enforce"}


@dataclass
class Holds:
    """The part of the decider that the watch uses: it notes holds."""

    rules: Rules = field(default_factory=lambda: default_rules(mode=Mode.ENFORCE))
    heard: Snapshot | None = None
    held: dict[str, str] = field(default_factory=dict)

    def hold(self, place: Place, name: str, reason: Reason, *, detail: str = "") -> None:
        assert (place, reason) == (Place.NAMESPACE, Reason.NO_RIGHTS)
        self.held[name] = detail

    def lift(self, place: Place, name: str, reason: Reason) -> None:
        assert (place, reason) == (Place.NAMESPACE, Reason.NO_RIGHTS)
        self.held.pop(name, None)


def api(granted: set[str], asked: list[tuple[str, str]], *, lists: bool = True, consents: bool = True) -> Answer:
    """An API server with namespaces a, b (consenting) and c, that grants `resource namespace` where it is named."""
    label = CONSENTS if consents else {}
    labels: dict[str, dict[str, str]] = {"a": label, "b": label, "c": {}}

    def described(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": labels[name]}}

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            review = await request.json()
            attributes = review["spec"]["resourceAttributes"]
            resource, namespace = attributes["resource"], attributes["namespace"]
            asked.append((f"{attributes['verb']} {resource}", namespace))
            allowed = f"{resource} {namespace}" in granted
            return web.json_response({**review, "status": {"allowed": allowed}}, status=201)
        if request.path == "/api/v1/namespaces":
            if not lists:
                return refusal(403, "Forbidden")
            key, _, value = request.query["labelSelector"].partition("=")
            names = [name for name in labels if labels[name].get(key) == value]
            return web.json_response({"items": [described(name) for name in names]})
        if request.path == "/api/v1/pods":
            assert request.query["fieldSelector"] == "spec.nodeName=n1"
            items = [{"metadata": {"name": "p", "namespace": name}} for name in ("a", "c")]
            return web.json_response({"items": items})
        return web.json_response(described(request.path.rpartition("/")[2]))

    return answer


def client(folder: Path, url: str) -> Client:
    """A client of the server at `url`."""
    return Client(from_kubeconfig(kubeconfig(folder / "config", url, user={"token": "x"})), clock=SystemClock())


async def test_a_consenting_namespace_without_its_role_binding_is_held_until_it_has_one(tmp_path: Path) -> None:
    """The hold names the missing right, the namespace and the ClusterRole; it ends ten seconds after the right came."""
    granted: set[str] = set()
    asked: list[tuple[str, str]] = []
    decider = Holds(heard=snapshot([replace(GREEDY, namespace="a")], 10.0, namespaces={"a": CONSENTS}))
    clock = SteppedClock(1e9)
    async with serving(api(granted, asked)) as server:
        reader = client(tmp_path, server.url)
        watch = RightsWatch(decider, reader.may, clock)
        await watch.look()
        assert set(asked) == {("create pods/eviction", "a"), ("get pods", "a")}
        assert "create pods/eviction" in decider.held["a"] and "gpusteward-evict" in decider.held["a"]
        granted |= {"pods/eviction a", "pods a"}
        clock.now += SOON - 1
        await watch.look()
        assert decider.held
        clock.now += 1
        await watch.look()
        assert decider.held == {}
        before = len(asked)
        clock.now += AGAIN - BEAT
        await watch.look()
        assert len(asked) == before, "a namespace in which nothing is missing is asked about once a minute"
        await reader.close()


@pytest.mark.parametrize(
    ("labels", "live"), [({"a": {}}, True), ({}, True), ({"a": CONSENTS}, False)], ids=["no consent", "unread", "away"]
)
async def test_a_namespace_that_does_not_consent_is_not_asked_about(
    labels: dict[str, dict[str, str]], live: bool, tmp_path: Path
) -> None:
    """Without consent, without readable labels, and while the API server is away, no question is sent."""
    asked: list[tuple[str, str]] = []
    seen = replace(snapshot([replace(GREEDY, namespace="a")], 10.0, namespaces=labels), names_live=live)
    async with serving(api(set(), asked)) as server:
        reader = client(tmp_path, server.url)
        await RightsWatch(Holds(heard=seen), reader.may, SteppedClock(1e9)).look()
        await reader.close()
    assert asked == []


async def test_a_hold_ends_with_the_consent(tmp_path: Path) -> None:
    """A namespace that consents no longer, or whose pods are gone, is not held for a missing right."""
    decider = Holds(heard=snapshot([replace(GREEDY, namespace="a")], 10.0, namespaces={"a": CONSENTS}))
    async with serving(api(set(), [])) as server:
        reader = client(tmp_path, server.url)
        watch = RightsWatch(decider, reader.may, SteppedClock(1e9))
        await watch.look()
        assert set(decider.held) == {"a"}
        decider.heard = snapshot([replace(GREEDY, namespace="a")], 20.0, namespaces={"a": {}})
        await watch.look()
        assert decider.held == {}
        await reader.close()


async def test_a_ladder_without_evict_needs_no_eviction(tmp_path: Path) -> None:
    """A ladder that only kills looks at pods, and evicts none."""
    asked: list[tuple[str, str]] = []
    decider = Holds(heard=snapshot([replace(GREEDY, namespace="a")], 10.0, namespaces={"a": CONSENTS}))
    decider.rules = replace(decider.rules, ladder=(Rung.NOTIFY, Rung.KILL))
    granted = {"pods a"}
    async with serving(api(granted, asked)) as server:
        reader = client(tmp_path, server.url)
        await RightsWatch(decider, reader.may, SteppedClock(1e9)).look()
        assert (asked, decider.held) == ([("get pods", "a")], {})
        granted.clear()
        await RightsWatch(decider, reader.may, SteppedClock(1e9)).look()
        await reader.close()
    assert "get pods not granted" in decider.held["a"] and "the chart's gpusteward-look" in decider.held["a"]


def config(folder: Path, url: str, mode: str = "enforce") -> Config:
    """The config of a node n1."""
    names = kubeconfig(folder / "check", url, user={"token": "x"})
    keys = {"node.name": "n1", "names.source": "kubernetes", "names.kubeconfig": names, "policy.mode": mode}
    return load(Arguments(None, keys))


@pytest.mark.parametrize("lists", [True, False])
async def test_check_asks_in_every_namespace_that_consents(lists: bool, tmp_path: Path) -> None:
    """A failed line per namespace without the right; without the right to list namespaces, those of this node."""
    asked: list[tuple[str, str]] = []
    async with serving(api({"pods/eviction b", "pods a", "pods b"}, asked, lists=lists)) as server:
        lines = await consent(config(tmp_path, server.url))
    assert [(line.check, line.verdict) for line in lines] == [("consent", Verdict.FAIL)]
    assert "create pods/eviction not granted in a" in lines[0].message
    assert {namespace for _, namespace in asked} == ({"a", "b"} if lists else {"a"})


async def test_check_says_ok_where_all_is_granted_and_warns_where_no_namespace_consents(tmp_path: Path) -> None:
    """All rights there: ok, with the number of namespaces. No namespace with the label: a warning that names it."""
    everything = {f"{resource} {name}" for resource in ("pods", "pods/eviction") for name in "ab"}
    async with serving(api(everything, [])) as server:
        (line,) = await consent(config(tmp_path, server.url))
        assert (line.verdict, "2 namespaces" in line.message) == (Verdict.OK, True)
        assert (
            await beyond(config(tmp_path, server.url, "dry-run"), in_a_pod=False, own=OwnPod("gpusteward", "daemon"))
            == ()
        )
    async with serving(api(everything, [], consents=False)) as server:
        (line,) = await consent(config(tmp_path, server.url))
    assert line.verdict is Verdict.WARN and "gpusteward.io/mode=enforce" in line.message
