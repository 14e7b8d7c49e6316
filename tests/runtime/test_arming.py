"""Arming: what has to be there before the daemon acts on a pod, with the real lock and the real journal."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from enforcer.actions.evict.admission_probe import OwnPod
from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kube_writer import Writer
from enforcer.journal import close_requests, levels_file, lock
from enforcer.journal import file as journal_file
from enforcer.journal.file import JournalFile
from enforcer.journal.levels_file import SavedLevel, SavedLevels
from enforcer.journal.records import Acked, BreakerOpened, Record, Sent, Started, State, decode, digest
from enforcer.policy.history import Moment, Opened
from enforcer.policy.holder import HolderKey
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung
from enforcer.runtime.arming import Arming, World, _unspent
from enforcer.runtime.decider import Decider
from exporter.base.cgroup_owner import USUAL
from exporter.base.version import VERSION
from exporter.kube.credentials import from_kubeconfig
from exporter.model import GpuUuid, PodUid, Snapshot
from exporter.rounds.latest import Latest
from journals import BOOT, Writing, action, intended, intent, uuid
from patience import PATIENCE
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, Actor, snapshot
from sources.kube_api import Server, kubeconfig, serving, status, until
from sources.kube_api import pod as a_pod

OWN = OwnPod("gpusteward", "gpusteward-x7k2p")
DENIED = {"message": "... denied: ValidatingAdmissionPolicy 'gpusteward-evictions' with binding ... a UID is needed"}
DENIED_TOO = {"message": "... ValidatingAdmissionPolicy 'gpusteward-own-node' with binding ... known by another UID"}
NO_NODE = {"message": f"{DENIED['message'].partition(' ... ')[0]} denied request: the token carries no node claim"}
NO_POD = status(404, "NotFound") | {"details": {"kind": "pods"}}


class Steps:
    """
    A clock that steps from one sleeper's end to the next one's, once in two real milliseconds at most.

    Requests to the played server take real time: a clock that each sleeper moved on would let minutes pass meanwhile.
    Each step is at least `least` seconds long. A test that waits for minutes takes few steps so.
    """

    def __init__(self) -> None:
        self.least = 0.0
        self.now = 1000.0
        self._ends: list[float] = []
        self._stepped = 0.0

    def time(self) -> float:
        return 1_700_000_000.0 + self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        end = self.now + seconds
        self._ends.append(end)
        try:
            while self.now < end:
                await asyncio.sleep(0.002)
                real = asyncio.get_running_loop().time()
                if real - self._stepped >= 0.002:
                    self.now, self._stepped = max(self.now + self.least, min(self._ends)), real
        finally:
            self._ends.remove(end)


class Stage:
    """A daemon's acting half, an API server that is played, and a folder with the journal."""

    def __init__(self, folder: Path, rules: Rules, *, journal: Path | None = None) -> None:
        self.journal = journal or folder / "state" / "journal"
        self.journal.parent.mkdir(mode=0o700, exist_ok=journal is not None)
        self.canary: web.Response | None = None
        """The answer to the canary; None: none comes for now."""
        self.code, self.body = 403, status(403, "Forbidden") | DENIED
        self.own_node = 403, status(403, "Forbidden") | DENIED_TOO
        """The answer to the second request, which is about the own pod."""
        self.pod: dict[str, Any] | None = None
        self.posted: list[str] = []
        self.now = BEGIN
        self.clock = Steps()
        self.decider = Decider(rules, folder / "stop", moment=lambda: Moment(self.now, self.now))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/selfsubjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}}, status=201)
        if request.method == "POST":
            self.posted.append(request.path)
            assert request.query == {"dryRun": "All"}, "the probe alone may ask"
            code, body = self.own_node if f"/{OWN.name}/" in request.path else (self.code, self.body)
            return web.json_response(body, status=code)
        if request.path.startswith("/api/v1/namespaces/team/pods/"):
            return web.json_response(self.pod or NO_POD, status=200 if self.pod else 404)
        return web.json_response({"metadata": {"labels": {}}})

    async def fresh(self, _only: Collection[GpuUuid]) -> Snapshot | None:
        """Nothing of the victim of `journals.action` is there."""
        return snapshot([MEEK], self.now)

    async def a_while(self) -> None:
        """Wait until the loop under test has looked three times: it does each 10 s at most."""
        later = self.clock.now + 35
        await until(lambda: self.clock.now > later)

    def rounds(self, count: int) -> None:
        """Let so many rounds pass in which GREEDY is over."""
        for _ in range(count):
            self.now += self.decider.rules.interval
            self.decider.hear(snapshot([GREEDY, MEEK], self.now))

    def broken(self) -> None:
        """Let a round pass that the policy stumbles over, so that a breaker opens."""
        self.now += self.decider.rules.interval
        self.decider.hear(replace(snapshot([MEEK], self.now), usages=(None,)))  # type: ignore[arg-type]

    @property
    def summary(self) -> dict[str, Any]:
        """What the node page shows."""
        summary = self.decider.summary()
        assert summary is not None
        return summary

    @property
    def remaining(self) -> int:
        """The tokens of the node that are left."""
        return int(self.summary["budget_remaining"]["node"])

    @property
    def reasons(self) -> dict[Reason, Mode]:
        """What holds the mode down."""
        return {one.reason: one.mode for one in self.decider.ceilings}

    @property
    def records(self) -> list[dict[str, Any]]:
        """The journal as it is on the disk."""
        lines = self.journal.read_bytes().split(b"\n")[:-1]
        assert all(map(decode, lines))
        return [json.loads(line) for line in lines]

    @property
    def ended(self) -> dict[str, str]:
        """Decision to result."""
        return {one["decision"]: one["result"] for one in self.records if one["record"] == "ended"}


