"""
The policy at work in the daemon: decide, report, act.

What comes in: each snapshot, the operator's rules, the stop file. What goes out: an action to begin; log lines and
notices of what changed; metrics and documents for the exporter.

The rule: `hear` waits for nothing. It is one call of the pure policy (some 20 microseconds per container); the rest is
memory. The policy's clocks are read in this package, and its time is an argument everywhere else.

Above 300 lines: it is the one place that holds the history, and each caller changes it here.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from prometheus_client.core import Metric

from enforcer.journal.levels_file import SavedLevels, holds_for, saved
from enforcer.journal.resume import merged
from enforcer.messages import document
from enforcer.messages.events import Notice
from enforcer.messages.invalid_limits import Reported, invalid_limits
from enforcer.messages.log_lines import lines
from enforcer.messages.notices import beginning, ending, notices
from enforcer.messages.outlook import Outlook, outlook
from enforcer.messages.tally import Tally
from enforcer.policy import breakers, carry_over, holds, outcomes
from enforcer.policy.decide import decide
from enforcer.policy.history import Action, History, InFlight, Moment, Result, Settled, Standing, Verdict
from enforcer.policy.holder import CaseKey, HolderKey
from enforcer.policy.last_look import Live, Spared, last_look
from enforcer.policy.preview import preview
from enforcer.policy.rules import Ceiling, MissingStep, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Place, Reason, Rung
from enforcer.runtime import metrics
from enforcer.runtime.stop_file import StopFile
from exporter.model import PodUid, Snapshot

log = structlog.get_logger()

NOTHING_KNOWN = History()
USUAL_GRACE = 30.0
"""Kubernetes' default grace period of a pod, in seconds."""
SHOWN = 10
"""Decisions on the node page; /api/v1/decisions has more."""
Tell = Callable[[Iterable[Notice]], None]
Begin = Callable[[Action], None]
Note = Callable[[History, History, str], None]
"""Gets the history before and after a change that outlives the daemon, and the name of the person behind it."""


def read_moment() -> Moment:
    """Read both clocks."""
    return Moment(time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))


