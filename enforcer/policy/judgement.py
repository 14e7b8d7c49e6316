"""
One subject, judged: its shield, its permission, its evidence.

What comes in: a case of the snapshot, and what is remembered of it. What goes out: all that is to be known of it before
anybody is chosen.

The law: each subject is judged by itself. Nothing of another one, and nothing of the node's mood, enters its evidence.
"""

from dataclasses import dataclass

from enforcer.policy.evidence import Evidence, Reading, Terms, gone_stale, weigh
from enforcer.policy.history import History, Moment
from enforcer.policy.limit_holders import Case
from enforcer.policy.protection import Permission, grace, permission, protected
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Reason
from exporter.model import Snapshot

NEVER = frozenset({Reason.UNDECLARED, Reason.LIMIT_INVALID, Reason.PROCESS_SCOPE})
"""Where there is no limit of the subject, there is nothing to be over."""


@dataclass(frozen=True, slots=True)
class Judged:
    """
    A case, and all that was found about it.

    Attributes:
        shield: why it is left alone, whatever it holds; then there is no evidence.
        evidence: None where nothing is known against or for it.
        allowance: bytes that are allowed above the limit for the CUDA contexts of its processes.

    """

    case: Case
    shield: Reason | None
    allowed: Permission
    evidence: Evidence | None
    allowance: int = 0


def judge(case: Case, snapshot: Snapshot, rules: Rules, history: History, now: Moment) -> Judged:
    """Judge one case."""
    key, labels = case.key, snapshot.namespaces.get(case.namespace)
    shield = protected(case, labels, rules)
    allowed = permission(case, labels, rules, fenced=key in history.fenced, blocked=key in history.blocked)
    allowance = rules.tolerance.contexts(case.limit, case.processes)
    if shield is not None or case.unknown in NEVER:
        return Judged(case, shield, allowed, None, allowance)
    before = history.evidence.get(key)
    # In a stall of ours, or from a clock that is not ours: it tells of another time.
    waited = not abs(now.monotonic - snapshot.monotonic) <= rules.longest_gap
    if case.used is None or case.limit.memory is None or waited:
        kept = None if before is None or gone_stale(before, now.monotonic, rules) else before
        return Judged(case, None, allowed, kept, allowance)
    if before is not None and snapshot.monotonic <= before.read_at:
        return Judged(case, None, allowed, before, allowance)
    reading = Reading(
        snapshot.monotonic,
        case.used,
        case.limit.memory,
        grace(case.pod, labels, rules),
        allowance=allowance,
        cap=rules.tolerance.cap(case.limit),
    )
    terms = Terms(allowed.mode, allowed.held, allowed.rung)
    return Judged(case, None, allowed, weigh(before, reading, terms, rules), allowance)
