"""
The policy at work in the daemon: decide, report, act.

What comes in: each snapshot, the operator's rules, the stop file. What goes out: an action to begin; log lines and
notices of what changed; metrics and documents for the exporter.

The rule: `hear` waits for nothing. It is one call of the pure policy (some 20 microseconds per container); the rest is
memory. The policy's clocks are read in this package, and its time is an argument everywhere else.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from prometheus_client.core import Metric

from enforcer.journal.resume import merged
from enforcer.messages import document
from enforcer.messages.events import Notice
from enforcer.messages.invalid_limits import Told, invalid_limits
from enforcer.messages.notices import beginning, ending, lines, notices
from enforcer.messages.tally import Tally
from enforcer.policy import breakers
from enforcer.policy.certain_usage import certain
from enforcer.policy.decide import decide
from enforcer.policy.history import Action, History, InFlight, Moment, Result, Standing, Verdict
from enforcer.policy.last_look import Live, Spared, last_look
from enforcer.policy.limit_holders import CaseKey
from enforcer.policy.outcomes import conclude, rehearsed
from enforcer.policy.preview import preview
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason
from enforcer.runtime import metrics
from enforcer.runtime.stop_file import StopFile
from exporter.model import PodUid, Snapshot

log = structlog.get_logger()

NOTHING_KNOWN = History()
USUAL_GRACE = 30.0
"""Seconds that Kubernetes grants a pod that says nothing."""
SHOWN = 10
"""Decisions on the node page; /api/v1/decisions has more."""
Tell = Callable[[Iterable[Notice]], None]
Begin = Callable[[Action], None]
Note = Callable[[History, History, str], None]
"""Gets the history before and after a change of what outlives the daemon, and the name of a person who wanted it."""


def read_moment() -> Moment:
    """Read both clocks."""
    return Moment(time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))


class Decider:
    """
    Decides on every snapshot. One task calls `hear`; all else answers from memory.

    Attributes:
        rules: in force; exchange them whole.
        ceilings: what else restricts the mode: another daemon has the node, the journal cannot be written.
        rehearse: takes the dry actions.

    """

    def __init__(
        self,
        rules: Rules,
        stop_file: Path,
        *,
        tell: Tell = lambda _: None,
        begin: Begin | None = None,
        rehearse: Begin = lambda _: None,
        history: History = NOTHING_KNOWN,
        moment: Callable[[], Moment] = read_moment,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.rules = rules
        self.ceilings: tuple[Ceiling, ...] = ()
        self.stop_file = StopFile(stop_file)
        self.rehearse = rehearse
        self._begin = begin
        self._note: Note = lambda _before, _after, _by: None
        self._tell = tell
        self._moment = moment
        self._wall = wall
        self._history = history
        self._tally = Tally()
        self._told: Told = {}
        self._verdict: Verdict | None = None
        self._snapshot: Snapshot | None = None

    def hear(self, snapshot: Snapshot) -> None:
        """Judge a snapshot: decide, note what must outlive the daemon, report what changed, act."""
        before, past = self._verdict, self._history
        self._history, verdict = decide(snapshot, self.in_force(), past, self._moment())
        self._noted(past)
        self._tally = self._tally.after(verdict, snapshot.taken_at)
        self._verdict, self._snapshot = verdict, snapshot
        for line in lines(verdict, before):
            (log.warning if line.warning else log.info)(line.event, **line.data)
        self._tell([*notices(verdict, snapshot), *self._invalid(verdict, snapshot)])
        begin = self.rehearse if verdict.action is not None and verdict.action.dry else self._begin
        if verdict.action is not None and begin is not None:
            begin(verdict.action)

    def in_force(self) -> Rules:
        """Return the rules as they count now, with all that restricts them."""
        more = (*self.ceilings, *self.stop_file.ceilings())
        return replace(self.rules, ceilings=(*self.rules.ceilings, *more)) if more else self.rules

    # --- an action, from its beginning to its end ---

    def arm(self, begin: Begin, history: History, note: Note) -> None:
        """
        Let actions begin.

        `history` is what the journal says of the daemon before, or, when it is opened anew, of this one. What is known
        here and not there is noted; `note` gets each later change of such things, too.
        """
        self._history = merged(self._history, history)
        self._begin, self._note = begin, note
        self._noted(history)

    def disarm(self) -> None:
        """Let no action begin any more."""
        self._begin = None

    @property
    def in_flight(self) -> bool:
        """Whether an action has not ended."""
        return self._history.in_flight is not None

    def resumed(self, action: Action) -> None:
        """Take that an action of a daemon before this one is being seen to its end."""
        if not self.in_flight:
            self._history = replace(self._history, in_flight=InFlight(action, self._moment().monotonic))

    def still(self, action: Action, live: Live, snapshot: Snapshot) -> Reason | Spared | None:
        """Say why an action must not be taken now; `snapshot` was heard."""
        rules = self.in_force()
        return last_look(action, live, certain(snapshot), rules=rules, history=self._history, now=self._moment())

    def grace_of(self, action: Action) -> float:
        """Return the seconds that the victim's pod wants between SIGTERM and SIGKILL."""
        pod = self._snapshot.pods.get(action.pod_uid) if self._snapshot else None
        return USUAL_GRACE if pod is None else pod.grace_seconds

    def accepted(self, action: Action) -> None:
        """Take that an action is under way, and tell its user."""
        if (notice := beginning(action, self.grace_of(action), self._moment(), self._wall())) is not None:
            self._tell([notice])

    def conclude(self, action: Action, result: Result, detail: str) -> None:
        """Take the end of an action."""
        now, at, past = self._moment(), self._wall(), self._history
        self._tally = self._tally.ended(action, result, detail, at, max(0.0, now.monotonic - action.since))
        if action.dry:
            self._history = rehearsed(past, action, result)
            return
        self._history = conclude(past, result, now, detail=detail)
        self._noted(past)
        if (notice := ending(action, result, detail, now, at)) is not None:
            self._tell([notice])

    def close(self, breaker: Breaker, by: str) -> bool:
        """Close a breaker because a person says so; False if it is not open."""
        past = self._history
        if breaker not in past.breakers:
            log.warning("enforcer.breaker_not_open", breaker=breaker, by=by)
            return False
        self._history = replace(past, breakers=breakers.closed(past.breakers, breaker))
        log.warning("enforcer.closing", breaker=breaker, by=by, was=past.breakers[breaker].detail)
        self._note(past, self._history, by)
        return True

    def unfence(self, keys: Collection[CaseKey]) -> None:
        """Take that these fences stand no more: a container over its limit is fenced again before anything else."""
        self._history = replace(self._history, fenced=self._history.fenced - frozenset(keys))

    # --- what the rest of the daemon asks ---

    @property
    def heard(self) -> Snapshot | None:
        """The last snapshot, of which `judged` tells; None before the first."""
        return self._snapshot

    def judged(self) -> tuple[Standing, ...]:
        """Return the states of all limit holders."""
        return self._verdict.standings if self._verdict else ()

    def families(self, snapshot: Snapshot) -> Iterator[Metric]:
        """Yield the policy's metrics."""
        if self._verdict is not None:
            yield from metrics.collect(snapshot, self._verdict, self._history, self._tally, self.rules)

    def summary(self) -> dict[str, Any] | None:
        """Describe mode, breakers, budgets and the state of all limit holders; None before the first round."""
        return document.summary(self._verdict, self._tally.recent[:SHOWN], self._offset) if self._verdict else None

    def decisions(self) -> dict[str, Any]:
        """Describe the recent actions and refusals, the newest first."""
        return {"recent": [document.decision(decision, self._offset) for decision in self._tally.recent]}

    def preview(self) -> dict[str, Any] | None:
        """Describe what enforcing would hit now; None before the first round."""
        seen = self._snapshot
        return None if seen is None else document.preview(preview(certain(seen), self.rules), self._offset)

    def standings(self, pod: PodUid) -> list[dict[str, Any]]:
        """Describe the states of a pod's limit holders."""
        return [document.standing(standing, self._offset) for standing in self.judged() if standing.key.pod_uid == pod]

    def _invalid(self, verdict: Verdict, snapshot: Snapshot) -> Iterable[Notice]:
        if verdict.mode.rank < Mode.WARN.rank:
            return ()
        self._told, invalid = invalid_limits(snapshot, self._told, verdict.standings)
        return invalid

    def _noted(self, past: History) -> None:
        """Have noted what outlives the daemon, if it changed."""
        now = self._history
        excesses_changed = past.excesses.keys() != now.excesses.keys()
        if excesses_changed or past.breakers != now.breakers or past.strikes != now.strikes:
            self._note(past, now, "")

    @property
    def _offset(self) -> float:
        return self._snapshot.taken_at - self._snapshot.monotonic if self._snapshot else 0.0
