"""
What is counted of verdicts and actions, for metrics and for people who ask what happened.

What comes in: verdicts, and what became of requests and warnings, one after the other. What goes out: counters that
only grow, and the recent decisions.

The rule: frozen, and pure: each call makes a new tally. An action counts when its request was sent, a warning when the
API server accepted it, a failure when it is known. Nothing in a tally grows without bound.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from enforcer.policy.history import Action, Result, Standing, Verdict
from enforcer.policy.holder import HolderKey
from enforcer.policy.vocabulary import Mode, Reason, Rung, State

MOST_RECENT = 200
"""Decisions that are kept for people."""
MOST_KEYS = 2000
"""Series of one counter: namespaces times reasons; beyond that, new ones are not counted apart."""
FAILURES = (
    Result.FAILED,
    Result.REFUSED,
    Result.FORBIDDEN,
    Result.UNAUTHORIZED,
    Result.IMPOSSIBLE,
    Result.UNKNOWN,
    Result.LINGERS,
    Result.STUCK,
)
"""Ends that an operator looks after. A last look that spares, and a PodDisruptionBudget that blocks, are none."""
LATER = frozenset({Result.ACCEPTED, Result.UNKNOWN, Result.LINGERS})
"""Results after which the effect is watched, so that another one may follow."""
BUCKETS = (15.0, 60.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 3600.0)
"""Upper bounds in seconds: warn_after and grace take 135 s, a pod's own end 30 s more."""
KEPT = 900.0
"""Seconds for which the time of the last action is shown."""
UNANSWERED = 60.0
"""Seconds after which a warning that the API server did not accept counts as undelivered; the grace runs then."""
ELSEWHERE = ""
"""The namespace that stands for all that have no series of their own."""


