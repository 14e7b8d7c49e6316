"""Events on pods, on a real API server, with exactly the rights of deploy/enforcer, seen as users see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from cluster import requirements, simulated_nodes
from cluster.bed import Bed
from cluster.client import Api, Object
from cluster.client import until as becomes
from cluster.fixtures import fresh_namespace, require
from cluster.manifests import pod, pod_spec
from containers.cgroupfs import new_token
from enforcer.actions.kube_writer import Writer
from enforcer.actions.notify.actuator import FIRST_HOLDS, HOLD, Notifier
from enforcer.messages.action_texts import EventReason
from enforcer.messages.events import REMINDER, Notice, Regarding
from exporter.base.clock import SystemClock
from exporter.kube.credentials import in_cluster
from exporter.kube.watching import Patience
from exporter.model import PodUid
from sources.kube_api import until

pytestmark = pytest.mark.cluster

MANIFEST = Path(__file__).parents[2] / "deploy" / "enforcer" / "rbac.yaml"
NAMESPACE, ACCOUNT, ROLE = "gpusteward", "gpusteward", "gpusteward-warn"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {"ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"}
PATHS |= {kind: f"{RBAC}/{kind.lower()}s" for kind in ("ClusterRole", "ClusterRoleBinding")}
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
HURRIED = Patience(first=0.05, most=0.5)
NOTE = 'Container "main" uses 10 GiB of GPU 0, 2 GiB more than its limit of 8 GiB.'
LONGEST_POD_NAME = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])


class Later(SystemClock):
    """A clock that can be set forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Stage:
    """The shipped ServiceAccount and its rights on a bed of one's own, a node for pods, and a namespace."""

    def __init__(self, bed: Bed, api: Api, folder: Path, namespace: str, node: str) -> None:
        self.bed, self.api, self.folder, self.namespace, self.node = bed, api, folder, namespace, node
        self.clock = Later()

    async def make(self) -> None:
        """Apply what deploy/ ships, as it is now, and write a token as the kubelet does."""
        if await self.api.missing(f"/api/v1/namespaces/{NAMESPACE}"):
            await self.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for thing in yaml.safe_load_all(MANIFEST.read_text()):
            path = PATHS[thing["kind"]]
            if await self.api.missing(f"{path}/{thing['metadata']['name']}"):
                await self.api.create(path, thing)
        (self.folder / "ca.crt").write_bytes(self.bed.control_plane.authority.certificate.read_bytes())
        token = (await self.api.token(NAMESPACE, ACCOUNT)).token
        assert token is not None
        (self.folder / "token").write_text(token)
        await self.allowed("create", expected=True)

    async def allowed(self, verb: str, *, expected: bool) -> None:
        """Wait until the authorizer, which learns of roles by a watch, says so."""
        asked = {"group": "events.k8s.io", "resource": "events", "verb": verb}
        review = {"spec": {"user": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", "resourceAttributes": asked}}

        async def says() -> bool:
            return bool((await self.api.create(REVIEWS, review))["status"]["allowed"]) is expected

        await becomes(says, f"the right to {verb} events to be {expected}")

    async def run_pod(self, name: str) -> PodUid:
        """A pod on the simulated node; its UID."""
        thing = pod(name, pod_spec() | {"nodeName": self.node})
        return PodUid((await self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", thing))["metadata"]["uid"])

    def notice(self, name: str, uid: PodUid, reason: EventReason = EventReason.EXCEEDED, note: str = NOTE) -> Notice:
        return Notice(Regarding(self.namespace, name, uid, "main"), reason, note, self.clock.time())

    @asynccontextmanager
    async def notifying(self) -> AsyncIterator[Notifier]:
        """A notifier at work with the ServiceAccount's token."""
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.bed.control_plane.port),
        }
        writer = Writer(in_cluster(self.folder, environment), clock=self.clock)
        notifier = Notifier(writer, self.node, clock=self.clock, random=Random(1), patience=HURRIED)
        task = asyncio.create_task(notifier.run())
        try:
            yield notifier
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await writer.close()

    async def events(self) -> list[Object]:
        """All Events of the namespace as the server stores them, in the order of their reasons."""
        found = (await self.api.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"))["items"]
        return sorted(found, key=lambda one: (one["reason"], one["eventTime"]))

    def described(self, name: str) -> str:
        """The events of a pod as `kubectl describe` prints them."""
        return self.bed.kubectl("describe", "pod", name, "-n", self.namespace).partition("Events:")[2]

    def asked(self) -> list[tuple[str, str, int]]:
        """Verb, resource and answer of all that was asked in this namespace with the token, from the audit log."""
        user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
        return [
            (event["verb"], f"{event['objectRef']['resource']}.{event['objectRef']['apiGroup']}", code(event))
            for event in self.bed.control_plane.audit()
            if event["user"].get("username") == user and event["objectRef"].get("namespace") == self.namespace
        ]


def code(event: Any) -> int:
    return int(event["responseStatus"]["code"])


@pytest.fixture(scope="module")
def own_server() -> Iterator[Bed]:
    """An API server that only this module uses, so that it may be stopped and its roles changed."""
    require(requirements.missing(node=False))
    with Bed(node=False) as bed:
        yield bed


@pytest.fixture
async def stage(own_server: Bed, tmp_path: Path) -> AsyncIterator[Stage]:
    async with own_server.api() as api, fresh_namespace(api) as namespace:
        (node,) = await simulated_nodes.add(api, 1, prefix=f"events-{new_token()}")
        made = Stage(own_server, api, tmp_path, namespace, node)
        await made.make()
        yield made


async def test_users_see_what_happened_to_their_pod(stage: Stage) -> None:
    """An Event, its repetitions, and an Event of another kind: kubectl describe, get events and events show them."""
    uid = await stage.run_pod("train-0")
    async with stage.notifying() as notifier:
        notifier.tell([stage.notice("train-0", uid)])
        await until(lambda: notifier.written == 1)
        first = stage.described("train-0").splitlines()[-1].split(maxsplit=4)
        for number in range(12):
            stage.clock.ahead += REMINDER / 6
            notifier.tell([stage.notice("train-0", uid, note="other figures")])
            expected = 1 + (number + 1) // 6
            await until(lambda expected=expected: notifier.written == expected)  # type: ignore[misc]
        notifier.tell([stage.notice("train-0", uid, EventReason.EVICTED, "The pod is evicted.")])
        await until(lambda: notifier.written == 4)
    assert (*first[:2], *first[3:]) == ("Warning", "GPUMemoryLimitExceeded", "gpusteward.io/gpusteward", NOTE)
    evicted, exceeded = await stage.events()
    assert (exceeded["series"]["count"], exceeded["note"]) == (13, NOTE)
    assert "series" not in evicted
    assert exceeded["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": stage.namespace,
        "name": "train-0",
        "uid": uid,
        "fieldPath": "spec.containers{main}",
    }
    described = stage.described("train-0")
    listed = stage.bed.kubectl("get", "events", "-n", stage.namespace)
    events = stage.bed.kubectl("events", "-n", stage.namespace, "--for", "pod/train-0", "--types=Warning")
    for text in (described, listed, events):
        assert NOTE in text
        assert "GPUMemoryLimitEvicted" in text
    assert "(x13 over" in described
    assert "(x13 over" in events

    async def written() -> bool:
        return len(stage.asked()) >= 4

    await becomes(written, "the audit log")
    assert set(stage.asked()) == {("create", "events.events.k8s.io", 201), ("patch", "events.events.k8s.io", 200)}


async def test_the_longest_names_and_notes_are_accepted(stage: Stage) -> None:
    """A pod's name of 253 characters, a note that is too long and full of odd characters: the server takes both."""
    uid = await stage.run_pod(LONGEST_POD_NAME)
    async with stage.notifying() as notifier:
        notifier.tell([stage.notice(LONGEST_POD_NAME, uid, reason, "€\n\x1b[1m" * 400) for reason in EventReason])
        await until(lambda: notifier.written == len(EventReason))
        assert (notifier.failed, notifier.dropped) == (0, 0)
    assert [one["reason"] for one in await stage.events()] == sorted(EventReason)
    assert stage.described(LONGEST_POD_NAME).count("GPUMemoryLimit") == len(EventReason)


async def test_a_pod_made_anew_under_its_name_has_events_of_its_own(stage: Stage) -> None:
    """The old pod's Events are not shown on the new one, which gets its own at once."""
    old = await stage.run_pod("twin")
    async with stage.notifying() as notifier:
        notifier.tell([stage.notice("twin", old, note="the old one")])
        await until(lambda: notifier.written == 1)
        await stage.api.delete(f"/api/v1/namespaces/{stage.namespace}/pods/twin", gracePeriodSeconds=0)
        new = await stage.run_pod("twin")
        assert "the old one" not in stage.described("twin")
        notifier.tell([stage.notice("twin", new, note="the new one")])
        await until(lambda: notifier.written == 2)
    described = stage.described("twin")
    assert "the new one" in described
    assert "the old one" not in described
    assert {one["regarding"]["uid"] for one in await stage.events()} == {old, new}


async def test_without_the_right_nothing_is_written_until_it_is_granted(stage: Stage) -> None:
    """Refused twice: it is logged once, tried again after five minutes, and by then allowed; nothing is lost."""
    uid = await stage.run_pod("train-0")
    role = f"{RBAC}/clusterroles/{ROLE}"
    rules = (await stage.api.get(role))["rules"]
    await stage.api.patch(role, {"rules": []})
    with capture_logs() as logs:
        try:
            await stage.allowed("create", expected=False)
            async with stage.notifying() as notifier:
                notifier.tell([stage.notice("train-0", uid)])
                await until(lambda: notifier.failed == 1)
                stage.clock.ahead += FIRST_HOLDS[0]
                notifier.tell()
                await until(lambda: notifier.failed == 2)
                assert await stage.events() == []
                await stage.api.patch(role, {"rules": rules})
                await stage.allowed("create", expected=True)
                stage.clock.ahead += HOLD
                notifier.tell()
                await until(lambda: notifier.written == 1)
        finally:
            await stage.api.patch(role, {"rules": rules})
    assert [line["event"] for line in logs] == ["notify.forbidden", "notify.allowed"]
    assert NOTE in stage.described("train-0")


async def test_without_the_right_to_patch_only_reminders_are_missing(stage: Stage) -> None:
    """Both verbs are needed, each for its part: without `patch` an Event is created and never brought up to date."""
    uid = await stage.run_pod("train-0")
    role = f"{RBAC}/clusterroles/{ROLE}"
    rules = (await stage.api.get(role))["rules"]
    await stage.api.patch(role, {"rules": [{**rules[0], "verbs": ["create"]}]})
    try:
        await stage.allowed("patch", expected=False)
        async with stage.notifying() as notifier:
            notifier.tell([stage.notice("train-0", uid)])
            await until(lambda: notifier.written == 1)
            stage.clock.ahead += REMINDER
            notifier.tell([stage.notice("train-0", uid)])
            await until(lambda: notifier.failed == 1)
    finally:
        await stage.api.patch(role, {"rules": rules})
        await stage.allowed("patch", expected=True)
    (event,) = await stage.events()
    assert "series" not in event


@pytest.mark.fault(69)
async def test_a_stopped_server_loses_nothing(stage: Stage) -> None:
    """Events that were to be written while it was stopped are there after its start, and the old series goes on."""
    uid = await stage.run_pod("train-0")
    with capture_logs() as logs:
        async with stage.notifying() as notifier:
            notifier.tell([stage.notice("train-0", uid)])
            await until(lambda: notifier.written == 1)
            stage.bed.control_plane.kill_api_server()
            try:
                stage.clock.ahead += REMINDER
                notifier.tell([stage.notice("train-0", uid), stage.notice("train-0", uid, EventReason.HELD)])
                await until(lambda: notifier.failed >= 2)
            finally:
                await asyncio.to_thread(stage.bed.control_plane.start_api_server)

            async def all_written() -> bool:
                stage.clock.ahead += 1.0  # the server refuses until it has read its roles
                notifier.tell()
                return notifier.written == 3

            await becomes(all_written, "the three Events")
            assert notifier.dropped == 0
    exceeded, held = await stage.events()
    assert (exceeded["series"]["count"], held["reason"]) == (2, "GPUMemoryLimitHeld")
    told = [line["event"] for line in logs]
    assert set(told) == {"notify.away", "notify.back"}
    assert told[0] == "notify.away"


async def test_an_event_that_expired_is_made_anew(stage: Stage) -> None:
    """Gone from the server, as after its hour: the reminder creates it again, with its count and its own time."""
    uid = await stage.run_pod("train-0")
    async with stage.notifying() as notifier:
        notifier.tell([stage.notice("train-0", uid)])
        await until(lambda: notifier.written == 1)
        (first,) = await stage.events()
        path = f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events/{first['metadata']['name']}"
        await stage.api.delete(path)
        stage.clock.ahead += REMINDER
        notifier.tell([stage.notice("train-0", uid)])
        await until(lambda: notifier.written == 2)
    (again,) = await stage.events()
    assert (again["series"]["count"], again["eventTime"]) == (2, first["eventTime"])
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_restart_goes_on_with_what_was_told(stage: Stage) -> None:
    """The next daemon says the same: the server's own conflict and object are understood, with the rights we have."""
    uid = await stage.run_pod("train-0")
    for counted in (1, 2, 3):
        async with stage.notifying() as notifier:
            stage.clock.ahead += 1.0
            notifier.tell([stage.notice("train-0", uid)])
            await until(lambda notifier=notifier: notifier.written == 1)  # type: ignore[misc]
            assert (notifier.failed, notifier.dropped) == (0, 0)
        (event,) = await stage.events()
        assert event.get("series", {}).get("count", 1) == counted
    assert "(x3 over" in stage.described("train-0")


async def test_a_terminating_namespace_is_left_in_peace(stage: Stage) -> None:
    """The real server's own refusal is recognized: one attempt, dropped and counted."""
    uid = await stage.run_pod("train-0")
    await stage.api.patch(
        f"/api/v1/namespaces/{stage.namespace}/pods/train-0", {"metadata": {"finalizers": ["example.com/stay"]}}
    )
    await stage.api.delete(f"/api/v1/namespaces/{stage.namespace}")
    try:
        async with stage.notifying() as notifier:
            notifier.tell([stage.notice("train-0", uid)])
            await until(lambda: notifier.dropped == 1)
            assert (notifier.failed, notifier.pending, notifier.written) == (1, 0, 0)
            assert notifier.error is None
    finally:
        finalizers: Object = {"metadata": {"finalizers": None}}
        await stage.api.patch(f"/api/v1/namespaces/{stage.namespace}/pods/train-0", finalizers)
