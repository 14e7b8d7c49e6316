"""
The whole table: its header, and its rows.

What comes in: a document, its age, why there is no newer one. What goes out: text with its tones, in order.

The rule: all rows of a stale document look stale.
"""

from dataclasses import dataclass, replace

from exporter.api.schema import STALE_AFTER, Document
from exporter.top.figures import clean
from exporter.top.rows import Row, Tone, rows
from exporter.top.status import Said, status, warnings

WAITING = "waiting for the daemon"
NO_GPU = "No GPU is known here."


@dataclass(frozen=True, slots=True)
class Table:
    """`status` is one line (node, age, mode), `warnings` are one line each; then the rows."""

    status: tuple[Said, ...]
    warnings: tuple[Said, ...]
    rows: tuple[Row, ...]


def table(document: Document, *, waited: float = 0.0, trouble: str = "") -> Table:
    """Make the table. `waited`: seconds since the document came; `trouble`: why there is no newer one."""
    age = document.age_seconds + waited
    stale = age > STALE_AFTER * document.interval_seconds
    old = stale or bool(trouble)
    body = tuple(rows(document, document.taken_at + age))
    return Table(
        tuple(status(document, age, old=old)),
        (*warnings(document, age, trouble, stale=stale), *(() if body else ((NO_GPU, Tone.SOFT),))),
        tuple(replace(row, tone=Tone.SOFT, named=Tone.SOFT) for row in body) if old else body,
    )


def waiting(trouble: str) -> Table:
    """Make the table before the first document; `trouble` says why there is none, or is empty."""
    said: tuple[Said, ...] = ((f"daemon: {clean(trouble)}", Tone.BAD),) if trouble else ()
    return Table(((WAITING, Tone.SOFT),), said, ())
