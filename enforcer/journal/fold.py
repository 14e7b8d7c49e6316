"""
Folds the journal's records into the state that still counts.

What comes in: records one by one, or the bytes of a file. What goes out: the past that still counts. These are budget
used, breakers that wait for a person, fences, and decisions that have not ended.

The rule: **no damage to the file permits an action.** A decision without an end may have been carried out. A torn
record counts against the budget. All of a damaged file that restricts the daemon counts, and a person has to look at
it. The same fold makes the writer's state and the state of the next reader. Reading is total: any bytes give a result.

Time across a reboot: boot time starts anew, and the wall clock proves nothing. Certain are the time from a record to
the last one of its boot, and the time since the present boot. A used part of a budget ages by these times alone. (Its
Unix time is for the back-off of a workload, whose pods have Unix times from the API server.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from enforcer.actions.fence.fences import Fence
from enforcer.journal.records import (
    Acked,
    BreakerClosed,
    BreakerOpened,
    Ended,
    Fenced,
    Intent,
    Open,
    Record,
    Sent,
    State,
    Token,
    Unfenced,
    decode,
    kind,
)
from enforcer.policy.history import History, Opened, Spent, Workload
from enforcer.policy.holder import CaseKey
from enforcer.policy.vocabulary import Breaker, Rung

UNKNOWN: Workload = ("", "", "")
"""The workload of a record that cannot be read: it counts against the node's budget."""


@dataclass(frozen=True, slots=True)
class Kept:
    """
    The state that outlives a daemon.

    `open` is by decision. Times are boot seconds of the present boot, below zero before it. `fences` are in force, or
    may be.
    """

    spent: tuple[Spent, ...] = ()
    breakers: Mapping[Breaker, Opened] = field(default_factory=dict)
    open: Mapping[str, Open] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    fences: Mapping[CaseKey, Fence] = field(default_factory=dict)

    def state(self, detail: str = "") -> State:
        """Make one record of this state; `after` makes the state from it again."""
        tokens = tuple(Token(token.at, token.workload, token.time) for token in self.spent)
        breakers = {str(breaker): opened for breaker, opened in self.breakers.items()}
        return State(tokens, breakers, dict(self.open), detail, tuple(self.fences.values()))


@dataclass(frozen=True, slots=True)
class Reading:
    """
    The result of reading a file.

    Attributes:
        seq: of its last record.
        whole: its leading bytes that are whole lines.
        torn: the last line is not whole, and counts against the budget: the daemon or the machine ended meanwhile.
        damaged: something else is wrong; the node's budget is used up, and the breaker `journal` is open.

    """

    kept: Kept
    seq: int = 0
    whole: int = 0
    torn: bool = False
    damaged: bool = False


def void(unfinished: Open) -> bool:
    """Tell whether the victim is certainly gone: no process and no container outlives a reboot."""
    return unfinished.rebooted and unfinished.action.rung in (Rung.KILL, Rung.FENCE)


def after(kept: Kept, record: Record, boot: float, time: float = 0.0) -> Kept:
    """Add a record; `boot` and `time` are its stamp's. A record of a decision that is not open changes nothing."""
    match record:
        case Intent(decision, action) if not action.dry:
            spent = (*kept.spent, Spent(boot, action.workload, time))
            return replace(kept, spent=spent, open={**kept.open, decision: Open(action, boot)})
        case Sent(decision) if decision in kept.open:
            return replace(kept, open={**kept.open, decision: replace(kept.open[decision], sent=True)})
        case Acked(decision, answer) if decision in kept.open:
            return replace(kept, open={**kept.open, decision: replace(kept.open[decision], sent=True, answer=answer)})
        case Ended(decision, result) if decision in kept.open:
            ended = kept.open[decision]
            still = {other: opened for other, opened in kept.open.items() if other != decision}
            return replace(kept, open=still, spent=_given_back(kept.spent, ended) if result.harmless else kept.spent)
        case BreakerOpened(name, opened) if name in tuple(Breaker):
            return replace(kept, breakers={**kept.breakers, Breaker(name): opened})
        case BreakerClosed(name):
            return replace(
                kept, breakers={breaker: known for breaker, known in kept.breakers.items() if breaker != name}
            )
        case Fenced(fence):
            return replace(kept, fences={**kept.fences, fence.key: fence})
        case Unfenced(key):
            return replace(kept, fences={other: fence for other, fence in kept.fences.items() if other != key})
        case State():
            tokens = tuple(token.spent for token in record.spent if not token.dry)
            breakers = {Breaker(name): opened for name, opened in record.breakers.items() if name in tuple(Breaker)}
            fences = {fence.key: fence for fence in record.fences}
            return Kept(tokens, breakers, record.open, kept.problems, fences)
    return kept


