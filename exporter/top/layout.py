"""
The table in lines of a given width.

What comes in: a table, and the columns of the terminal (None: any number). What goes out: lines of text with tones. No
line is wider than the terminal, if the figures fit at all.

The rule: figures are never cut. Names lose their middle, and notes lose whole words from the end. Messages are cut
after two lines.
"""

import textwrap
from collections.abc import Iterable, Sequence

from exporter.top.figures import CUT, UNKNOWN, ascii_only, end, path
from exporter.top.rows import Row, Tone
from exporter.top.table import Table

Line = tuple[tuple[str, Tone], ...]

HEAD = Row("NAME", 0, "USED", "LIMIT", "SHARE", "SM", ("STATE",), Tone.SOFT, Tone.SOFT)
GAP = 2
WIDE_GAP = " " * GAP
SHORTEST = 12
"""Least columns of a name."""
NOTES_PART = 3
"""Notes get at least one of so many parts of the free columns. First notes stay whole: they have figures, too."""
MOST_WARNINGS = 6


def lines(table: Table, width: int | None = None) -> list[Line]:
    """Lay out the whole table: status, warnings, rows."""
    return [_status(table, width), *_warnings(table, width), *_body(table.rows, width)]


def cropped(drawn: Sequence[Line], height: int, how: str) -> list[Line]:
    """Keep at most `height` lines; if lines are left out, the last one has their number, and `how` to see them."""
    if len(drawn) <= height:
        return list(drawn)
    kept = max(0, height - 1)
    return [*drawn[:kept], ((f"{CUT} {len(drawn) - kept} more lines: {how}", Tone.SOFT),)]


def encodable(drawn: Sequence[Line], encoding: str | None) -> list[Line]:
    """Write the dashes and dots of `figures` in ASCII if the encoding has no others."""
    try:
        (UNKNOWN + CUT).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return [tuple((ascii_only(part), tone) for part, tone in line) for line in drawn]
    return list(drawn)


def text(drawn: Iterable[Line]) -> str:
    """Return the lines as plain text, without tones."""
    return "".join(f"{''.join(part for part, _ in line).rstrip()}\n" for line in drawn)


def _status(table: Table, width: int | None) -> Line:
    parts: list[tuple[str, Tone]] = []
    left = width
    for word, tone in table.status:
        part = (WIDE_GAP if parts else "") + word
        if left is not None:
            if parts and len(part) > left:
                break
            part = end(part, left)
            left -= len(part)
        parts.append((part, tone))
    return tuple(parts)


def _warnings(table: Table, width: int | None) -> Iterable[Line]:
    for message, tone in table.warnings[:MOST_WARNINGS]:
        if width is None:
            yield ((message, tone),)
            continue
        for line in textwrap.wrap(message, max(width, 8), subsequent_indent="  ", max_lines=2, placeholder=CUT):
            yield ((line, tone),)
    if len(table.warnings) > MOST_WARNINGS:
        yield ((f"{CUT} and {len(table.warnings) - MOST_WARNINGS} more", Tone.WARN),)


def _body(rows: Sequence[Row], width: int | None) -> Iterable[Line]:
    if not rows:
        return
    shown = (HEAD, *rows)
    figures = [max(len(cell) for cell in column) for column in zip(*map(_figures, shown), strict=True)]
    names = max(row.inset + len(row.name) for row in shown)
    notes = max(len(_joined(row.notes, None)) for row in shown)
    if width is not None:
        left = max(width - sum(figures) - GAP * (len(figures) + 1), SHORTEST)
        first = max(len(row.notes[0]) for row in shown if row.notes)
        notes = min(notes, max(left - names, left // NOTES_PART, min(first, left - SHORTEST)))
        names = min(names, max(left - notes, SHORTEST))
    for row in shown:
        cells = [f"{cell:>{columns}}" for cell, columns in zip(_figures(row), figures, strict=True)]
        yield (
            (f"{' ' * row.inset}{path(row.name, names - row.inset)}".ljust(names), row.named),
            ("".join(WIDE_GAP + cell for cell in cells), row.tone),
            (WIDE_GAP + _joined(row.notes, None if width is None else notes), row.tone),
        )


def _figures(row: Row) -> tuple[str, str, str, str]:
    return row.used, row.limit, row.share, row.sm


def _joined(notes: Sequence[str], width: int | None) -> str:
    """Join notes; those that do not fit are left out from the end, and a mark shows it if there is room."""
    whole = WIDE_GAP.join(notes)
    if width is None or len(whole) <= width:
        return whole
    if len(closer := " ".join(notes)) <= width:
        return closer
    for count in range(len(notes) - 1, 0, -1):
        part = f"{' '.join(notes[:count])} {CUT}"
        if len(part) <= width:
            return part
    return end(notes[0], width)