@asynccontextmanager
async def arming(
    tmp_path: Path, *, admission: OwnPod | None = None, rules: Rules = UNHURRIED, stage: Stage | None = None
) -> AsyncIterator[tuple[Stage, Server]]:
    stage = stage or Stage(tmp_path, rules)
    async with serving(stage.answer) as server:
        writer = Writer(from_kubeconfig(kubeconfig(tmp_path / "config", server.url)), clock=stage.clock)
        world = World(writer, writer, Path("/proc"), stage.journal, USUAL, admission=admission)
        task = asyncio.create_task(Arming(stage.decider, world, Latest(), stage.fresh, clock=stage.clock).run())
        try:
            yield stage, server
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await writer.close()


async def test_with_everything_there_nothing_holds_it_back(tmp_path: Path) -> None:
    """Lock and journal are had, and let go of at the end: the next daemon gets both."""
    async with arming(tmp_path) as (stage, _):
        await until(lambda: not stage.reasons)
        lock_file = stage.journal.with_name("journal.lock")
        assert lock.take(lock_file) is None
        assert [one["record"] for one in stage.records] == ["state", "started"]
    assert stage.records[-1]["record"] == "stopped"
    taken = lock.take(lock_file)
    assert taken is not None
    taken.release()


async def test_the_journal_names_the_rules_that_decided_and_the_daemons_version(tmp_path: Path) -> None:
    """A reload counts from the first action on that it decides."""
    async with arming(tmp_path) as (stage, _):
        await until(lambda: not stage.reasons)
        stage.decider.rules = replace(UNHURRIED, grace=UNHURRIED.grace / 2)
        stage.rounds(60)
        await until(lambda: "intent" in [one["record"] for one in stage.records])
        (first,) = (one for one in stage.records if one["record"] == "intent")
        assert first["rules"] == digest(stage.decider.rules)
    (started,) = (one for one in stage.records if one["record"] == "started")
    assert (started["pid"], started["version"]) == (os.getpid(), VERSION)


