"""
The preview of mode `enforce`, as a table for a terminal.

What comes in: the preview of a daemon, as JSON. What goes out: lines of text.

The rule: each limit holder over its limit has one line. It shows how many seconds over the limit count, and after how
many an action follows. Then the next action with its time, or the reason against it. Names are printable ASCII, and an
unknown figure is a dash.
"""

from collections.abc import Iterator, Sequence

import msgspec

from exporter.api.schema import VERSION, Head, Owned, Real, Whole
from exporter.top.figures import UNKNOWN, clean, percent, size, span
from exporter.top.names import short

HEAD = ("POD", "CONTAINER", "GPU", "USED", "LIMIT", "COUNTED", "NEXT")
NONE_OVER = "No pod is over its limit."
COUNTS = "The breaker blast_radius counts these."
OPENS = "Too many pods are over their limit at once: the breaker blast_radius would open, and no pod would be acted on."


class Holder(Owned, frozen=True, kw_only=True):
    """
    A limit holder over its limit.

    `over_seconds` of `capacity_seconds` count for the action. `next` follows after `due_in_seconds` of further excess;
    null if the counted time does not rise now.
    """

    uuid: str
    gpu_instance: Whole | None = None
    claim: str = ""
    used_bytes: Whole | None = None
    limit_bytes: Whole | None = None
    over_seconds: Real = 0.0
    capacity_seconds: Real = 0.0
    due_in_seconds: Real | None = None
    wait_seconds: Real | None = None
    next: str | None = None
    reason: str | None = None
    why: str | None = None
    detail: str = ""


class Forecast(Head, frozen=True, kw_only=True):
    """The document of `GET /api/v1/preview`."""

    would_act_on: list[Holder]
    held: list[Holder]
    pods_over: Whole
    pods_with_limits: Whole
    blast_radius_breaker_would_open: bool


def parse(body: bytes) -> Forecast:
    """Read a document. Raises ValueError if it is no preview, or of another version than this program reads."""
    forecast = msgspec.json.decode(body, type=Forecast)  # its errors are ValueErrors
    if forecast.version != VERSION:
        raise ValueError(f"version {forecast.version} of the document, and this program reads {VERSION}")
    return forecast


def text(forecast: Forecast) -> str:
    """Write the table."""
    age = f"{span(forecast.age_seconds)} old" + (", STALE" if forecast.stale else "")
    lines = [f"Node {clean(forecast.node)}: what mode enforce would do ({age})", ""]
    acted = sorted(forecast.would_act_on, key=lambda holder: _order(holder.due_in_seconds))
    rows = [*(_row(holder, _follows(holder)) for holder in acted), *(_row(each, _held(each)) for each in forecast.held)]
    lines += [*_table([HEAD, *rows]), ""] if rows else [NONE_OVER]
    if rows:
        over, all_of_them = forecast.pods_over, forecast.pods_with_limits
        lines.append(f"Over their limits: {over} of {all_of_them} workloads that may be acted on. {COUNTS}")
    if forecast.blast_radius_breaker_would_open:
        lines.append(OPENS)
    return "\n".join(lines) + "\n"


def _order(due_in: float | None) -> float:
    return float("inf") if due_in is None else due_in


def _row(holder: Holder, follows: str) -> tuple[str, ...]:
    pod = f"{holder.namespace or UNKNOWN}/{holder.pod or UNKNOWN}"
    where = short(holder.uuid) + ("" if holder.gpu_instance is None else f" MIG {holder.gpu_instance}")
    used = percent(holder.over_seconds / holder.capacity_seconds) if holder.capacity_seconds else UNKNOWN
    counted = f"{used} ({holder.over_seconds:.0f} of {holder.capacity_seconds:.0f}s)"
    name = holder.container or (f"claim {holder.claim}" if holder.claim else UNKNOWN)
    return clean(pod), clean(name), clean(where), size(holder.used_bytes), size(holder.limit_bytes), counted, follows


def _follows(holder: Holder) -> str:
    if holder.next is None:
        return UNKNOWN
    if holder.due_in_seconds is None:
        return f"{holder.next}, not while it is within its limit"
    if holder.due_in_seconds > 0:
        return f"{holder.next} in {span(holder.due_in_seconds)}"
    left = "" if holder.wait_seconds is None else f", {span(holder.wait_seconds)} left"
    if holder.why:
        return f"{holder.next}, but waits: {clean(holder.why)} ({clean(holder.reason or '')}{left})"
    return f"{holder.next} now"


def _held(holder: Holder) -> str:
    detail = f": {clean(holder.detail)}" if holder.detail else ""
    return f"held, {clean(holder.why or '')} ({holder.reason}){detail}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
