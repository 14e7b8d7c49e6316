"""
One limit from its candidates.

What comes in: all candidates of one limit holder on one device. What goes out: a limit that says of each candidate why
it was taken or not.

The rule: **a lower source may only lower.** So the smallest valid amount counts, in any order. Among equal amounts the
most trusted source is named. Contradictions are reported. Only the unit may come from a lower source: the scheduler's
annotation gives an unknown factor of the installation (`factors`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from exporter.limits.answers import Candidate, ResolvedLimit, Subject
from exporter.limits.calibration import SET_UNIT
from exporter.limits.devices import Place
from exporter.limits.factors import settled
from exporter.limits.rows import Trust, What
from exporter.model import Context, EnforcedBy, Mechanism, Scope

_ROUNDING = 2**20
"""Bytes by which two declarations of the same amount may differ: schedulers count in MiB."""
_LARGEST_FACTOR = 1024
KEPT = frozenset({EnforcedBy.HARDWARE, EnforcedBy.KERNEL, EnforcedBy.DRIVER})
"""These enforce a limit so firmly that gpusteward does not act. A user's own claim that they do does not count."""


def decide(subject: Subject, place: Place | None, candidates: Iterable[Candidate]) -> ResolvedLimit:
    """Decide one limit from one or more candidates."""
    ranked = sorted(settled(list(candidates)), key=_rank)
    memory = [c for c in ranked if c.what is not What.COMPUTE]
    compute = [c for c in ranked if c.what is What.COMPUTE]
    amount, share = _amount(memory), _smallest(compute)
    named = amount or next((c for c in memory if c.grant), None) or share or ranked[0]
    contradictions, doubts = _compare(amount, memory)
    return ResolvedLimit(
        subject,
        place,
        amount.bytes if amount else None,
        named.system,
        named.row.mechanism if named.row else Mechanism.ANNOTATION,
        named.scope,
        named.enforced_by,
        compute=share.ratio if share else None,
        candidates=tuple(_explained(c, amount, share) for c in ranked),
        problems=tuple(dict.fromkeys([*_problems(ranked), *contradictions])),
        report_only=_report_only(amount, doubts),
        mps=any(c.mps and (c.grant or c.bytes or c.ratio) for c in ranked),  # a request for nothing makes no client
        context=named.context,
        headroom=_headroom(amount, memory),
    )


def _smallest(candidates: Iterable[Candidate]) -> Candidate | None:
    return min((c for c in candidates if c.valid), key=lambda c: (c.size or 0, _rank(c)), default=None)


def _amount(memory: Sequence[Candidate]) -> Candidate | None:
    """
    Take the smallest amount; if it is in doubt and only the pod's own claim, the smallest amount without a doubt.

    The size of a MIG instance is no such amount. A doubt about a system that is proven to be present stays: its
    scheduler may have granted more than any other declaration says. A doubt about a resource's meaning stays, too.
    So it is not hidden by a smaller amount in doubt, which a pod can write itself.
    """
    smallest = _smallest(memory)
    if smallest is None or not smallest.doubts or _granted(smallest):
        return smallest
    user = smallest.alone or smallest.trust >= Trust.USER
    sure = (c for c in memory if not c.doubts and c.scope is not Scope.INSTANCE)
    better = _smallest(c for c in sure if user or c.system != smallest.system)
    if better is None:
        return smallest
    return _smallest([better, *filter(_granted, memory)])


def _granted(candidate: Candidate) -> bool:
    return candidate.enforcement_proven and candidate.trust < Trust.USER and not candidate.alone


def _headroom(winner: Candidate | None, memory: Iterable[Candidate]) -> int | None:
    """
    Find the most bytes that contexts may add to the winner's amount; None if no declaration bounds them.

    Another declaration may include contexts and be little larger than the winner. Without this bound a user could add
    a lower annotation, whose amount excludes contexts, and use more than the system's own declaration allows.
    """
    included = [c.bytes for c in memory if c.valid and c.bytes is not None and c.context is Context.INCLUDED]
    return None if winner is None or winner.bytes is None or not included else min(included) - winner.bytes


def _rank(candidate: Candidate) -> tuple[int, str, str, str, int]:
    place = candidate.place.name if candidate.place else ""
    return candidate.trust, candidate.name, place, candidate.text, candidate.bytes or 0


def _problems(ranked: Sequence[Candidate]) -> Iterable[str]:
    for candidate in ranked:
        if candidate.invalid:
            yield f"{candidate.name}: {candidate.excluded}"
        yield from candidate.problems


def _compare(winner: Candidate | None, memory: Sequence[Candidate]) -> tuple[list[str], list[str]]:
    """Find contradictions: of equal trust, or of a system with itself. That a user lowers a limit is none."""
    contradictions, doubts = [], []
    # The scheduler granted exactly this, so the unit is known. A further annotation may be forged, and is no doubt.
    granted = winner is not None and any(_grants(c, winner) for c in memory)
    for other in memory:
        if winner is None or not winner.bytes or not other.valid or other.bytes is None:
            continue
        if other.bytes - winner.bytes <= max(_ROUNDING, winner.bytes // 100):
            continue
        if other.trust is winner.trust or (other.system == winner.system and winner.trust < Trust.USER):
            both = f"{other.name} is {other.bytes} bytes, {winner.name} {winner.bytes}"
            contradictions.append(f"two declarations contradict each other: {both}; the smaller counts")
        factor, rest = divmod(other.bytes, winner.bytes)
        if (
            not granted
            and other.system == winner.system
            and winner.row
            and winner.row.scaled
            and not rest
            and factor <= _LARGEST_FACTOR
        ):
            doubts.append(f"the unit of {winner.key} may be {factor} times as large on this installation; {SET_UNIT}")
    return contradictions, doubts


def _grants(other: Candidate, winner: Candidate) -> bool:
    same = (other.system, other.bytes) == (winner.system, winner.bytes)
    return other is not winner and same and other.trust is Trust.SCHEDULER and other.valid


def _report_only(winner: Candidate | None, doubts: Sequence[str]) -> tuple[str, ...]:
    if winner is None:
        return ()
    reasons = [*winner.doubts, *doubts]
    if winner.enforcement_proven and winner.enforced_by in KEPT:
        reasons.append(f"the {winner.enforced_by} already enforces this limit")
    return tuple(reasons)


def _explained(candidate: Candidate, amount: Candidate | None, share: Candidate | None) -> Candidate:
    if candidate.excluded:
        return replace(candidate, why=candidate.excluded)
    winner = share if candidate.what is What.COMPUTE else amount
    times = f", multiplied by the installation's factor {candidate.factor}" if (candidate.factor or 1) > 1 else ""
    if winner is None or candidate is winner:
        return replace(candidate, taken=winner is not None, why=f"taken{times}")
    if candidate.size == winner.size:
        return replace(candidate, why=f"the same amount as {winner.name}{times}")
    if candidate.trust > winner.trust:
        return replace(candidate, why=f"larger than {winner.name}; a less trusted declaration can only lower the limit")
    return replace(candidate, why=f"larger than {winner.name}; the smallest amount counts")
