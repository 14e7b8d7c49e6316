"""
Looks after the fences of a node.

What comes in: the driver's limits, the journal, each round. What goes out: the step `fence`, or why the node has none,
and the fences that are no longer in force.

The rule: **a fence does not outlive its reason.** A daemon in mode `enforce` looks at each fence in every round. A
daemon in another mode removes the fences that an earlier daemon left. A fence stays when its daemon ends, and the next
daemon finds it in the journal.
"""

import asyncio
from dataclasses import replace
from os import geteuid

from enforcer.actions.fence.actuator import Fencing, Register
from enforcer.actions.fence.cgroup_paths import Leaves
from enforcer.actions.fence.driver import LimitsDeniedError, LimitsError, MemoryLimits
from enforcer.actions.fence.fences import fallen
from enforcer.journal import file as journal_file
from enforcer.policy.rules import MissingStep, Rules
from enforcer.policy.vocabulary import Mode, Rung
from enforcer.runtime.decider import Decider
from enforcer.runtime.ownership import Ownership
from exporter.base.clock import Clock

AGAIN = 60.0
"""Seconds between two tries: to ask whether the driver can fence, and to remove an earlier daemon's fences."""
SOON = 10.0
"""Seconds between two requests to a driver that does not answer: until it does, no step follows."""


async def impossible(limits: MemoryLimits, leaves: Leaves, *, rights: bool = True) -> MissingStep | None:
    """
    Say why no container can be fenced on this node; None: no reason is known. Sets nothing.

    The reason is lasting if it is the driver's version, a right or the kernel. It is not if the driver does not answer.
    `rights`: count a right that this daemon lacks.
    """
    if rights and geteuid() != 0:
        return MissingStep(Rung.FENCE, "limits of the driver are set by root")
    try:
        why = await asyncio.to_thread(leaves.unavailable, rights=rights) or await limits.impossible()
    except LimitsDeniedError as error:
        return MissingStep(Rung.FENCE, str(error)) if rights else None
    except (LimitsError, OSError) as error:
        return MissingStep(Rung.FENCE, str(error), lasting=False)
    return MissingStep(Rung.FENCE, why) if why else None


class Fences:
    """Looks after the fences. `limits` None: this daemon's devices have none."""

    def __init__(self, limits: MemoryLimits | None, leaves: Leaves, *, clock: Clock) -> None:
        self._limits = limits
        self._leaves = leaves
        self._clock = clock
        self._missing: MissingStep | None = None
        self._possible = False
        self._look_at = 0.0
        self._left_at: float | None = 0.0
        """When to look for fences that an earlier daemon left; None: there are none."""

    async def missing(self, rules: Rules) -> MissingStep | None:
        """Say why this node cannot fence; None where it can, or where the ladder has no fence."""
        if Rung.FENCE not in rules.ladder or self._possible:
            return None
        if self._limits is None:
            return MissingStep(Rung.FENCE, "it cannot fence: the devices of this daemon have no limits to set")
        if self._missing is None or self._clock.monotonic() >= self._look_at:
            why = await impossible(self._limits, self._leaves, rights=rules.mode is Mode.ENFORCE)
            self._possible = why is None
            self._missing = None if why is None else replace(why, detail=f"it cannot fence: {why.detail}")
            self._look_at = self._clock.monotonic() + (AGAIN if why is None or why.lasting else SOON)
        return self._missing

    def forget(self) -> None:
        """Forget whether this node can fence, so that it is checked anew."""
        self._missing, self._possible = None, False

    def rung(self, register: Register) -> Fencing | None:
        """Make the step `fence`, whether it is possible or not; None where there is no driver at all."""
        return None if self._limits is None else Fencing(self._limits, self._leaves, register)

    async def take_down(self, owner: Ownership, rules: Rules) -> None:
        """Remove the fences that an earlier daemon left; this one does not enforce."""
        if self._limits is None or self._left_at is None or self._clock.monotonic() < self._left_at:
            return
        self._left_at = self._clock.monotonic() + AGAIN
        try:
            left = await asyncio.to_thread(journal_file.fences, owner.path, rules)
        except OSError:
            return
        if not left:
            self._left_at = None
            return
        try:
            if await owner.take_lock() or await owner.open_journal(rules):
                return
            fencing = Fencing(self._limits, self._leaves, owner.writer(lambda _: None))
            await fencing.keep(lambda _: f"the mode is {rules.mode}", lambda _: None)
        finally:
            owner.release()

    async def close(self) -> None:
        """Let go of the driver. Fences stay in force."""
        if self._limits is not None:
            await self._limits.close()


async def look_after(fencing: Fencing, decider: Decider) -> None:
    """Look at each fence, once per round that the decider heard."""
    rules, snapshot = decider.in_force(), decider.heard
    if snapshot is None:
        return
    standings = {standing.key: standing for standing in decider.judged()}
    gone = await fencing.keep(
        lambda fence: fallen(fence, standings, snapshot, rules),
        lambda key: standings[key].used if key in standings else None,
    )
    if gone:
        decider.unfence(gone)
