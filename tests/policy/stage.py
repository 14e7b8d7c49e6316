"""
A node on which actions are carried out: the real policy and the real acting half, on a clock that a test steps.

What comes in: actors, and what the world says to an action. What goes out: what was asked of the world, in its order.

The rule: the world begins at the API server and at processes; only these are played here. `script` is one list in which
journal, looks and calls stand in the order in which they came about.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kill.actuator import GRACE_OVER, Kill
from enforcer.messages.events import Notice
from enforcer.policy.history import Action, Moment, Result
from enforcer.policy.last_look import Live
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Rung, State
from enforcer.runtime.decider import Decider
from enforcer.runtime.dry_run import DryRuns
from enforcer.runtime.executor import Executor
from enforcer.runtime.hands import Hands
from exporter.base.cgroup_owner import USUAL
from exporter.kube.errors import UNREACHABLE, KubeError
from exporter.model import Container, GpuUuid, Snapshot
from policy.scenes import BEGIN, CONSENTING, UNHURRIED, WALL, Actor, settled, snapshot

INTERVAL = UNHURRIED.interval


class Stage:
    """The world, and all that acts in it."""

    def __init__(self, *actors: Actor, rules: Rules = UNHURRIED, stop_file: Path = Path("/nonexistent/stop")) -> None:
        self.actors = list(actors)
        self.monotonic_ = BEGIN
        self.script: list[str] = []
        self.notices: list[Notice] = []
        self.answer = Answer(Heard.ACCEPTED)
        self.doubt: Answer | None = None
        """Why the step could not be done, before anything is tried."""
        self.gone = False
        self.acted: list[Action] = []
        """The actions whose call was made."""
        self.labels = CONSENTING
        self.live: Actor | None = None
        """What the API server says instead of the first actor; None: the same."""
        self.away = False
        self.slow = 0.0
        self.disk_full = False
        self.results: list[Result] = []
        self.world: dict[str, object] = {}
        self.shown: Callable[[Snapshot], Snapshot] = lambda seen: seen
        """What becomes of a snapshot before it is shown."""
        self.at: dict[str, Callable[[], None]] = {}
        """Something to do when a line of the script is written."""
        self.decider = Decider(
            rules,
            stop_file,
            tell=self.notices.extend,
            begin=self.begin,
            moment=lambda: Moment(self.monotonic_, self.monotonic_),
            wall=self.time,
            history=settled(rules),
        )
        self.executor = Executor(
            self.decider,
            self,
            Hands({Rung.FENCE: self, Rung.EVICT: self, Rung.KILL: self}, self.ask, self.fresh),
            clock=self,
        )
        self.dry_runs = DryRuns(self.decider, self.ask, self.fresh, Kill(Path("/nonexistent"), USUAL), clock=self)
        self.interval = rules.interval
        self.rung = rules.ladder[-1]
        self.round = 0
        self.looked_at = BEGIN
        self.insists = self.rung is Rung.KILL
        self.frees = self.rung is not Rung.FENCE

    def hands(self, **changes: Any) -> None:
        """Exchange what the executor acts and looks with."""
        hands = replace(self.executor._hands, **changes)
        for part in (self.executor, self.executor._looks, self.executor._watches):
            part._hands = hands

    def begin(self, action: Action) -> None:
        """Hand over what was decided."""
        self.executor.begin(action)

    # --- the clock ---
    def time(self) -> float:
        return WALL + self.monotonic_ - BEGIN

    def monotonic(self) -> float:
        return self.monotonic_

    async def sleep(self, seconds: float) -> None:
        self.monotonic_ += seconds
        self._say("waited")
        if self.monotonic_ - self.looked_at >= self.interval:
            self.look()
        await asyncio.sleep(0)

    # --- the sampler ---
    async def fresh(self, _only: Collection[GpuUuid]) -> Snapshot | None:
        self._say("looked")
        return self.look(by_time=False)

    def look(self, *, by_time: bool = True) -> Snapshot:
        """Make a round now, and let the one who decides hear it."""
        self.round += 1
        self.monotonic_ += 0.01
        self.looked_at = self.monotonic_
        seen = snapshot(self.actors, self.monotonic_, round_=self.round, **self.world)  # type: ignore[arg-type]
        seen = self.shown(replace(seen, by_time=by_time))
        self.decider.hear(seen)
        return seen

    # --- the API server ---
    async def ask(self, action: Action) -> Live:
        self._say("asked")
        self.monotonic_ += self.slow
        if self.away:
            raise KubeError(UNREACHABLE, "Unreachable", "nobody is there")
        actor = self.live or next((one for one in self.actors if one.pod == action.pod), None)
        if actor is None:
            return Live(None, (), "", self.labels)
        siblings = [one for one in self.actors if one.pod_uid == actor.pod_uid and one.container != actor.container]
        containers = tuple(Container(one.pod_uid, one.container, one.id, one.kind) for one in (actor, *siblings))
        return Live(actor.named(), containers, "node", self.labels)

    # --- a step of the ladder ---
    def preflight(self, _action: Action) -> Answer | None:
        return self.doubt

    async def act(self, action: Action, _decision: str) -> Answer:
        self.acted.append(action)
        self._say("acted")
        return self.answer

    async def confirmed(self, action: Action) -> bool | None:
        """Look as `ask` does: the pod is being deleted, gone, or another one; a fence is in force."""
        self._say("looked up")
        if self.away:
            return None
        actor = self.live or next((one for one in self.actors if one.pod == action.pod), None)
        other = actor is None or actor.pod_uid != action.pod_uid
        return self.gone or (self.frees and (other or bool(actor and actor.facts.get("terminating"))))

    async def insist(self, _action: Action, _decision: str) -> Answer | None:
        self._say("insisted")
        return Answer(Heard.ACCEPTED, GRACE_OVER)

    async def ended(self, _action: Action) -> bool | None:
        return self.gone

    # --- the journal ---
    async def intend(self, _decision: str, _action: Action) -> None:
        self._full()
        self._say("intended")

    async def hear(self, _decision: str, answer: Answer) -> None:
        if not self.disk_full:
            self._say(f"heard {answer.heard}")

    async def end(self, _decision: str, result: Result, detail: str) -> None:
        self.results.append(result)
        if not self.disk_full:
            self._say(f"{result} {detail}".strip())

    def _full(self) -> None:
        if self.disk_full:
            raise OSError(28, "No space left on device")

    def _say(self, line: str) -> None:
        if line in {"waited", "looked", "looked up"} and self.script and self.script[-1] == line:
            return
        self.script.append(line)
        if line in self.at:
            self.at.pop(line)()

    # --- the play ---
    async def play(self, seconds: float = 400.0, until: Callable[[], object] = lambda: False) -> None:
        """Let so many seconds pass, rounds an interval apart, while what is decided is carried out; or `until` so."""
        running = asyncio.gather(self.executor.run(), self.dry_runs.run())
        try:
            end = self.monotonic_ + seconds
            while self.monotonic_ < end and not running.done() and not until():
                self.look()
                before = self.monotonic_
                for _ in range(20):
                    await asyncio.sleep(0)
                self.monotonic_ = max(self.monotonic_, before + self.interval)
            assert not running.done(), running.exception()
            if until():
                self.look()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def delete(self, pod: str, **facts: object) -> None:
        """Let a pod be deleted: it terminates, and holds what it held."""
        facts = {"terminating": True, **facts}
        self.actors = [replace(one, facts={**one.facts, **facts}) if one.pod == pod else one for one in self.actors]

    def remaining(self) -> int:
        """The tokens of the node that are left."""
        summary = self.decider.summary()
        assert summary is not None
        return int(summary["budget_remaining"]["node"])

    def breakers(self) -> set[str]:
        """The open breakers."""
        summary = self.decider.summary()
        assert summary is not None
        return {one["breaker"] for one in summary["breakers"]}

    def reason(self, actor: Actor) -> str | None:
        """Why an actor's limit is held."""
        summary = self.decider.summary()
        assert summary is not None
        reasons = [one["reason"] for one in summary["standings"] if one["pod_uid"] == actor.pod_uid]
        return reasons[0] if reasons else None

    def empty(self, pod: str) -> None:
        """Let a pod be gone, and its memory with it."""
        self.gone = True
        self.actors = [replace(one, used=0, limit=None) if one.pod == pod else one for one in self.actors]

    def state(self, actor: Actor) -> State | None:
        """The state of an actor's limit."""
        summary = self.decider.summary()
        assert summary is not None
        found = [one["state"] for one in summary["standings"] if one["pod_uid"] == actor.pod_uid]
        return State(found[0]) if found else None