@pytest.mark.parametrize("ladder", [(Rung.NOTIFY, Rung.EVICT), (Rung.NOTIFY, Rung.FENCE, Rung.EVICT)])
async def test_the_log_names_the_steps_that_may_follow(tmp_path: Path, ladder: tuple[Rung, ...]) -> None:
    """Those of the ladder, without one that this node lacks: the driver of this stage has no fence."""
    with capture_logs() as logs:
        async with arming(tmp_path, rules=replace(UNHURRIED, ladder=ladder)) as (stage, _):
            await until(lambda: Reason.NOT_ARMED not in stage.reasons)
    (armed,) = (one for one in logs if one["event"] == "enforcer.armed")
    assert armed["steps"] == [ladder[-1]]


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.WARN, Mode.DRY_RUN])
async def test_in_other_modes_nothing_is_taken(tmp_path: Path, mode: Mode) -> None:
    """The daemon takes neither lock nor journal, and sends no request. A reload with mode `enforce` arms it."""
    async with arming(tmp_path, admission=OWN, rules=replace(UNHURRIED, mode=mode)) as (stage, server):
        await stage.a_while()
        assert Reason.NOT_ARMED in stage.reasons
        assert not list(stage.journal.parent.iterdir()) and not server.seen
        stage.decider.rules = UNHURRIED
        await until(lambda: not stage.reasons)
        assert stage.journal.exists()


@pytest.mark.fault(53, 54)
async def test_the_second_daemon_observes_until_the_first_is_gone(tmp_path: Path) -> None:
    """`not_owner`: there is not even a dry run, and the journal is not touched. Then the second daemon takes over."""
    stage = Stage(tmp_path, UNHURRIED)
    first = lock.take(stage.journal.with_name("journal.lock"))
    assert first is not None
    async with arming(tmp_path, stage=stage):
        await until(lambda: Reason.NOT_OWNER in stage.reasons)
        assert stage.reasons[Reason.NOT_OWNER] is Mode.OBSERVE and not stage.journal.exists()
        first.release()
        await until(lambda: not stage.reasons)
        assert stage.journal.exists()


async def test_a_lock_that_cannot_be_tried_is_somebody_elses(tmp_path: Path) -> None:
    """A folder is in the lock's place: a daemon does not act unless it can prove that it is the only one."""
    stage = Stage(tmp_path, UNHURRIED)
    place = stage.journal.with_name("journal.lock")
    place.mkdir()
    async with arming(tmp_path, stage=stage):
        await until(lambda: Reason.NOT_OWNER in stage.reasons)
        place.rmdir()
        await until(lambda: not stage.reasons)


async def test_without_a_journal_all_are_held_until_there_is_one(tmp_path: Path) -> None:
    """A folder is in its place: pods are held with the reason `journal`. The daemon arms once it can write the file."""
    stage = Stage(tmp_path, UNHURRIED)
    stage.journal.mkdir()
    async with arming(tmp_path, stage=stage):
        await until(lambda: Reason.JOURNAL in stage.reasons)
        assert stage.reasons[Reason.JOURNAL] is Mode.DRY_RUN
        stage.rounds(60)
        summary = stage.decider.summary()
        assert summary is not None and summary["mode"] == "dry-run"
        (refused,) = stage.decider.decisions()["recent"]
        assert (refused["kind"], refused["reason"]) == ("refusal", "journal") and "Is a directory" in refused["detail"]
        stage.journal.rmdir()
        await until(lambda: not stage.reasons)


@pytest.mark.fault(60)
async def test_a_journal_that_is_lost_ends_the_acting(tmp_path: Path) -> None:
    """Another program writes the file: the decided action is not requested, and an open breaker waits for a person."""
    async with arming(tmp_path) as (stage, server):
        await until(lambda: not stage.reasons)
        with stage.journal.open("ab") as file:
            file.write(b"{}\n")
        stage.rounds(60)
        kept = stage.journal.with_name("journal.damaged-1")
        await until(lambda: kept.exists() and not stage.reasons)
        assert kept.read_bytes().endswith(b"{}\n"), "what was written is kept for people"
        asked = {seen.path for seen in server.seen if not seen.path.endswith("selfsubjectaccessreviews")}
        assert not asked, "neither the last look nor the call"
        stage.rounds(1)
        assert {one["breaker"] for one in stage.summary["breakers"]} == {"journal"}, "and a person has to look"


