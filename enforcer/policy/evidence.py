"""
Evidence against one subject: what was seen of it, over time.

What comes in: the evidence so far and one reading. What goes out: the evidence after it.

The law: **evidence is time in which the excess was seen**, never a count of looks. Two readings vouch for the time
between them when both are over and at most one and a half intervals apart. Everything else (an unknown, a gap, a use
between the limit and its tolerance) adds nothing, and what adds nothing cannot hasten anything.

    phase   on a reading over            between limit and tolerance    at or below the limit
    ok      over                         ok                             ok
    over    grace, when seen over for    over, from the beginning       ok
            warn_after and three rounds
    grace   due, when seen over for the  grace, nothing added           ok, after three rounds of it
            grace, and for 90 % of it
    due     due                          due (nobody acts on it), and   ok, after three rounds of it
                                         grace anew after three rounds

The 90 % are those of the last stretch, a ninth longer than the grace: so what was lost long ago shields nobody, and
whoever is over again after a long time between is not due at the first spike. A gap longer than two intervals voids it
all. So does a limit that the excess seen so far would not have exceeded: whoever was above 9 GiB all the time was above
8 GiB, too, and gains nothing by changing its declaration back and forth.

Each reading is judged by what was allowed for CUDA contexts at its moment. "The limit" above includes that allowance.
A later allowance says nothing of earlier readings, so starting processes does not begin the evidence anew.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile

from enforcer.policy.rules import COVERAGE, ROUNDS, Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung

MARGIN = 0.9
"""Of an interval: readings so far apart count as one interval apart, because rounds begin some milliseconds late."""


class Phase(StrEnum):
    """How far the evidence goes."""

    OK = "ok"
    OVER = "over"
    GRACE = "grace"
    DUE = "due"


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which a subject's grace runs. When they change, somebody was told something else: the grace begins anew."""

    mode: Mode
    held: Reason | None
    rung: Rung | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """
    What was seen of one subject. Times are monotonic seconds.

    Attributes:
        since: when the present excess was seen first; meaningful from `over` on.
        read_at: the last reading.
        over: the last reading was above limit and tolerance; `above`: above the limit.
        counted: rounds, an interval apart, that saw the excess in phase `over`, or (`below`) its end.
        seen: seconds of the phase in which the excess was seen; of a grace, of its last stretch only.
        unseen: spans of that stretch (from, to) in which it was not seen.
        grace: seconds that were granted; an annotation that changes meanwhile counts for the next time.
        least: the smallest use among the readings of this excess, without what was allowed for contexts, bytes.
        cap: the smallest cap of that allowance among them, bytes.
        strikes: of the workload, as this excess was told, itself counted.

    """

    terms: Terms
    read_at: float
    phase: Phase = Phase.OK
    since: float = 0.0
    over: bool = False
    above: bool = False
    counted: int = 0
    counted_at: float = 0.0
    below: int = 0
    seen: float = 0.0
    unseen: tuple[tuple[float, float], ...] = ()
    phase_from: float = 0.0
    grace: float = 0.0
    least: int = 0
    cap: int = 0
    strikes: float = 0.0

    def due_at(self) -> float | None:
        """Return when the grace ends at the earliest; None outside of it."""
        return self.read_at + max(0.0, self.grace - self.seen) if self.phase is Phase.GRACE else None


@dataclass(frozen=True, slots=True)
class Reading:
    """
    A use that is certain, at a monotonic time, and the grace that its subject may have.

    Attributes:
        allowance: bytes that are allowed for the CUDA contexts of the holder's processes at this moment.
        cap: the most that may be allowed for them under this limit.

    """

    at: float
    used: int
    limit: int
    grace: float
    allowance: int = 0
    cap: int = 0

    @property
    def charged(self) -> int:
        """The bytes that count against the limit."""
        return self.used - self.allowance