@dataclass(frozen=True, slots=True)
class Decision:
    """
    An action, or a refusal, at a Unix time; `result` and `detail` of an action that has ended.

    `offset` is Unix time minus monotonic time at that moment. Setting the clock later changes no time of it.
    """

    at: float
    offset: float
    action: Action | None
    refusal: Standing | None
    result: Result | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A warning that was asked for at these monotonic seconds; `late`: it was not accepted in time."""

    at: float
    namespace: str
    accepted: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """
    Counters since the start.

    Attributes:
        requested: step and namespace to requests that were sent, and (`notify`) warnings that were accepted.
        dry_runs: step and namespace to dry-run actions.
        refused: reason and namespace to changes into that refusal.
        failed: step, namespace and result to actions that did not come about, or had no effect.
        undelivered: namespace to warnings that were not accepted in time.
        durations: step to seconds from the beginning of the excess to the effect seen. One count per bucket of
            `BUCKETS` and one above, not cumulated. `seconds` are their sums.
        last: namespace, pod, container and step to the Unix time of the last action that had its effect.
        recent: the last decisions, the newest first.
        asked: the present warning of each limit holder.

    """

    requested: Mapping[tuple[Rung, str], int] = field(default_factory=dict)
    dry_runs: Mapping[tuple[Rung, str], int] = field(default_factory=dict)
    refused: Mapping[tuple[Reason, str], int] = field(default_factory=dict)
    failed: Mapping[tuple[Rung, str, Result], int] = field(default_factory=dict)
    undelivered: Mapping[str, int] = field(default_factory=dict)
    durations: Mapping[Rung, tuple[int, ...]] = field(default_factory=dict)
    seconds: Mapping[Rung, float] = field(default_factory=dict)
    last: Mapping[tuple[str, str, str, Rung], float] = field(default_factory=dict)
    recent: tuple[Decision, ...] = ()
    asked: Mapping[HolderKey, Asked] = field(default_factory=dict)

    def after(self, verdict: Verdict, at: float, offset: float) -> "Tally":
        """
        Count a verdict of Unix time `at`: dry runs, refusals, and warnings that were not accepted.

        `offset`: Unix time minus monotonic time.
        """
        tally = self._warnings(verdict)
        action = verdict.action
        if action is None and not verdict.refusals:
            return tally
        dry_runs, refused = dict(self.dry_runs), dict(self.refused)
        recent = [Decision(at, offset, None, refusal) for refusal in verdict.refusals]
        for refusal in verdict.refusals:
            if refusal.reason is not None:
                _count(refused, (refusal.reason, refusal.namespace), (refusal.reason, ELSEWHERE))
        if action is not None:
            recent.append(Decision(at, offset, action, None))
            if action.dry:
                _count(dry_runs, (action.rung, action.namespace), (action.rung, ELSEWHERE))
        recent = [*reversed(recent), *self.recent]
        return replace(tally, dry_runs=dry_runs, refused=refused, recent=tuple(recent[:MOST_RECENT]))

    def sent(self, action: Action) -> "Tally":
        """Count a request that was sent."""
        return self._requested(action.rung, action.namespace)

    def warned(self, holder: HolderKey) -> "Tally":
        """Count a warning that the API server accepted; once for each time that it was asked for."""
        asked = self.asked.get(holder)
        if asked is None or asked.accepted:
            return self
        answered = {**self.asked, holder: replace(asked, accepted=True)}
        return replace(self._requested(Rung.NOTIFY, asked.namespace), asked=answered)

    def ended(self, action: Action, result: Result, detail: str, at: float, seconds: float) -> "Tally":
        """
        Count how an action ended, or what was seen of its effect later.

        `seconds` passed since the excess began. Of a dry run only the recent decisions change.
        """
        recent = (
            replace(decision, result=result, detail=detail)
            if decision.action == action and (decision.result is None or decision.result in LATER)
            else decision
            for decision in self.recent
        )
        tally = replace(self, recent=tuple(recent))
        if action.dry:
            return tally
        if result in FAILURES:
            failed = dict(self.failed)
            _count(failed, (action.rung, action.namespace, result), (action.rung, ELSEWHERE, result))
            return replace(tally, failed=failed)
        if result is not Result.VERIFIED:
            return tally
        counts = list(self.durations.get(action.rung, (0,) * (len(BUCKETS) + 1)))
        counts[sum(seconds > bound for bound in BUCKETS)] += 1
        recently = {key: then for key, then in self.last.items() if at - then < KEPT}
        return replace(
            tally,
            durations={**self.durations, action.rung: tuple(counts)},
            seconds={**self.seconds, action.rung: self.seconds.get(action.rung, 0.0) + seconds},
            last={**recently, (action.namespace, action.pod, action.container, action.rung): at},
        )

    def _requested(self, rung: Rung, namespace: str) -> "Tally":
        requested = dict(self.requested)
        _count(requested, (rung, namespace), (rung, ELSEWHERE))
        return replace(self, requested=requested)

    def _warnings(self, verdict: Verdict) -> "Tally":
        """Remember the warnings that are asked for, and count those that were not accepted in time."""
        asked, undelivered = dict(self.asked), dict(self.undelivered)
        if any(change.after.warned_at is not None for change in verdict.changes):
            living = {standing.key.holder for standing in verdict.standings if standing.warned_at is not None}
            asked = {holder: known for holder, known in asked.items() if holder in living}
        for change in verdict.changes:
            now = change.after
            if now.warned_at is None or now.mode.rank < Mode.WARN.rank or now.state in (State.EXEMPT, State.UNJUDGED):
                continue
            known = asked.get(now.key.holder)
            if known is None or known.at != now.warned_at:
                asked[now.key.holder] = Asked(now.warned_at, now.namespace)
        for holder, known in asked.items():
            if not (known.accepted or known.late) and verdict.at.monotonic - known.at >= UNANSWERED:
                asked[holder] = replace(known, late=True)
                _count(undelivered, known.namespace, ELSEWHERE)
        if asked == self.asked:
            return self
        return replace(self, asked=asked, undelivered=undelivered)


Key = TypeVar("Key", bound=Hashable)


def _count(counts: dict[Key, int], key: Key, beyond: Key) -> None:
    """Count under `key`, or, where there are too many series, under `beyond`."""
    key = key if key in counts or len(counts) < MOST_KEYS else beyond
    counts[key] = counts.get(key, 0) + 1