class Decider:
    """
    Decides on every snapshot. One task calls `hear`; all else answers from memory.

    Attributes:
        rules: in force; replace them whole.
        ceilings: what else restricts the mode: another daemon has the node, the journal cannot be written.
        missing: the steps of the ladder that this node cannot perform.
        rehearse: takes the actions of a dry run. Without an API server each is logged, and ends at once.
        boot_id: of the kernel; the levels that are saved and restored are of this boot.

    """

    def __init__(
        self,
        rules: Rules,
        stop_file: Path,
        *,
        tell: Tell = lambda _: None,
        begin: Begin | None = None,
        rehearse: Begin | None = None,
        history: History = NOTHING_KNOWN,
        moment: Callable[[], Moment] = read_moment,
        wall: Callable[[], float] = time.time,
        boot_id: str = "",
    ) -> None:
        self.rules = rules
        self.ceilings: tuple[Ceiling, ...] = ()
        self.missing: tuple[MissingStep, ...] = ()
        self.stop_file = StopFile(stop_file)
        self.rehearse: Begin = rehearse or self._only_logged
        self.boot_id = boot_id
        self._begin = begin
        self._note: Note = lambda _before, _after, _by: None
        self.tell = tell
        self._moment = moment
        self._wall = wall
        self._history = history
        self._tally = Tally()
        self._reported: Reported = {}
        self._verdict: Verdict | None = None
        self._snapshot: Snapshot | None = None
        self._saved: SavedLevels | None = None

    def hear(self, snapshot: Snapshot) -> None:
        """Judge a snapshot: decide, note what must outlive the daemon, report what changed, act."""
        self._restore(snapshot)
        before, past = self._verdict, self._history
        self._history, verdict = decide(snapshot, self.in_force(), past, self._moment())
        self._noted(past)
        self._verdict, self._snapshot = verdict, snapshot
        self._tally = self._tally.after(verdict, snapshot.taken_at, self._offset)
        for line in lines(verdict, before):
            (log.warning if line.warning else log.info)(line.event, **line.data)
        warnings = notices(verdict, before, snapshot, self.rules.trigger)
        self.tell([*warnings, *self._invalid(verdict, snapshot)])
        begin = self.rehearse if verdict.action is not None and verdict.action.dry else self._begin
        if verdict.action is not None and begin is not None:
            begin(verdict.action)

    def in_force(self) -> Rules:
        """Return the rules as they count now, with all that restricts them."""
        more = (*self.ceilings, *self.stop_file.ceilings())
        if not more and not self.missing:
            return self.rules
        return replace(self.rules, ceilings=(*self.rules.ceilings, *more), missing=self.missing)

    # --- an action, from its beginning to its end ---

    def arm(self, begin: Begin, history: History, note: Note, levels: SavedLevels | None = None) -> None:
        """
        Let actions begin.

        `history` is the journal's: of the earlier daemon, or, when it is opened anew, of this one. Facts that it lacks
        are noted, and `note` gets each later change of such facts. `levels` were saved by the earlier daemon. They
        count from the next snapshot on, if they hold for it.
        """
        self._history = merged(self._history, history)
        self._saved = levels
        self._begin, self._note = begin, note
        self._noted(history)

    def disarm(self) -> None:
        """Let no action begin any more."""
        self._begin = None

    def levels(self) -> SavedLevels | None:
        """Return the levels as they are to be saved; None before the first snapshot."""
        return saved(self._history, self.boot_id)

    @property
    def in_flight(self) -> bool:
        """Whether an action has not ended."""
        return self._history.in_flight is not None

    def resumed(self, action: Action) -> None:
        """Take note that an action of an earlier daemon is being looked up."""
        flight = self._history.in_flight
        # `arm` knows the action, but not its use of the budget
        if flight is None or (flight.action == action and flight.token is None):
            tokens = [token for token in self._history.spent if token.workload == action.workload]
            token = max(tokens, key=lambda each: each.at, default=None)  # given back if nothing was done
            self._history = replace(self._history, in_flight=InFlight(action, self._moment().monotonic, token))

    def watching(self, action: Action) -> None:
        """Take note that an accepted action is watched: no second action on its pod begins meanwhile."""
        self._history = outcomes.watching(self._history, action, self._moment())

    def still(self, action: Action, live: Live, snapshot: Snapshot, *, second: bool = False) -> Reason | Spared | None:
        """Say why an action must not be taken now; `snapshot` was heard. `second`: the look before SIGKILL."""
        rules, history, now = self.in_force(), self._history, self._moment()
        return last_look(action, live, snapshot, rules=rules, history=history, now=now, second=second)

    def grace_of(self, action: Action) -> float:
        """Return the grace period of the victim's pod, in seconds between SIGTERM and SIGKILL."""
        pod = self._snapshot.pods.get(action.pod_uid) if self._snapshot else None
        return USUAL_GRACE if pod is None else pod.grace_seconds

    def sent(self, action: Action) -> None:
        """Count an action whose call was sent."""
        self._tally = self._tally.sent(action)

    def warned(self, holder: HolderKey, warned_at: float) -> None:
        """Take note that the API server has accepted a holder's warning: its grace begins."""
        self._history = outcomes.warned(self._history, holder, warned_at)
        self._tally = self._tally.warned(holder)

    def conclude(self, action: Action, result: Result, detail: str) -> None:
        """Take the outcome of the action in flight."""
        now, at, past = self._moment(), self._wall(), self._history
        self._ended(action, result, detail, now, at)
        if action.dry:
            self._history = outcomes.rehearsed(past, action, now, detail=detail, result=result)
            return
        self._history = outcomes.conclude(past, result, now, detail=detail)
        self._note(past, self._history, "")
        if result is Result.ACCEPTED:
            notice = beginning(action, self.grace_of(action), now, at)
        else:
            notice = ending(action, result, now, at, detail)
        if notice is not None:
            self.tell([notice])

    def watched(self, action: Action, result: Result, detail: str) -> None:
        """Take the outcome of an accepted action."""
        now, at = self._moment(), self._wall()
        self._history = outcomes.watched(self._history, action)
        self._ended(action, result, detail, now, at)
        if (notice := ending(action, result, now, at, detail)) is not None:
            self.tell([notice])

    def unwatched(self, action: Action) -> None:
        """Take note that an accepted action is not watched any more, and that its outcome is not known."""
        self._history = outcomes.watched(self._history, action)

    def misattributed(self, detail: str) -> None:
        """Open the breaker `attribution`: memory of a victim was counted to another pod than its own."""
        past, now = self._history, self._moment()
        if Breaker.ATTRIBUTION not in past.breakers:
            opened = breakers.opened(past.breakers, Breaker.ATTRIBUTION, now.boot, detail)
            self._history = replace(past, breakers=opened)
            self._noted(past)

    def hold(self, place: Place, name: str, reason: Reason, *, seconds: float | None = None, detail: str = "") -> None:
        """Hold a place for so many seconds, or until the hold is lifted."""
        self._history = holds.held(self._history, place, name, reason, self._moment(), seconds=seconds, detail=detail)

    def lift(self, place: Place, name: str, reason: Reason) -> None:
        """Lift a hold; without one nothing changes."""
        self._history = holds.lifted(self._history, place, name, reason)

    def close(self, breaker: Breaker, by: str) -> bool:
        """Close a breaker at a person's request; False if it is not open."""
        past = self._history
        if breaker not in past.breakers:
            log.warning("enforcer.breaker_not_open", breaker=breaker, by=by)
            return False
        self._history = replace(past, breakers=breakers.closed(past.breakers, breaker))
        log.warning("enforcer.breaker_closing", breaker=breaker, by=by, detail=past.breakers[breaker].detail)
        self._note(past, self._history, by)
        return True

    def unfence(self, gone: Mapping[CaseKey, bool]) -> None:
        """
        Take note that these fences are no longer in force, and whether their containers still run.

        A container that lives on is fenced again before any other action. A restarted container is fenced again only
        where no other step follows.
        """
        done = self._history.done - {(key, Rung.FENCE) for key in gone}
        fenced = self._history.fenced - {key.any_generation for key, lives in gone.items() if lives}
        self._history = replace(self._history, done=done, fenced=fenced)

    # --- what the rest of the daemon asks ---

    @property
    def heard(self) -> Snapshot | None:
        """The last snapshot, on which `judged` is based; None before the first."""
        return self._snapshot

    def judged(self) -> tuple[Standing, ...]:
        """Return the states of all limit holders."""
        return self._verdict.standings if self._verdict else ()

    def families(self, snapshot: Snapshot) -> Iterator[Metric]:
        """Yield the policy's metrics."""
        if self._verdict is not None:
            yield from metrics.collect(snapshot, self._verdict, self._history, self._tally, self.rules)

    @property
    def told(self) -> object:
        """Stand for what `summary` and `decisions` say: each decision, and each round, makes another tally."""
        return self._tally if self._verdict else None

    def summary(self) -> dict[str, Any] | None:
        """Describe mode, breakers, budgets and the state of all limit holders; None before the first round."""
        return document.summary(self._verdict, self._tally.recent[:SHOWN], self._offset) if self._verdict else None

    def decisions(self) -> dict[str, Any]:
        """Describe the recent actions and refusals, the newest first."""
        return {"recent": [document.decision(decision) for decision in self._tally.recent]}

    def actions(self, namespace: str, pod: str) -> list[dict[str, Any]]:
        """Describe the recent actions on pods of this name, the newest first; without dry runs."""
        recent = [each for each in self._tally.recent if each.action is not None and not each.action.dry]
        mine = [each for each in recent if each.action and (each.action.namespace, each.action.pod) == (namespace, pod)]
        return [document.decision(each) for each in mine[:SHOWN]]

    def preview(self) -> dict[str, Any] | None:
        """Describe what mode `enforce` would do now; None before the first round."""
        seen, rules = self._snapshot, replace(self.rules, missing=self.missing)
        if seen is None:
            return None
        return document.preview(preview(seen, rules, self._history), self._offset, self._outlook)

    def standings(self, pod: PodUid) -> list[dict[str, Any]]:
        """Describe the states of a pod's limit holders, and of the claims that it shares with other pods."""
        if self._verdict is None or self._snapshot is None:
            return []
        offset, at = self._offset, self._verdict.at.monotonic + self._offset
        declared = [limit for limit in self._snapshot.limits if limit.pod_uid == pod]
        claims = {(limit.claim, limit.device) for limit in declared if limit.claim}
        return [
            document.standing(holder, offset, at, self._outlook(holder))
            for holder in self.judged()
            if holder.key.pod_uid == pod or (holder.claim, holder.device) in claims  # a shared claim's key names no pod
        ]

    def _outlook(self, holder: Standing) -> Outlook:
        assert self._snapshot is not None  # noqa: S101  (a state is made of a snapshot)
        return outlook(holder, self._snapshot, self.in_force(), self._history.settled)

    def _invalid(self, verdict: Verdict, snapshot: Snapshot) -> Iterable[Notice]:
        if verdict.mode.rank < Mode.WARN.rank:
            return ()
        self._reported, invalid = invalid_limits(snapshot, self._reported, verdict.standings)
        return invalid

    def _ended(self, action: Action, result: Result, detail: str, now: Moment, at: float) -> None:
        self._tally = self._tally.ended(action, result, detail, at, max(0.0, now.monotonic - action.since))

    def _only_logged(self, action: Action) -> None:
        self.conclude(action, Result.REHEARSED, "no last look was taken: this daemon asks no API server")

    def _noted(self, past: History) -> None:
        """Let `note` write a change that outlives the daemon."""
        if past.breakers != self._history.breakers:
            self._note(past, self._history, "")

    def _restore(self, snapshot: Snapshot) -> None:
        """Add the saved levels, if they hold for what this snapshot shows. Of two levels, the higher one counts."""
        kept, drivers = self._saved, frozenset(gpu.driver_version for gpu in snapshot.gpus)
        if kept is None or not drivers:
            return
        rules, history = self.in_force(), self._history
        self._saved = None
        if not holds_for(kept, self.boot_id, rules, drivers, self._moment()):
            log.info("enforcer.levels_not_restored", saved_levels=len(kept.levels))
            return
        now, mine = self._moment(), history.levels
        levels = {
            holder: level
            for holder, level in kept.restored().items()
            if holder not in mine or mine[holder].seconds < level.seconds
        }
        settled = history.settled or Settled(rules, drivers, now.monotonic)
        restored = carry_over.restored(replace(history, settled=settled), levels, now)
        restored = restored if kept.vetted else replace(restored, settled=settled)
        self._history = replace(restored, fenced=history.fenced | kept.fenced)
        log.info("enforcer.levels_restored", levels=len(levels), vetted=kept.vetted)

    @property
    def _offset(self) -> float:
        return self._snapshot.taken_at - self._snapshot.monotonic if self._snapshot else 0.0
