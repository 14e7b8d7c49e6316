"""
One action, from the decision to the confirmed answer.

What comes in: a decided action. What goes out: its outcome, for the decider; each step is in the journal before the
next one.

The rule: **look again, then act, then confirm.** The intent is on disk before anything is done. Nothing delays the call
after the last look. An action that may have been carried out is looked up, and never repeated. One action is in flight
at a time. An accepted one is watched in the background (`effect_watch`), and no other action waits for it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

import structlog

from enforcer.actions.interface import Answer, Heard
from enforcer.journal.writer import Journal
from enforcer.policy.history import Action, Result
from enforcer.runtime.decider import Decider
from enforcer.runtime.effect_watch import Accepted, EffectWatch
from enforcer.runtime.hands import Hands
from enforcer.runtime.last_looks import LastLooks, unanswered
from enforcer.runtime.survivors import processes_of
from exporter.base.clock import Clock
from exporter.model import ProcessKey

log = structlog.get_logger()

LATE = 60.0
"""Seconds in which a request may still be carried out: the API server's own deadline for it."""
DEADLINE = 120.0
"""Seconds after which an action is given up if no look shows whether it was carried out."""
PAUSE = 1.0
"""Seconds between two looks."""
NOT_DONE = "it was not carried out, as far as was seen"

ENDS: Mapping[Heard, Result] = {
    Heard.EVACUATING: Result.ACCEPTED,
    Heard.BLOCKED: Result.BLOCKED,
    Heard.GONE: Result.ABANDONED,
    Heard.CHANGED: Result.ABANDONED,
    Heard.TAKEN: Result.IMPOSSIBLE,
    Heard.FORBIDDEN: Result.FORBIDDEN,
    Heard.UNAUTHORIZED: Result.UNAUTHORIZED,
    Heard.REFUSED: Result.REFUSED,
    Heard.IMPOSSIBLE: Result.IMPOSSIBLE,
    Heard.FAILED: Result.FAILED,
    Heard.REHEARSED: Result.REHEARSED,
}
"""Answers that need no confirmation."""
LEFT = frozenset({Heard.ACCEPTED, Heard.EVACUATING, Heard.AMBIGUOUS})
"""Answers after which a call was sent even if no server answered."""

End = tuple[Result, str]
"""The outcome of an action in flight, and its detail as text."""


@dataclass(slots=True)
class _Flight:
    """
    An action in flight.

    Attributes:
        decision: its id in the journal.
        ours: this daemon began it; otherwise an earlier one did.
        answer: the last one in the journal.
        processes: the victim's, as they were before the call.

    """

    action: Action
    decision: str
    ours: bool = True
    answer: Answer | None = None
    processes: frozenset[ProcessKey] = frozenset()

    @property
    def answered(self) -> bool:
        """Whether an answer says that it was accepted."""
        return self.answer is not None and self.answer.heard in (Heard.ACCEPTED, Heard.EVACUATING)