async def test_with_room_on_the_disk_again_it_arms_by_itself(tmp_path: Path) -> None:
    """
    A journal that is gone and comes back gets what was known meanwhile, spent budget and breakers included.

    Nothing that happens to the file allows a further action: a budget that is used up stays used up.
    """
    stage = Stage(tmp_path, UNHURRIED)
    stage.now = journal_file.read_clocks()[0]
    begun(stage)
    async with arming(tmp_path, stage=stage):
        await until(lambda: stage.ended and not stage.reasons)
        stage.rounds(1)
        left = stage.summary["budget_remaining"]
        assert left["node"] == UNHURRIED.budgets.node.most - 1
        stage.journal.unlink()
        stage.journal.mkdir()
        stage.broken()
        await until(lambda: Reason.JOURNAL in stage.reasons)
        await stage.a_while()
        assert stage.reasons == dict.fromkeys((Reason.JOURNAL, Reason.NOT_ARMED), Mode.DRY_RUN)
        stage.journal.rmdir()
        await until(lambda: not stage.reasons)
        stage.rounds(1)
        assert stage.summary["budget_remaining"] == left, (
            "each token counts once, in a journal that never heard of it, too"
        )
        await until(lambda: "breaker_opened" in [one["record"] for one in stage.records])


async def test_what_opens_last_is_noted_before_the_journal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon ends while a record is being written, and another one waits: both are in the journal, then the end."""
    begun, go_on, append = threading.Event(), threading.Event(), JournalFile.append

    def slow(file: JournalFile, *records: Record) -> None:
        if any(isinstance(one, BreakerOpened) for one in records):
            begun.set()
            go_on.wait()
        append(file, *records)

    async with arming(tmp_path) as (stage, _):
        await until(lambda: not stage.reasons)
        monkeypatch.setattr(JournalFile, "append", slow)
        stage.broken()
        await until(begun.is_set)
        stage.decider.close(Breaker.INTERNAL, "ann")
        stage.rounds(1)
        asyncio.get_running_loop().call_later(0.05, go_on.set)  # when the daemon is ending
    assert [one["record"] for one in stage.records][-3:] == ["breaker_opened", "breaker_closed", "stopped"]


async def test_a_person_closes_a_breaker(tmp_path: Path) -> None:
    """The request is taken, noted with the name, and the breaker is closed for the next daemon, too."""
    async with arming(tmp_path) as (stage, _):
        await until(lambda: not stage.reasons)
        stage.broken()
        await until(lambda: "breaker_opened" in [one["record"] for one in stage.records])
        stage.rounds(1)
        assert [one["breaker"] for one in stage.summary["breakers"]] == ["internal"]
        asked = close_requests.ask(stage.journal, Breaker.INTERNAL, "ann")
        await until(lambda: not asked.waits)
        await until(lambda: "breaker_closed" in [one["record"] for one in stage.records])
        (closed,) = [one for one in stage.records if one["record"] == "breaker_closed"]
        assert (closed["breaker"], closed["by"]) == ("internal", "ann")
        stage.rounds(1)
        assert stage.summary["breakers"] == []
        close_requests.ask(stage.journal, Breaker.BLAST_RADIUS, "ann")
        await until(lambda: not list(close_requests.folder(stage.journal).iterdir()))
    assert [one["record"] for one in stage.records].count("breaker_closed") == 1, "what is not open is not closed"


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.DRY_RUN, Mode.ENFORCE])
async def test_a_request_waits_for_the_daemon_that_has_the_journal(tmp_path: Path, mode: Mode) -> None:
    """The journal holds the breakers: a request waits until it is open, and the breaker is closed in it then."""
    stage = Stage(tmp_path, replace(UNHURRIED, mode=mode))
    open_breaker = BreakerOpened(Breaker.ATTRIBUTION, Opened(1.0, "memory of another pod"))
    stage.journal.write_bytes(Writing(BOOT).write(State(), open_breaker).data)
    stage.journal.chmod(0o600)
    away = stage.journal.rename(stage.journal.with_name("away"))
    stage.journal.mkdir()
    async with arming(tmp_path, stage=stage):
        asked = close_requests.ask(stage.journal, Breaker.ATTRIBUTION, "ann")
        await stage.a_while()
        assert asked.waits
        stage.journal.rmdir()
        away.rename(stage.journal)
        stage.decider.rules = UNHURRIED
        await until(lambda: not asked.waits)
        await until(lambda: "breaker_closed" in [one["record"] for one in stage.records])


async def test_a_request_that_is_taken_while_the_daemon_ends_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is removed, so the command has reported success: the journal has it before its end."""
    taken, go_on, take = threading.Event(), threading.Event(), close_requests.take

    def slow(journal: Path, now: float) -> Iterator[tuple[Breaker, str]]:
        for request in take(journal, now):
            taken.set()
            go_on.wait()
            yield request

    async with arming(tmp_path) as (stage, _):
        await until(lambda: not stage.reasons)
        stage.broken()
        monkeypatch.setattr(close_requests, "take", slow)
        close_requests.ask(stage.journal, Breaker.INTERNAL, "ann")
        await until(taken.is_set)
        asyncio.get_running_loop().call_later(0.05, go_on.set)  # when the daemon is ending
    assert [one["record"] for one in stage.records][-3:] == ["breaker_opened", "breaker_closed", "stopped"]