def _given_back(spent: tuple[Spent, ...], ended: Open) -> tuple[Spent, ...]:
    """Give the budget of a decision back."""
    taken = (ended.at, ended.action.workload)
    place = next((place for place, token in enumerate(spent) if (token.at, token.workload) == taken), None)
    return spent if place is None else (*spent[:place], *spent[place + 1 :])


def replayed(data: bytes, boot: float, boot_id: str, *, most: int) -> Reading:
    """
    Read a journal.

    Args:
        data: the file, or any bytes.
        boot: seconds of CLOCK_BOOTTIME now, in the boot `boot_id`.
        boot_id: of the kernel; not empty.
        most: actions that use up the node's budget, if the file is damaged.

    """
    *lines, tail = data.split(b"\n")
    kept, seq, whole, last, of = Kept(), 0, 0, 0.0, boot_id
    wrong = _wrong(lines, tail)
    unended = decode(tail)  # only the line's end is missing: the record is whole
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
        kept = after(kept, record, stamp.boottime, stamp.time)
    if seq and of != boot_id:
        kept = _rebooted(kept, last)
    kept = replace(kept, spent=tuple(replace(token, at=min(token.at, boot)) for token in kept.spent))
    if wrong:
        return Reading(forfeited(kept, wrong, boot, most), seq, 0, damaged=True)
    if tail and not unended:
        kept = replace(kept, problems=(f"the last record was torn off after {len(tail)} bytes",))
        if kind(tail) in ("", "intent"):
            kept = replace(kept, spent=(*kept.spent, Spent(boot, UNKNOWN)))
    return Reading(kept, seq, whole, torn=bool(tail))


def forfeited(kept: Kept, why: str, boot: float, most: int) -> Kept:
    """Use up the node's budget, and open the breaker `journal`, which a person closes."""
    return replace(
        kept,
        spent=(*kept.spent, *(Spent(boot, UNKNOWN) for _ in range(most))),
        breakers={**kept.breakers, Breaker.JOURNAL: Opened(boot, f"the journal was damaged: {why}")},
        problems=(*kept.problems, why),
    )


def pruned(kept: Kept, boot: float, keep: float) -> Kept:
    """Forget past actions older than `keep` seconds, which is longer than any budget's window."""
    return replace(kept, spent=tuple(token for token in kept.spent if boot - token.at < keep))


def changes(before: History, now: History, *, by: str = "") -> Iterable[Record]:
    """Make records of the breakers that a history opened or closed. The budget's use is in the intents already."""
    for breaker in Breaker:
        old, new = before.breakers.get(breaker), now.breakers.get(breaker)
        if new is not None and new != old:
            yield BreakerOpened(breaker, new)
        elif new is None and old is not None:
            yield BreakerClosed(breaker, by)


def _wrong(lines: list[bytes], tail: bytes) -> str:
    """Report damage that no torn write explains. A file is put in place whole, with its state in the first line."""
    if not lines:
        return "it does not begin with a whole line"
    first = decode(lines[0])
    if first is None or not isinstance(first[1], State):
        return "it does not begin with its state"
    return "the end of its last line is another character" if tail and decode(tail[:-1]) else ""


def _rebooted(kept: Kept, last: float) -> Kept:
    """Express a boot's times in those of the next; `last` is its last record. Fences ended with the cgroups."""
    return Kept(
        tuple(replace(token, at=token.at - last) for token in kept.spent),
        {name: replace(opened, at=opened.at - last) for name, opened in kept.breakers.items()},
        {decision: replace(opened, at=opened.at - last, rebooted=True) for decision, opened in kept.open.items()},
        kept.problems,
    )
