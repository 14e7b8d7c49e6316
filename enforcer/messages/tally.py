"""
What is counted of verdicts, for metrics and for people who ask what happened.

What comes in: verdicts, one after the other. What goes out: counters that only grow, and the recent decisions.

The law: frozen, and pure: each verdict makes a new tally. Nothing in it grows without bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from enforcer.policy.history import Action, Result, Standing, Verdict
from enforcer.policy.vocabulary import Mode, Reason, Rung, State

MOST_RECENT = 200
"""Decisions that are kept for people."""
MOST_KEYS = 2000
"""Series of one counter: namespaces times reasons; beyond that, new ones are not counted apart."""
FAILURES = frozenset({Result.REFUSED, Result.FAILED, Result.LINGERS, Result.STUCK})
"""Ends that an operator has to look after; a budget's no, and a victim that vanished, are none."""
BUCKETS = (15.0, 60.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 3600.0)
"""Upper bounds in seconds: warn_after and grace take 135 s, a pod's own end 30 s more."""
KEPT = 900.0
"""Seconds for which the time of the last action is told."""
ELSEWHERE = ""
"""The namespace under which that happens."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, or a refusal, at a Unix time; `result` and `detail` of an action that has ended."""

    at: float
    action: Action | None
    refusal: Standing | None
    result: Result | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """
    Counters since the start.

    Attributes:
        rehearsed: rung and namespace to dry-run actions; `begun` to those that were really begun.
        refused: reason and namespace to changes into that refusal.
        failed: rung and namespace to actions that did not come about, or had no effect.
        durations: rung to seconds from the first reading over the limit to the effect seen, one count per bucket of
            `BUCKETS` and one above, not cumulated; `seconds` their sums.
        last: namespace, pod, container and rung to the Unix time of the last action that had its effect.
        recent: the last decisions, the newest first.

    """

    begun: Mapping[tuple[Rung, str], int] = field(default_factory=dict)
    rehearsed: Mapping[tuple[Rung, str], int] = field(default_factory=dict)
    refused: Mapping[tuple[Reason, str], int] = field(default_factory=dict)
    failed: Mapping[tuple[Rung, str], int] = field(default_factory=dict)
    durations: Mapping[Rung, tuple[int, ...]] = field(default_factory=dict)
    seconds: Mapping[Rung, float] = field(default_factory=dict)
    last: Mapping[tuple[str, str, str, Rung], float] = field(default_factory=dict)
    recent: tuple[Decision, ...] = ()

    def after(self, verdict: Verdict, at: float) -> "Tally":
        """Count a verdict of Unix time `at`."""
        warned = [
            change.after
            for change in verdict.changes
            if change.after.state is State.GRACE and change.after.mode.rank >= Mode.WARN.rank
        ]
        if verdict.action is None and not verdict.refusals and not warned:
            return self
        begun, rehearsed, refused = dict(self.begun), dict(self.rehearsed), dict(self.refused)
        for standing in warned:
            _count(begun, Rung.NOTIFY, standing.namespace)
        recent = [Decision(at, None, refusal) for refusal in verdict.refusals]
        for refusal in verdict.refusals:
            if refusal.reason is not None:
                _count(refused, refusal.reason, refusal.namespace)
        if (action := verdict.action) is not None:
            recent.append(Decision(at, action, None))
            _count(rehearsed if action.dry else begun, action.rung, action.namespace)
        recent = [*reversed(recent), *self.recent]
        return replace(self, begun=begun, rehearsed=rehearsed, refused=refused, recent=tuple(recent[:MOST_RECENT]))

    def ended(self, action: Action, result: Result, detail: str, at: float, seconds: float) -> "Tally":
        """Count an action's end; `seconds` passed since the first reading over the limit. A rehearsal's is told."""
        recent = (
            replace(decision, result=result, detail=detail)
            if decision.action == action and decision.result is None
            else decision
            for decision in self.recent
        )
        tally = replace(self, recent=tuple(recent))
        if action.dry:
            return tally
        if result in FAILURES:
            failed = dict(self.failed)
            _count(failed, action.rung, action.namespace)
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


Word = TypeVar("Word", Rung, Reason)


def _count(counts: dict[tuple[Word, str], int], word: Word, namespace: str) -> None:
    key = (word, namespace)
    key = key if key in counts or len(counts) < MOST_KEYS else (word, ELSEWHERE)
    counts[key] = counts.get(key, 0) + 1
