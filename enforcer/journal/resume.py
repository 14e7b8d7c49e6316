"""
Joins the past in the journal with the past that this daemon has seen itself.

What comes in: the state of the journal, and the history of this daemon. What goes out: one history.

The rule: a fact of either counts. An action that both know counts once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from enforcer.journal.fold import Kept
from enforcer.policy.history import History, Spent
from enforcer.policy.vocabulary import Rung

STAMPED_WITHIN = 5.0
"""Seconds from a decision to its record, at most; real actions are further apart."""


def past_of(kept: Kept) -> History:
    """Make a history of the records of an earlier daemon."""
    done = frozenset((key, Rung.FENCE) for key in kept.fences)
    fenced = frozenset(key.any_generation for key in kept.fences)
    return History(spent=kept.spent, breakers=kept.breakers, done=done, fenced=fenced)


def merged(mine: History, journal: History) -> History:
    """Add the journal's past to the history of this daemon."""
    return replace(
        mine,
        spent=(*journal.spent, *unknown_to(journal.spent, mine.spent)),
        breakers={**journal.breakers, **mine.breakers},
        in_flight=journal.in_flight,
        done=journal.done | mine.done,
        fenced=journal.fenced | mine.fenced,
    )


def unknown_to(journal: Iterable[Spent], mine: Iterable[Spent]) -> Iterator[Spent]:
    """Yield the actions that the journal does not have; its times are those of its records, a little later."""
    known = list(journal)
    for token in mine:
        near = (other for other in known if other.workload == token.workload)
        same = next((other for other in near if abs(other.at - token.at) <= STAMPED_WITHIN), None)
        if same is None:
            yield token
        else:
            known.remove(same)
