"""
From the use of a container to a limit.

What comes in: an `Observed`, the headroom. What goes out: an `Advice`.

The rule: the advised limit is at least the peak. The policy acts on use above limit + tolerance, so with this limit it
would not have acted once on that history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from exporter.advise.observed import Observed, OnSize
from exporter.advise.series import AT_LIMIT, Filled
from exporter.model import Scope

STEP = 256 * 2**20
"""Bytes to which a limit is rounded up: a quarter of a GiB."""
RARE = 0.8
"""A peak is called rare if P95 is below this share of it."""


class Kind(StrEnum):
    """What is advised. `fraction` has the limit that holds for the present use, if a device is large enough for it."""

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


def advise(seen: Observed, headroom: float, least_days: int, asked_days: int | None = None) -> Advice:
    """
    Advise a limit.

    Args:
        seen: the use.
        headroom: share of the peak that is added, such as 0.1.
        least_days: days of readings below which the answer is "unknown".
        asked_days: of the time that was asked about; None if it has enough of them.

    """
    if seen.days < least_days:
        why = f"readings of {_days(seen.days)}, and {least_days} are needed (--min-days)"
        if asked_days is not None and asked_days < least_days:
            why += f"; the time asked about has {_days(asked_days)}: set --since {least_days}d"
        return Advice(Kind.UNKNOWN, None, why, tuple(_remarks(seen)))
    if seen.peak <= 0:
        return Advice(Kind.UNKNOWN, None, "it held no GPU memory", tuple(_remarks(seen)))
    needed = round(_together(seen) * (1 + headroom), 3)  # 50 GiB * 1.1 is more than 55 GiB in floats
    limit: int | None = ceil(needed / STEP) * STEP
    remarks = [*_remarks(seen), *_sizes(seen, limit)]
    if seen.largest_bytes is not None and limit is not None and limit >= seen.largest_bytes:
        limit = None
    if seen.filled is not Filled.NOTHING:
        return _filled(seen, limit, headroom, remarks)
    if seen.read is None and seen.p95 < RARE * seen.peak:
        remarks.append(f"the peak is rare: P95 is {gib(seen.p95)}, and a limit below the peak would have been exceeded")
    if limit is None:
        whole = "all of the instance: a larger profile may be needed" if seen.instance else "a whole device"
        return Advice(Kind.WHOLE, None, f"with the headroom it needs {whole}", tuple(remarks))
    whose = "its peak"
    if (together := _together(seen)) > seen.peak:
        whose = f"the peak of all containers of its ResourceClaim together ({gib(together)})"
    when = f"in {_days(seen.days)}"
    if seen.read is not None:
        when = f"since its start, perhaps before these {_days(seen.days)} (readings: {gib(seen.read)} at most)"
    return Advice(Kind.LIMIT, limit, f"{whose} {when}, and {headroom:.0%} more", tuple(remarks))


def _together(seen: Observed) -> float:
    """Return its peak, or that of the claim that it shares."""
    return max(seen.peak, seen.claim_peak or 0.0)


def _filled(seen: Observed, limit: int | None, headroom: float, remarks: list[str]) -> Advice:
    """Advise on use that is flat, and so large that it may have been taken in advance."""
    held = _held(seen)
    if seen.filled is Filled.INSTANCE:
        why = (
            f"{held}, and fills the instance: a larger profile may be needed; if it is vLLM or JAX, lower the fraction "
            "to use a smaller one"
        )
        return Advice(Kind.FRACTION, None, why, tuple(remarks))
    part = "its limit" if seen.filled is Filled.LIMIT else "most of the device"
    why = f"{held}, {part}: perhaps it takes a fraction in advance; "
    if limit is None:
        why += "with the headroom its present use needs a whole device"
    else:
        why += f"{gib(limit)} holds for its present use, with {headroom:.0%} more"
    return Advice(Kind.FRACTION, limit, why, tuple(remarks))


def _held(seen: Observed) -> str:
    """Say what flat use holds, and how long."""
    if len(seen.sizes) > 1:
        return f"it holds {_each(seen.sizes)}, as long as it is there"
    (size,) = seen.sizes
    when = "" if size.kept >= seen.days else f" on {size.kept} of {_days(seen.days)}"
    return f"it holds {gib(seen.peak)} all the time{when}"


def _sizes(seen: Observed, limit: int | None) -> list[str]:
    """Say it where devices have several sizes: one limit is for all of them."""
    if len(seen.sizes) == 1 or limit is None:
        return []
    found = [f"devices differ: its peak is {_each(seen.sizes)}"]
    if small := [size for size in seen.sizes if size.bytes is not None and limit >= size.bytes]:
        where = " and ".join(gib(size.bytes or 0.0) for size in small)
        found.append(f"{gib(limit)} does not fit on devices of {where}")
    return found


def _each(sizes: Sequence[OnSize]) -> str:
    known = (f"of {gib(size.bytes)}" if size.bytes is not None else "of unknown size" for size in sizes)
    return " and ".join(f"{gib(size.peak)} on devices {of}" for size, of in zip(sizes, known, strict=True))


def _remarks(seen: Observed) -> list[str]:
    found = []
    if seen.acted:
        found.append("an action ended a pod of it: its need may be larger than its peak")
    elif seen.cut_at is not None and seen.filled is Filled.NOTHING:
        present = seen.limit is not None and seen.cut_at * AT_LIMIT <= seen.limit
        which = "its limit" if present else f"the limit of its pod ({gib(seen.cut_at)})"
        found.append(f"its peak is {which}, which {seen.cut_by} enforces: its need may be larger")
    elif seen.over_seconds:
        many = f", added up over {seen.series} containers and devices" if seen.series > 1 else ""
        found.append(f"it was over its limit for {seen.over_seconds / 60:.0f} min{many}")
    if seen.scope == Scope.CLAIM and seen.claim_peak is None:
        found.append("this is the peak of one pod: pods that share its ResourceClaim add up")
    return found


def gib(amount: float) -> str:
    """Write bytes as GiB."""
    return f"{amount / 2**30:.2f}Gi"


def _days(count: int) -> str:
    return f"{count} day{'' if count == 1 else 's'}"
