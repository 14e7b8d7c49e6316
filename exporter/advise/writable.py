"""
Which row of a sharing system a limit is written in.

What comes in: a system of the catalogue, the present declaration. What goes out: a row, and whether the present
declaration stays beside it.

The rule: a user writes the row, and its text is a plain number or quantity.
"""

from exporter.limits.rows import Row, Star, System, What
from exporter.model import Mechanism

PLAIN = {"quantity", "below-whole", "kai-memory"}
"""Decoders of a plain number or quantity."""


def amount(row: Row) -> bool:
    """Whether a user writes an amount of memory in it."""
    return (
        row.what in (What.MEMORY, What.MEMORY_RATIO)
        and row.decoder in PLAIN
        and row.written_by is None
        and row.mechanism in (Mechanism.RESOURCE, Mechanism.ANNOTATION, Mechanism.LABEL, Mechanism.ENV)
        and "request" not in row.key.lower()
    )


def writable(system: System, source: str, scope: str) -> Row | None:
    """Choose the row that a user writes: that of the present declaration, if it is one, else the first."""
    rows = [row for row in system.rows if amount(row) and ("*" not in row.key or row.star is Star.CONTAINER)]
    rows.sort(key=lambda row: (bool(scope) and row.scope != scope, row.mechanism != source))
    return rows[0] if rows else None


def stays(system: System | None, row: Row | None, source: str) -> bool:
    """
    Whether the present declaration counts beside what is written.

    The smallest of all declarations counts. A scheduler writes its own anew from that of the user. Any other place
    keeps its amount, and so does a system without a row to write.
    """
    if system is None or row is None:
        return True
    places = {
        one.mechanism for one in system.rows if one.what in (What.MEMORY, What.MEMORY_RATIO) and not one.written_by
    }
    return row.mechanism != source and source in places
