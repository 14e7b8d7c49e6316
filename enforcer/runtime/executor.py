"""
One action, from the decision to its effect.

What comes in: an action that was decided. What goes out: how it ended, for the decider; each step stands in the journal
before the next one.

The rule: **look again, then act, then see.** The intent is on disk before anything is done; nothing stands between the
last look and the call; what may have happened is never repeated; and success is claimed when the victim is gone and its
memory is free (a fence: when the driver tells it), not before. One action at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

import structlog

from enforcer.actions.interface import Actuator, Answer, Heard
from enforcer.journal.writer import Journal
from enforcer.policy.history import Action, Result
from enforcer.policy.last_look import FRESH, Live, Spared, holds
from enforcer.policy.vocabulary import Reason, Rung
from enforcer.runtime.decider import Decider
from exporter.base.clock import Clock
from exporter.kube.errors import KubeError
from exporter.model import GpuUuid, Snapshot

log = structlog.get_logger()

LOOKS = 2
"""Last looks, of which each may be too slow, or the first to tell of an edit."""
PATIENCE = 120.0
"""Seconds beyond the pod's own grace in which its effect must be seen: a large context takes a while to be freed."""
EVACUATION = 600.0
"""Seconds that somebody else gets who moves the pod away."""
AMBIGUOUS = 60.0
"""Seconds in which a request that we heard nothing of may still come about: the server's own deadline."""
LONGEST_GRACE = 600.0
"""Seconds of a pod's own grace that are waited for: it may ask for a week, and one action at a time is in flight."""
PAUSE = 1.0
"""Seconds between two looks for the effect."""
INSISTENCE = 30.0
"""Seconds after the grace in which a look that told nothing is repeated; the rest of the patience is for the effect."""
NOTHING = "nothing came of it, as far as was seen"
RELEASED = 2
"""Complete readings in a row in which nothing of it is left."""

ENDS: Mapping[Heard, Result] = {
    Heard.BLOCKED: Result.BLOCKED,
    Heard.GONE: Result.ABANDONED,
    Heard.CHANGED: Result.ABANDONED,
    Heard.TAKEN: Result.ABANDONED,
    Heard.REFUSED: Result.REFUSED,
    Heard.FAILED: Result.FAILED,
    Heard.REHEARSED: Result.REHEARSED,
}
"""What is an end by itself."""

AGAIN: Collection[str] = frozenset({Spared.LOOK_TOO_OLD, Spared.DECLARATION_CHANGED})
"""Why there is another look: it came late, or the watch has not told yet what the server's answer says."""

UNTOLD: Collection[str] = frozenset(
    {Spared.LOOK_FAILED, Spared.LOOK_TOO_OLD, Reason.READING_UNKNOWN, Reason.ALLOCATIONS_STALE}
)
"""Why a last look spares though nothing was seen that speaks for its victim: somebody did not answer, or came late."""

Ask = Callable[[Action], Awaitable[Live]]
Fresh = Callable[[Collection[GpuUuid]], Awaitable[Snapshot | None]]
End = tuple[Result, str]
"""How an action ended, and the particulars in words."""


@dataclass(frozen=True, slots=True)
class Hands:
    """What an action needs: the rungs that are there, and ways to look."""

    rungs: Mapping[Rung, Actuator]
    ask: Ask
    fresh: Fresh
    spared: Callable[[], Reason | None] = lambda: None
    """Says, without waiting, why nobody may be acted on any more: the lock was lost."""


