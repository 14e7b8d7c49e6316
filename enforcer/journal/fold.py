"""
What the journal's records add up to.

What comes in: records one by one, or the bytes of a file. What goes out: what is kept of the past: tokens taken,
breakers that wait for a person, strikes, excesses, fences, and the decisions that have not ended.

The law: **nothing that happens to the file frees anybody to act.** A decision without an end is in flight; a record
that was torn off is charged; a file that was damaged is believed in all that binds, and a person has to look at it.
The same fold makes what a writer remembers and what the next reader finds. Reading is total: bytes of any origin are
an answer.

Time across a reboot: boot time starts anew, the wall clock proves nothing. What certainly went by is the time from a
record to the last one of its boot, and the time since the present boot. A token ages by that, and by no more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from enforcer.actions.fence.fences import Fence
from enforcer.journal.records import (
    Acked,
    BreakerClosed,
    BreakerOpened,
    Ended,
    Exceeds,
    Fenced,
    Intent,
    Open,
    Record,
    Sent,
    State,
    Struck,
    Unfenced,
    Within,
    decode,
    kind,
)
from enforcer.policy.history import History, Opened, Spent, Strikes, Workload
from enforcer.policy.limit_holders import CaseKey
from enforcer.policy.vocabulary import MANUAL, Breaker, Rung

UNKNOWN: Workload = ("", "", "")
"""Of a token that is charged for a record that cannot be read: it counts for the node."""


@dataclass(frozen=True, slots=True)
class Kept:
    """
    What outlives a daemon.

    `open` by decision; times are boot seconds of the present boot, below zero before it. `fences` stand, or may.
    """

    spent: tuple[Spent, ...] = ()
    breakers: Mapping[Breaker, Opened] = field(default_factory=dict)
    strikes: Mapping[Workload, Strikes] = field(default_factory=dict)
    open: Mapping[str, Open] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    fences: Mapping[CaseKey, Fence] = field(default_factory=dict)
    excesses: Mapping[CaseKey, float] = field(default_factory=dict)

    def state(self, detail: str = "") -> State:
        """Tell it as one record, of which `after` makes it again."""
        struck = tuple(Struck(workload, strikes) for workload, strikes in self.strikes.items())
        excesses = tuple(Exceeds(key, strikes) for key, strikes in self.excesses.items())
        return State(
            self.spent, dict(self.breakers), struck, dict(self.open), detail, tuple(self.fences.values()), excesses
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """
    What a file says.

    Attributes:
        seq: of its last record.
        whole: its leading bytes that are whole lines.
        torn: the last line is not whole, and was charged: the daemon or the machine ended while it was written.
        damaged: something else is wrong; all is forfeit, and the breaker `journal` open.

    """

    kept: Kept
    seq: int = 0
    whole: int = 0
    torn: bool = False
    damaged: bool = False


def void(unfinished: Open) -> bool:
    """Tell whether the victim cannot be there any more: after a reboot no process and no container of before is."""
    return unfinished.rebooted and unfinished.action.rung in (Rung.KILL, Rung.FENCE)


def after(kept: Kept, record: Record, boot: float) -> Kept:
    """Add a record; `boot` is its stamp's. What belongs to a decision that is not open changes nothing."""
    match record:
        case Intent(decision, action):
            kept = replace(kept, spent=(*kept.spent, Spent(boot, action.workload, action.dry)))
            return kept if action.dry else replace(kept, open={**kept.open, decision: Open(action, boot)})
        case Sent(decision) if decision in kept.open:
            return replace(kept, open={**kept.open, decision: replace(kept.open[decision], sent=True)})
        case Acked(decision, answer) if decision in kept.open:
            return replace(kept, open={**kept.open, decision: replace(kept.open[decision], sent=True, answer=answer)})
        case Ended(decision, result):
            known = kept.open.get(decision)
            spent = list(kept.spent)
            if known is not None and result.harmless:
                token = Spent(known.at, known.action.workload, known.action.dry)
                spent = spent if token not in spent else [*_one_less(spent, token)]
            still = {other: opened for other, opened in kept.open.items() if other != decision}
            return replace(kept, open=still, spent=tuple(spent))
        case BreakerOpened(breaker, opened):
            return replace(kept, breakers={**kept.breakers, breaker: opened})
        case BreakerClosed(breaker):
            return replace(kept, breakers={name: known for name, known in kept.breakers.items() if name is not breaker})
        case Struck(workload, strikes):
            return replace(kept, strikes={**kept.strikes, workload: strikes})
        case Exceeds(key, strikes):
            return replace(kept, excesses={**kept.excesses, key: strikes})
        case Within(key):
            return replace(kept, excesses={other: strikes for other, strikes in kept.excesses.items() if other != key})
        case Fenced(fence):
            return replace(kept, fences={**kept.fences, fence.key: fence})
        case Unfenced(key):
            return replace(kept, fences={other: fence for other, fence in kept.fences.items() if other != key})
        case State():
            strikes_of = {struck.workload: struck.strikes for struck in record.strikes}
            fences = {fence.key: fence for fence in record.fences}
            excesses = {excess.key: excess.strikes for excess in record.excesses}
            return Kept(record.spent, record.breakers, strikes_of, record.open, kept.problems, fences, excesses)
    return kept


