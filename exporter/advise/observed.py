"""
The use of a workload's containers over a window.

What comes in: figures of single containers on single devices, day by day. What goes out: one `Observed` per workload
and container.

The rule: a limit is for each pod of a workload and each of its devices, so the largest of all counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

FLAT = 0.98
"""The lower quartile of a day is at least this share of the peak: the memory was taken once, and kept."""
IN_ADVANCE = 0.73
"""
Share of the device from which on flat use may be memory that a framework took in advance.

JAX takes 0.75 (https://docs.jax.dev/en/latest/gpu_memory_allocation.html), vLLM 0.9 or more
(https://docs.vllm.ai/en/stable/configuration/engine_args/), TensorFlow nearly all (https://www.tensorflow.org/guide/gpu).
They take it of what CUDA calls the device, which is without what the driver reserves: 471 of 23034 MiB
(aws/amazon-ecs-agent#5061), so that 0.75 is 0.734 of the driver's size.
"""
AT_LIMIT = 0.97
"""
Share of the limit from which on the peak may have been cut off by it, or the memory was taken to fill it.

A limit that has a headroom of 10 % is used to 0.91: this is not taken for a limit that is filled.
"""


class Filled(StrEnum):
    """What flat use fills, as that of a framework does that takes memory in advance."""

    NOTHING = ""
    DEVICE = "device"
    INSTANCE = "instance"
    LIMIT = "limit"


@dataclass(slots=True)
class Day:
    """
    One container on one device, for one day; bytes.

    Attributes:
        peak: the most, as seen by a round or by the kernel.
        p99, p95, p25: of the readings of the day. Where the day was asked in parts, the largest p99 and p95 and the
            smallest p25 of the parts: those of the day are not above, or not below. None: not known.
    """

    peak: float = 0.0
    p99: float = 0.0
    p95: float = 0.0
    p25: float | None = None

    def __add__(self, other: "Day") -> "Day":
        """Add another container of the pod: a bound of what both had at once."""
        low = None if self.p25 is None or other.p25 is None else self.p25 + other.p25
        return Day(self.peak + other.peak, self.p99 + other.p99, self.p95 + other.p95, low)


@dataclass(slots=True)
class Series:
    """
    One container, or all of a pod together, on one device over the window.

    Attributes:
        days: by number of the day.
        device_bytes: memory of the device; None if unknown.
        instance: the device is a hardware partition, such as a MIG instance.
        limit: the last declared limit in bytes; None without one.
        system, source, scope: the declaration that won, as in `gpusteward_container_limit_info`; empty without one.
        enforced_by: what else enforces it.
        claim_peak: the most that all containers of its ResourceClaim held together; None without one, or if unknown.
        over_seconds: time over the limit.
        acted: an action of gpusteward ended a pod of it.
    """

    days: dict[int, Day] = field(default_factory=dict)
    device_bytes: float | None = None
    instance: bool = False
    limit: float | None = None
    system: str = ""
    source: str = ""
    scope: str = ""
    enforced_by: str = ""
    claim_peak: float | None = None
    over_seconds: float = 0.0
    acted: bool = False

    @property
    def peak(self) -> float:
        """The most of all days."""
        return max((day.peak for day in self.days.values()), default=0.0)

    @property
    def filled(self) -> Filled:
        """What it fills with memory that it took once and kept, on most days, and at the level of its peak."""
        kept = [day.p25 is not None and day.p25 >= FLAT * self.peak for day in self.days.values() if day.peak > 0]
        if sum(kept) * 2 <= len(kept):
            return Filled.NOTHING
        if self.device_bytes is not None and self.peak >= IN_ADVANCE * self.device_bytes:
            return Filled.INSTANCE if self.instance else Filled.DEVICE
        if self.limit is not None and AT_LIMIT * self.limit <= self.peak <= self.limit / AT_LIMIT:
            return Filled.LIMIT
        return Filled.NOTHING


@dataclass(frozen=True, slots=True)
class Observed:
    """
    The use of one container name of a workload, or of its pods.

    Attributes:
        peak, p99, p95: bytes; the percentiles are those of the worst day.
        days: days with readings.
        series: of how many containers and devices this is.
        device_bytes: memory of the smallest device that it ran on; None if unknown.
        instance: a device of it is a hardware partition.
        filled: what it fills on most devices and on that of the peak, if its use is flat.
        limit: the smallest limit in bytes that is declared; None without one.
        at_limit: the peak is so close to the limit that the need may be larger.
        claim_peak: the most that the containers of a ResourceClaim of it held together; None if one of them is unknown.
        over_seconds: time over the limit, of all series together.
    """

    peak: float
    p99: float
    p95: float
    days: int
    series: int
    device_bytes: float | None
    instance: bool
    filled: Filled
    limit: float | None
    at_limit: bool
    claim_peak: float | None
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
    largest = max(found, key=lambda one: one.peak)
    sizes = [one.device_bytes for one in found if one.device_bytes is not None]
    limits = [one.limit for one in found if one.limit is not None]
    claims = [one.claim_peak for one in found if one.claim_peak is not None]
    limit = min(limits, default=None)
    filling = sum(one.filled is not Filled.NOTHING for one in found)
    last = max(found, key=lambda one: (max(one.days, default=-1), one.system != ""))
    return Observed(
        peak=largest.peak,
        p99=max((day.p99 for day in days), default=0.0),
        p95=max((day.p95 for day in days), default=0.0),
        days=len({number for one in found for number in one.days}),
        series=len(found),
        device_bytes=min(sizes, default=None),
        instance=any(one.instance for one in found),
        filled=largest.filled if filling * 2 > len(found) else Filled.NOTHING,
        limit=limit,
        at_limit=limit is not None and largest.peak >= AT_LIMIT * limit,
        claim_peak=None if len(claims) < len(found) else max(claims),
        over_seconds=sum(one.over_seconds for one in found),
        acted=any(one.acted for one in found),
        system=last.system,
        source=last.source,
        scope=last.scope,
        enforced_by=last.enforced_by,
    )
