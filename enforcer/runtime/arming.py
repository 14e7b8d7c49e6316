"""
Arms the enforcer: gathers everything that acting needs, once the mode asks for it.

What comes in: the config, the decider, clients of the API server. What goes out: a running acting half, or ceilings
that say why there is none.

The rule: **a daemon that lacks one prerequisite does not act, and reports it.** The node's lock, a writable journal and
the admission policies are proven first, and tried again while one is missing. A step that this node lacks is passed
over (`missing_steps`). No action of an earlier daemon is repeated. Actions that it began are looked up before anything
else, and those that were accepted are watched.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import structlog

from enforcer.actions.evict.actuator import Evict
from enforcer.actions.evict.admission_probe import OwnPod
from enforcer.actions.fence.actuator import Fencing
from enforcer.actions.fence.cgroup_paths import Leaves
from enforcer.actions.fence.driver import MemoryLimits
from enforcer.actions.interface import Actuator, Heard
from enforcer.actions.kill.actuator import Kill
from enforcer.actions.kube_writer import Writer
from enforcer.actions.victim import accused
from enforcer.journal import close_requests, levels_file
from enforcer.journal.file import read_clocks
from enforcer.journal.fold import Kept, void
from enforcer.journal.levels_file import SavedLevels
from enforcer.journal.records import Ended, Open
from enforcer.journal.resume import past_of
from enforcer.journal.writer import JournalWriter
from enforcer.policy.history import Action, History, InFlight, Result
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung
from enforcer.runtime.admission_watch import AdmissionWatch
from enforcer.runtime.decider import Decider, read_moment
from enforcer.runtime.executor import ENDS, Executor
from enforcer.runtime.fence_upkeep import Fences, look_after
from enforcer.runtime.hands import Fresh, Hands
from enforcer.runtime.levels_keeper import LevelsKeeper
from enforcer.runtime.live_pod import LivePods
from enforcer.runtime.missing import Missing
from enforcer.runtime.missing_steps import MissingSteps
from enforcer.runtime.ownership import Ownership
from enforcer.runtime.rights_watch import RightsWatch
from exporter.base.cgroup_owner import PodCgroups
from exporter.base.clock import Clock
from exporter.base.threads import to_its_end
from exporter.rounds.latest import Latest

log = structlog.get_logger()

AGAIN = 10.0
"""Seconds between two tries to get a missing prerequisite."""
LOOK = 1.0
"""Seconds between two looks for requests to close a breaker, or for another mode."""

Changes = asyncio.Queue[tuple[History, History, str]]


@dataclass(frozen=True, slots=True)
class World:
    """
    The clients, paths and drivers that acting uses.

    Attributes:
        writer: for evictions, with their long deadline; `reader` for looks.
        proc: a mounted /proc of the initial PID namespace.
        admission: the daemon's own pod, with which the admission policies are asked for. None if the operator does not
            want them.
        trusted: the PID namespace is assumed to be right.
        limits: the driver's, for fences; None where the devices have none.
        cgroups: where the unified hierarchy is mounted; None: nowhere.
        pods: which cgroups are the kubelet's.

    """

    writer: Writer
    reader: Writer
    proc: Path
    journal: Path
    pods: PodCgroups
    admission: OwnPod | None = None
    trusted: bool = False
    limits: MemoryLimits | None = None
    cgroups: Path | None = None


class Arming:
    """Runs the acting half while the mode is `enforce`; until it is armed, due holders wait. One task calls `run`."""

    def __init__(self, decider: Decider, world: World, latest: Latest, fresh: Fresh, *, clock: Clock) -> None:
        self._decider = decider
        self._world = world
        self._latest = latest
        self._fresh = fresh
        self._clock = clock
        self._kill = Kill(world.proc, world.pods, trusted=world.trusted)
        self._fences = Fences(world.limits, Leaves(world.proc, world.cgroups, world.pods), clock=clock)
        self._owner = Ownership(world.journal)
        self._steps = MissingSteps(decider, self._fences, world.proc, trusted=world.trusted, clock=clock)
        self._missing = Missing(decider)
        self._acted = False
        # From now on, not from the first step of `run` on: no round may fall between.
        self._missing.take(Reason.NOT_ARMED, "it is not yet known whether this daemon may act")
        doubted = partial(self._missing.take, Reason.ADMISSION)
        self._admission = AdmissionWatch(world.writer, world.admission, self._evicts, doubted, clock)
        self._admission.doubt()

    async def run(self) -> None:
        """Arm when the mode asks for it, act, arm anew after a lost journal; let go of everything when cancelled."""
        try:
            while True:
                while not await self._armed():
                    if not self._wanted():
                        await self._fences.take_down(self._owner, self._decider.rules)
                    await self._clock.sleep(AGAIN if self._wanted() else LOOK)
                await self._act()
        finally:
            self._kill.close()
            await self._fences.close()
            self._owner.release()

    def _wanted(self) -> bool:
        return self._decider.rules.mode is Mode.ENFORCE

    def _evicts(self) -> bool:
        return Rung.EVICT in self._decider.rules.ladder

    async def _armed(self) -> bool:
        """Get the missing prerequisites; True when all are there. Missing steps count for dry runs, too."""
        rules = self._decider.rules
        if rules.mode.rank >= Mode.DRY_RUN.rank:
            await self._steps.look()
        if not self._wanted():
            return False
        for reason, get in (
            (Reason.NOT_OWNER, self._owner.take_lock),
            (Reason.JOURNAL, partial(self._owner.open_journal, rules)),
        ):
            why = await get()
            self._missing.take(reason, why)
            if why:
                return False
        return True

    async def _act(self) -> None:
        """Act, until the journal is lost and no action is in flight."""
        writer = self._owner.writer(partial(self._missing.take, Reason.JOURNAL))
        changes: Changes = asyncio.Queue()
        fencing = self._fences.rung(writer)
        keeper = LevelsKeeper(self._decider, self._owner.levels_path, clock=self._clock)
        # Once, those of an earlier daemon. After a lost journal this one has its own, some of which fell meanwhile.
        levels = None if self._acted else await asyncio.to_thread(levels_file.read, self._owner.levels_path)
        self._acted = True
        try:
            async with asyncio.TaskGroup() as tasks:
                executor = self._executor(writer, fencing, changes, levels)
                running = [
                    tasks.create_task(executor.run(), name="acting"),
                    tasks.create_task(self._note(writer, changes, keeper), name="noting"),
                    tasks.create_task(keeper.run(), name="keeping levels"),
                    tasks.create_task(self._look_for_steps(), name="looking for steps"),
                    tasks.create_task(self._hold(), name="holding"),
                    tasks.create_task(self._admission.watch(), name="canary"),
                    tasks.create_task(
                        RightsWatch(self._decider, self._world.reader.may, self._clock).watch(), name="rights"
                    ),
                    tasks.create_task(self._listen(), name="listening"),
                    tasks.create_task(self._fence(fencing), name="fencing"),
                ]
                while Reason.JOURNAL not in self._missing or self._decider.in_flight:
                    await self._clock.sleep(AGAIN)
                self._missing.take(Reason.NOT_ARMED, "the journal was lost, and is opened anew")
                for task in running:
                    task.cancel()
        finally:
            self._decider.disarm()
            while not changes.empty():  # a breaker that opened last is open for the next daemon, too
                await writer.note(*changes.get_nowait())
            self._owner.close_journal()

    def _executor(
        self, writer: JournalWriter, fencing: Fencing | None, changes: Changes, levels: SavedLevels | None
    ) -> Executor:
        """Build the acting half, and give it the unfinished actions of an earlier daemon."""
        hands = Hands(dict(self._rungs(fencing)), LivePods(self._world.reader), self._fresh, self._spared)
        executor = Executor(self._decider, writer, hands, clock=self._clock)
        kept = writer.file.kept
        unfinished = {decision: opened for decision, opened in kept.open.items() if not void(opened)}
        for decision in kept.open.keys() - unfinished.keys():
            answer, lost = kept.open[decision].answer, Result.UNKNOWN if kept.open[decision].sent else Result.FAILED
            result = ENDS.get(answer.heard, lost) if answer is not None else lost
            with suppress(OSError):  # then it is open for the next daemon, and void there, too
                writer.file.append(Ended(decision, result, "the machine was started anew"))
        history, now = past_of(kept), read_moment()
        for decision, opened in unfinished.items():
            action = opened.action.restored()
            if not _accepted(opened):
                history = replace(history, in_flight=history.in_flight or InFlight(action, now.monotonic))
            executor.resume(decision, action, opened.answer)
        note = changes.put_nowait

        def begin(action: Action) -> None:
            writer.file.rules = self._decider.rules  # those that decided
            executor.begin(action)

        self._decider.boot_id = writer.file.boot
        self._decider.arm(begin, history, lambda *changed: note(changed), _unspent(levels, kept))
        self._missing.end(Reason.NOT_ARMED)
        lacked = {each.step for each in self._decider.missing}
        steps = [step for step in self._decider.rules.ladder if step in hands.rungs and step not in lacked]
        log.info("enforcer.armed", steps=steps, unfinished=len(unfinished), journal=str(self._owner.path))
        return executor

    def _rungs(self, fencing: Fencing | None) -> Iterator[tuple[Rung, Actuator]]:
        yield Rung.EVICT, Evict(self._world.writer)
        yield Rung.KILL, self._kill
        if fencing is not None:
            yield Rung.FENCE, fencing

    def _spared(self) -> Reason | None:
        return None if self._owner.holds() else Reason.NOT_OWNER

    async def _note(self, writer: JournalWriter, changes: Changes, keeper: LevelsKeeper) -> None:
        """Keep breakers, and the levels that an accepted action has started anew; a lost journal ends all acting."""
        while True:
            before, after, by = await changes.get()
            writer.file.rules = self._decider.rules
            await writer.note(before, after, by)
            if before.ended_at != after.ended_at:
                await keeper.save()

    async def _fence(self, fencing: Fencing | None) -> None:
        """Look after the fences in each round."""
        if fencing is not None:
            async for _ in self._latest.rounds():
                if self._spared() is None:
                    await look_after(fencing, self._decider)

    async def _look_for_steps(self) -> None:
        """Look in each round whether this node can perform the steps of the present ladder."""
        async for _ in self._latest.rounds():
            await self._steps.look()

    async def _hold(self) -> None:
        """Hold the inits of the containers whose grace runs."""
        async for _ in self._latest.rounds():
            rules = self._decider.in_force()
            if Rung.KILL in rules.ladder and rules.lacks(Rung.KILL) is None:
                await self._kill.hold(accused(self._decider.judged()))

    async def _listen(self) -> None:
        """Take the requests to close a breaker: only now, because the journal keeps the breakers."""
        while True:
            await self._heed()
            await self._clock.sleep(LOOK)

    async def _heed(self) -> None:
        """Carry out what is taken, also while the daemon ends: `gpusteward close` has reported it as taken."""
        taken: list[tuple[Breaker, str]] = []
        now = read_clocks()[1]  # as the time of a file
        try:
            await to_its_end(lambda: taken.extend(close_requests.take(self._owner.path, now)))
        finally:
            for breaker, by in taken:
                self._decider.close(breaker, by)


def _accepted(opened: Open) -> bool:
    return opened.answer is not None and opened.answer.heard in (Heard.ACCEPTED, Heard.EVACUATING)


def _unspent(levels: SavedLevels | None, kept: Kept) -> SavedLevels | None:
    """Leave out the levels of which an accepted action was taken since they were saved: these start anew."""
    if levels is None:
        return None
    acted_on = [opened.action for opened in kept.open.values() if _accepted(opened)]
    pods, holders = {action.pod_uid for action in acted_on}, {action.key.holder for action in acted_on}
    ended = {action.pod_uid for action in acted_on if action.rung is not Rung.FENCE}  # also as the victim of a claim
    left = (
        saved
        for saved in levels.levels
        if saved.holder.pod_uid not in pods and saved.holder not in holders and saved.level.get("victim") not in ended
    )
    return msgspec.structs.replace(levels, levels=tuple(left))
