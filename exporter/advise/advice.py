"""
From the use of a container to a limit.

What comes in: an `Observed`, the headroom. What goes out: an `Advice`.

The rule: the advised limit is at least the peak. The policy acts on use above limit + tolerance, so with this limit it
would not have acted once on that history.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from exporter.advise.observed import Observed

STEP = 256 * 2**20
"""Bytes to which a limit is rounded up: a quarter of a GiB."""


class Kind(StrEnum):
    """What is advised."""

    LIMIT = "limit"
    FRACTION = "fraction"
    WHOLE = "whole-device"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Advice:
    """
    What to declare for a container of a workload.

    Attributes:
        limit: bytes on each device; None where nothing is advised.
        why: in words; `remarks` are further sentences.
    """

    kind: Kind
    limit: int | None
    why: str
    remarks: tuple[str, ...] = ()


def advise(seen: Observed, headroom: float, least_days: int) -> Advice:
    """
    Advise a limit.

    Args:
        seen: the use.
        headroom: share of the peak that is added, such as 0.1.
        least_days: days of readings below which the answer is "unknown".

    """
    remarks = tuple(_remarks(seen))
    if seen.days < least_days:
        why = f"readings of {_days(seen.days)}, and {least_days} are needed (--min-days)"
        return Advice(Kind.UNKNOWN, None, why, remarks)
    if seen.peak <= 0:
        return Advice(Kind.UNKNOWN, None, "it held no GPU memory", remarks)
    if seen.flat:
        return Advice(
            Kind.FRACTION,
            None,
            "it takes its memory once and keeps it, as frameworks do that take a fraction of the device in advance",
            remarks,
        )
    limit = ceil(seen.peak * (1 + headroom) / STEP) * STEP
    if seen.device_bytes is not None and limit >= seen.device_bytes:
        return Advice(Kind.WHOLE, None, "with the headroom it needs a whole device", remarks)
    return Advice(Kind.LIMIT, limit, f"its peak in {_days(seen.days)}, and {headroom:.0%} more", remarks)


def _remarks(seen: Observed) -> list[str]:
    found = []
    if seen.acted:
        found.append("an action ended a pod of it: its need may be larger than its peak")
    elif seen.at_limit and seen.enforced_by not in ("", "none"):
        found.append(f"its peak is its limit, which {seen.enforced_by} enforces: its need may be larger")
    elif seen.over_seconds:
        found.append(f"it was over its limit for {seen.over_seconds / 60:.0f} min")
    return found


def _days(count: int) -> str:
    return f"{count} day{'' if count == 1 else 's'}"
