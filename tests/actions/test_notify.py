"""The notifier against a server that does what real ones do seldom; a real one stands in tests/cluster."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from enforcer.actions.kube_writer import Writer
from enforcer.actions.notify.actuator import FIRST_HOLDS, HOLD, MOST_PENDING, RIGHTS, Notifier
from enforcer.messages.action_texts import EventReason
from enforcer.messages.events import BURST, KEPT, REMINDER, Notice, Regarding
from enforcer.policy.holder import HolderKey
from exporter.kube.credentials import from_kubeconfig
from exporter.model import ContainerKind, PodUid
from sources.kube_api import kubeconfig, refusal, serving, status, until

AT = 1_700_000_000.0
RBAC = Path(__file__).parents[2] / "deploy" / "enforcer" / "rbac.yaml"


class Steps:
    """A clock that only steps: each sleep on it moves it on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def time(self) -> float:
        return AT + self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Events:
    """
    The events resource. What stands in `refusals` of a namespace is answered first, one for each request.

    As many answers to changes as `lost` says go astray: the change is made, and the server seems to have failed.
    """

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.refusals: dict[str, list[web.Response]] = defaultdict(list)
        self.lost = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        _, _, _, _, _, namespace, _, *name = request.path.split("/")
        self.asked.append((request.method, namespace))
        if self.refusals[namespace]:
            return self.refusals[namespace].pop(0)
        sent = await request.json()
        if request.method == "POST":
            assert request.content_type == "application/json"
            if sent["metadata"]["name"] in self.stored:
                return refusal(409, "AlreadyExists")
            self.stored[sent["metadata"]["name"]] = sent
        else:
            assert (request.method, request.content_type) == ("PATCH", "application/merge-patch+json")
            if name[0] not in self.stored:
                return refusal(404, "NotFound")
            self.stored[name[0]] |= sent
        if self.lost and sent:
            self.lost -= 1
            return refusal(500, "InternalError")
        return web.json_response(self.stored[name[0] if name else sent["metadata"]["name"]])


def notice(
    namespace: str = "team-a",
    *,
    uid: str = "uid-1",
    topic: str = "",
    kind: ContainerKind = ContainerKind.REGULAR,
    at: float = AT,
) -> Notice:
    whom = Regarding(namespace, "train-0", PodUid(uid), "main", kind)
    return Notice(whom, EventReason.EXCEEDED, "uses too much", at, topic)


class Stage:
    """A notifier at work, its clock, and the server."""

    def __init__(self, notifier: Notifier, clock: Steps, events: Events) -> None:
        self.notifier, self.clock, self.events = notifier, clock, events

    async def tell(self, *notices: Notice, after: float = 0.0) -> None:
        """Step, tell, and wait until all that may be written was tried."""
        self.clock.now += after
        self.notifier.tell(notices)
        await until(lambda: not self.notifier._wake.is_set())

    def tried(self) -> int:
        return self.notifier.written + self.notifier.failed


@asynccontextmanager
async def notifying(folder: Path, url: str, events: Events, instance: str = "gpu-node") -> AsyncIterator[Stage]:
    clock = Steps()
    writer = Writer(from_kubeconfig(kubeconfig(folder / "config", url)), clock=clock, deadline=5.0)
    notifier = Notifier(writer, instance, clock=clock, random=Random(1))
    task = asyncio.create_task(notifier.run())
    try:
        yield Stage(notifier, clock, events)
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await writer.close()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    events = Events()
    async with serving(events.answer) as server, notifying(tmp_path, server.url, events) as made:
        yield made


def count(made: dict[str, Any]) -> int:
    return int(made.get("series", {}).get("count", 1))


def forbidden() -> web.Response:
    return refusal(403, "Forbidden")


async def test_an_event_is_created_and_then_brought_up_to_date(stage: Stage) -> None:
    """The first is a POST of the whole object, the reminder a PATCH of its series and of nothing else."""
    await stage.tell(notice())
    ((name, made),) = stage.events.stored.items()
    assert made == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "team-a"},
        "eventTime": "2023-11-14T22:13:20.000000Z",
        "reportingController": "gpusteward.io/gpusteward",
        "reportingInstance": "gpu-node",
        "reason": "GPUMemoryLimitExceeded",
        "action": "Notify",
        "type": "Warning",
        "note": "uses too much",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "team-a",
            "name": "train-0",
            "uid": "uid-1",
            "fieldPath": "spec.containers{main}",
        },
    }
    await stage.tell(notice(), after=REMINDER)
    assert stage.events.stored[name]["series"] == {"count": 2, "lastObservedTime": "2023-11-14T22:13:20.000000Z"}
    assert [method for method, _ in stage.events.asked] == ["POST", "PATCH"]
    assert (stage.notifier.written, stage.notifier.failed, stage.notifier.dropped) == (2, 0, 0)


