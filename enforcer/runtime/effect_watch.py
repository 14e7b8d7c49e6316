"""
Watches accepted actions until their effect is seen: the victim is gone, and its memory is free.

What comes in: an accepted action. What goes out: its outcome, for the decider and the journal.

The rule: an action succeeded when two complete readings show no memory of the victim. No other action waits for that,
and several are watched at once. A slow victim is reported as lingering, an effect that does not come as stuck. Neither
stops anything. If a process of the victim lives on in another pod, the accounts named the wrong pod, and a breaker
opens.
"""

import asyncio
from dataclasses import dataclass

import structlog

from enforcer.actions.interface import Actuator, Answer, Heard
from enforcer.journal.writer import Journal
from enforcer.policy.history import Action, Result
from enforcer.policy.last_look import Spared, holds
from enforcer.policy.vocabulary import Reason
from enforcer.runtime.decider import Decider
from enforcer.runtime.hands import Hands
from enforcer.runtime.last_looks import LastLooks, unanswered
from enforcer.runtime.survivors import elsewhere
from exporter.base.clock import Clock
from exporter.model import ProcessKey, Snapshot

log = structlog.get_logger()

MOST = 64
"""Watches at once. A further one waits for a place, and its time runs meanwhile."""
PATIENCE = 120.0
"""Seconds beyond the pod's own grace in which the effect must be seen: a large context takes a while to be freed."""
EVACUATION = 600.0
"""Seconds that another controller gets to move the pod away."""
LONGEST_GRACE = 600.0
"""The most seconds of a pod's own grace period to wait for: a pod may ask for a week."""
PAUSE, LATER_PAUSE = 1.0, 5.0
"""Seconds between two looks for the effect, in the first minute and after it."""
INSISTENCE = 30.0
"""Seconds after the grace in which a look is repeated if a source did not answer, or it came too soon."""
TOO_SOON = frozenset({Reason.FEW_READINGS, Reason.IN_FLIGHT, Reason.NOT_OVER_NOW, Spared.NOT_DUE})
"""Why a look came too soon: there were not enough readings since SIGTERM, the last one was a pause of a moment, or
another action is in flight."""
RELEASED = 2
"""Complete readings in a row in which nothing of the victim's memory is left."""

End = tuple[Result, str]


@dataclass(frozen=True, slots=True)
class Accepted:
    """
    An action that was accepted.

    Attributes:
        answer: the last one in the journal.
        ours: this daemon began it; a process that another daemon signalled is not killed.
        processes: of the victim, as they were before the call.
        at: monotonic seconds at which it was accepted.

    """

    decision: str
    action: Action
    answer: Answer
    ours: bool
    processes: frozenset[ProcessKey]
    at: float


class EffectWatch:
    """Watches accepted actions, each in a task of its own."""

    def __init__(self, decider: Decider, journal: Journal, hands: Hands, looks: LastLooks, *, clock: Clock) -> None:
        self._decider = decider
        self._journal = journal
        self._hands = hands
        self._looks = looks
        self._clock = clock
        self._places = asyncio.Semaphore(MOST)

    async def watch(self, accepted: Accepted) -> None:
        """Watch one action until its effect is seen, or its time is over."""
        action = accepted.action
        try:
            async with self._places:
                result, detail = await self._seen(accepted)
            await self._journal.end(accepted.decision, result, detail)
        except asyncio.CancelledError:
            # The journal was lost. If the one that is opened anew has this action, it is watched again.
            self._decider.unwatched(action)
            raise
        tell = log.info if result is Result.VERIFIED else log.warning
        victim = {"pod_uid": action.pod_uid, "container": action.container}
        tell("enforcer.effect_result", result=result, detail=detail, action=action.rung, **victim)
        self._decider.watched(action, result, detail)

    async def _seen(self, accepted: Accepted) -> End:
        action = accepted.action
        rung = self._hands.rungs.get(action.rung)
        if rung is None:
            return Result.UNKNOWN, f"this daemon cannot {action.rung}, and cannot look for its effect"
        if not rung.frees:
            return Result.VERIFIED, accepted.answer.detail
        patience = EVACUATION if accepted.answer.heard is Heard.EVACUATING else PATIENCE
        grace = self._grace(action, 0.0)
        ended: bool | None = None
        insisted, free, done = False, 0, accepted.answer.detail if rung.insists else ""
        while (waited := self._clock.monotonic() - accepted.at) < grace + patience:
            self._compare(accepted, self._decider.heard)
            ended = await rung.ended(action)
            grace = self._grace(action, grace)  # a daemon that has just started knows no pod's own grace yet
            if ended is False and rung.insists and waited >= grace and not insisted and accepted.ours:
                why, said = await self._insist(accepted, rung)
                insisted, done = why is None, said or done
                if why is not None and (waited >= grace + INSISTENCE or not (unanswered(why) or why in TOO_SOON)):
                    return Result.LINGERS, f"SIGKILL was not sent: {why}"
            if ended:
                free = free + 1 if await self._freed(accepted) else 0
                if free >= RELEASED:
                    return Result.VERIFIED, done
            await self._clock.sleep(PAUSE if waited < PATIENCE / 2 else LATER_PAUSE)
        if not ended and await rung.confirmed(action):
            return Result.LINGERS, f"the pod still terminates after {waited:.0f} s"
        return Result.STUCK, f"no effect was seen within {waited:.0f} s"

    def _grace(self, action: Action, least: float) -> float:
        """Return the seconds that the victim may take to end."""
        return max(least, min(self._decider.grace_of(action), LONGEST_GRACE))

    async def _freed(self, accepted: Accepted) -> bool:
        """Look whether nothing of the victim's memory is left; False where that is unknown."""
        snapshot = await self._hands.fresh({accepted.action.device.uuid})
        self._compare(accepted, snapshot)
        return snapshot is not None and holds(accepted.action, snapshot) is False

    def _compare(self, accepted: Accepted, snapshot: Snapshot | None) -> None:
        """Look whether a process of the victim lives on in another pod."""
        survivor = None if snapshot is None else elsewhere(accepted.processes, accepted.action, snapshot)
        if survivor is not None:
            process, pod_uid = survivor
            self._decider.misattributed(
                f"process {process.pid} was counted to pod {accepted.action.pod} (uid {accepted.action.pod_uid}), "
                f"and lives on in the pod with uid {pod_uid}"
            )

    async def _insist(self, accepted: Accepted, rung: Actuator) -> tuple[Spared | Reason | None, str]:
        """
        Perform the second part of the action after the grace, once, and only after another look.

        Returns why it was not done (None: go on looking for the effect), and what was done, as text.
        """
        why = await self._looks.look(accepted.action, second=True)
        if why is not None:
            return None if why in (Spared.POD_GONE, Reason.TERMINATING) else why, ""
        answer = await rung.insist(accepted.action, accepted.decision)
        if answer is not None:
            log.info("enforcer.insisted", heard=answer.heard, detail=answer.detail, pod_uid=accepted.action.pod_uid)
            if answer.heard is Heard.ACCEPTED:  # any other answer would hide from the journal that SIGTERM was accepted
                await self._journal.hear(accepted.decision, answer)
                return None, answer.detail
        return None, ""
