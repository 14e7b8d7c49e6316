"""
Dry runs: all steps of an action but the last.

What comes in: actions of dry runs; each round, for the inits that a kill would hold. What goes out: the outcome that
each action would have had: how far it would have come, and what would have spared its victim.

The rule: **the same code as in `enforce`, with hands that cannot change anything.** It takes a fresh sample, a live
answer, the last look and the preflight. It has no journal, because nothing is done, and no more rights than mode
`observe`. A dry run takes place beside the acting half, and never delays it.
"""

from enforcer.actions.dry_run import DryRun
from enforcer.actions.fence.actuator import unfit
from enforcer.actions.interface import Actuator, Answer
from enforcer.actions.kill.actuator import Kill
from enforcer.actions.victim import accused
from enforcer.policy.history import Action, Result
from enforcer.policy.vocabulary import Mode, Rung
from enforcer.runtime.decider import Decider
from enforcer.runtime.executor import Executor
from enforcer.runtime.hands import Ask, Fresh, Hands
from exporter.base.clock import Clock
from exporter.rounds.latest import Latest


class Unwritten:
    """A journal that keeps nothing."""

    async def intend(self, decision: str, action: Action) -> None:
        """Note nothing."""

    async def hear(self, decision: str, answer: Answer) -> None:
        """Note nothing."""

    async def end(self, decision: str, result: Result, detail: str) -> None:
        """Note nothing."""


class DryRuns:
    """Performs dry runs one after the other, as `decider` begins them. Two tasks call `run` and `hold`."""

    def __init__(self, decider: Decider, ask: Ask, fresh: Fresh, kill: Kill, *, clock: Clock) -> None:
        """Look with `ask` and `fresh`; of `kill` nothing is used that sends a signal."""
        self._decider = decider
        self._kill = kill
        stand_ins: dict[Rung, Actuator] = {rung: DryRun(rung) for rung in Rung if rung is not Rung.NOTIFY}
        stand_ins[Rung.FENCE] = DryRun(Rung.FENCE, unfit)
        stand_ins[Rung.KILL] = DryRun(Rung.KILL, self._kill.preflight)
        hands = Hands(stand_ins, ask, fresh)
        self._executor = Executor(decider, Unwritten(), hands, clock=clock)
        decider.rehearse = self._executor.begin

    async def run(self) -> None:
        """Perform each dry run that begins, until cancelled."""
        await self._executor.run()

    async def hold(self, latest: Latest) -> None:
        """Hold the inits that a kill would signal, until cancelled, because a preflight checks them."""
        try:
            async for _ in latest.rounds():
                wanted = Rung.KILL in self._decider.rules.ladder
                dry = (standing for standing in self._decider.judged() if wanted and standing.mode is Mode.DRY_RUN)
                await self._kill.hold(accused(dry))
        finally:
            self._kill.close()
