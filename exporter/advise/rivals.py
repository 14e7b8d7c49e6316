"""
Other declarations of a system that count beside a written one.

What comes in: the rows of a system, the row that is written, the mechanism of the present declaration. What goes out:
what the user has to check, in words.

The rule: the catalogue decides. A row that loses to the written one needs no word. Any other is smaller, wins or
contradicts, and metrics do not say which key a pod has.
"""

from collections.abc import Iterable

from exporter.limits.rows import Row, System, What

NO_AMOUNT = {"granted", "whole-device", "visible", "instance", "claimed-device"}
"""Decoders of rows that a user writes, and that declare no amount of their own."""


def beside(system: System, row: Row, source: str) -> list[str]:
    """Say what to remove, and where to write the amount instead."""
    others = list(_others(system, row, source))
    shares = list(dict.fromkeys(one.key for one in others if one.what is not row.what))
    same = list(dict.fromkeys(one.key for one in others if one.what is row.what))
    notes = []
    if shares:
        notes.append(f"remove from the pod, if present: {', '.join(shares)}")
        notes.append(f"what is named above counts before {row.key}, or beside it")
    computes = {one.key for one in system.rows if one.what is What.COMPUTE}
    notes += [f"{key} declares compute, too: declare that by its own key" for key in shares if key in computes]
    if same:
        notes.append(f"where the pod has {' or '.join(same)}, write the amount there instead")
    return notes


def request_of(system: System, row: Row) -> str:
    """Return the key of the request that belongs to a limit, and stands in for it; empty without one."""
    names = {row.key.replace("limit", "request"), row.key.replace("LIMIT", "REQUEST")} - {row.key}
    found = (one.key for one in system.rows if one.key in names and row.key in one.loses_to)
    return next(found, "")


def _others(system: System, row: Row, source: str) -> Iterable[Row]:
    """Yield rows that a pod's author writes in the same manner, and that the written row does not win over."""
    for one in system.rows:
        written = one.what in (What.MEMORY, What.MEMORY_RATIO) and one.written_by is None
        same_place = one.mechanism in (row.mechanism, source)
        loses = one.key == row.key or row.key in one.loses_to or "request" in one.key.lower()
        if written and same_place and not loses and one.decoder not in NO_AMOUNT:
            yield one
