"""
Dry runs: `dry-run` takes the way of an action, down to the last step.

What comes in: dry actions; the round, for containers that would have to be held. What goes out: what would have become
of each: how far it would have come, and what would have spared its victim.

The rule: **the same code as in enforce, with hands that cannot change anything.** Fresh sample, live answer, last look,
preflight. No journal, because what is not done need not be remembered, and no right that observing does not have. A dry
run takes place beside the acting half, and never delays it.
"""

from pathlib import Path

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
    """The journal of what is not done."""

    async def intend(self, decision: str, action: Action) -> None:
        """Note nothing."""

    async def hear(self, decision: str, answer: Answer) -> None:
        """Note nothing."""

    async def end(self, decision: str, result: Result, detail: str) -> None:
        """Note nothing."""


class DryRuns:
    """Carries dry runs out, one after the other, as `decider` begins them. Two tasks call `run` and `hold`."""

    def __init__(
        self, decider: Decider, ask: Ask, fresh: Fresh, proc: Path, *, clock: Clock, trusted: bool = False
    ) -> None:
        """Look into `proc`, a mounted /proc, with `ask` and `fresh`; `trusted` as in `exporter.host.procfs.ProcFs`."""
        self._decider = decider
        self._kill = Kill(proc, trusted=trusted)
        stand_ins: dict[Rung, Actuator] = {rung: DryRun(rung) for rung in Rung if rung is not Rung.NOTIFY}
        stand_ins[Rung.FENCE] = DryRun(Rung.FENCE, unfit)
        stand_ins[Rung.KILL] = DryRun(Rung.KILL, self._kill.preflight)
        hands = Hands(stand_ins, ask, fresh)
        self._executor = Executor(decider, Unwritten(), hands, clock=clock)
        decider.rehearse = self._executor.begin

    async def run(self) -> None:
        """Carry out what is begun, until cancelled."""
        await self._executor.run()

    async def hold(self, latest: Latest) -> None:
        """Hold the inits that would have to be signalled, until cancelled: a preflight wants to see them."""
        try:
            async for _ in latest.rounds():
                wanted = Rung.KILL in self._decider.rules.ladder
                dry = (standing for standing in self._decider.judged() if wanted and standing.mode is Mode.DRY_RUN)
                await self._kill.hold(accused(dry))
        finally:
            self._kill.close()