@pytest.mark.fault(74)
@pytest.mark.parametrize(
    ("code", "body"),
    [
        (404, NO_POD),
        (403, status(403, "Forbidden")),
        (201, {"kind": "Status", "status": "Success"}),
        (500, status(500, "InternalError")),
        (403, status(403, "Forbidden") | {"message": "denied: ValidatingAdmissionPolicy 'another' with binding"}),
    ],
    ids=["absent", "no-right", "yes", "broken", "another-policy"],
)
async def test_the_policys_own_no_and_nothing_else_arms(tmp_path: Path, code: int, body: dict[str, Any]) -> None:
    """Asked again and again while it is not there; with its no, mode enforce."""
    stage = Stage(tmp_path, UNHURRIED)
    stage.code, stage.body = code, body
    stage.clock.least = 10.0
    async with arming(tmp_path, admission=OWN, stage=stage):
        await until(lambda: len(stage.posted) >= 3)
        assert stage.reasons == {Reason.ADMISSION: Mode.DRY_RUN}
        canary = f"/api/v1/namespaces/{OWN.namespace}/pods/gpusteward-canary-"
        assert all(path.startswith(canary) for path in stage.posted)
        stage.code, stage.body = 403, status(403, "Forbidden") | DENIED
        await until(lambda: not stage.reasons)
        stage.code, stage.body = 404, NO_POD
        await until(lambda: stage.reasons == {Reason.ADMISSION: Mode.DRY_RUN})


async def test_until_the_first_answer_the_policy_is_not_there(tmp_path: Path) -> None:
    """From the first moment on, through the arming, until the server has said so."""
    stage = Stage(tmp_path, UNHURRIED)
    answered = asyncio.Event()
    answer = stage.answer

    async def slow(request: web.Request) -> web.StreamResponse:
        await answered.wait()
        return await answer(request)

    stage.answer = slow  # type: ignore[method-assign]
    seen: list[set[Reason]] = []
    arm = stage.decider.arm

    def watched(*arguments: Any) -> None:
        seen.append(set(stage.reasons))
        arm(*arguments)

    stage.decider.arm = watched  # type: ignore[method-assign, assignment]
    async with arming(tmp_path, admission=OWN, stage=stage) as (_, server):
        await until(lambda: server.seen)
        assert seen == [{Reason.NOT_ARMED, Reason.ADMISSION}]
        assert stage.reasons == {Reason.ADMISSION: Mode.DRY_RUN}
        answered.set()
        await until(lambda: not stage.reasons)


