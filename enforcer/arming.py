"""
What acting takes, gathered when the operator wants it, and not before.

What comes in: the config, the one who decides, clients of the API server. What goes out: a running acting half, or
ceilings that say why there is none.

The law: **whoever lacks one thing only rehearses.** The node's lock, a journal that can be written, the rungs of the
ladder, the admission policy: each is proven first, and tried again while it is missing. Nothing of a daemon before this
one is done again; what it began is watched to its end before anything else.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import structlog

from enforcer import journal_file, lock
from enforcer.acting import Acting, Fresh, Hands
from enforcer.actuators.evict import Evict
from enforcer.actuators.kill import Kill
from enforcer.canary import Guard, canary
from enforcer.deciding import Deciding, read_moment
from enforcer.history import Action, History, InFlight, Result
from enforcer.holding import unavailable
from enforcer.journal import Kept, void
from enforcer.kube import Writer
from enforcer.live import Asking
from enforcer.rules import Ceiling, Rules
from enforcer.rungs import Actuator, Answer
from enforcer.terms import Mode, Reason, Rung, State
from exporter.clock import Clock
from exporter.latest import Latest
from exporter.model import ContainerId, PodUid

log = structlog.get_logger()

AGAIN = 10.0
"""Seconds between two tries to get what is missing."""
CANARY_AGAIN = 600.0
"""Seconds after which the admission policy is asked for again: somebody may have removed it."""


class Journal(Protocol):
    """The part of the journal's file that is used here; each method blocks for a sync."""

    rules: Rules
    kept: Kept

    def intend(self, decision: str, action: Action) -> None: ...  # noqa: D102
    def send(self, decision: str) -> None: ...  # noqa: D102
    def hear(self, decision: str, answer: Answer) -> None: ...  # noqa: D102
    def end(self, decision: str, result: Result, detail: str) -> None: ...  # noqa: D102
    def note(self, before: History, now: History) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Noting:
    """The journal, beside the event loop; `lost` is told when it cannot be written."""

    journal: Journal
    lost: Callable[[str], None]

    async def intend(self, decision: str, action: Action) -> None:
        """Note intent, and that the call may leave from now on: between the last look and it stands nothing."""
        try:
            await asyncio.to_thread(self._intend, decision, action)
        except OSError as error:
            self.lost(str(error))
            raise

    async def hear(self, decision: str, answer: Answer) -> None:
        """Note what was heard."""
        await self._write(self.journal.hear, decision, answer)

    async def end(self, decision: str, result: Result, detail: str) -> None:
        """Note the end."""
        await self._write(self.journal.end, decision, result, detail)

    async def note(self, before: History, after: History) -> None:
        """Note changed breakers and strikes."""
        await self._write(self.journal.note, before, after)

    async def _write(self, write: Callable[..., None], *what: object) -> None:
        try:
            await asyncio.to_thread(write, *what)
        except OSError as error:
            self.lost(str(error))

    def _intend(self, decision: str, action: Action) -> None:
        self.journal.intend(decision, action)
        self.journal.send(decision)


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

    """

    writer: Writer
    reader: Writer
    proc: Path
    journal: Path
    admission: str | None = None
    trusted: bool = False


class Arming:
    """Runs the acting half while the mode is enforce. One task calls `run`; until it is armed, all is rehearsed."""

    def __init__(self, deciding: Deciding, world: World, latest: Latest, fresh: Fresh, *, clock: Clock) -> None:
        self._deciding = deciding
        self._world = world
        self._latest = latest
        self._fresh = fresh
        self._clock = clock
        self._kill = Kill(world.proc, trusted=world.trusted)
        self._lock: lock.Lock | None = None
        self._journal: Journal | None = None
        self._noted: asyncio.Queue[tuple[History, History]] = asyncio.Queue()
        self._told: dict[Reason, str] = {}
        # From now on, not from the first step of `run` on: no round may fall between.
        self._lower(Reason.NOT_ARMED, "it is not yet known whether this daemon may act")
        self._doubt_policy()

    async def run(self) -> None:
        """Arm when the mode says so, act, and let go of everything when cancelled."""
        try:
            while not await self._armed():
                await self._clock.sleep(AGAIN if self._wanted() else 1.0)
            async with asyncio.TaskGroup() as tasks:
                acting = self._acting()
                tasks.create_task(acting.run(), name="acting")
                tasks.create_task(self._note(), name="noting")
                tasks.create_task(self._hold(), name="holding")
                tasks.create_task(self._watch_policy(), name="canary")
        finally:
            self._deciding.disarm()
            self._kill.close()
            if self._journal is not None:
                self._journal.close()
            if self._lock is not None:
                self._lock.release()

    def _wanted(self) -> bool:
        return self._deciding.rules.mode is Mode.ENFORCE

    async def _armed(self) -> bool:
        """Get what is missing; True when everything is there."""
        if not self._wanted():
            return False
        for reason, missing in ((Reason.NOT_OWNER, self._take_lock), (Reason.JOURNAL, self._open_journal)):
            why = await asyncio.to_thread(missing)
            if why:
                self._lower(reason, why)
                return False
            self._raise(reason)
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
        hands = Hands(dict(self._rungs()), Asking(self._world.reader), self._fresh, self._spared)
        noting = Noting(journal, lambda why: self._lower(Reason.JOURNAL, why))
        acting = Acting(self._deciding, noting, hands, clock=self._clock)
        kept = journal.kept
        unfinished = {decision: one for decision, one in kept.open.items() if not void(one)}
        for decision in kept.open.keys() - unfinished.keys():
            with suppress(OSError):  # then it is open for the next daemon, and void there, too
                journal.end(decision, Result.FAILED, "the machine was started anew")
        history = History(spent=kept.spent, breakers=kept.breakers, strikes=kept.strikes)
        now = read_moment()
        for decision, one in unfinished.items():
            history = replace(history, in_flight=history.in_flight or InFlight(one.action, now.monotonic))
            acting.resume(decision, one.action)
        self._deciding.arm(acting.begin, history, lambda before, after: self._noted.put_nowait((before, after)))
        self._raise(Reason.NOT_ARMED)
        log.info(
            "enforcer.armed", rungs=sorted(hands.rungs), unfinished=len(unfinished), journal=str(self._world.journal)
        )
        return acting

    def _rungs(self) -> Iterator[tuple[Rung, Actuator]]:
        yield Rung.EVICT, Evict(self._world.writer)
        why = unavailable(self._world.proc, trusted=self._world.trusted)
        if why is None:
            yield Rung.KILL, self._kill
        elif Rung.KILL in self._deciding.rules.ladder:
            log.error("enforcer.no_kill", reason=why)
            self._lower(Reason.NO_RUNG, why)

    def _spared(self) -> Reason | None:
        if self._lock is None or not self._lock.holds():
            return Reason.NOT_OWNER
        return None

    async def _note(self) -> None:
        """Keep breakers and strikes; a journal that cannot be written ends all acting."""
        assert self._journal is not None  # noqa: S101
        while True:
            before, after = await self._noted.get()
            self._journal.rules = self._deciding.rules
            await Noting(self._journal, lambda why: self._lower(Reason.JOURNAL, why)).note(before, after)

    async def _hold(self) -> None:
        """Hold the inits of the containers whose grace runs."""
        seen = 0
        while True:
            seen = (await self._latest.newer_than(seen)).round
            if Rung.KILL in self._deciding.rules.ladder:
                await self._kill.hold(self._accused(), read_moment())

    def _accused(self) -> list[tuple[PodUid, ContainerId]]:
        told = (State.GRACE, State.DUE, State.HELD, State.ACTING)
        return [
            (one.key.pod_uid, one.key.container_id)
            for one in self._deciding.judged()
            if one.state in told and one.key.container_id
        ]

    def _evicts(self) -> bool:
        return Rung.EVICT in self._deciding.rules.ladder

    def _doubt_policy(self) -> None:
        """Take it that the admission policy, where it is wanted, is not there."""
        if self._world.admission is None or not self._evicts():
            return
        unknown = "the daemon's own namespace, where the admission policy is asked for, is not known: POD_NAMESPACE"
        self._lower(Reason.ADMISSION, "it was not asked for yet" if self._world.admission else unknown)

    async def _watch_policy(self) -> None:
        """Ask for the admission policy, where it is wanted: without it nobody is evicted."""
        while self._world.admission is not None:
            in_force = False
            if not self._evicts():
                self._raise(Reason.ADMISSION)  # other rules void all evidence: the next grace is longer than this beat
            elif not self._world.admission:
                self._doubt_policy()
            elif in_force := await self._in_force(self._world.admission):
                self._raise(Reason.ADMISSION)
            await self._clock.sleep(CANARY_AGAIN if in_force else AGAIN)

    async def _in_force(self, namespace: str) -> bool:
        sighting = await canary(self._world.writer, namespace)
        if sighting.guard is not Guard.IN_FORCE:
            self._lower(Reason.ADMISSION, f"{sighting.guard}: {sighting.detail}")
        return sighting.guard is Guard.IN_FORCE

    def _lower(self, reason: Reason, why: str) -> None:
        """Allow rehearsals at most, or (another daemon acts) nothing, and say why, once."""
        if self._wanted() and self._told.get(reason) != why:
            log.warning("enforcer.not_armed", reason=reason, detail=why)
        self._told[reason] = why
        mode = Mode.OBSERVE if reason is Reason.NOT_OWNER else Mode.DRY_RUN
        others = (one for one in self._deciding.ceilings if one.reason is not reason)
        self._deciding.ceilings = (*others, Ceiling(mode, reason))

    def _raise(self, reason: Reason) -> None:
        self._told.pop(reason, None)
        self._deciding.ceilings = tuple(one for one in self._deciding.ceilings if one.reason is not reason)