class Executor:
    """Carries out decided actions. One task calls `run`; the decider calls `begin`."""

    def __init__(self, decider: Decider, journal: Journal, hands: Hands, *, clock: Clock) -> None:
        self._decider = decider
        self._journal = journal
        self._hands = hands
        self._clock = clock
        self._looks = LastLooks(decider, hands, clock=clock)
        self._watches = EffectWatch(decider, journal, hands, self._looks, clock=clock)
        self._begun: asyncio.Queue[_Flight] = asyncio.Queue()

    def begin(self, action: Action) -> None:
        """Take a decided action. Returns at once."""
        self._begun.put_nowait(_Flight(action, str(uuid4())))

    def resume(self, decision: str, action: Action, answer: Answer | None = None) -> None:
        """
        Take an unfinished action of an earlier daemon, with the answer that the earlier daemon got.

        An accepted one is only watched. For any other the executor looks up whether it was carried out.
        """
        self._begun.put_nowait(_Flight(action, decision, ours=False, answer=answer))

    async def run(self) -> None:
        """Carry out actions one after the other, and watch accepted ones, until cancelled."""
        async with asyncio.TaskGroup() as watches:
            while True:
                accepted = await self._flown(await self._begun.get())
                if accepted is not None:
                    watches.create_task(self._watches.watch(accepted), name="watching")

    async def _flown(self, flight: _Flight) -> Accepted | None:
        """Carry an action to its answer; return the accepted action to watch from here on."""
        if flight.ours or not flight.answered:
            result, detail = await (self._carry(flight) if flight.ours else self._resumed(flight))
            await self._concluded(flight, result, detail)
            if result is not Result.ACCEPTED:
                return None
        elif (snapshot := self._decider.heard) is not None:
            flight.processes = processes_of(flight.action, snapshot)
        if flight.action.rung in self._hands.rungs and self._hands.rungs[flight.action.rung].frees:
            self._decider.watching(flight.action)
        answer = flight.answer or Answer(Heard.ACCEPTED)
        return Accepted(
            flight.decision, flight.action, answer, flight.ours, flight.processes, at=self._clock.monotonic()
        )

    async def _carry(self, flight: _Flight) -> End:
        """Note the intent, look again, act, confirm."""
        action = flight.action
        if action.rung not in self._hands.rungs:
            return Result.FAILED, f"this daemon cannot {action.rung}"
        rung = self._hands.rungs[action.rung]
        if (doubt := rung.preflight(action)) is not None:
            return ENDS[doubt.heard], f"not tried: {doubt.detail}"
        try:
            await self._journal.intend(flight.decision, action)
        except OSError as error:
            return Result.FAILED, f"the journal cannot be written: {error}"
        if (why := await self._looks.look(action)) is not None:
            return Result.FAILED if unanswered(why) else Result.ABANDONED, why
        if (snapshot := self._decider.heard) is not None:
            flight.processes = processes_of(action, snapshot)
        answer = await self._once(flight)
        if answer.heard in ENDS:
            return ENDS[answer.heard], answer.detail
        if answer.heard is Heard.ACCEPTED and rung.insists:
            return Result.ACCEPTED, answer.detail  # a signal that the kernel took is delivered
        return await self._confirmed(flight, answer.detail)

    async def _resumed(self, flight: _Flight) -> End:
        """Look up the outcome of an action that another daemon began, and never repeat it."""
        self._decider.resumed(flight.action)  # of several each is in flight when its turn comes
        answer = flight.answer
        if answer is not None and answer.heard in ENDS:
            return ENDS[answer.heard], answer.detail
        if flight.action.rung not in self._hands.rungs:
            return Result.UNKNOWN, f"this daemon cannot {flight.action.rung}, and cannot look it up"
        return await self._confirmed(flight, "begun by a daemon before this one")

    async def _once(self, flight: _Flight) -> Answer:
        """Make the call, and note the answer; a daemon that ends meanwhile notes that it is unknown."""
        call = asyncio.ensure_future(self._hands.rungs[flight.action.rung].act(flight.action, flight.decision))
        try:
            answer = await asyncio.shield(call)
        except asyncio.CancelledError:
            call.cancel()
            await self._hear(flight, Answer(Heard.AMBIGUOUS, "the daemon was ended meanwhile"))
            raise
        if answer.heard in LEFT or answer.status is not None:
            self._decider.sent(flight.action)
        await self._hear(flight, answer)
        return answer

    async def _confirmed(self, flight: _Flight, detail: str) -> End:
        """Look whether the action was carried out, until that is known or the deadline has passed."""
        rung, began = self._hands.rungs[flight.action.rung], self._clock.monotonic()
        while True:
            waited = self._clock.monotonic() - began
            confirmed = await rung.confirmed(flight.action)
            if confirmed:
                return Result.ACCEPTED, detail
            if confirmed is False and waited >= LATE:
                return Result.FAILED, f"{NOT_DONE}: {detail}" if detail else NOT_DONE
            if waited >= DEADLINE:
                return Result.UNKNOWN, f"no look could tell within {waited:.0f} s whether it was carried out"
            await self._clock.sleep(PAUSE)

    async def _hear(self, flight: _Flight, answer: Answer) -> None:
        flight.answer = answer
        await self._journal.hear(flight.decision, answer)

    async def _concluded(self, flight: _Flight, result: Result, detail: str) -> None:
        """Report the outcome, and end the action."""
        if result is not Result.ACCEPTED:
            await self._journal.end(flight.decision, result, detail)
        elif not flight.answered:
            await self._hear(flight, Answer(Heard.ACCEPTED, "a look has confirmed it"))
        action = flight.action
        event = "enforcer.dry_run_ended" if action.dry else "enforcer.request_result"
        victim = {"pod_uid": action.pod_uid, "container": action.container}
        log.info(event, result=result, detail=detail, action=action.rung, **victim)
        self._decider.conclude(action, result, detail)