def _one_less(spent: Iterable[Spent], token: Spent) -> Iterable[Spent]:
    removed = False
    for spent_token in spent:
        if removed or spent_token != token:
            yield spent_token
        removed = removed or spent_token == token


def replayed(data: bytes, boot: float, boot_id: str, *, most: int) -> Reading:
    """
    Read a journal.

    Args:
        data: the file, or any bytes.
        boot: seconds of CLOCK_BOOTTIME now, in the boot `boot_id`.
        boot_id: of the kernel; not empty.
        most: tokens that make the node's budget used up, if the file is damaged.

    """
    *lines, tail = data.split(b"\n")
    kept, seq, whole, last, of = Kept(), 0, 0, 0.0, boot_id
    wrong = _wrong(lines, tail)
    unended = decode(tail)  # only the end of its line is missing: the record is there
    for line in (*lines, tail) if unended else lines:
        read = decode(line)
        if read is None:
            wrong = wrong or "a line is not as it was written"
            continue
        stamp, record = read
        if seq and stamp.seq != seq + 1:
            wrong = wrong or f"records are missing between {seq} and {stamp.seq}"
        if seq and stamp.boot_id != of:
            kept, last = _rebooted(kept, last), 0.0
        seq, of, last = max(seq, stamp.seq), stamp.boot_id, max(last, stamp.boottime)
        whole += len(line) + 1
        kept = after(kept, record, stamp.boottime)
    if seq and of != boot_id:
        kept = _rebooted(kept, last)
    kept = replace(kept, spent=tuple(replace(token, at=min(token.at, boot)) for token in kept.spent))
    if wrong:
        return Reading(forfeited(kept, wrong, boot, most), seq, 0, damaged=True)
    if tail and not unended:
        kept = replace(kept, problems=(f"the last record was torn off after {len(tail)} bytes",))
        if kind(tail) in ("", "intent"):
            kept = replace(kept, spent=(*kept.spent, Spent(boot, UNKNOWN, dry=False)))
    return Reading(kept, seq, whole, torn=bool(tail))


def forfeited(kept: Kept, why: str, boot: float, most: int) -> Kept:
    """Take the node's budget away, and open the breaker that waits for a person."""
    return replace(
        kept,
        spent=(*kept.spent, *(Spent(boot, UNKNOWN, dry=False) for _ in range(most))),
        breakers={**kept.breakers, Breaker.JOURNAL: Opened(boot, None, f"the journal was damaged: {why}")},
        problems=(*kept.problems, why),
    )


def pruned(kept: Kept, boot: float, keep: float) -> Kept:
    """Forget tokens and strikes that are older than `keep` seconds: longer than any budget's window."""
    return replace(
        kept,
        spent=tuple(token for token in kept.spent if boot - token.at < keep),
        strikes={workload: strikes for workload, strikes in kept.strikes.items() if boot - strikes.at < keep},
    )


def changes(before: History, now: History, *, by: str = "") -> Iterable[Record]:
    """Tell what of a history's change has to outlive the daemon, tokens apart: their records are the intents."""
    for breaker in MANUAL:
        old, new = before.breakers.get(breaker), now.breakers.get(breaker)
        if new is not None and new != old:
            yield BreakerOpened(breaker, new)
        elif new is None and old is not None:
            yield BreakerClosed(breaker, by)
    # Before its strike: an excess without it only delays, a strike without its excess would be counted twice.
    for key in sorted(now.excesses.keys() ^ before.excesses.keys()):
        yield Exceeds(key, now.excesses[key].strikes) if key in now.excesses else Within(key)
    for workload, strikes in now.strikes.items():
        if before.strikes.get(workload) != strikes:
            yield Struck(workload, strikes)


def _wrong(lines: list[bytes], tail: bytes) -> str:
    """Say what no torn write explains. A file is put in place whole, with its state in the first line."""
    if not lines:
        return "it does not begin with a whole line"
    first = decode(lines[0])
    if first is None or not isinstance(first[1], State):
        return "it does not begin with its state"
    return "the end of its last line is another character" if tail and decode(tail[:-1]) else ""


def _rebooted(kept: Kept, last: float) -> Kept:
    """
    Tell times of a boot, whose last record was `last`, in those of the next.

    Strikes go: how much of them was forgiven meanwhile nobody can prove, and without them an action is later. Fences
    are gone with their cgroups.
    """
    return Kept(
        tuple(replace(token, at=token.at - last) for token in kept.spent),
        {name: replace(opened, at=opened.at - last) for name, opened in kept.breakers.items()},
        {},
        {decision: replace(opened, at=opened.at - last, rebooted=True) for decision, opened in kept.open.items()},
        kept.problems,
    )
