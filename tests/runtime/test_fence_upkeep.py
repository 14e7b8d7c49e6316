"""The fences of a node: the real acting half, with lock, journal and the fake driver, through reloads and restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from driver.node import FakeNode, GiB, gpus
from enforcer.actions.fence.fences import Fence
from enforcer.actions.fence.nvml import NvmlLimits
from enforcer.actions.kube_writer import Writer
from enforcer.journal import file as journal_file
from enforcer.journal import lock
from enforcer.journal.records import Fenced, Sent, Unfenced
from enforcer.policy.history import Moment
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, Trigger
from enforcer.runtime.arming import Arming, World
from enforcer.runtime.decider import Decider
from exporter.base.cgroup_owner import USUAL
from exporter.kube.credentials import from_kubeconfig
from exporter.model import GpuUuid, Snapshot
from exporter.rounds.latest import Latest
from policy.scenes import BEGIN, CONSENTING, GREEDY, MEEK, UNHURRIED, Actor, gpu_uuid, snapshot
from sources.kube_api import kubeconfig, pod, serving, until
from sources.limits import PATIENT, POD, R615, limits, out_of_memory

__all__ = ["limits"]

LADDER = (Rung.NOTIFY, Rung.FENCE, Rung.EVICT)
FENCING = replace(UNHURRIED, ladder=LADDER)
ALONE = replace(FENCING, ladder=(Rung.NOTIFY, Rung.FENCE))
HOG = Actor("hog-1", 12 * GiB, uid=POD)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "hog", "uid": "1"}
LIVE = pod(
    "hog-1",
    POD,
    node="node",
    namespace="team",
    metadata={"ownerReferences": [{**OWNER, "controller": True}]},
    spec={"priority": 0},
    status={"containerStatuses": [{"name": "main", "containerID": f"containerd://{HOG.id}", "state": {"running": {}}}]},
)
OTHER = Actor("other-1", 2 * GiB)
GPU = gpu_uuid(0)


class Steps:
    """A clock that only steps: each sleep on it moves it on."""

    now = 1000.0

    def time(self) -> float:
        return 1_700_000_000.0 + self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0.001)


class Stage:
    """A node whose driver can limit cgroups, and daemons on it, one after the other."""

    def __init__(self, node: FakeNode, limits: NvmlLimits, folder: Path) -> None:
        self.node, self.limits, self.folder = node, limits, folder
        self.mount = folder / "cgroup"
        self.leaf(GREEDY).mkdir(parents=True)
        self.proc = folder / "proc"
        (self.proc / "1").mkdir(parents=True)
        (self.proc / "1" / "cgroup").write_text("0::/init.scope\n")
        self.journal = folder / "state" / "journal"
        self.journal.parent.mkdir(mode=0o700)
        self.now = BEGIN
        self.clock = Steps()
        self.latest = Latest()
        self.rounds = 0
        self.driver(R615)
        node.set_switch("limits_for_all")

    def driver(self, version: str) -> None:
        """Have another version of the driver."""
        self.node.write([replace(gpus(1)[0], uuid=GPU)], driver=version, cgroups=self.mount)

    def leaf(self, actor: Actor) -> Path:
        """Say where the cgroup of an actor is."""
        return self.mount / f"kubepods/pod{actor.pod}/{actor.id}"

    async def fenced(self, *, hard: int = 70 * GiB) -> None:
        """Leave a fence on GREEDY behind, in the driver and in the journal, as a daemon that ended in order does."""
        journal = journal_file.opened(self.journal, FENCING)
        (key,) = (one.key for one in self._standings())
        journal.append(Fenced(Fence(key, "/" + str(self.leaf(GREEDY).relative_to(self.mount)), hard, None, 8 * GiB)))
        journal.close()
        await self.limits.limit(GPU, str(self.leaf(GREEDY)), hard)

    def _standings(self) -> Any:
        decider = Decider(FENCING, self.folder / "stop", moment=lambda: Moment(self.now, self.now))
        decider.hear(snapshot([GREEDY], self.now))
        return decider.judged()

    async def a_while(self) -> None:
        """Wait until the loop under test has looked twice at least: after a failure it does each 60 s at most."""
        later = self.clock.now + 150
        await until(lambda: self.clock.now > later)

    async def hard(self) -> int | None:
        """What the driver keeps of GREEDY."""
        return (await self.limits.read(GPU, str(self.leaf(GREEDY)))).hard

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.read_bytes().splitlines()]

    @property
    def intents(self) -> list[str]:
        """The steps that were about to be taken."""
        return [one["action"]["rung"] for one in self.records if one["record"] == "intent"]

    @property
    def unfenced(self) -> list[str]:
        return [one["detail"] for one in self.records if one["record"] == "unfenced"]


class Daemon:
    """One daemon's acting half."""

    def __init__(self, stage: Stage, rules: Rules) -> None:
        self.stage = stage
        self.actors: tuple[Actor, ...] = ()
        self.decider = Decider(rules, stage.folder / "stop", moment=lambda: Moment(stage.now, stage.now))

    async def fresh(self, _only: Collection[GpuUuid]) -> Snapshot | None:
        self.stage.now += 0.01
        return await self._publish(self.actors)

    async def round(self, *actors: Actor, live: bool = True) -> None:
        """Make a round, heard and published as the sampler does."""
        self.actors = actors
        self.stage.now += self.decider.rules.interval
        await self._publish(actors, live=live)

    async def _publish(self, actors: tuple[Actor, ...], *, live: bool = True) -> Snapshot:
        stage = self.stage
        stage.rounds += 1
        seen = snapshot(actors, stage.now, round_=stage.rounds, live=live)
        self.decider.hear(seen)
        stage.latest.publish(seen, stage.latest.tally)
        return seen

    async def look(self, *actors: Actor, live: bool = True) -> None:
        """Make a round, and wait until it was looked after: the fences are read once."""
        calls = self.stage.node.calls("nvmlDeviceGetMemoryLimits")
        await self.round(*actors, live=live)
        await until(lambda: self.stage.node.calls("nvmlDeviceGetMemoryLimits") > calls)

    @property
    def reasons(self) -> dict[Reason, str]:
        return {one.reason: one.detail for one in self.decider.ceilings}

    @property
    def missing(self) -> dict[Rung, bool]:
        """The steps that this node cannot perform, and whether that lasts."""
        return {each.step: each.lasting for each in self.decider.missing}

    def reason(self, actor: Actor) -> tuple[Reason, str] | None:
        """Say why an actor that is due is not acted on."""
        states = (each for each in self.decider.judged() if each.key.pod_uid == actor.pod_uid)
        return next(((state.reason, state.detail) for state in states if state.reason is not None), None)

    def next_rung(self, actor: Actor) -> Rung | None:
        (found,) = (one.rung for one in self.decider.judged() if one.key.pod_uid == actor.pod_uid)
        return found