def weigh(before: Evidence | None, reading: Reading, terms: Terms, rules: Rules) -> Evidence:
    """Add a reading, which is later than all before it."""
    ceiling = rules.tolerance.above(reading.limit)
    over, above = reading.charged > ceiling, reading.charged > reading.limit
    known = before if before is not None and not _void(before, reading, ceiling, rules) else None
    if known is not None and known.terms != terms:
        known = _anew(known, terms, reading)
    if known is None or (known.phase is Phase.OK and not over):
        known = Evidence(terms, reading.at)
    step = reading.at - known.read_at
    vouched = step if known.over and over and step <= 1.5 * rules.interval else 0.0
    now = replace(_looked(known, reading.at, vouched), read_at=reading.at, over=over, above=above)
    if over:
        return _over(now, reading, rules)
    if above:
        return _between(now, reading, rules)
    return _below(now, reading.at, rules)


def gone_stale(evidence: Evidence, now: float, rules: Rules) -> bool:
    """Tell whether the last reading is too old for the evidence to stand."""
    return now - evidence.read_at > rules.longest_gap


def _void(before: Evidence, reading: Reading, ceiling: int, rules: Rules) -> bool:
    if gone_stale(before, reading.at, rules):
        return True
    # Another limit may allow more for contexts than the one under which the readings were taken.
    return before.counted > 0 and before.least <= ceiling + max(0, reading.cap - before.cap)


def _anew(known: Evidence, terms: Terms, reading: Reading) -> Evidence:
    if known.phase not in (Phase.GRACE, Phase.DUE):
        return replace(known, terms=terms)
    if _milder(terms, known.terms):
        return known
    anew = replace(_told(known, reading), terms=terms)
    return replace(anew, below=known.below, counted_at=known.counted_at) if known.below else anew  # an end is an end


def _milder(terms: Terms, told: Terms) -> bool:
    """
    Tell whether what follows is gentler than what was told: that needs no other grace.

    Else a pod whose second container uses the device now and then, so that it cannot be fenced, would never be due.
    """
    gentler: tuple[Rung | None, ...] = tuple(takewhile(lambda rung: rung is not told.rung, Rung))
    return terms.mode is told.mode and terms.held is told.held is None and terms.rung in gentler


def _told(known: Evidence, reading: Reading) -> Evidence:
    return replace(_begin(known, Phase.GRACE, reading.at, counted=known.counted), grace=reading.grace)


def _begin(known: Evidence, phase: Phase, at: float, *, counted: int) -> Evidence:
    return replace(known, phase=phase, phase_from=at, seen=0.0, unseen=(), counted=counted, counted_at=at, below=0)


def _looked(known: Evidence, at: float, vouched: float) -> Evidence:
    """Add the time since the last reading."""
    if known.phase is not Phase.GRACE:
        return replace(known, seen=known.seen + vouched)
    begin = max(known.phase_from, at - known.grace / COVERAGE)
    unseen = known.unseen if vouched else (*known.unseen, (known.read_at, at))
    unseen = tuple((max(first, begin), last) for first, last in unseen if last > begin)
    return replace(known, unseen=unseen, seen=at - begin - sum(last - first for first, last in unseen))


def _over(now: Evidence, reading: Reading, rules: Rules) -> Evidence:
    at = reading.at
    if now.counted == 0:
        begun = _begin(now, Phase.OVER, at, counted=1)
        return replace(begun, since=at, least=reading.charged, cap=reading.cap)
    now = replace(now, least=min(now.least, reading.charged), cap=min(now.cap, reading.cap), below=0)
    if at - now.counted_at >= MARGIN * rules.interval:
        now = replace(now, counted=now.counted + 1, counted_at=at)
    if now.phase is Phase.OVER and now.seen >= rules.warn_after and now.counted >= ROUNDS:
        return _told(now, reading)
    return replace(now, phase=Phase.DUE, unseen=()) if now.phase is Phase.GRACE and now.seen >= now.grace else now


def _between(now: Evidence, reading: Reading, rules: Rules) -> Evidence:
    if now.phase is Phase.OVER:
        return _begin(now, Phase.OVER, reading.at, counted=0)
    if now.phase is Phase.DUE and reading.at - now.counted_at >= ROUNDS * MARGIN * rules.interval:
        return _told(now, reading)
    return now


def _below(now: Evidence, at: float, rules: Rules) -> Evidence:
    if now.phase is Phase.OVER:
        return Evidence(now.terms, at)
    if now.below == 0 or at - now.counted_at >= MARGIN * rules.interval:
        now = replace(now, below=now.below + 1, counted_at=at)
    return now if now.below < ROUNDS else Evidence(now.terms, at)