@pytest.mark.parametrize(
    ("kind", "path"),
    [(ContainerKind.SIDECAR, "initContainers"), (ContainerKind.EPHEMERAL, "ephemeralContainers")],
)
async def test_the_container_is_found_where_the_spec_has_it(stage: Stage, kind: ContainerKind, path: str) -> None:
    """The field path of each kind of container is that of the pod's spec."""
    await stage.tell(notice(kind=kind))
    (made,) = stage.events.stored.values()
    assert made["regarding"]["fieldPath"] == f"spec.{path}{{main}}"


async def test_a_name_of_a_node_of_any_length_fits(tmp_path: Path) -> None:
    """Nodes have names of up to 253 characters, the reporting instance 128."""
    events = Events()
    async with serving(events.answer) as server, notifying(tmp_path, server.url, events, "n" * 253) as stage:
        await stage.tell(notice())
    (made,) = events.stored.values()
    assert len(made["reportingInstance"].encode()) == 128


async def test_an_event_whose_answer_was_lost_stands(stage: Stage) -> None:
    """409 on a creation, and what stands there has our time: it was created before, and was seen once."""
    stage.events.lost = 1
    await stage.tell(notice())
    await until(lambda: stage.notifier.written)
    (made,) = stage.events.stored.values()
    assert (stage.notifier.written, stage.notifier.failed, "series" in made) == (1, 1, False)
    assert [method for method, _ in stage.events.asked] == ["POST", "POST", "PATCH"]


async def test_an_event_that_went_before_it_was_looked_at_is_made(stage: Stage) -> None:
    """409 on the creation, 404 on the look at what stands there: another attempt, which creates it."""
    stage.events.refusals["team-a"] = [refusal(409, "AlreadyExists"), refusal(404, "NotFound")]
    await stage.tell(notice())
    await until(lambda: stage.notifier.written)
    assert (len(stage.events.stored), stage.notifier.dropped) == (1, 0)
    assert [method for method, _ in stage.events.asked] == ["POST", "PATCH", "POST"]


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_restart_goes_on_with_the_events_of_before(tmp_path: Path, lost: int) -> None:
    """The same words, said again by the next daemon and the one after it: one Event, whose count never falls."""
    events, counted = Events(), []
    async with serving(events.answer) as server:
        for restarts in range(3):
            async with notifying(tmp_path, server.url, events) as stage:
                for reminders in range(2):
                    events.lost = lost
                    at = AT + 3600.0 * restarts + 300.0 * reminders
                    await stage.tell(notice(at=at), after=REMINDER if reminders else 0.0)
                    await until(lambda stage=stage, wanted=1 + reminders: stage.notifier.written == wanted)  # type: ignore[misc]
                    assert stage.notifier.failed == lost * (1 + reminders)
                    (made,) = events.stored.values()
                    counted.append(count(made))
    assert counted == [1, 2, 3, 4, 5, 6]
    assert made["eventTime"] == "2023-11-14T22:13:20.000000Z"
    assert made["series"]["lastObservedTime"] == "2023-11-15T00:18:20.000000Z"


async def test_an_event_that_the_server_forgot_is_created_anew(stage: Stage) -> None:
    """404 on a patch: the whole object is posted again, with its series."""
    await stage.tell(notice())
    stage.events.stored.clear()
    await stage.tell(notice(), after=REMINDER)
    (made,) = stage.events.stored.values()
    assert (made["series"]["count"], made["note"]) == (2, "uses too much")
    assert [method for method, _ in stage.events.asked] == ["POST", "PATCH", "POST"]


async def test_an_event_that_came_back_while_it_was_made_anew_is_patched(stage: Stage) -> None:
    """404 on the patch and 409 on the creation after it: another attempt, which finds it and adds the series."""
    await stage.tell(notice())
    stage.events.refusals["team-a"] = [refusal(404, "NotFound"), refusal(409, "AlreadyExists")]
    await stage.tell(notice(), after=REMINDER)
    await until(lambda: stage.notifier.written == 2)
    (made,) = stage.events.stored.values()
    assert made["series"]["count"] == 2
    assert [method for method, _ in stage.events.asked] == ["POST", "PATCH", "POST", "PATCH"]