@pytest.fixture
def stage(fake_node: FakeNode, limits: NvmlLimits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Give a node; the daemon is root there, as the fake driver's switch says."""
    monkeypatch.setattr("enforcer.runtime.fence_upkeep.geteuid", lambda: 0)
    return Stage(fake_node, limits, tmp_path)


@asynccontextmanager
async def running(stage: Stage, rules: Rules = FENCING) -> AsyncIterator[Daemon]:
    """Run one daemon's acting half; the API server tells of HOG."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/namespaces/team/pods/hog-1":
            return web.json_response(LIVE)
        return web.json_response({"metadata": {"labels": dict(CONSENTING)}})

    daemon = Daemon(stage, rules)
    async with serving(answer) as server:
        writer = Writer(from_kubeconfig(kubeconfig(stage.folder / "config", server.url)), clock=stage.clock)
        own = NvmlLimits(deadline=PATIENT)
        world = World(writer, writer, stage.proc, stage.journal, USUAL, trusted=True, limits=own, cgroups=stage.mount)
        arming = Arming(daemon.decider, world, stage.latest, daemon.fresh, clock=stage.clock)
        task = asyncio.create_task(arming.run())
        try:
            yield daemon
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await writer.close()


async def test_a_ladder_with_a_fence_arms_where_the_driver_can(stage: Stage) -> None:
    """Nothing is set to find out."""
    async with running(stage) as daemon:
        await until(lambda: not daemon.reasons)
    assert not stage.node.calls("nvmlDeviceSetMemoryLimits")


async def test_from_the_excess_to_the_fence_and_to_its_end(stage: Stage) -> None:
    """Decided, looked at again, noted, set, read back: more is refused; freed, it comes down; stopped, it falls."""
    cgroup = f"/kubepods/pod{POD}/{HOG.id}"
    (stage.mount / cgroup.strip("/")).mkdir(parents=True)
    workload = stage.node.spawn(f"alloc 0 {12 * GiB}", env={"FAKE_NVML_CGROUP": cgroup})
    (stage.proc / str(workload.pid)).mkdir()
    (stage.proc / str(workload.pid) / "cgroup").write_text(f"0::{cgroup}\n")

    async def hard() -> int | None:
        return (await stage.limits.read(GPU, f"{stage.mount}{cgroup}")).hard

    async with running(stage, replace(FENCING, trigger=Trigger.LIMIT)) as daemon:
        await until(lambda: not daemon.reasons)
        while not daemon.decider.in_flight:
            assert stage.rounds < 100
            await daemon.round(HOG, MEEK)
        await until(lambda: not daemon.decider.in_flight)
        await until(lambda: stage.records[-1]["record"] == "ended")  # of the watch, which begins with the acceptance
        assert [one["record"] for one in stage.records if one["record"] not in {"struck", "exceeds"}][2:] == [
            *("intent", "sent", "fenced", "acked", "ended")
        ]
        assert stage.records[-1]["result"] == "verified" and daemon.next_rung(HOG) is not None
        assert await hard() == 12 * GiB and out_of_memory(workload, 1)
        workload.free()
        await daemon.look(replace(HOG, used=0), MEEK)
        await until(lambda: [one["fence"]["hard"] for one in stage.records if one["record"] == "fenced"][1:])
        assert daemon.next_rung(HOG) is Rung.EVICT
        (stage.folder / "stop").touch()
        await daemon.look(replace(HOG, used=0), MEEK)
        await until(lambda: stage.unfenced)
        assert await hard() is None and not out_of_memory(workload, 12 * GiB)


async def test_a_driver_that_cannot_fence_leaves_a_ladder_of_fences_held(stage: Stage) -> None:
    """Without another step the pod is held, with why; the driver is asked again, and the fence follows when it can."""
    stage.driver("580.95.05")
    async with running(stage, replace(ALONE, trigger=Trigger.LIMIT)) as daemon:
        await until(lambda: not daemon.reasons)
        while daemon.reason(HOG) is None:
            assert stage.rounds < 100
            await daemon.round(HOG, MEEK)
        why = "it cannot fence: driver 580.95.05 limits no cgroups: R615 and later do"
        assert daemon.reason(HOG) == (Reason.STEP_MISSING, why)
        stage.driver(R615)
        stage.clock.now += 100
        await daemon.round(HOG, MEEK)
        await until(lambda: not daemon.decider.missing)
        await daemon.round(HOG, MEEK)
        assert daemon.decider.in_flight, "no further grace: the fence was announced"


async def test_a_reload_of_the_ladder_asks_for_its_steps(stage: Stage) -> None:
    """A ladder without a fence lacks nothing; with one it is asked for in the next round."""
    stage.driver("580.95.05")
    async with running(stage) as daemon:
        await until(lambda: daemon.missing == {Rung.FENCE: True})
        daemon.decider.rules = UNHURRIED
        await daemon.round(GREEDY, MEEK)
        await until(lambda: not daemon.missing)
        daemon.decider.rules = FENCING
        await daemon.round(GREEDY, MEEK)
        await until(lambda: daemon.missing == {Rung.FENCE: True})


async def test_a_driver_that_does_not_answer_is_followed_by_no_harsher_step(stage: Stage) -> None:
    """It may fence a moment later. Until it answers, the pod is held with what the driver said, and not evicted."""
    stage.node.fail("nvmlSystemGetDriverVersion", 999)
    async with running(stage, replace(FENCING, trigger=Trigger.LIMIT)) as daemon:
        await until(lambda: not daemon.reasons)
        assert daemon.missing == {Rung.FENCE: False}
        for _ in range(100):
            await daemon.round(HOG, MEEK)
        held = daemon.reason(HOG)
        assert held is not None and held[0] is Reason.STEP_MISSING and held[1].startswith("it cannot fence: ")
        assert (daemon.next_rung(HOG), stage.intents) == (Rung.FENCE, [])
        stage.node.clear_switch("fail.nvmlSystemGetDriverVersion")
        stage.clock.now += 100
        await daemon.round(HOG, MEEK)
        await until(lambda: not daemon.missing)
        await daemon.round(HOG, MEEK)
        assert await until(lambda: stage.intents) == ["fence"]


async def test_a_daemon_that_is_not_root_cannot_fence(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known before a pod is due."""
    monkeypatch.setattr("enforcer.runtime.fence_upkeep.geteuid", lambda: 1000)
    async with running(stage) as daemon:
        await until(lambda: daemon.missing == {Rung.FENCE: True})
        assert daemon.decider.missing[0].detail == "it cannot fence: limits of the driver are set by root"


@pytest.mark.parametrize("mode", [Mode.DRY_RUN, Mode.ENFORCE])
async def test_a_dry_run_takes_the_step_that_enforce_would_take(stage: Stage, mode: Mode) -> None:
    """Without the driver for it the fence is passed over; with a driver that does not answer the pod is held."""
    rules = replace(FENCING, mode=mode, trigger=Trigger.LIMIT)
    stage.driver("580.95.05")
    async with running(stage, rules) as daemon:
        await until(lambda: daemon.missing == {Rung.FENCE: True})
        await daemon.round(HOG, MEEK)
        assert daemon.next_rung(HOG) is Rung.EVICT
    stage.driver(R615)
    stage.node.fail("nvmlSystemGetDriverVersion", 999)
    async with running(stage, rules) as daemon:
        await until(lambda: daemon.missing == {Rung.FENCE: False} and (mode is Mode.DRY_RUN or not daemon.reasons))
        for _ in range(100):
            await daemon.round(HOG, MEEK)
        held = daemon.reason(HOG)
        assert held is not None and held[0] is Reason.STEP_MISSING and daemon.next_rung(HOG) is Rung.FENCE


async def test_a_dry_run_misses_no_right(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not given the rights of `enforce`; after a reload to that mode they count."""
    monkeypatch.setattr("enforcer.runtime.fence_upkeep.geteuid", lambda: 1000)
    (stage.proc / "1" / "cgroup").write_text("0::/../../init.scope\n")
    async with running(stage, replace(FENCING, mode=Mode.DRY_RUN)) as daemon:
        await until(lambda: stage.node.calls("nvmlSystemGetDriverVersion"))
        await daemon.round(HOG, MEEK)
        assert not daemon.missing and daemon.next_rung(HOG) is Rung.FENCE
        daemon.decider.rules = FENCING
        await until(lambda: daemon.missing == {Rung.FENCE: True})
        daemon.decider.rules = replace(FENCING, mode=Mode.DRY_RUN)


@pytest.mark.parametrize("ladder", [(Rung.NOTIFY, Rung.EVICT, Rung.KILL), (Rung.NOTIFY, Rung.KILL)], ids=str)
async def test_a_node_that_cannot_kill_still_evicts(stage: Stage, ladder: tuple[Rung, ...]) -> None:
    """The eviction follows where the ladder has it; a ladder of kills alone leaves the pod held, with the reason."""
    rules = replace(FENCING, trigger=Trigger.LIMIT, ladder=ladder, kill_when_blocked=Rung.EVICT in ladder)
    async with running(stage, rules) as daemon:
        await until(lambda: not daemon.reasons)
        assert daemon.missing == {Rung.KILL: True}
        while not daemon.decider.in_flight and daemon.reason(HOG) is None:
            assert stage.rounds < 100
            await daemon.round(HOG, MEEK)
        evicts = Rung.EVICT in ladder
        assert daemon.decider.in_flight is evicts and daemon.next_rung(HOG) is (Rung.EVICT if evicts else Rung.KILL)
        if not evicts:
            held = daemon.reason(HOG)
            assert held is not None and held[0] is Reason.STEP_MISSING
            assert held[1].startswith("it cannot kill: ") and "/proc shows no processes" in held[1]


async def test_who_does_not_fence_asks_no_driver(stage: Stage) -> None:
    """Where the ladder has no fence and none is set, the driver is never opened for one."""
    async with running(stage, UNHURRIED) as daemon:
        await until(lambda: not daemon.reasons)
        await daemon.round(GREEDY, MEEK)
    assert not stage.node.calls("nvmlInit")


async def test_the_next_daemon_knows_a_fence_and_goes_on_from_there(stage: Stage) -> None:
    """The fence stays through the restart. A fenced pod's next step is the one after; another pod's is the fence."""
    await stage.fenced()
    async with running(stage) as daemon:
        await until(lambda: not daemon.reasons)
        await daemon.look(GREEDY, MEEK, OTHER)
        assert (daemon.next_rung(GREEDY), daemon.next_rung(OTHER)) == (Rung.EVICT, Rung.FENCE)
    assert await stage.hard() == 70 * GiB
    async with running(stage) as daemon:
        await until(lambda: not daemon.reasons)
        await daemon.look(GREEDY, MEEK)
        assert daemon.next_rung(GREEDY) is Rung.EVICT and not stage.unfenced


RELEASES = [
    (replace(FENCING, mode=Mode.OFF), GREEDY, "the mode is off"),
    (replace(FENCING, mode=Mode.OBSERVE), GREEDY, "the mode is observe"),
    (replace(FENCING, mode=Mode.WARN), GREEDY, "the mode is warn"),
    (replace(FENCING, mode=Mode.DRY_RUN), GREEDY, "the mode is dry-run"),
    (UNHURRIED, GREEDY, "the ladder has no fence"),
    (FENCING, replace(GREEDY, limit=9 * GiB), "it declares a higher limit"),
    (FENCING, replace(GREEDY, facts={"priority": 2_000_000_000}), "its priority protects it"),
]


@pytest.mark.parametrize(("rules", "actor", "why"), RELEASES, ids=[why for *_, why in RELEASES])
async def test_a_fence_falls_with_its_reason(stage: Stage, rules: Rules, actor: Actor, why: str) -> None:
    """In the round that shows it, by a reload or by what the pod is now; and it is fenced anew before it is evicted."""
    await stage.fenced()
    async with running(stage) as daemon:
        await until(lambda: not daemon.reasons)
        await daemon.look(GREEDY, MEEK)
        assert await stage.hard() == 70 * GiB
        daemon.decider.rules = rules
        await daemon.look(actor, MEEK)
        await until(lambda: stage.unfenced)
        assert await stage.hard() is None and stage.unfenced == [why]
        await until(lambda: not daemon.decider._history.done)
        daemon.decider.rules = FENCING
        await daemon.round(GREEDY, MEEK)
        assert daemon.next_rung(GREEDY) is Rung.FENCE


async def test_the_stop_file_takes_fences_down(stage: Stage) -> None:
    """Stop everything means that nothing of ours goes on."""
    await stage.fenced()
    async with running(stage) as daemon:
        await until(lambda: not daemon.reasons)
        await daemon.look(GREEDY, MEEK)
        (stage.folder / "stop").touch()
        await daemon.look(GREEDY, MEEK)
        await until(lambda: stage.unfenced)
        assert await stage.hard() is None


async def test_an_api_server_that_is_away_takes_no_fence_down(stage: Stage) -> None:
    """No declaration can be read then. That is doubt, and doubt removes no fence."""
    await stage.fenced()
    async with running(stage) as daemon:
        await until(lambda: not daemon.reasons)
        await daemon.look(GREEDY, MEEK)
        for _ in range(3):
            await daemon.look(MEEK, live=False)
        assert await stage.hard() == 70 * GiB and not stage.unfenced


async def test_a_container_that_ended_is_forgotten(stage: Stage) -> None:
    """Its cgroup took the limit along."""
    await stage.fenced()
    async with running(stage) as daemon:
        await until(lambda: not daemon.reasons)
        await daemon.look(GREEDY, MEEK)
        stage.leaf(GREEDY).rename(stage.mount / "gone")
        await daemon.round(MEEK)
        await until(lambda: stage.unfenced)
        assert stage.unfenced == ["its cgroup is gone"]


async def test_a_container_that_restarts_after_its_fence_is_evicted(stage: Stage) -> None:
    """The fence ends with the cgroup, and the step is behind the next generation; also for later daemons."""
    await stage.fenced()
    again = replace(GREEDY, generation=1)
    async with running(stage) as daemon:
        await until(lambda: not daemon.reasons)
        await daemon.look(GREEDY, MEEK)
        stage.leaf(GREEDY).rename(stage.mount / "gone")
        await daemon.round(again, MEEK)
        await until(lambda: stage.unfenced)
        await daemon.round(again, MEEK)
        assert daemon.next_rung(again) is Rung.EVICT
    async with running(stage) as daemon:
        await until(lambda: not daemon.reasons)
        await daemon.round(again, MEEK)
        assert daemon.next_rung(again) is Rung.EVICT


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE, Mode.WARN, Mode.DRY_RUN])
async def test_who_does_not_enforce_takes_down_what_another_left(stage: Stage, mode: Mode) -> None:
    """Started in another mode: the fence falls, and lock and journal are given back."""
    await stage.fenced()
    async with running(stage, replace(FENCING, mode=mode)):
        await until(lambda: stage.unfenced)
        assert stage.unfenced == [f"the mode is {mode}"] and await stage.hard() is None
        taken = await until(lambda: lock.take(stage.journal.with_name("journal.lock")))
        taken.release()


async def test_a_driver_that_is_away_is_asked_again(stage: Stage) -> None:
    """Until it certainly stands no more; each try is a minute after the last."""
    await stage.fenced()
    stage.node.fail("nvmlDeviceSetMemoryLimits", 15)
    async with running(stage, replace(FENCING, mode=Mode.OBSERVE)):
        await until(lambda: stage.node.calls("nvmlDeviceSetMemoryLimits") >= 3)
        assert not stage.unfenced
        stage.node.clear_switch("fail.nvmlDeviceSetMemoryLimits")
        await until(lambda: stage.unfenced)
    assert await stage.hard() is None


async def test_a_journal_that_cannot_be_read_is_left_alone(stage: Stage) -> None:
    """In other modes than `enforce` the daemon takes neither the journal nor the lock."""
    stage.journal.mkdir()
    async with running(stage, replace(FENCING, mode=Mode.OBSERVE)):
        await stage.a_while()
        assert [one.name for one in stage.journal.parent.iterdir()] == ["journal"]


async def test_another_daemons_fences_are_its_own(stage: Stage) -> None:
    """While another daemon holds the lock, no fence is removed."""
    await stage.fenced()
    first = lock.take(stage.journal.with_name("journal.lock"))
    assert first is not None
    async with running(stage, replace(FENCING, mode=Mode.OBSERVE)):
        await stage.a_while()
        assert await stage.hard() == 70 * GiB and not stage.unfenced
        first.release()
        await until(lambda: stage.unfenced)
    assert await stage.hard() is None


async def test_a_full_journal_keeps_fences(stage: Stage) -> None:
    """Rewritten as its state, read, and rewritten: the fence is there, until it falls; after a reboot there is none."""
    await stage.fenced()
    kept = journal_file.fences(stage.journal, FENCING)
    (fence,) = kept.values()
    journal = journal_file.opened(
        stage.journal, FENCING, given=replace(journal_file.Given(journal_file.boot_id()), limit=1)
    )
    journal.append(Sent("nothing"))
    assert stage.records[0]["fences"] and journal_file.fences(stage.journal, FENCING) == kept
    journal.append(Unfenced(fence.key, ""))
    journal.close()
    assert journal_file.fences(stage.journal, FENCING) == {}
    journal = journal_file.opened(stage.journal, FENCING)
    journal.append(Fenced(fence))
    journal.close()
    assert journal_file.fences(stage.journal, FENCING) == kept
    assert journal_file.fences(stage.journal, FENCING, given=journal_file.Given("another boot")) == {}
    assert journal_file.fences(stage.folder / "none", FENCING) == {}


async def test_a_driver_that_cannot_fence_does_not_keep_a_pod_from_its_eviction(stage: Stage) -> None:
    """The ladder is notify, fence, evict: the next step after the missing one follows, with its grace."""
    stage.driver("580.95.05")
    async with running(stage, replace(FENCING, trigger=Trigger.LIMIT)) as daemon:
        await until(lambda: not daemon.reasons)
        while not daemon.decider.in_flight:
            assert stage.rounds < 100, daemon.decider.judged()
            await daemon.round(HOG, MEEK)
        assert daemon.next_rung(HOG) is Rung.EVICT
        assert await until(lambda: stage.intents) == ["evict"]
    assert not stage.node.calls("nvmlDeviceSetMemoryLimits")
