"""
Signals a container's init: SIGTERM, and SIGKILL when its grace is over.

What comes in: once per round, the containers whose grace runs; an action. What goes out: signals, and an `Answer`.

The rule: **a signal goes through a pidfd that was opened while the container's grace ran, or it is not sent.** Just
before each signal, /proc is read again: the process must still be the init of that container. A daemon that has just
started holds no process, so it finishes no kill that another daemon began.
"""

import asyncio
import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import structlog

from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kill.pidfds import Hold, Inits
from enforcer.actions.kill.targets import Obstacle
from enforcer.actions.victim import Victim
from enforcer.policy.history import Action
from enforcer.policy.vocabulary import Rung
from exporter.base.cgroup_owner import PodCgroups

log = structlog.get_logger()

MOST = 256
"""Containers held at once: more than a node has pods, and few descriptors."""
ASKED = "SIGTERM was sent"
DEAF = "SIGTERM was sent, which its first process does not handle"
GRACE_OVER = "SIGKILL was sent after its grace"
INSISTED = "SIGKILL was sent, because it lived on after an earlier SIGTERM"


class Kill:
    """The step that ends one container. One task calls `hold`, another the rest; both of one event loop."""

    rung = Rung.KILL
    insists = True
    frees = True

    def __init__(self, root: Path, pods: PodCgroups, *, trusted: bool = False) -> None:
        """Read `root`, a mounted /proc; `pods` and `trusted` as in `exporter.host.procfs.ProcFs`."""
        self._inits = Inits(root, pods, trusted=trusted)
        self._held: dict[Victim, Hold] = {}
        self._obstacles: dict[Victim, Obstacle] = {}

    @property
    def held(self) -> frozenset[Victim]:
        """The containers that could be signalled."""
        return frozenset(self._held)

    @property
    def obstacles(self) -> Mapping[Victim, Obstacle]:
        """The containers of the last call of `hold` that could not be signalled, and why."""
        return self._obstacles

    async def hold(self, victims: Iterable[Victim]) -> None:
        """
        Hold the inits of these containers from now on, and let go of all others. Call it once per round.

        /proc is searched, in a thread, only while a container is new or its init could not be found. An init that got a
        signal is held until it has exited: its level starts at 0 again, so `victims` may no longer name it.
        """
        wanted = dict.fromkeys(islice(dict.fromkeys(victims), MOST))
        for victim in self._held.keys() - wanted.keys():
            if not self._held[victim].asked or self._held[victim].exited():
                self._held.pop(victim).release()
        self._obstacles = {victim: why for victim, why in self._obstacles.items() if victim in wanted}
        lasting = {victim for victim, why in self._obstacles.items() if why.lasting}
        new = wanted.keys() - self._held.keys() - lasting
        if not new:
            return
        members = await asyncio.to_thread(self._inits.members, new)
        for victim in new:
            held = self._inits.hold(victim, members[victim])
            if isinstance(held, Hold):
                self._held[victim] = held
                self._obstacles.pop(victim, None)
            elif self._obstacles.get(victim) is not held:
                log.warning("kill.not_held", pod_uid=victim[0], container_id=victim[1], reason=held.value)
                self._obstacles[victim] = held

    def preflight(self, action: Action) -> Answer | None:
        """Say why a signal would not be sent, or not arrive; None: no reason is known. Sends none."""
        hold = self._of(action)
        return hold if isinstance(hold, Answer) else self._inits.look(hold)

    async def act(self, action: Action, decision: str) -> Answer:
        """
        Send SIGTERM to the container's init.

        An init that lived on after an earlier SIGTERM has had its grace, and gets SIGKILL. Else it could survive by
        a pause of its excess each time that SIGKILL is due.
        """
        hold = self._of(action)
        if isinstance(hold, Answer):
            return hold
        if (doubt := self._inits.look(hold)) is not None:
            return doubt
        if hold.asked:
            hold.asked, hold.killed = decision, True
            return _said(hold.send(signal.SIGKILL), INSISTED)
        hears = self._inits.hears(hold)
        answer = hold.send(signal.SIGTERM)
        if answer.heard is Heard.ACCEPTED:
            hold.asked, hold.killed = decision, False
        return _said(answer, ASKED if hears else DEAF)

    async def confirmed(self, action: Action) -> bool | None:
        """Look whether the container has ended; None while it runs, because a signal leaves no other trace."""
        return True if await self.ended(action) else None

    async def insist(self, action: Action, decision: str) -> Answer | None:
        """Send SIGKILL to the init to which `act` sent SIGTERM under the same decision; None if that was done."""
        hold = self._of(action)
        if isinstance(hold, Answer):
            return hold
        if hold.asked != decision:
            return Answer(Heard.FAILED, "this daemon did not ask it to end, so it is not killed")
        if hold.killed:
            return None
        if (doubt := self._inits.look(hold)) is not None:
            return doubt
        hold.killed = True
        return _said(hold.send(signal.SIGKILL), GRACE_OVER)

    async def ended(self, action: Action) -> bool | None:
        """
        Look whether the init has exited, which is after all others of its container.

        For a container that is not held (an earlier daemon began the kill), /proc is searched for any process of it.
        """
        if action.container_id is None:
            return None
        victim = action.pod_uid, action.container_id
        if (hold := self._held.get(victim)) is not None:
            return hold.exited()
        return await asyncio.to_thread(self._inits.empty, victim)

    def close(self) -> None:
        """Let go of all inits."""
        while self._held:
            self._held.popitem()[1].release()

    def _of(self, action: Action) -> Hold | Answer:
        """Return the hold of an action's container, or why it cannot be signalled at all."""
        if action.container_id is None:
            return Answer(Heard.IMPOSSIBLE, "it is no container, and a signal ends one container")
        victim = action.pod_uid, action.container_id
        hold = self._held.get(victim)
        if hold is not None:
            return hold
        obstacle = self._obstacles.get(victim)
        if obstacle is None:
            return Answer(Heard.FAILED, "it was not held while its grace ran")
        return Answer(Heard.IMPOSSIBLE if obstacle.its_own else Heard.FAILED, str(obstacle))


def _said(answer: Answer, what: str) -> Answer:
    """Put `what` was done into the answer, if the kernel took the signal."""
    return replace(answer, detail=what) if answer.heard is Heard.ACCEPTED else answer
