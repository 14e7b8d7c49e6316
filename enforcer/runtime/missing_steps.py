"""
Finds the steps of the ladder that this node cannot perform.

What comes in: the rules, at the start and once per round. What goes out: the missing steps, for the decider, and a log
line each.

The rule: a step that is missing for good is passed over, and the next one follows. If it is unknown whether a step is
possible, the pod is held, so that no harsher step follows. A step that was possible once is not checked again. In a dry
run a missing right does not count, because it does not have those of `enforce`.
"""

import asyncio
from pathlib import Path

import structlog

from enforcer.actions.kill.pidfds import unavailable
from enforcer.policy.rules import MissingStep, Rules
from enforcer.policy.vocabulary import Mode, Rung
from enforcer.runtime.decider import Decider
from enforcer.runtime.fence_upkeep import AGAIN, Fences
from exporter.base.clock import Clock

log = structlog.get_logger()


class MissingSteps:
    """Looks for them. `proc` and `trusted` as for `Kill`."""

    def __init__(self, decider: Decider, fences: Fences, proc: Path, *, trusted: bool, clock: Clock) -> None:
        self._decider = decider
        self._fences = fences
        self._proc = proc
        self._trusted = trusted
        self._clock = clock
        self._kill: MissingStep | None = None
        self._kills = False
        self._look_at = 0.0
        self._mode: Mode | None = None

    async def look(self) -> None:
        """Look for what the ladder has now."""
        rules = self._decider.rules
        if rules.mode is not self._mode:  # other rights count
            self._mode, self._kill, self._kills = rules.mode, None, False
            self._fences.forget()
        missing = [each for each in (await self._fences.missing(rules), await self._no_kill(rules)) if each is not None]
        for each in missing:
            if each not in self._decider.missing:
                log.warning("enforcer.step_missing", step=each.step, detail=each.detail, lasting=each.lasting)
        self._decider.missing = tuple(missing)

    async def _no_kill(self, rules: Rules) -> MissingStep | None:
        """Say why no container of this node can be killed; None where it can, or where the ladder has no kill."""
        if Rung.KILL not in rules.ladder or self._kills:
            return None
        if self._kill is None or self._clock.monotonic() >= self._look_at:
            rights = rules.mode is Mode.ENFORCE
            why = await asyncio.to_thread(unavailable, self._proc, trusted=self._trusted, rights=rights)
            self._kills = why is None
            self._kill = None if why is None else MissingStep(Rung.KILL, f"it cannot kill: {why}")
            self._look_at = self._clock.monotonic() + AGAIN
        return self._kill
