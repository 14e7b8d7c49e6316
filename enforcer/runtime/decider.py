"""
The policy at work in the daemon: it hears every snapshot, and remembers.

What comes in: each snapshot, the operator's rules, the stop file. What goes out: verdicts, told to the log and to
users; metrics, documents and standings, whenever somebody asks.

The law: `hear` waits for nobody: one call of the pure policy (some 20 microseconds a container), the rest is memory.
Clocks are read here and nowhere else in the enforcer.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from prometheus_client.core import Metric

from enforcer.messages import document
from enforcer.messages.events import Notice
from enforcer.messages.invalid_limits import Told, invalid_limits
from enforcer.messages.notices import beginning, ending, lines, notices
from enforcer.messages.tally import Tally
from enforcer.policy import breakers
from enforcer.policy.certain_usage import certain
from enforcer.policy.decide import decide
from enforcer.policy.history import (
    Action,
    History,
    InFlight,
    Moment,
    Result,
    Spent,
    Standing,
    Strikes,
    Verdict,
    Workload,
)
from enforcer.policy.last_look import Live, Spared, holds, last_look
from enforcer.policy.limit_holders import CaseKey
from enforcer.policy.outcomes import conclude, rehearsed
from enforcer.policy.preview import preview
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason
from enforcer.runtime import metrics
from exporter.model import PodUid, Snapshot

log = structlog.get_logger()

NOTHING_KNOWN = History()
USUAL_GRACE = 30.0
"""Seconds that Kubernetes grants a pod that says nothing."""
STAMPED_WITHIN = 5.0
"""Seconds from a decision to its record, at most; real actions are further apart."""
SHOWN = 10
"""Decisions on the node page; /api/v1/decisions has more."""
Tell = Callable[[Iterable[Notice]], None]
Note = Callable[[History, History, str], None]
"""Gets the history before and after a change of what outlives the daemon, and who wanted it ("": nobody)."""


def read_moment() -> Moment:
    """Read both clocks."""
    return Moment(time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))


def unknown_to(journal: Iterable[Spent], mine: Iterable[Spent]) -> Iterator[Spent]:
    """Yield the tokens that the journal does not have: its stamps are those of its records, a little later."""
    known = list(journal)
    for token in mine:
        same = (one for one in known if one.workload == token.workload and abs(one.at - token.at) <= STAMPED_WITHIN)
        if token.dry or (found := next(same, None)) is None:
            yield token
        else:
            known.remove(found)


def more(journal: Mapping[Workload, Strikes], mine: Mapping[Workload, Strikes]) -> dict[Workload, Strikes]:
    """Take of each workload the larger count: whoever counts without the journal begins at one."""
    larger = {one: known for one, known in mine.items() if one not in journal or known.count >= journal[one].count}
    return {**journal, **larger}


def _told_of(snapshot: Snapshot, verdict: Verdict) -> Snapshot:
    """Leave out the limits of those namespaces whose own mode is that nobody is told."""
    quiet = {one.key.pod_uid for one in verdict.standings if one.mode.rank < Mode.WARN.rank}
    return replace(snapshot, limits=tuple(one for one in snapshot.limits if one.pod_uid not in quiet))


class Deciding:
    """
    Decides on every snapshot. One task calls `hear`, whoever serves asks the rest.

    Attributes:
        rules: in force; exchange them whole.
        stop_file: nothing is done while it is there.

    """

    def __init__(
        self,
        rules: Rules,
        stop_file: Path,
        *,
        tell: Tell = lambda _: None,
        begin: Callable[[Action], None] | None = None,
        rehearse: Callable[[Action], None] = lambda _: None,
        history: History = NOTHING_KNOWN,
        moment: Callable[[], Moment] = read_moment,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.rules = rules
        self.ceilings: tuple[Ceiling, ...] = ()
        """What else restricts the mode: that another daemon has the node, that the journal cannot be written."""
        self._begin = begin
        self.rehearse = rehearse
        """Takes the actions that are not to be done: what would become of them is looked at as if they were."""
        self._note: Note = lambda _before, _after, _by: None
        self.stop_file = stop_file
        self._stopped = ""
        self._tell = tell
        self._moment = moment
        self._wall = wall
        self._history = history
        self._tally = Tally()
        self._told: Told = {}
        self._verdict: Verdict | None = None
        self._snapshot: Snapshot | None = None

    def hear(self, snapshot: Snapshot) -> None:
        """Judge a snapshot, and tell what changed."""
        rules = self._in_force()
        before, past = self._verdict, self._history
        self._history, verdict = decide(snapshot, rules, past, self._moment())
        self._noted(past)
        self._tally = self._tally.after(verdict, snapshot.taken_at)
        self._verdict, self._snapshot = verdict, snapshot
        for line in lines(verdict, before):
            (log.warning if line.warning else log.info)(line.event, **line.data)
        told = [*notices(verdict, snapshot)]
        if verdict.mode.rank >= Mode.WARN.rank:
            self._told, invalid = invalid_limits(_told_of(snapshot, verdict), self._told)
            told += invalid
        self._tell(told)
        if verdict.action is not None and verdict.action.dry:
            self.rehearse(verdict.action)
        elif verdict.action is not None and self._begin is not None:
            self._begin(verdict.action)

    def arm(self, begin: Callable[[Action], None], history: History, note: Note) -> None:
        """
        Let actions begin.

        `history` is what the journal says of the daemon before, or, when it is opened anew, of this one: what is known
        here and not there counts, too, and is noted. `note` gets each later change of such things.
        """
        mine = self._history
        self._history = replace(
            mine,
            spent=(*history.spent, *unknown_to(history.spent, mine.spent)),
            breakers={**history.breakers, **mine.breakers},
            strikes=more(history.strikes, mine.strikes),
            excesses={**history.excesses, **mine.excesses},
            in_flight=history.in_flight,
            fenced=history.fenced | mine.fenced,
        )
        self._begin, self._note = begin, note
        self._noted(history)

    @property
    def in_flight(self) -> bool:
        """Whether an action has not ended."""
        return self._history.in_flight is not None

    def resumed(self, action: Action) -> None:
        """Take that an action of a daemon before this one is being seen to its end."""
        if not self.in_flight:
            self._history = replace(self._history, in_flight=InFlight(action, self._moment().monotonic))

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

    def disarm(self) -> None:
        """Let no action begin any more."""
        self._begin = None

    def unfence(self, keys: Collection[CaseKey]) -> None:
        """Take that these fences stand no more: who is over again is fenced again, before anything else follows."""
        self._history = replace(self._history, fenced=self._history.fenced - frozenset(keys))

    @property
    def heard(self) -> Snapshot | None:
        """The last snapshot, of which `judged` tells; None before the first."""
        return self._snapshot

    def in_force(self) -> Rules:
        """Return the rules as they count now, with all that restricts them."""
        return self._in_force()

    def judged(self) -> tuple[Standing, ...]:
        """Return where everybody stands."""
        return self._verdict.standings if self._verdict else ()

    def still(self, action: Action, live: Live, snapshot: Snapshot) -> Reason | Spared | None:
        """Say why an action must not be taken now; `snapshot` was heard."""
        rules = self._in_force()
        return last_look(action, live, certain(snapshot), rules=rules, history=self._history, now=self._moment())

    def holds(self, action: Action, snapshot: Snapshot) -> bool | None:
        """Say whether the victim still holds memory of its device; None when the snapshot does not tell."""
        return holds(action, snapshot)

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
        now, at = self._moment(), self._wall()
        self._tally = self._tally.ended(action, result, detail, at, max(0.0, now.monotonic - action.since))
        past = self._history
        if action.dry:
            self._history = rehearsed(past, action, result)
            return
        self._history = conclude(past, result, now, detail=detail)
        self._noted(past)
        if (notice := ending(action, result, detail, now, at)) is not None:
            self._tell([notice])

    def families(self, snapshot: Snapshot) -> Iterator[Metric]:
        """Yield the policy's metrics."""
        if self._verdict is not None:
            yield from metrics.collect(snapshot, self._verdict, self._history, self._tally, self.rules)

    def summary(self) -> dict[str, Any] | None:
        """Describe mode, breakers, budgets and where everybody stands; None before the first round."""
        if self._verdict is None:
            return None
        return document.summary(self._verdict, self._tally.recent[:SHOWN], self._offset)

    def decisions(self) -> dict[str, Any]:
        """Describe the recent actions and refusals, the newest first."""
        return {"recent": [document.decision(one, self._offset) for one in self._tally.recent]}

    def preview(self) -> dict[str, Any] | None:
        """Describe what enforcing would hit now; None before the first round."""
        if self._snapshot is None:
            return None
        return document.preview(preview(certain(self._snapshot), self.rules), self._offset)

    def standings(self, pod: PodUid) -> list[dict[str, Any]]:
        """Describe where the subjects of a pod stand."""
        found = self._verdict.standings if self._verdict else ()
        return [document.standing(one, self._offset) for one in found if one.key.pod_uid == pod]

    def _noted(self, past: History) -> None:
        """Have noted what outlives the daemon, if it changed."""
        now = self._history
        told = past.excesses.keys() != now.excesses.keys()
        if told or past.breakers != now.breakers or past.strikes != now.strikes:
            self._note(past, now, "")

    @property
    def _offset(self) -> float:
        return self._snapshot.taken_at - self._snapshot.monotonic if self._snapshot else 0.0

    def _in_force(self) -> Rules:
        """Return the rules, below the stop file's ceiling while there is one, or it cannot be looked for."""
        rules = replace(self.rules, ceilings=(*self.rules.ceilings, *self.ceilings)) if self.ceilings else self.rules
        stopped, told = self._found(), self._stopped
        self._stopped = stopped
        if stopped and not told:
            log.warning("enforcer.stopped", file=str(self.stop_file), reason=stopped)
        elif told and not stopped:
            log.warning("enforcer.stop_ended", file=str(self.stop_file))
        return replace(rules, ceilings=(*rules.ceilings, Ceiling(Mode.OBSERVE, Reason.STOPPED))) if stopped else rules

    def _found(self) -> str:
        """Say that the stop file is there, or that it cannot be looked for, which is the same; "" without one."""
        try:
            self.stop_file.lstat()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"it cannot be looked for: {error.strerror}"
        return "it is there"