@pytest.mark.fault(74)
@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        (409, "the UID in the precondition", "gpusteward-own-node is absent: "),
        (404, "no such pod", "gpusteward-own-node is unknown: "),
        (403, DENIED["message"], "gpusteward-own-node is unknown: "),
        (403, NO_NODE["message"], "the token carries no node claim, so each eviction is refused; fix: run the daemon "),
    ],
    ids=["absent", "no-such-pod", "another-policy", "no-node-claim"],
)
async def test_the_second_policy_is_wanted_as_well(tmp_path: Path, code: int, message: str, words: str) -> None:
    """The own pod is asked for with another UID; only the second policy's no arms, and the reason names the policy."""
    stage = Stage(tmp_path, UNHURRIED)
    there = stage.own_node
    stage.own_node = code, status(code, "No") | {"message": message, "details": {"kind": "pods"}}
    async with arming(tmp_path, admission=OWN, stage=stage):
        await until(lambda: [one.detail[: len(words)] for one in stage.decider.ceilings] == [words])
        assert stage.reasons == {Reason.ADMISSION: Mode.DRY_RUN}
        assert f"/api/v1/namespaces/{OWN.namespace}/pods/{OWN.name}/eviction" in stage.posted
        stage.own_node = there
        await until(lambda: not stage.reasons)


@pytest.mark.parametrize("own", [OwnPod("", ""), OwnPod("gpusteward", ""), OwnPod("", "daemon")])
async def test_without_a_pod_of_its_own_nobody_is_evicted(tmp_path: Path, own: OwnPod) -> None:
    """Where POD_NAMESPACE or POD_NAME is empty, no request is sent, and the admission policies count as absent."""
    async with arming(tmp_path, admission=own) as (stage, server):
        await until(lambda: Reason.NOT_ARMED not in stage.reasons)
        assert stage.reasons == {Reason.ADMISSION: Mode.DRY_RUN} and not server.seen


@pytest.mark.parametrize("admission", [OWN, OwnPod("", "")])
async def test_where_nobody_is_evicted_the_policy_is_not_asked_for(tmp_path: Path, admission: OwnPod) -> None:
    """With the ladder `notify`, `kill` the daemon arms without it. A reload that adds `evict` then requires it."""
    kills = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL))
    stage = Stage(tmp_path, kills)
    stage.code, stage.body = 404, NO_POD
    async with arming(tmp_path, admission=admission, stage=stage) as (_, server):
        await until(lambda: Reason.NOT_ARMED not in stage.reasons)
        await stage.a_while()
        assert not {Reason.ADMISSION, Reason.NOT_OWNER, Reason.JOURNAL} & stage.reasons.keys() and not server.seen
        stage.decider.rules = UNHURRIED
        reloaded = stage.clock.now
        async with asyncio.timeout(PATIENCE):
            while Reason.ADMISSION not in stage.reasons:
                await stage.clock.sleep(0.1)  # the clock steps no further before this look; `until` looks too late
        if not admission.known:  # a request to the played server takes real time
            assert stage.clock.now - reloaded <= 2.0, "before three readings can follow"


def begun(stage: Stage, *, rung: Rung = Rung.EVICT, answer: Answer | None = None) -> None:
    """Leave a journal behind as a daemon that was killed after its call had left, or after the answer had come."""
    journal = journal_file.opened(stage.journal, stage.decider.rules)
    journal.append(intended(uuid(1), action(1, rung=rung)))
    journal.append(Sent(uuid(1)))
    if answer is not None:
        journal.append(Acked(uuid(1), answer))
    journal.close()


@pytest.mark.fault(50, 54)
async def test_what_was_begun_is_looked_up_and_never_repeated(tmp_path: Path) -> None:
    """The pod is gone and its memory free: lookups alone verify it. Its budget is spent, and no eviction is sent."""
    stage = Stage(tmp_path, UNHURRIED)
    begun(stage)
    async with arming(tmp_path, stage=stage) as (_, server):
        await until(lambda: stage.ended)
        assert stage.ended == {uuid(1): "verified"}
        assert {seen.path for seen in server.seen} == {"/api/v1/namespaces/team/pods/train-1"}
        assert not stage.posted
        assert [one["record"] for one in stage.records].count("intent") == 1
        (acked,) = [one for one in stage.records if one["record"] == "acked"]
        assert acked["answer"]["heard"] == "accepted", "what a look has confirmed is noted"
        stage.rounds(1)
        summary = stage.decider.summary()
        assert summary is not None and not summary["breakers"]


