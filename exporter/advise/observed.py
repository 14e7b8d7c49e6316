"""
The use of a workload's containers over a window.

What comes in: figures of single containers on single devices, day by day. What goes out: one `Observed` per workload
and container.

The rule: a limit is for each pod of a workload and each of its devices, so the largest of all counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

FLAT = 0.98
"""The lower quartile of a day is at least this share of its 99th percentile: the memory was taken once, and kept."""
LARGE = 0.5
"""Share of the device from which on flat use is that of a framework that takes a fraction of the memory in advance."""
AT_LIMIT = 0.97
"""Share of the limit from which on the peak may have been cut off by it."""


@dataclass(slots=True)
class Day:
    """
    One container on one device, for one day; bytes.

    Attributes:
        peak: the most, as seen by a round or by the kernel.
        p99, p95, p25: of the readings of the day.
    """

    peak: float = 0.0
    p99: float = 0.0
    p95: float = 0.0
    p25: float = 0.0

    @property
    def flat(self) -> bool:
        """Whether the memory was taken once and kept."""
        return self.p99 > 0 and self.p25 >= FLAT * self.p99


@dataclass(slots=True)
class Series:
    """
    One container on one device over the window.

    Attributes:
        days: by number of the day.
        device_bytes: memory of the device; None if unknown.
        limit: the last declared limit in bytes; None without one.
        system, source, scope: the declaration that won, as in `gpusteward_container_limit_info`; empty without one.
        enforced_by: what else enforces it.
        over_seconds: time over the limit.
        acted: an action of gpusteward ended a pod of it.
    """

    days: dict[int, Day] = field(default_factory=dict)
    device_bytes: float | None = None
    limit: float | None = None
    system: str = ""
    source: str = ""
    scope: str = ""
    enforced_by: str = ""
    over_seconds: float = 0.0
    acted: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """
    The use of one container name of a workload.

    Attributes:
        peak, p99, p95: bytes; the percentiles are those of the worst day.
        days: days with readings.
        device_bytes: memory of the smallest device that it ran on; None if unknown.
        flat: on most days and devices the memory was taken once and kept, and it is a large part of the device.
        limit: the smallest limit in bytes that is declared; None without one.
        at_limit: the peak is so close to the limit that the need may be larger.
    """

    peak: float
    p99: float
    p95: float
    days: int
    device_bytes: float | None
    flat: bool
    limit: float | None
    at_limit: bool
    over_seconds: float
    acted: bool
    system: str
    source: str
    scope: str
    enforced_by: str


def observed(series: Iterable[Series]) -> Observed:
    """Combine all pods and devices of a workload's container; there is at least one series."""
    found = list(series)
    days = [day for one in found for day in one.days.values()]
    peak = max((day.peak for day in days), default=0.0)
    sizes = [one.device_bytes for one in found if one.device_bytes is not None]
    limits = [one.limit for one in found if one.limit is not None]
    flat = [day.flat for day in days if day.p99 > 0]
    size, limit = min(sizes, default=None), min(limits, default=None)
    last = max(found, key=lambda one: max(one.days, default=-1))
    return Observed(
        peak=peak,
        p99=max((day.p99 for day in days), default=0.0),
        p95=max((day.p95 for day in days), default=0.0),
        days=len({number for one in found for number in one.days}),
        device_bytes=size,
        flat=bool(flat) and sum(flat) > len(flat) / 2 and size is not None and peak >= LARGE * size,
        limit=limit,
        at_limit=limit is not None and peak >= AT_LIMIT * limit,
        over_seconds=sum(one.over_seconds for one in found),
        acted=any(one.acted for one in found),
        system=last.system,
        source=last.source,
        scope=last.scope,
        enforced_by=last.enforced_by,
    )