class Executor:
    """Carries out what was decided. One task calls `run`; the decider calls `begin`."""

    def __init__(self, decider: Decider, journal: Journal, hands: Hands, *, clock: Clock) -> None:
        self._decider = decider
        self._journal = journal
        self._hands = hands
        self._clock = clock
        self._begun: asyncio.Queue[tuple[str, Action, Heard]] = asyncio.Queue()

    def begin(self, action: Action) -> None:
        """Take an action that was decided. Returns at once."""
        self._begun.put_nowait(("", action, Heard.AMBIGUOUS))

    def resume(self, decision: str, action: Action, answer: Answer | None = None) -> None:
        """Take an action that a daemon before this one began, with what that heard, and of which no end is known."""
        # A foreign evacuation takes its minutes. All else is looked at anew: what was accepted may not be done.
        evacuating = answer is not None and answer.heard is Heard.EVACUATING
        self._begun.put_nowait((decision, action, Heard.EVACUATING if evacuating else Heard.AMBIGUOUS))

    async def run(self) -> None:
        """Carry out, one after the other, until cancelled."""
        while True:
            decision, action, heard = await self._begun.get()
            if decision:
                self._decider.resumed(action)  # of several each is in flight when its turn comes
            result, detail = await (self._watch(decision, action, heard) if decision else self._carry(action))
            event = "enforcer.rehearsal_ended" if action.dry else "enforcer.ended"
            victim = {"pod_uid": action.pod_uid, "container": action.container}
            log.info(event, result=result, detail=detail, action=action.rung, **victim)
            self._decider.conclude(action, result, detail)

    async def _carry(self, action: Action) -> End:
        """Do it: note the intent, look again, act, see."""
        decision = str(uuid4())
        if action.rung not in self._hands.rungs:
            return Result.FAILED, f"this daemon cannot {action.rung}"
        if (doubt := self._hands.rungs[action.rung].preflight(action)) is not None:
            return Result.ABANDONED, f"not tried: {doubt.detail}"
        try:
            await self._journal.intend(decision, action)
        except OSError as error:
            return Result.ABANDONED, f"the journal cannot be written: {error}"
        return await self._ended(decision, await self._intended(decision, action))

    async def _intended(self, decision: str, action: Action) -> End:
        if (spared := await self._look(action)) is not None:
            return Result.ABANDONED, spared
        answer = await self._once(action, decision)
        if answer.heard in ENDS:
            return ENDS[answer.heard], answer.detail
        if answer.heard is not Heard.AMBIGUOUS:
            self._decider.accepted(action)
        return await self._seen(decision, action, answer)

    async def _watch(self, decision: str, action: Action, heard: Heard) -> End:
        """See what became of what another daemon began: never do it again."""
        end: End = Result.FAILED, "this daemon has no such rung"
        if action.rung in self._hands.rungs:
            end = await self._seen(decision, action, Answer(heard, "begun by a daemon before this one"))
        return await self._ended(decision, end)

    async def _ended(self, decision: str, end: End) -> End:
        await self._journal.end(decision, *end)
        return end

    async def _look(self, action: Action) -> str | None:
        """Look again; None: nothing speaks against it, and the call is to follow at once."""
        spared: str | None = Spared.LOOK_FAILED
        for _ in range(LOOKS):
            try:
                # The server first: a round takes some milliseconds, an answer up to seconds.
                live = await self._hands.ask(action)
            except KubeError as error:
                log.warning("enforcer.last_look", reason=error.reason, message=error.message)
                return Spared.LOOK_FAILED
            answered = self._clock.monotonic()
            snapshot = await self._hands.fresh({action.device.uuid})
            if snapshot is None:
                continue
            spared = self._hands.spared() or self._decider.still(action, live, snapshot)
            if spared is None and self._clock.monotonic() - answered > FRESH:
                spared = Spared.LOOK_TOO_OLD
            if spared not in AGAIN:
                return spared
        return spared

    async def _once(self, action: Action, decision: str) -> Answer:
        """Make the call, and note what was heard; a daemon that ends meanwhile notes that it does not know."""
        call = asyncio.ensure_future(self._hands.rungs[action.rung].act(action, decision))
        try:
            answer = await asyncio.shield(call)
        except asyncio.CancelledError:
            call.cancel()
            await self._journal.hear(decision, Answer(Heard.AMBIGUOUS, "the daemon was ended meanwhile"))
            raise
        await self._journal.hear(decision, answer)
        return answer

    async def _seen(self, decision: str, action: Action, answer: Answer) -> End:
        """Wait until the victim is gone and its memory is free, or what frees nothing is in force."""
        rung, began = self._hands.rungs[action.rung], self._clock.monotonic()
        grace = self._grace(action, 0.0)
        patience = EVACUATION if answer.heard is Heard.EVACUATING else PATIENCE
        ended: bool | None = None
        insisted, free = False, 0
        while (waited := self._clock.monotonic() - began) < grace + patience:
            ended = await rung.ended(action)
            grace = self._grace(action, grace)  # a daemon that has just started knows no pod's own grace yet
            if ended is False and answer.heard is Heard.AMBIGUOUS and waited >= AMBIGUOUS:
                going = await self._goes(action)
                if going is False:
                    return Result.FAILED, NOTHING
                if going:
                    answer = replace(answer, heard=Heard.ACCEPTED)
            if ended is False and rung.insists and waited >= grace and not insisted:
                spared = await self._insist(decision, action)
                if spared is not None and (spared not in UNTOLD or waited >= grace + INSISTENCE):
                    # Not abandoned, which gives the token back: SIGTERM was sent, or may have been.
                    return Result.FAILED, spared
                insisted = spared is None
            if ended and not rung.frees:
                return Result.VERIFIED, answer.detail
            if ended:
                free = free + 1 if await self._freed(action) else 0
                if free >= RELEASED:
                    return Result.VERIFIED, ""
            await self._clock.sleep(PAUSE)
        going = None if ended else await self._goes(action)
        if going and action.rung is Rung.EVICT:
            # Its own grace or a finalizer holds it. That is the pod's affair, and must not stop what protects others.
            return Result.LINGERS, f"the pod still terminates after {waited:.0f} s"
        if going is False and answer.heard is Heard.AMBIGUOUS:  # nothing answered until now, or we were stalled
            return Result.FAILED, NOTHING
        return Result.STUCK, f"no effect was seen within {waited:.0f} s"

    def _grace(self, action: Action, least: float) -> float:
        """Return the seconds that the victim may take to end, where it is to end at all."""
        frees = self._hands.rungs[action.rung].frees
        return max(least, min(self._decider.grace_of(action), LONGEST_GRACE)) if frees else 0.0

    async def _freed(self, action: Action) -> bool:
        """Look whether nothing of the victim's memory is left; False where that is unknown."""
        snapshot = await self._hands.fresh({action.device.uuid})
        return snapshot is not None and holds(action, snapshot) is False

    async def _goes(self, action: Action) -> bool | None:
        """Say whether its pod terminates, or is another by now; None without an answer."""
        try:
            live = await self._hands.ask(action)
        except KubeError:
            return None
        return live.pod is None or live.pod.uid != action.pod_uid or live.pod.terminating

    async def _insist(self, decision: str, action: Action) -> str | None:
        """Do what follows the grace, once, and only after another look; None: go on looking for the effect."""
        if (spared := await self._look(action)) is not None:
            return None if spared in (Spared.POD_GONE, Reason.TERMINATING) else spared
        answer = await self._hands.rungs[action.rung].insist(action, decision)
        if answer is not None:
            await self._journal.hear(decision, answer)
        return None