@pytest.mark.fault(69)
async def test_without_the_right_it_is_tried_thrice_in_a_minute_and_then_each_five_minutes(stage: Stage) -> None:
    """403: one log line however long it lasts, no other namespace held up, none lost; three tries within a minute."""
    for namespace in ("team-a", "team-c"):
        stage.events.refusals[namespace] = [forbidden() for _ in range(4)]
    with capture_logs() as logs:
        await stage.tell(notice(), notice("team-b", uid="uid-2"), notice("team-c", uid="uid-3"))
        assert (stage.notifier.written, stage.notifier.pending) == (1, 2)
        assert not logs, "it may be that the server has just begun"
        for _ in range(int(60.0 / 5.0)):
            await stage.tell(after=5.0)
        assert stage.events.asked.count(("POST", "team-a")) == 3
        for _ in range(int(HOLD / 5.0)):
            await stage.tell(after=5.0)
        assert stage.events.asked.count(("POST", "team-a")) == 4
        assert stage.clock.slept == [], "a refusal is an answer: nothing is backed off from"
        await stage.tell(after=HOLD)
    assert [(line["event"], line["namespace"]) for line in logs] == [
        *(("notify.forbidden", "team-a"), ("notify.forbidden", "team-c")),
        *(("notify.allowed", "team-a"), ("notify.allowed", "team-c")),
    ]
    assert len(stage.events.stored) == 3
    assert (stage.notifier.written, stage.notifier.failed, stage.notifier.pending) == (3, 8, 0)


HOLDER = HolderKey(PodUid("uid-1"), "main", "")


async def test_a_warning_that_the_server_has_accepted_is_reported(stage: Stage) -> None:
    """Created, or a conflict with an Event that says the same: the holder is named, and other notices are not."""
    accepted: list[HolderKey] = []
    stage.notifier.accepted = lambda holder, _warned_at: accepted.append(holder)
    await stage.tell(notice(topic="no warning"))
    assert accepted == []
    stage.events.lost = 1
    await stage.tell(replace(notice(), holder=HOLDER))
    await until(lambda: accepted)
    assert accepted == [HOLDER], "its answer was lost, and the conflict says that it stands there"


async def test_a_warning_anew_is_reported_anew(stage: Stage) -> None:
    """The same holder is warned again: the Event is brought up to date at once, and the holder named again."""
    accepted: list[HolderKey] = []
    stage.notifier.accepted = lambda holder, _warned_at: accepted.append(holder)
    for _ in range(2):
        await stage.tell(replace(notice(), holder=HOLDER), after=20.0)
    assert accepted == [HOLDER, HOLDER]
    assert [method for method, _ in stage.events.asked] == ["POST", "PATCH"]


async def test_a_warning_that_is_refused_is_not_reported_before_it_is_written(stage: Stage) -> None:
    """403 twice, then a yes: three tries within a minute, and the holder is named once."""
    accepted: list[HolderKey] = []
    stage.notifier.accepted = lambda holder, _warned_at: accepted.append(holder)
    stage.events.refusals["team-a"] = [forbidden(), forbidden()]
    await stage.tell(replace(notice(), holder=HOLDER))
    began = stage.clock.now
    for _ in range(6):
        assert accepted == []
        await stage.tell(after=5.0)
    assert accepted == [HOLDER] and stage.clock.now - began <= 60.0


async def test_a_server_that_has_just_begun_raises_no_alarm(stage: Stage) -> None:
    """One 403, as from a server that has not read its roles yet: tried again after ten seconds, and not logged."""
    stage.events.refusals["team-a"] = [forbidden()]
    with capture_logs() as logs:
        await stage.tell(notice())
        await stage.tell(after=FIRST_HOLDS[0] - 1.0)
        assert stage.notifier.written == 0
        await stage.tell(after=1.0)
    assert (stage.notifier.written, logs) == (1, [])


async def test_a_server_that_asks_for_patience_gets_it(stage: Stage) -> None:
    """429 with Retry-After: not asked again before that time, then written."""
    stage.events.refusals["team-a"] = [refusal(429, "TooManyRequests", retry_after=17)]
    await stage.tell(notice())
    await until(lambda: stage.notifier.written)
    assert len(stage.clock.slept) == 1
    assert 17.0 <= stage.clock.slept[0] <= 18.0


async def test_patience_ends_with_the_outage(stage: Stage) -> None:
    """Waits grow while the server fails, and begin small again after it has answered once."""
    stage.events.refusals["team-a"] = [refusal(500, "InternalError") for _ in range(8)]
    await stage.tell(notice())
    await until(lambda: stage.notifier.written == 1)
    assert max(stage.clock.slept) > 2.0
    stage.events.refusals["team-b"] = [refusal(500, "InternalError")]
    await stage.tell(notice("team-b", uid="uid-2"))
    await until(lambda: stage.notifier.written == 2)
    assert len(stage.clock.slept) == 9
    assert stage.clock.slept[-1] <= 1.0


