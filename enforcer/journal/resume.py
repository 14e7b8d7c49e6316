"""
What a daemon knows of the past: by the journal, and by itself.

What comes in: what the journal has kept, and the history of this daemon. What goes out: one history.

The rule: what either knows counts. Tokens that both know are one token, and of two counts of strikes the larger holds.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from enforcer.journal.fold import Kept
from enforcer.policy.history import Excess, History, Spent, Strikes, Workload

STAMPED_WITHIN = 5.0
"""Seconds from a decision to its record, at most; real actions are further apart."""


def past_of(kept: Kept) -> History:
    """Make a history of what a daemon before this one has noted."""
    return History(
        spent=kept.spent,
        breakers=kept.breakers,
        strikes=kept.strikes,
        excesses={key: Excess(strikes) for key, strikes in kept.excesses.items()},
        fenced=frozenset(kept.fences),
    )


def merged(mine: History, journal: History) -> History:
    """Add the journal's past to the history of this daemon."""
    return replace(
        mine,
        spent=(*journal.spent, *unknown_to(journal.spent, mine.spent)),
        breakers={**journal.breakers, **mine.breakers},
        strikes=larger(journal.strikes, mine.strikes),
        excesses={**journal.excesses, **mine.excesses},
        in_flight=journal.in_flight,
        fenced=journal.fenced | mine.fenced,
    )


def unknown_to(journal: Iterable[Spent], mine: Iterable[Spent]) -> Iterator[Spent]:
    """Yield the tokens that the journal does not have: its stamps are those of its records, a little later."""
    known = list(journal)
    for token in mine:
        near = (other for other in known if other.workload == token.workload)
        same = next((other for other in near if abs(other.at - token.at) <= STAMPED_WITHIN), None)
        if token.dry or same is None:
            yield token
        else:
            known.remove(same)


def larger(journal: Mapping[Workload, Strikes], mine: Mapping[Workload, Strikes]) -> dict[Workload, Strikes]:
    """Take of each workload the larger count: a daemon that counts without the journal begins at one."""
    return {**journal, **{name: own for name, own in mine.items() if own.count >= _count(journal, name)}}


def _count(strikes: Mapping[Workload, Strikes], workload: Workload) -> float:
    return strikes[workload].count if workload in strikes else 0.0
