"""Promises of exporter/api/explanation.py and its route: a pod of the running node, explained as a file's is."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from builders import GIB, MIB, allocation, device, fault, gpu, leaf, limit, memory, pod, snapshot, subject, usage
from exporter.api.document import Json, encoded, head
from exporter.api.explanation import PodNotHereError, explanation
from exporter.limits import LeafDevice, Resolution, resolve
from exporter.limits.explaining import as_data, as_text
from exporter.limits.loading import builtin
from exporter.model import DeclaredContainer, DeclaredPod, GpuInstance, Pod, PodUid, Sharing, Snapshot
from serving.node import busy, serving

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"
LIMIT = "nvidia.com/container.main.gpu-memory.limit"
ANNA = pod("anna", "notebooks")


def declared(who: Pod, text: str = "8Gi") -> Resolution:
    main = DeclaredContainer("main", {"nvidia.com/gpu.shared": "1"})
    asked = DeclaredPod(who.uid, who.namespace, who.name, annotations={LIMIT: text}, containers=(main,))
    return resolve(asked, None, (LeafDevice(leaf(), 0, memory=80 * GIB),), builtin())


def explained(
    facts: Snapshot, namespace: str = "notebooks", name: str = "anna", *, age: float = 1.0, **more: Any
) -> dict[str, Any]:
    known = {who.uid: declared(who) for who in facts.pods.values()}
    begin = head(facts, age=age, interval=5.0, program="x")
    found = explanation(facts, namespace, name, begin=begin, **{"resolution": known.get, **more})
    return dict(json.loads(encoded(found)))


def test_it_is_what_a_file_would_say_and_what_is_used() -> None:
    """The limits and their text are those of `explain -f`, candidate by candidate; below stands what is used now."""
    facts = snapshot(
        device(gpu(memory=memory()), attributed=0),
        usages=[usage(ANNA, leaf(), 9 * GIB, memory_peak=10 * GIB, sm=0.5, pids=[7]), usage(pod("other"), leaf())],
        pods=[ANNA],
        limits=[limit(ANNA, leaf(), 8 * GIB)],
    )
    found = explained(facts)
    assert found["limits"] == as_data(declared(ANNA))
    assert LIMIT in [candidate["key"] for candidate in found["limits"][0]["candidates"]]
    assert found["text"].startswith(as_text(declared(ANNA)))
    figures = "9 GiB, at most 10 GiB, 1 GiB more than its limit of 8 GiB, 50% of the SMs, 1 process"
    assert found["text"].splitlines()[-2:] == [
        "  uses, as of 1 s ago:",
        f"    container main on {leaf().uuid}: {figures}",
    ]
    (container,) = found["containers"]
    assert (container["memory_used_bytes"], container["memory_limit_bytes"]) == (9 * GIB, 8 * GIB)
    assert (found["pod_uid"], found["policy"], found["notes"]) == (ANNA.uid, None, [])


def test_a_hook_that_does_not_hold_is_said() -> None:
    """The explanation of a limit says that its hook should enforce it, and that usage exceeds it all the same."""
    over = limit(ANNA, leaf(), 8 * GIB, system="hami-nvidia", enforced_by="hook", bypassed=True)
    text = explained(snapshot(usages=[usage(ANNA, leaf(), 9 * GIB)], pods=[ANNA], limits=[over]))["text"]
    assert f"! container main is over its limit of 8 GiB on {leaf().uuid}: the hook should enforce this limit" in text


def test_what_is_not_known_is_not_zero() -> None:
    """Memory that was not read, and use on a node that did not answer, are unknown; nothing used is something else."""
    unread = snapshot(usages=[usage(subject(ANNA), leaf(), None)], pods=[ANNA])
    assert "on GPU-00000000-1111-2222-3333-444444444444: memory unknown, 0 processes" in explained(unread)["text"]
    assert "uses no device, as of 1 s ago" in explained(snapshot(pods=[ANNA]))["text"]
    assert "its usage is unknown" in explained(snapshot(pods=[ANNA], faults=[fault("gpu_lost")]))["text"]
    assert "too old to describe the present" in explained(snapshot(pods=[ANNA]), age=16.0)["text"]


def test_a_pod_that_was_not_resolved_has_unknown_limits() -> None:
    """`limits` is null, which is not the empty list of a pod that declares nothing."""
    found = explained(snapshot(pods=[ANNA]), resolution=lambda _uid: None)
    assert found["limits"] is None
    assert found["text"].startswith("pod notebooks/anna\n")
    assert "note: its declarations are unknown" in found["text"]


def test_of_two_pods_of_a_name_it_is_the_newest() -> None:
    """The old one may still terminate; which of them is explained is said."""
    old = pod("anna", "notebooks", uid="old", created_at=1.0, terminating=True)
    new = pod("anna", "notebooks", uid="new", created_at=2.0)
    facts = snapshot(usages=[usage(old, leaf(), 9 * GIB), usage(new, leaf(), GIB)], pods=[new, old])
    found = explained(facts)
    assert (found["pod_uid"], [each["memory_used_bytes"] for each in found["containers"]]) == ("new", [GIB])
    assert found["notes"] == ["2 pods of this name are on the node; this is the newest, new"]


def test_near_names_are_those_of_gpu_users() -> None:
    """A typing error gets similar names as an answer, but none of pods that have nothing to do with GPUs."""
    facts = snapshot(
        usages=[usage(ANNA, leaf())],
        allocations=[allocation(pod("anna", "research"), leaf())],
        pods=[ANNA, pod("anna", "research"), pod("anna-2", "kube-system")],
    )
    with pytest.raises(PodNotHereError, match="no pod notebooks/ana on node gpu-node-1; similar names: ") as caught:
        explained(facts, name="ana")
    assert caught.value.near == ("notebooks/anna",)
    with pytest.raises(PodNotHereError) as caught:
        explained(facts, namespace="somewhere-else")
    assert set(caught.value.near) == {"notebooks/anna", "research/anna"}
    with pytest.raises(PodNotHereError, match=r"no pod x{80}\.\.\. on node") as caught:
        explained(facts, namespace="x" * 100_000)
    assert caught.value.near == ("notebooks/anna", "research/anna"), "names of the length of a request are not compared"


def test_what_the_policy_says_has_its_place() -> None:
    """A daemon that judges adds an object for each container, and its line stands at the end of the text."""

    def policy(uid: PodUid) -> list[Json]:
        return [{"container": "main", "state": "grace", "text": f"container main of {uid}: grace, \x1b[2J90 s left"}]

    found = explained(snapshot(pods=[ANNA]), policy=policy)
    assert found["policy"][0]["state"] == "grace"
    assert found["text"].endswith(f"  policy:\n    container main of {ANNA.uid}: grace, \\x1b[2J90 s left\n")
    assert "policy: nothing to judge" in explained(snapshot(pods=[ANNA]), policy=lambda _uid: [])["text"]


def test_the_excess_is_that_of_the_events() -> None:
    """It is what exceeds the limit and the allowance for CUDA contexts, and both are said."""

    def judged(allowed: int) -> str:
        used = usage(ANNA, leaf(), 10 * GIB)
        (about,) = explained(snapshot(usages=[used], pods=[ANNA]))["containers"]
        names = {name: about[name] for name in ("container", "container_id", "uuid", "gpu_instance")}
        standing = {**names, "context_allowance_bytes": allowed, "text": ""}
        facts = snapshot(usages=[used], pods=[ANNA], limits=[limit(ANNA, leaf(), 4 * GIB)])
        return str(explained(facts, policy=lambda _uid: [standing])["text"])

    assert "10 GiB, 5.5 GiB more than its limit of 4 GiB plus 512 MiB allowed for CUDA contexts, " in judged(512 * MIB)
    assert "10 GiB, within its limit of 4 GiB plus 6 GiB allowed for CUDA contexts, " in judged(6 * GIB)
    assert "10 GiB, 6 GiB more than its limit of 4 GiB, " in judged(0)


def test_a_pod_that_was_not_read_yet_is_new() -> None:
    """Seconds after its start, no usage is not the same as no device."""
    facts = snapshot(pods=[replace(ANNA, created_at=snapshot().taken_at - 4)])
    found = explained(facts)
    assert "  no usage was read yet, as of 1 s ago\n" in found["text"]
    assert found["notes"] == ["the pod is 4 s old, and its usage was not read yet: ask again in a few seconds"]
    old = explained(snapshot(pods=[replace(ANNA, created_at=snapshot().taken_at - 61)]))
    assert ("uses no device" in old["text"], old["notes"]) == (True, [])


EVICTED = "2026-11-23T20:01:41Z: gpusteward evicted pod notebooks/anna, because it used too much"


def acted(*uids: str) -> dict[str, Any]:
    return {"actions": lambda _namespace, name: [{"pod_uid": uid, "text": f"{EVICTED} ({name})"} for uid in uids]}


def test_a_pod_that_is_gone_is_said_to_be_gone_and_why() -> None:
    """Its names are remembered after its end: it does not terminate, and what this daemon did to it is said."""
    gone = replace(ANNA, terminating=True, deleted=True)
    found = explained(snapshot(pods=[gone]), policy=lambda _uid: [], **acted(ANNA.uid))
    assert [note for note in found["notes"] if "gone" in note and "terminating" not in note] == found["notes"] != []
    assert "policy: nothing to judge, because the pod is gone" in found["text"]
    assert f"  actions of this daemon:\n    {EVICTED} (anna)\n" in found["text"]
    assert [each["pod_uid"] for each in found["actions"]] == [ANNA.uid]
    ending = explained(snapshot(pods=[replace(ANNA, terminating=True)]), policy=lambda _uid: [])
    assert ending["notes"] == ["the pod is terminating"]


def test_an_action_on_an_earlier_pod_of_the_name_is_not_that_on_this_one() -> None:
    """The pods of a StatefulSet have the same names again."""
    text = explained(snapshot(pods=[ANNA]), policy=lambda _uid: [], **acted("another"))["text"]
    assert f"    an earlier pod of this name, {EVICTED} (anna)" in text


def test_a_pod_that_is_not_known_any_more_was_evicted_by_this_daemon() -> None:
    """The error says so, and has the actions for scripts."""
    with pytest.raises(PodNotHereError) as caught:
        explained(snapshot(), **acted(ANNA.uid))
    assert str(caught.value) == (f"no pod notebooks/anna on node gpu-node-1; this daemon acted on it, {EVICTED} (anna)")
    assert [each["pod_uid"] for each in caught.value.actions] == [ANNA.uid]


async def answer(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, json.loads(await response.text())


async def test_the_route() -> None:
    """200 with the document, 400 without a pod, 404 with near names; each is JSON."""
    async with serving(busy(), resolution=lambda uid: declared(ANNA) if uid == ANNA.uid else None) as (server, _):
        path = f"{server.url}/api/v1/explain"
        status, found = await answer(f"{path}?namespace=notebooks&pod=anna")
        assert (status, found["version"], found["limits"][0]["limit_bytes"]) == (200, 1, 8 * GIB)
        assert {each["container"] for each in found["containers"]} == {"main", "sidecar"}
        for query in ("", "?namespace=notebooks", "?pod=anna"):
            status, found = await answer(path + query)
            assert (status, found["error"].startswith("name a pod: ")) == (400, True)
        status, found = await answer(f"{path}?namespace=notebooks&pod=ana%FF%1B")
        assert (status, found["near"][0]) == (404, "notebooks/anna")
        assert found["error"].isprintable()


async def test_before_the_first_round() -> None:
    """Nothing can be explained yet, and the sentence is that of the snapshot's route."""
    async with serving() as (server, _):
        path = "/api/v1/explain?namespace=a&pod=b"
        assert await answer(server.url + path) == (503, {"error": "no round has ended yet"})


