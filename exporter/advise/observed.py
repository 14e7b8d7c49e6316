"""
The use of a workload's containers over a window.

What comes in: figures of single containers on single devices, day by day. What goes out: one `Observed` per workload
and container.

The rule: a limit is for each pod of a workload and each of its devices, so the largest of all counts. What fills a
device is judged for each size of devices.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.advise.series import FLAT, Filled, Series

ALIKE = 1.02
"""Devices whose sizes differ by this factor at most are of one size: drivers reserve a part of them."""


@dataclass(frozen=True, slots=True)
class OnSize:
    """
    The use of devices of one size.

    Attributes:
        bytes: memory of the smallest of them; None for devices of unknown size.
        peak: bytes.
        kept: days on which it held its peak nearly all the time.
        filled: what it fills on most of them and on that of the peak, if its use is flat.
    """

    bytes: float | None
    peak: float
    kept: int
    filled: Filled


@dataclass(frozen=True, slots=True)
class Observed:
    """
    The use of one container name of a workload, or of its pods.

    Attributes:
        peak, p99, p95: bytes; the percentiles are those of the worst day.
        read: the most of its readings, if its peak is the kernel's and perhaps from before the window; else None.
        days: days with readings.
        series: of how many containers and devices this is.
        sizes: its use by the size of devices, the smallest first.
        instance: a device of it is a hardware partition.
        filled: what its use fills, if it is flat on devices of each size.
        limit: the smallest limit in bytes that is declared; None without one.
        cut_at: the limit in bytes that may have cut off the peak, because `cut_by` enforces it; else None.
        claim_peak: the most that the containers of a ResourceClaim of it held together; None if one of them is unknown.
        over_seconds: time over the limit, of all series together.
    """

    peak: float
    p99: float
    p95: float
    read: float | None
    days: int
    series: int
    sizes: tuple[OnSize, ...]
    instance: bool
    filled: Filled
    limit: float | None
    cut_at: float | None
    cut_by: str
    claim_peak: float | None
    over_seconds: float
    acted: bool
    system: str
    source: str
    scope: str

    @property
    def device_bytes(self) -> float | None:
        """Memory of the smallest device that it ran on; None if unknown."""
        return min((size.bytes for size in self.sizes if size.bytes is not None), default=None)

    @property
    def largest_bytes(self) -> float | None:
        """Memory of the largest size of devices that it ran on; None if unknown."""
        return max((size.bytes for size in self.sizes if size.bytes is not None), default=None)


def observed(series: Iterable[Series]) -> Observed:
    """Combine all pods and devices of a workload's container; there is at least one series."""
    found = list(series)
    days = [day for one in found for day in one.days.values()]
    largest = max(found, key=lambda one: one.peak)
    claims = [one.claim_peak for one in found if one.claim_peak is not None]
    sizes = tuple(map(_on_size, _by_size(found)))
    last = max(found, key=lambda one: (max(one.days, default=-1), one.system != ""))
    cut = largest.at_limit and largest.enforced_by not in ("", "none")
    flat = all(size.filled is not Filled.NOTHING for size in sizes)
    return Observed(
        peak=largest.peak,
        p99=max((day.p99 for day in days), default=0.0),
        p95=max((day.p95 for day in days), default=0.0),
        read=largest.read if largest.remembered else None,
        days=len({number for one in found for number in one.days}),
        series=len(found),
        sizes=sizes,
        instance=any(one.instance for one in found),
        filled=largest.filled if flat else Filled.NOTHING,
        limit=min((one.limit for one in found if one.limit is not None), default=None),
        cut_at=largest.limit if cut else None,
        cut_by=largest.enforced_by if cut else "",
        claim_peak=None if len(claims) < len(found) else max(claims),
        over_seconds=sum(one.over_seconds for one in found),
        acted=any(one.acted for one in found),
        system=last.system,
        source=last.source,
        scope=last.scope,
    )


def _by_size(series: Sequence[Series]) -> list[list[Series]]:
    """Group series by the size of their device; those of an unknown size are a group."""
    groups: list[list[Series]] = []
    for one in sorted(series, key=_size):
        if groups and _size(one) <= ALIKE * _size(groups[-1][0]):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _size(series: Series) -> float:
    return series.device_bytes or 0.0


def _on_size(group: Sequence[Series]) -> OnSize:
    largest = max(group, key=lambda one: one.peak)
    filling = sum(one.filled is not Filled.NOTHING for one in group)
    kept = {
        number
        for one in group
        for number, day in one.days.items()
        if day.p25 is not None and day.p25 >= FLAT * largest.peak
    }
    filled = largest.filled if filling * 2 > len(group) else Filled.NOTHING
    return OnSize(group[0].device_bytes, largest.peak, len(kept), filled)
