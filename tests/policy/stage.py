"""
A node on which actions are carried out: the real policy and the real acting half, on a clock that somebody steps.

What comes in: actors, and what the world says to an action. What goes out: what was asked of the world, in its order.

The law: the world begins at the API server and at processes; only these are played here. `script` is one list in which
journal, looks and calls stand in the order in which they came about.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from enforcer.actions.interface import Answer, Heard
from enforcer.messages.events import Notice
from enforcer.policy.history import Action, Moment, Result
from enforcer.policy.last_look import Live
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Rung, State
from enforcer.runtime.decider import Decider
from enforcer.runtime.dry_run import DryRuns
from enforcer.runtime.executor import Executor, Hands
from exporter.kube.errors import UNREACHABLE, KubeError
from exporter.model import Container, GpuUuid, Snapshot
from policy.scenes import BEGIN, CONSENTING, UNHURRIED, WALL, Actor, snapshot

INTERVAL = UNHURRIED.interval


class Stage:
    """The world, and everybody who acts in it."""

    def __init__(self, *actors: Actor, rules: Rules = UNHURRIED, stop_file: Path = Path("/nonexistent/stop")) -> None:
        self.actors = list(actors)
        self.monotonic_ = BEGIN
        self.script: list[str] = []
        self.notices: list[Notice] = []
        self.answer = Answer(Heard.ACCEPTED)
        self.doubt: Answer | None = None
        """Why the rung could not do it, before anything is tried."""
        self.gone = False
        self.labels = CONSENTING
        self.live: Actor | None = None
        """What the API server says instead of the first actor; None: the same."""
        self.away = False
        self.slow = 0.0
        self.disk_full = False
        self.results: list[Result] = []
        self.world: dict[str, object] = {}
        self.at: dict[str, Callable[[], None]] = {}
        """Something to do when a line of the script is written."""
        self.decider = Decider(
            rules,
            stop_file,
            tell=self.notices.extend,
            begin=self.begin,
            moment=lambda: Moment(self.monotonic_, self.monotonic_),
            wall=self.time,
        )
        self.executor = Executor(
            self.decider,
            self,
            Hands({Rung.FENCE: self, Rung.EVICT: self, Rung.KILL: self}, self.ask, self.fresh),
            clock=self,
        )
        self.dry_runs = DryRuns(self.decider, self.ask, self.fresh, Path("/nonexistent"), clock=self)
        self.rung = rules.ladder[-1]
        self.round = 0
        self.looked_at = BEGIN
        self.insists = self.rung is Rung.KILL
        self.frees = self.rung is not Rung.FENCE

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
        if self.monotonic_ - self.looked_at >= INTERVAL:
            self.look()
        await asyncio.sleep(0)

    # --- the sampler ---
    async def fresh(self, _only: Collection[GpuUuid]) -> Snapshot | None:
        self._say("looked")
        return self.look()

    def look(self) -> Snapshot:
        """Make a round now, and let the one who decides hear it."""
        self.round += 1
        self.monotonic_ += 0.01
        self.looked_at = self.monotonic_
        seen = snapshot(self.actors, self.monotonic_, round_=self.round, **self.world)  # type: ignore[arg-type]
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

    # --- a rung ---
    def preflight(self, _action: Action) -> Answer | None:
        return self.doubt

    async def act(self, _action: Action, _decision: str) -> Answer:
        self._say("acted")
        return self.answer

    async def insist(self, _action: Action, _decision: str) -> Answer | None:
        self._say("insisted")
        return Answer(Heard.ACCEPTED)

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
        if line in {"waited", "looked"} and self.script and self.script[-1] == line:
            return
        self.script.append(line)
        if line in self.at:
            self.at.pop(line)()

    # --- the play ---
    async def play(self, seconds: float = 400.0) -> None:
        """Let so many seconds pass, rounds an interval apart, while whatever is decided is carried out."""
        running = asyncio.gather(self.executor.run(), self.dry_runs.run())
        try:
            end = self.monotonic_ + seconds
            while self.monotonic_ < end and not running.done():
                self.look()
                before = self.monotonic_
                for _ in range(20):
                    await asyncio.sleep(0)
                self.monotonic_ = max(self.monotonic_, before + INTERVAL)
            assert not running.done(), running.exception()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def empty(self, pod: str) -> None:
        """Let a pod be gone, and its memory with it."""
        self.gone = True
        self.actors = [replace(one, used=0, limit=None) if one.pod == pod else one for one in self.actors]

    def state(self, actor: Actor) -> State | None:
        """Where the subject of an actor stands."""
        summary = self.decider.summary()
        assert summary is not None
        found = [one["state"] for one in summary["standings"] if one["pod_uid"] == actor.pod_uid]
        return State(found[0]) if found else None
