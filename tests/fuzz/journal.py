"""
Fuzz target: the journal, after anything may have happened to its bytes.

In: choices of records, which are written as the daemon writes them; then what happens to the file: it is cut anywhere,
bytes are changed, lines are lost, doubled or exchanged, or other bytes stand in its place. The promise:
- Any bytes give a result.
- A file that ends anywhere loses at most its last record, and never invents an action: each open decision is one that
  was written. Budget that was used stays used.
- Other damage is noticed: the node's budget is used up, and the breaker `journal` waits for a person. Else the file
  says what was written.
- A repaired file is whole, says the same when it is read again, and permits no more than before.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import structlog.testing

from default_rules import default_rules
from enforcer.actions.interface import Answer, Heard
from enforcer.journal import levels_file
from enforcer.journal.file import JournalError, opened
from enforcer.journal.fold import UNKNOWN, Kept, Reading, replayed
from enforcer.journal.records import (
    Acked,
    BreakerClosed,
    BreakerOpened,
    Ended,
    Fenced,
    Intent,
    Record,
    Sent,
    Started,
    State,
    Stopped,
    Unfenced,
    decode,
)
from enforcer.policy.history import Opened, Result
from enforcer.policy.vocabulary import Breaker, Rung
from fuzz import scratch
from fuzz.drawing import Draw
from journals import BOOT, FENCE, LATER, Hands, Writing, intent, uuid

MOST = 3
NOW = 500.0
BOOTS = (BOOT, LATER)
RUNGS, HEARD, RESULTS, BREAKERS = tuple(Rung), tuple(Heard), tuple(Result), tuple(Breaker)
OTHERS: tuple[Record, ...] = (Fenced(FENCE), Started(7, "1.0"), Stopped(), BreakerOpened("api", Opened(1.0, "retired")))
_RULES = default_rules()


def check(data: bytes) -> None:
    """Write a journal, damage it, and read it."""
    draw = Draw(data)
    how, count, boot = draw.below(8), draw.below(24), draw.one_of(BOOTS)
    if how == 0:
        _check_any(draw.rest(), boot)
        return
    writing, records = _written(draw, count)
    if how <= 3:
        _check_torn(writing, records, draw, boot)
    elif how == 4:
        _check_repair(_damaged(writing, draw), boot)
    else:
        _check_damage(writing, _damaged(writing, draw), boot)


def _written(draw: Draw, count: int) -> tuple[Writing, list[Record]]:
    writing = Writing().write(State())
    records: list[Record] = [State()]
    for _ in range(count):
        if draw.below(16) == 0 and writing.boot == BOOT:
            writing.reboot()
        record = _record(draw)
        writing.write(record)
        records.append(record)
    return writing, records


def _record(draw: Draw) -> Record:
    number, kind = draw.below(5), draw.below(12)
    match kind:
        case 0:
            return _intent(number, draw.one_of(RUNGS), draw.one_of(("a", "b")), dry=draw.below(4) == 0)
        case 1:
            return _intent(number, Rung.EVICT, "train", dry=False)
        case 2:
            return Sent(uuid(number))
        case 3:
            return Acked(uuid(number), Answer(draw.one_of(HEARD), "x" * draw.below(80), draw.below(600), 1.5))
        case 4:
            return Ended(uuid(number), draw.one_of(RESULTS), "x" * draw.below(80))
        case 5:
            return BreakerOpened(draw.one_of(BREAKERS), Opened(float(draw.below(200)), 'a "no",\nin a row'))
        case 6:
            return BreakerClosed(draw.one_of(BREAKERS), "ann")
        case 8:
            return Unfenced(_intent(number, Rung.FENCE, "a", dry=False).action.key, "gone")
        case _:
            return OTHERS[kind % len(OTHERS)]


@cache
def _intent(number: int, rung: Rung, workload: str, *, dry: bool) -> Intent:
    return intent(number, rung=rung, workload=workload, dry=dry)


def _read(data: bytes, boot: str) -> Reading:
    return replayed(data, NOW, boot, most=MOST)


def _check_any(data: bytes, boot: str) -> None:
    found = _read(data, boot)
    assert found == _read(data, boot)
    lines = [line for line in data.split(b"\n") if decode(line) is not None]
    if found.damaged:
        _assert_stopped(found.kept)
    else:
        assert found.whole <= len(data) + 1
        assert lines and len(lines) >= data.count(b"\n"), "a strange line passed"
    assert len(found.kept.open) <= len(lines) + sum(line.count(b'"sent"') for line in lines)
    _check_levels(data)


def _check_torn(writing: Writing, records: list[Record], draw: Draw, boot: str) -> None:
    cut = draw.below(65536) % (len(writing.data) + 1)
    begun = sum(1 for end in _ends(writing) if end <= cut)
    whole = _read(b"".join(writing.lines[:begun]), boot)
    found = _read(writing.data[:cut], boot)
    if cut < len(writing.lines[0]):
        assert found.damaged or not begun  # its first line is put in place whole
        return
    assert not found.damaged
    unended = cut + 1 in _ends(writing)
    if unended:
        assert found.torn
        whole = _read(b"".join(writing.lines[: begun + 1]), boot)
    assert set(found.kept.open) == set(whole.kept.open), "a decision was lost or invented"
    assert found.kept.breakers == whole.kept.breakers
    assert found.kept.fences == whole.kept.fences
    charged = list(found.kept.spent)[len(whole.kept.spent) :]
    assert found.kept.spent[: len(whole.kept.spent)] == whole.kept.spent
    assert [token.workload for token in charged] in ([], [UNKNOWN])
    if not unended and begun < len(records) and writing.lines[begun].find(b'"record":"intent"') > 0 and found.torn:
        assert charged, "a torn intent was not charged"


def _ends(writing: Writing) -> list[int]:
    ends, end = [], 0
    for line in writing.lines:
        end += len(line)
        ends.append(end)
    return ends


def _damaged(writing: Writing, draw: Draw) -> bytes:
    lines = list(writing.lines)
    for _ in range(1 + draw.below(3)):
        place, other = draw.below(256) % len(lines), draw.below(256) % len(lines)
        match draw.below(6):
            case 0:
                at, byte = draw.below(2048) % len(lines[place]), draw.below(256)
                lines[place] = lines[place][:at] + bytes([byte]) + lines[place][at + 1 :]
            case 1:
                del lines[place]
            case 2:
                lines.insert(place, lines[other])
            case 3:
                lines[place], lines[other] = lines[other], lines[place]
            case 4:
                lines.insert(place, draw.take(draw.below(64)) + b"\n")
            case _:
                at = draw.below(2048) % len(lines[place])
                lines[place] = lines[place][:at]
        if not lines:
            return b""
        lines = [line for line in lines if line] or [b"\n"]
    return b"".join(lines)


def _check_damage(writing: Writing, data: bytes, boot: str) -> None:
    true, found = _read(writing.data, boot), _read(data, boot)
    assert set(found.kept.open) <= {uuid(number) for number in range(5)}, "an invented decision"
    if found.damaged:
        _assert_stopped(found.kept)
    elif not found.torn:
        kept = [line for line in data.split(b"\n") if line]
        assert [line + b"\n" for line in kept] == writing.lines[: len(kept)] or _contiguous(kept), "damage passed"
        if data == writing.data:
            assert found == true


def _contiguous(lines: Iterable[bytes]) -> bool:
    """Tell whether these are whole lines that follow one another and begin with a state."""
    read = [decode(line) for line in lines]
    stamps = [one[0].seq for one in read if one is not None]
    return (
        None not in read
        and isinstance(read[0][1] if read[0] else None, State)
        and stamps == list(range(stamps[0], stamps[0] + len(stamps)))
    )


def _assert_stopped(kept: Kept) -> None:
    assert Breaker.JOURNAL in kept.breakers, "damage without the breaker"
    assert sum(token.workload == UNKNOWN for token in kept.spent) >= MOST, "damage, and budget is left"


@cache
def _folder() -> Path:
    place = scratch.folder() / "journal"
    place.mkdir()
    return place


def _check_repair(data: bytes, boot: str) -> None:
    path = _folder() / "journal"
    for left in _folder().iterdir():
        left.unlink()
    path.write_bytes(data)
    path.chmod(0o600)
    given = Hands(boottime=NOW, boot=boot).given
    before = replayed(data, NOW, boot, most=_RULES.budgets.node.most).kept
    try:
        with structlog.testing.capture_logs():
            file = opened(path, _RULES, given=given)
    except JournalError:
        return
    _check_kept(before, file.kept)
    file.close()
    again = replayed(path.read_bytes(), NOW, boot, most=_RULES.budgets.node.most)
    assert not again.torn and not again.damaged, "a repaired file is not whole"
    _check_kept(before, again.kept)


def _check_kept(before: Kept, now: Kept) -> None:
    assert set(before.breakers) == set(now.breakers)
    assert set(before.open) == set(now.open)
    assert set(before.fences) == set(now.fences)
    assert len(before.spent) == len(now.spent)


def _check_levels(data: bytes) -> None:
    path = _folder() / "journal.levels"
    path.write_bytes(data)
    path.chmod(0o600)
    with structlog.testing.capture_logs():
        levels = levels_file.read(path)
    if levels is not None:
        restored = levels.restored()
        assert len(restored) <= len(levels.levels)
        levels_file.write(path, levels)
        again = levels_file.read(path)
        assert again is not None and again.restored() == restored
