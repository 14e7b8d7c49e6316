"""
What acting takes, gathered when the operator wants it, and not before.

What comes in: the config, the one who decides, clients of the API server. What goes out: a running acting half, or
ceilings that say why there is none.

The law: **whoever lacks one thing acts on nobody, and says what.** The node's lock, a journal that can be written,
the rungs of the ladder, the admission policy: each is proven first, and tried again while it is missing. Nothing of a
daemon before this one is done again; what it began is watched to its end before anything else.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from enforcer.actions.evict.actuator import Evict
from enforcer.actions.fence.actuator import Fencing
from enforcer.actions.fence.cgroup_paths import Leaves
from enforcer.actions.fence.driver import MemoryLimits
from enforcer.actions.interface import Actuator
from enforcer.actions.kill.actuator import Kill
from enforcer.actions.kill.pidfds import unavailable
from enforcer.actions.kube_writer import Writer
from enforcer.actions.victim import accused
from enforcer.journal import close_requests, lock
from enforcer.journal import file as journal_file
from enforcer.journal.file import JournalFile
from enforcer.journal.fold import void
from enforcer.journal.records import Ended
from enforcer.journal.resume import past_of
from enforcer.journal.writer import JournalWriter
from enforcer.policy.history import History, InFlight, Result
from enforcer.policy.vocabulary import Mode, Reason, Rung
from enforcer.runtime.admission_watch import Guarding
from enforcer.runtime.decider import Deciding, read_moment
from enforcer.runtime.executor import Acting, Fresh, Hands
from enforcer.runtime.fence_upkeep import AGAIN as FENCES_AGAIN
from enforcer.runtime.fence_upkeep import Fences, look_after
from enforcer.runtime.live_pod import Asking
from enforcer.runtime.missing import Lacking
from exporter.base.clock import Clock
from exporter.rounds.latest import Latest

log = structlog.get_logger()

AGAIN = 10.0
"""Seconds between two tries to get what is missing."""
LOOK = 1.0
"""Seconds between two looks for what people ask for."""


@dataclass(frozen=True, slots=True)
class World:
    """
    What can be reached from here.

    Attributes:
        writer: for evictions, with their long deadline; `reader` for looks.
        proc: a mounted /proc of the initial PID namespace.
        admission: the namespace in which the canary asks for the admission policy; empty where the daemon knows none
            of its own, None where the operator does not want the policy.
        trusted: the PID namespace is believed to be right.
        limits: the driver's, for fences; None where the devices have none.
        cgroups: where the unified hierarchy is mounted; None: nowhere.

    """

    writer: Writer
    reader: Writer
    proc: Path
    journal: Path
    admission: str | None = None
    trusted: bool = False
    limits: MemoryLimits | None = None
    cgroups: Path | None = None


class Arming:
    """Runs the acting half while the mode is enforce. One task calls `run`; until it is armed, who is due is held."""

    def __init__(self, deciding: Deciding, world: World, latest: Latest, fresh: Fresh, *, clock: Clock) -> None:
        self._deciding = deciding
        self._world = world
        self._latest = latest
        self._fresh = fresh
        self._clock = clock
        self._kill = Kill(world.proc, trusted=world.trusted)
        self._fences = Fences(world.limits, Leaves(world.proc, world.cgroups), clock=clock)
        self._fencing: Fencing | None = None
        self._left_at: float | None = 0.0
        """When to look for fences that a daemon before this one left; None: there are none."""
        self._lacking: dict[Rung, str] = {}
        self._lock: lock.Lock | None = None
        self._journal: JournalFile | None = None
        self._noted: asyncio.Queue[tuple[History, History, str]] = asyncio.Queue()
        self._missing = Lacking(deciding)
        # From now on, not from the first step of `run` on: no round may fall between.
        self._missing.take(Reason.NOT_ARMED, "it is not yet known whether this daemon may act")
        self._guarding = Guarding(world.writer, world.admission, self._evicts, self._doubted, clock)
        self._guarding.doubt()

    async def run(self) -> None:
        """Arm when the mode says so, act, arm anew when the journal was lost; let go of everything when cancelled."""
        try:
            while True:
                while not await self._armed():
                    if not self._wanted():  # in enforce the breakers of the journal are not known yet
                        await self._heed()
                        await self._take_down()
                    await self._clock.sleep(AGAIN if self._wanted() else LOOK)
                await self._act()
        finally:
            self._kill.close()
            await self._fences.close()
            if self._lock is not None:
                self._lock.release()

    async def _act(self) -> None:
        """Act, until the journal is lost and nothing is in flight any more."""
        self._noted = asyncio.Queue()
        try:
            async with asyncio.TaskGroup() as tasks:
                acting = self._acting()
                running = [
                    tasks.create_task(acting.run(), name="acting"),
                    tasks.create_task(self._note(), name="noting"),
                    tasks.create_task(self._hold(), name="holding"),
                    tasks.create_task(self._guarding.watch(), name="canary"),
                    tasks.create_task(self._listen(), name="listening"),
                    tasks.create_task(self._fence(), name="fencing"),
                ]
                while Reason.JOURNAL not in self._missing or self._deciding.in_flight:
                    await self._clock.sleep(AGAIN)
                self._missing.take(Reason.NOT_ARMED, "the journal was lost, and is opened anew")
                for one in running:
                    one.cancel()
        finally:
            self._deciding.disarm()
            if self._journal is not None:
                self._journal.close()
                self._journal = None

    def _wanted(self) -> bool:
        return self._deciding.rules.mode is Mode.ENFORCE

    async def _armed(self) -> bool:
        """Get what is missing; True when everything is there."""
        if not self._wanted():
            return False
        for reason, missing in ((Reason.NOT_OWNER, self._take_lock), (Reason.JOURNAL, self._open_journal)):
            why = await asyncio.to_thread(missing)
            self._missing.take(reason, why)
            if why:
                return False
        self._lacks(Rung.FENCE, await self._fences.missing(self._deciding.rules))
        return True

    def _take_lock(self) -> str:
        if self._lock is None:
            path = self._world.journal.with_name(f"{self._world.journal.name}.lock")
            try:
                self._lock = lock.take(path)
            except lock.LockError as error:
                return str(error)
            if self._lock is None:
                return f"{path} is held by {lock.holder(path) or 'another daemon'}"
        return ""

    def _open_journal(self) -> str:
        if self._journal is None:
            try:
                self._journal = journal_file.opened(self._world.journal, self._deciding.rules)
            except journal_file.JournalError as error:
                return str(error)
        return ""

    def _acting(self) -> Acting:
        """Put the acting half together, and hand to it what another daemon left unfinished."""
        journal = self._journal
        assert journal is not None  # noqa: S101  (`_armed` opened it)
        noting = JournalWriter(journal, self._lost)
        self._fencing = self._fences.rung(noting)
        hands = Hands(dict(self._rungs()), Asking(self._world.reader), self._fresh, self._spared)
        acting = Acting(self._deciding, noting, hands, clock=self._clock)
        kept = journal.kept
        unfinished = {decision: one for decision, one in kept.open.items() if not void(one)}
        for decision in kept.open.keys() - unfinished.keys():
            with suppress(OSError):  # then it is open for the next daemon, and void there, too
                journal.append(Ended(decision, Result.FAILED, "the machine was started anew"))
        history = past_of(kept)
        now = read_moment()
        for decision, one in unfinished.items():
            history = replace(history, in_flight=history.in_flight or InFlight(one.action.restored(), now.monotonic))
            acting.resume(decision, one.action.restored(), one.answer)
        self._deciding.arm(acting.begin, history, lambda *changed: self._noted.put_nowait(changed))
        self._missing.end(Reason.NOT_ARMED)
        log.info(
            "enforcer.armed", rungs=sorted(hands.rungs), unfinished=len(unfinished), journal=str(self._world.journal)
        )
        return acting

    def _rungs(self) -> Iterator[tuple[Rung, Actuator]]:
        yield Rung.EVICT, Evict(self._world.writer)
        if self._fencing is not None:
            yield Rung.FENCE, self._fencing
        why = unavailable(self._world.proc, trusted=self._world.trusted)
        if why is None:
            yield Rung.KILL, self._kill
        elif Rung.KILL in self._deciding.rules.ladder:
            log.error("enforcer.no_kill", reason=why)
            self._lacks(Rung.KILL, why)

    def _lacks(self, rung: Rung, why: str) -> None:
        """Take that a rung of the ladder is not to be had, or ("") that it is."""
        self._lacking = {one: known for one, known in {**self._lacking, rung: why}.items() if known}
        self._missing.take(Reason.NO_RUNG, "; ".join(self._lacking.values()))

    async def _fence(self) -> None:
        """Look after the fences in each round, and whether one could be set where the ladder has it by now."""
        seen = 0
        while self._fencing is not None:
            seen = (await self._latest.newer_than(seen)).round
            self._lacks(Rung.FENCE, await self._fences.missing(self._deciding.rules))
            if self._spared() is None:
                await look_after(self._fencing, self._deciding)

    async def _take_down(self) -> None:
        """Take down the fences that a daemon which enforced has left: this one does not enforce."""
        if self._world.limits is None or self._left_at is None or self._clock.monotonic() < self._left_at:
            return
        self._left_at = self._clock.monotonic() + FENCES_AGAIN
        try:
            left = await asyncio.to_thread(journal_file.fences, self._world.journal, self._deciding.rules)
        except OSError:
            return
        if not left:
            self._left_at = None
            return
        mode = self._deciding.rules.mode
        try:
            if await asyncio.to_thread(self._take_lock) or await asyncio.to_thread(self._open_journal):
                return
            assert self._journal is not None  # noqa: S101  (it was opened)
            if (fencing := self._fences.rung(JournalWriter(self._journal, lambda _: None))) is not None:
                await fencing.keep(lambda _: f"the mode is {mode}", lambda _: None)
        finally:
            if self._journal is not None:
                self._journal.close()
                self._journal = None
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _spared(self) -> Reason | None:
        if self._lock is None or not self._lock.holds():
            return Reason.NOT_OWNER
        return None

    async def _note(self) -> None:
        """Keep breakers and strikes; a journal that cannot be written ends all acting."""
        assert self._journal is not None  # noqa: S101
        while True:
            before, after, by = await self._noted.get()
            self._journal.rules = self._deciding.rules
            await JournalWriter(self._journal, self._lost).note(before, after, by)

    async def _listen(self) -> None:
        """Heed what people ask for."""
        while True:
            await self._heed()
            await self._clock.sleep(LOOK)

    async def _heed(self) -> None:
        for breaker, by in await asyncio.to_thread(lambda: list(close_requests.take(self._world.journal))):
            self._deciding.close(breaker, by)

    async def _hold(self) -> None:
        """Hold the inits of the containers whose grace runs."""
        seen = 0
        while True:
            seen = (await self._latest.newer_than(seen)).round
            if Rung.KILL in self._deciding.rules.ladder:
                await self._kill.hold(accused(self._deciding.judged()), read_moment())

    def _evicts(self) -> bool:
        return Rung.EVICT in self._deciding.rules.ladder

    def _doubted(self, why: str) -> None:
        self._missing.take(Reason.ADMISSION, why)

    def _lost(self, why: str) -> None:
        self._missing.take(Reason.JOURNAL, why)