@pytest.mark.fault(50, 54)
async def test_what_was_accepted_is_only_watched(tmp_path: Path) -> None:
    """The journal has the server's acceptance: no action is in flight, although the pod still terminates."""
    stage = Stage(tmp_path, UNHURRIED)
    begun(stage, answer=Answer(Heard.ACCEPTED, "", 201))
    going = {"deletionTimestamp": "2026-11-01T10:00:00Z"}
    stage.pod = a_pod("train-1", "uid-1", node="node", namespace="team", metadata=going)
    stage.clock.least = 5.0  # it lingers for minutes
    async with arming(tmp_path, stage=stage) as (_, server):
        await until(lambda: not stage.reasons and server.seen)
        assert not stage.decider.in_flight
        await until(lambda: stage.ended)
        assert stage.ended == {uuid(1): "lingers"} and not stage.posted


@pytest.mark.fault(49)
async def test_of_what_was_begun_and_did_not_come_about_the_end_is_told(tmp_path: Path) -> None:
    """The pod still lives a minute later: the action failed, and is not repeated. Until then no other action begins."""
    stage = Stage(tmp_path, UNHURRIED)
    begun(stage)
    stage.pod = a_pod("train-1", "uid-1", node="node", namespace="team")
    stage.clock.least = 5.0
    async with arming(tmp_path, stage=stage):
        await until(lambda: stage.ended)
        assert stage.ended == {uuid(1): "failed"} and not stage.posted


@pytest.mark.parametrize("live", [True, False], ids=["not carried out", "carried out"])
async def test_what_was_not_carried_out_gives_its_token_back(tmp_path: Path, live: bool) -> None:
    """The previous daemon was killed after it had sent its request. A request that did nothing costs no budget."""
    stage = Stage(tmp_path, UNHURRIED)
    stage.now = journal_file.read_clocks()[0]  # the token is of this moment, however long this machine runs
    begun(stage)
    stage.pod = a_pod("train-1", "uid-1", node="node", namespace="team") if live else None
    stage.clock.least = 5.0
    async with arming(tmp_path, stage=stage):
        await until(lambda: not stage.reasons and not stage.decider.in_flight)
        stage.rounds(1)
        assert stage.remaining == UNHURRIED.budgets.node.most - (0 if live else 1)


@pytest.mark.parametrize(
    ("then", "result"),
    [
        ((), "failed"),
        ((Sent(uuid(3)),), "unknown"),
        ((Sent(uuid(3)), Acked(uuid(3), Answer(Heard.ACCEPTED, "SIGTERM was sent"))), "unknown"),
        ((Sent(uuid(3)), Acked(uuid(3), Answer(Heard.AMBIGUOUS, "no answer"))), "unknown"),
        ((Sent(uuid(3)), Acked(uuid(3), Answer(Heard.IMPOSSIBLE, "not permitted"))), "impossible"),
    ],
    ids=["not sent", "perhaps sent", "accepted", "ambiguous", "a certain no"],
)
async def test_a_kill_of_before_the_reboot_is_void(tmp_path: Path, then: tuple[Record, ...], result: str) -> None:
    """The daemon does not look for its process, which has ended. Its budget is spent, if it may have been killed."""
    stage = Stage(tmp_path, UNHURRIED)
    old: tuple[Record, ...] = (State(), Started(7, "1.0"), intent(3, rung=Rung.KILL), *then)
    stage.journal.write_bytes(Writing(BOOT).write(*old).data)
    stage.journal.chmod(0o600)
    async with arming(tmp_path, stage=stage) as (_, server):
        await until(lambda: stage.ended and not stage.reasons)
        assert stage.ended == {uuid(3): result} and not server.seen
    again = journal_file.opened(stage.journal, UNHURRIED)
    assert [token.workload for token in again.kept.spent] == ([action(3).workload] if result == "unknown" else [])
    again.close()


# --- the levels -------------------------------------------------------------------------------------------------------


