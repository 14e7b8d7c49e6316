"""
What an action's end means for what follows.

What comes in: the history, how the action in flight ended, the moment. What goes out: the history after it.

The law: whatever happened, nobody else is tried instead, and the next action waits for the time that separates two.
What was done to a device, or may have been, voids all evidence there: whoever vanished took the justification along.
Where nothing was done for certain (a budget's no, a last look that spared), the token is given back: else a pod that
dips in time, or hides behind a PodDisruptionBudget, would use up the budgets that others are protected by.
"""

from dataclasses import replace

from enforcer.policy import breakers
from enforcer.policy.carry_over import beside
from enforcer.policy.evidence import Evidence
from enforcer.policy.history import Action, Blocked, History, InFlight, Moment, Result, Spent
from enforcer.policy.limit_holders import CaseKey
from enforcer.policy.vocabulary import Breaker, Rung

FIRST_WAIT = 10.0
LONGEST_WAIT = 300.0
"""Bounds of the wait after a PodDisruptionBudget's no: 10 s, doubled each time, up to five minutes."""


def conclude(history: History, result: Result, now: Moment, *, detail: str = "") -> History:
    """
    End the action in flight. Without one nothing changes.

    An ambiguous end is none: whoever does not know how it ended does not call this.
    """
    flight = history.in_flight
    if flight is None:
        return history
    action, key = flight.action, flight.action.key
    spent = _without(history.spent, flight.token) if result.harmless else history.spent
    ended = replace(history, in_flight=None, ended_at=now.monotonic, spent=spent)
    if result is Result.BLOCKED and action.rung is Rung.EVICT:  # of another rung nobody could have said so
        times = history.blocked[key].times + 1 if key in history.blocked else 1
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(times - 1, 10))
        blocked = {**history.blocked, key: Blocked(times, now.monotonic + wait)}
        return replace(ended, blocked=blocked, refused=0, evidence=_as_told(history, flight))
    ended = replace(ended, evidence=beside(history.evidence, key))
    if result is Result.REFUSED:
        refused = history.refused + 1
        if refused >= breakers.REFUSALS:
            ended = replace(ended, breakers=breakers.opened(history.breakers, Breaker.API, now.boot, detail))
        return replace(ended, refused=refused)
    if result is Result.STUCK:
        stuck = breakers.opened(history.breakers, Breaker.EFFECTIVENESS, now.boot, detail or f"{action.pod} did not go")
        return replace(ended, breakers=stuck)
    if action.rung is Rung.FENCE and result in (Result.VERIFIED, Result.FAILED):
        # Whom the driver cannot fence goes on up the ladder all the same: odd cgroups must not be a shield.
        ended = replace(ended, fenced=history.fenced | {key})
    return replace(ended, refused=0) if result is Result.VERIFIED else ended


def rehearsed(history: History, action: Action, result: Result) -> History:
    """
    Take the end of a rehearsal: its token is given back where the play's would be.

    All else is as the decision left it: a rehearsal ends after the time that separates two actions.
    """
    flight = history.rehearsal
    if flight is None or flight.action != action or not result.harmless:
        return history
    return replace(history, spent=_without(history.spent, flight.token))


def _as_told(history: History, flight: InFlight) -> dict[CaseKey, Evidence]:
    """Keep the evidence, but of the victim only what it was told: of a grace that began meanwhile nobody heard."""
    key = flight.action.key
    return {one: known for one, known in history.evidence.items() if one != key or known.phase_from <= flight.at}


def _without(spent: tuple[Spent, ...], token: Spent | None) -> tuple[Spent, ...]:
    """Give one token back."""
    if token is None or token not in spent:
        return spent
    place = spent.index(token)
    return (*spent[:place], *spent[place + 1 :])