def test_every_field_is_described() -> None:
    """The part of docs/api.md about explain names each field, and no other."""
    text = API_PAGE.read_text().partition("## Explain")[2]
    assert text
    found = explained(snapshot(usages=[usage(ANNA, leaf(), 300 * MIB)], pods=[ANNA]))
    table = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)[1:]
    assert {field for row in table for field in re.findall(r"`(\w+)`", row)} == set(found)


def test_who_shares_a_device_is_said() -> None:
    """Notes say that several pods use a whole GPU, which pod reserves it, and that a reservation pod uses nothing."""
    who, other, hold = pod("a"), pod("b"), replace(pod("hold", "kai-resource-reservation"), reservation="kai")
    shared = replace(device(gpu(0, memory=memory())), sharing=Sharing.SHARED, pods=2)
    here = snapshot(
        shared,
        pods=[who, other, hold],
        usages=[usage(who, leaf()), usage(other, leaf()), usage(hold, leaf(), 0)],
        allocations=[allocation(hold, leaf())],
    )
    name = leaf().uuid
    assert explained(here, "team-a", "a")["notes"] == [
        f"{name}: 2 pods share this device without replicas of a device plugin: nothing limits any of them",
        f"{name}: kai-resource-reservation/hold reserves it for the pods of kai",
    ]
    assert explained(here, "kai-resource-reservation", "hold")["notes"] == [
        f"{name}: this pod only reserves it for the pods of kai; it is neither user nor idle"
    ]


def test_what_bounds_a_mig_instance_is_said() -> None:
    """Alone on it the hardware does; of several pods it bounds none."""
    instance = GpuInstance(1, "3g.40gb", ("MIG-1",), memory(40 * GIB))
    who = pod("a")
    for pods, words in ((1, "no other pod uses it"), (2, "2 pods share this instance")):
        leaf_device = replace(device(gpu(0, instances=(instance,)), 1), sharing=Sharing.MIG, pods=pods)
        here = snapshot(leaf_device, pods=[who], usages=[usage(who, leaf(0, 1))])
        assert any(words in note for note in explained(here, "team-a", "a")["notes"])