async def test_one_event_that_fails_holds_up_no_other(stage: Stage) -> None:
    """A webhook that fails for one namespace: the others' Events are written between its attempts."""
    stage.events.refusals["team-a"] = [refusal(500, "InternalError") for _ in range(4)]
    await stage.tell(notice(), *(notice("team-b", uid=f"uid-b{number}") for number in range(3)))
    await until(lambda: stage.notifier.written == 4)
    assert stage.events.asked.index(("POST", "team-b")) == 1


@pytest.mark.fault(69)
async def test_events_outlast_a_server_that_is_away(tmp_path: Path) -> None:
    """No server listens: the newest Event of each series is kept, and one log line says so. Later all are written."""
    events = Events()
    async with serving(events.answer) as server:
        url = server.url
    with capture_logs() as logs:
        async with notifying(tmp_path, url, events) as stage:
            stage.notifier.tell([notice(), notice("team-b", uid="uid-2")])
            await until(lambda: stage.notifier.failed >= 2)
            stage.clock.now += REMINDER
            stage.notifier.tell([notice()])
            assert stage.notifier.pending <= 2
            assert str(stage.notifier.error).startswith("Unreachable")
            async with serving(events.answer, port=int(url.rpartition(":")[2])):
                # An attempt with the old count may have been under way when the server came: then both are written.
                await until(lambda: sorted(map(count, events.stored.values())) == [1, 2])
                await until(lambda: stage.notifier.error is None)
                assert (stage.notifier.pending, str(stage.notifier.error), stage.notifier.dropped) == (0, "None", 0)
    assert [line["event"] for line in logs] == ["notify.away", "notify.back"]


async def test_a_namespace_that_goes_is_left_in_peace(stage: Stage) -> None:
    """Nothing can be created in a terminating namespace, or in one that is gone: dropped, counted, not asked again."""
    answer = web.json_response(status(403, "Forbidden", causes=("NamespaceTerminating",)), status=403)
    stage.events.refusals["team-a"] = [answer]
    stage.events.refusals["team-b"] = [refusal(404, "NotFound")]
    await stage.tell(notice(), notice("team-b", uid="uid-2"))
    await stage.tell(after=HOLD)
    assert stage.events.asked == [("POST", "team-a"), ("POST", "team-b")]
    assert (stage.notifier.dropped, stage.notifier.pending) == (2, 0)


async def test_what_the_server_calls_invalid_is_not_repeated(stage: Stage) -> None:
    """422 would be a bug of ours: one attempt, one log line in five minutes with the server's words, counted."""
    stage.events.refusals["team-a"] = [refusal(422, "Invalid"), refusal(422, "Invalid")]
    with capture_logs() as logs:
        await stage.tell(notice(), notice(topic="another"))
    assert stage.events.asked == [("POST", "team-a")] * 2
    assert (stage.notifier.failed, stage.notifier.dropped) == (2, 2)
    assert [(line["event"], line["reason"], line["message"]) for line in logs] == [("notify.dropped", "refused", "no")]


@pytest.mark.fault(69)
async def test_a_notice_never_waits_and_nothing_grows(tmp_path: Path) -> None:
    """While none is written, thousands of notices are taken at once. Those beyond the bound are dropped and counted."""
    clock = Steps()
    writer = Writer(from_kubeconfig(kubeconfig(tmp_path / "config", "http://127.0.0.1:1")), clock=clock)
    notifier = Notifier(writer, "gpu-node", clock=clock, random=Random(1))
    with capture_logs() as logs:
        for first in range(0, 2 * MOST_PENDING, 32):  # of one round each; one at a time they cost a second
            notifier.tell([notice(uid=f"uid-{number}") for number in range(first, first + 32)])
    assert (notifier.pending, notifier.dropped) == (MOST_PENDING, MOST_PENDING)
    assert [line["reason"] for line in logs] == ["overflow"]
    with capture_logs() as logs:
        notifier.tell([notice(topic=str(number)) for number in range(BURST + 10)])
    assert notifier.dropped == MOST_PENDING + BURST + 10
    assert [line["reason"] for line in logs] == ["filtered"]
    await writer.close()


async def test_what_is_an_hour_old_is_news_no_more(stage: Stage) -> None:
    """An Event that could not be written for an hour is dropped and counted."""
    stage.events.refusals["team-a"] = [forbidden()]
    await stage.tell(notice())
    assert stage.notifier.pending == 1
    await stage.tell(after=KEPT)
    assert (stage.notifier.pending, stage.notifier.dropped, len(stage.events.asked)) == (0, 1, 1)


def test_the_rights_are_those_that_deploy_grants() -> None:
    """deploy/enforcer grants for mode warn what the notifier says that it asks for, and nothing else."""
    (role,) = (thing for thing in yaml.safe_load_all(RBAC.read_text()) if thing["kind"] == "ClusterRole")
    granted = {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == {(right.verb, right.group, right.resource) for right in RIGHTS}
