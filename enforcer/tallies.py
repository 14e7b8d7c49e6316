"""
What is counted of verdicts, for metrics and for people who ask what happened.

What comes in: verdicts, one after the other. What goes out: counters that only grow, and the recent decisions.

The law: frozen, and pure: each verdict makes a new tally. Nothing in it grows without bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from enforcer.history import Action, Standing, Verdict
from enforcer.terms import Mode, Reason, Rung, State

MOST_RECENT = 200
"""Decisions that are kept for people."""
MOST_KEYS = 2000
"""Series of one counter: namespaces times reasons; beyond that, new ones are not counted apart."""
ELSEWHERE = ""
"""The namespace under which that happens."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, or a refusal, at a Unix time."""

    at: float
    action: Action | None
    refusal: Standing | None


@dataclass(frozen=True, slots=True)
class Tally:
    """
    Counters since the start.

    Attributes:
        rehearsed: rung and namespace to dry-run actions; `begun` to those that were really begun.
        refused: reason and namespace to changes into that refusal.
        recent: the last decisions, the newest first.

    """

    begun: Mapping[tuple[Rung, str], int] = field(default_factory=dict)
    rehearsed: Mapping[tuple[Rung, str], int] = field(default_factory=dict)
    refused: Mapping[tuple[Reason, str], int] = field(default_factory=dict)
    recent: tuple[Decision, ...] = ()

    def after(self, verdict: Verdict, at: float) -> "Tally":
        """Count a verdict of Unix time `at`."""
        told = [
            change.after
            for change in verdict.changes
            if change.after.state is State.GRACE and change.after.mode.rank >= Mode.WARN.rank
        ]
        if verdict.action is None and not verdict.refusals and not told:
            return self
        begun, rehearsed, refused = dict(self.begun), dict(self.rehearsed), dict(self.refused)
        for one in told:
            _count(begun, Rung.NOTIFY, one.namespace)
        recent = [Decision(at, None, refusal) for refusal in verdict.refusals]
        for refusal in verdict.refusals:
            if refusal.reason is not None:
                _count(refused, refusal.reason, refusal.namespace)
        if (action := verdict.action) is not None:
            recent.append(Decision(at, action, None))
            _count(rehearsed if action.dry else begun, action.rung, action.namespace)
        return Tally(begun, rehearsed, refused, (*reversed(recent), *self.recent)[:MOST_RECENT])


Word = TypeVar("Word", Rung, Reason)


def _count(counts: dict[tuple[Word, str], int], word: Word, namespace: str) -> None:
    key = (word, namespace)
    key = key if key in counts or len(counts) < MOST_KEYS else (word, ELSEWHERE)
    counts[key] = counts.get(key, 0) + 1