def saved(stage: Stage) -> levels_file.SavedLevels | None:
    """What stands beside the journal."""
    return levels_file.read(levels_file.path_of(stage.journal))


def levels_of(stage: Stage) -> list[float]:
    """The seconds of the levels that are saved."""
    levels = saved(stage)
    return [] if levels is None else [level.seconds for level in levels.restored().values()]


def seconds(stage: Stage) -> float:
    """The level of GREEDY."""
    (level,) = (one["over_seconds"] for one in stage.decider.standings(GREEDY.pod_uid))
    return float(level)


async def test_levels_outlive_the_daemon(tmp_path: Path) -> None:
    """They are saved every half minute and at the end, and the next daemon goes on with them."""
    stage = Stage(tmp_path, UNHURRIED)
    stage.now = journal_file.read_clocks()[0]
    async with arming(tmp_path, stage=stage):
        await until(lambda: not stage.reasons)
        stage.rounds(10)
        before = seconds(stage)
        await until(lambda: levels_of(stage))
        assert before > 0
        stage.rounds(3)
    at_the_end = seconds(stage)
    assert levels_of(stage) == [at_the_end] and at_the_end > before
    again = Stage(tmp_path, UNHURRIED, journal=stage.journal)
    again.now = stage.now
    async with arming(tmp_path, stage=again):
        await until(lambda: not again.reasons)
        again.rounds(1)
        assert at_the_end - UNHURRIED.interval <= seconds(again) <= at_the_end


@pytest.mark.parametrize("rung", [Rung.EVICT, Rung.FENCE])
def test_what_an_accepted_action_began_anew_is_not_restored(tmp_path: Path, rung: Rung) -> None:
    """The daemon was killed before it saved: no level is left of an evicted pod, also none as a victim of a claim."""
    stage = Stage(tmp_path, UNHURRIED)
    begun(stage, rung=rung, answer=Answer(Heard.ACCEPTED, "", 201))
    journal = journal_file.opened(stage.journal, UNHURRIED)
    holders = [HolderKey(PodUid(""), "", "team/c", "GPU-1"), HolderKey(PodUid(""), "", "team/c", "GPU-2")]
    victims = zip(holders, ("uid-1", "uid-2"), strict=True)
    levels = tuple(
        SavedLevel(holder, {"read_at": 1.0, "seconds": 135.0, "victim": victim}) for holder, victim in victims
    )
    left = _unspent(SavedLevels("boot", "1", "rules", (), True, levels), journal.kept)
    journal.close()
    assert left is not None
    assert [each.holder for each in left.levels] == (holders[1:] if rung is Rung.EVICT else holders)


async def test_a_journal_that_comes_back_brings_no_level_back_that_fell_meanwhile(tmp_path: Path) -> None:
    """The limit of a pod in its grace is raised, and lowered again: it is warned anew, and has a whole grace."""
    stage = Stage(tmp_path, UNHURRIED)
    stage.now = journal_file.read_clocks()[0]
    due = Actor("due-1", 4 * GIB, limit=2 * GIB)

    def rounds(count: int, *actors: Actor) -> None:
        for _ in range(count):
            stage.now += UNHURRIED.interval
            stage.decider.hear(snapshot(actors, stage.now))

    async with arming(tmp_path, stage=stage):
        await until(lambda: not stage.reasons)
        rounds(2, due, MEEK)
        rounds(24, GREEDY, due, MEEK)
        await until(lambda: levels_of(stage))
        stage.journal.unlink()
        stage.journal.mkdir()
        rounds(4, GREEDY, due, MEEK)
        await until(lambda: stage.reasons.keys() >= {Reason.JOURNAL, Reason.NOT_ARMED})  # it is disarmed
        rounds(3, replace(GREEDY, limit=75 * GIB), MEEK)
        rounds(3, GREEDY, MEEK)
        assert seconds(stage) == 10.0
        stage.journal.rmdir()
        await until(lambda: not stage.reasons)
        rounds(20, GREEDY, MEEK)
        assert [one["state"] for one in stage.decider.standings(GREEDY.pod_uid)] == ["grace"]
        assert seconds(stage) == 110.0
