"""
Which step of the ladder follows for a limit holder.

A case, the ladder, the steps that are behind it and the rules come in. The next step goes out, or why this node or this
pod does not allow it.

The rule: **the gentlest step that was not taken yet.** One that this node lacks for good is passed over. One of which
it is not known whether it is possible lets no harsher step follow.
"""

from collections.abc import Container as Group

from enforcer.policy.holder import CaseKey
from enforcer.policy.limit_holders import Case
from enforcer.policy.rules import MissingStep, Rules
from enforcer.policy.vocabulary import ON_A_CONTAINER, Reason, Rung
from exporter.model import ContainerKind

Done = Group[tuple[CaseKey, Rung]]
Ladder = tuple[Rung, ...]
_ENDS_WITH_THE_POD = frozenset({ContainerKind.INIT, ContainerKind.EPHEMERAL})
DELETION = 600.0
"""Seconds after a pod was deleted for which its end is waited for."""


def next_step(
    case: Case, ladder: Ladder, rules: Rules, done: Done, deleted_for: float | None
) -> tuple[Rung | None, str | None]:
    """
    Find the next step, and why this node cannot perform it; None: it can.

    A pod that was deleted long ago can only be killed. A step that this node lacks for good is passed over, if another
    one follows. An eviction that was blocked is repeated where no kill can follow it.
    """
    kills = Rung.KILL in ladder
    lacking: list[MissingStep] = []
    for rung in ladder:
        if rung is Rung.NOTIFY or _behind(case, rung, rules, done):
            continue
        if kills and rung is not Rung.KILL and deleted_for is not None and deleted_for >= DELETION:
            continue
        if rung is Rung.KILL and deleted_for is None and Rung.EVICT in ladder and (case.key, Rung.EVICT) not in done:
            continue
        why = rules.lacks(rung)
        if why is None:
            return rung, None
        lacking.append(why)
        if not why.lasting:
            break
    return (lacking[0].step, "; ".join(why.detail for why in lacking)) if lacking else (None, None)


def _behind(case: Case, rung: Rung, rules: Rules, done: Done) -> bool:
    """Tell whether a step was carried out, or was blocked so that a kill follows."""
    if (case.key, rung) not in done:
        return False
    killed = Rung.KILL in rules.ladder and rules.lacks(Rung.KILL) is None and case.kind not in _ENDS_WITH_THE_POD
    return rung is not Rung.EVICT or killed


def impossible(case: Case, rung: Rung | None, deleted_for: float | None) -> Reason | None:
    """Say why the next step cannot be carried out on this pod, whatever else is so."""
    if deleted_for is not None and deleted_for < DELETION:
        return Reason.TERMINATING
    if deleted_for is not None and rung is not Rung.KILL:
        return Reason.DELETION_STUCK
    if rung is Rung.KILL and case.kind in _ENDS_WITH_THE_POD:
        return Reason.CONTAINER_KIND
    if rung in ON_A_CONTAINER and not case.victim:
        return Reason.READING_UNKNOWN
    return None
