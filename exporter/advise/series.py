"""
The use of a container on a device, day by day.

What comes in: figures of single days. What goes out: its peak, and whether its use fills something as a framework does
that takes memory in advance.

The rule: a peak counts, be it seen by a round or by the kernel. The kernel remembers one since the container's start.
"""

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
        peak: the most that a round saw.
        p99, p95, p25: of the readings of the day. Where the day was asked in parts, the largest p99 and p95 and the
            smallest p25 of the parts: those of the day are not above, or not below. None: not known.
        kernel: the most since the container's start, as the kernel counts it; 0 if it does not.
    """

    peak: float = 0.0
    p99: float = 0.0
    p95: float = 0.0
    p25: float | None = None
    kernel: float = 0.0

    @property
    def most(self) -> float:
        """The peak, as seen by a round or by the kernel."""
        return max(self.peak, self.kernel)

    def __add__(self, other: "Day") -> "Day":
        """Add another container of the pod: a bound of what both had at once."""
        low = None if self.p25 is None or other.p25 is None else self.p25 + other.p25
        kernel = self.most + other.most if self.kernel or other.kernel else 0.0
        return Day(self.peak + other.peak, self.p99 + other.p99, self.p95 + other.p95, low, kernel)


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
        return max((day.most for day in self.days.values()), default=0.0)

    @property
    def read(self) -> float:
        """The most that a round saw."""
        return max((day.peak for day in self.days.values()), default=0.0)

    @property
    def remembered(self) -> bool:
        """Whether its peak is perhaps from before the window: the kernel knew it on the first day, no round saw it."""
        return bool(self.days) and self.days[min(self.days)].kernel >= self.peak > self.read / FLAT

    @property
    def at_limit(self) -> bool:
        """Whether its limit may have cut off its peak."""
        return self.limit is not None and AT_LIMIT * self.limit <= self.peak <= self.limit / AT_LIMIT

    @property
    def filled(self) -> Filled:
        """What it fills with memory that it took once and kept, on most days, and at the level of its peak."""
        kept = [day.p25 is not None and day.p25 >= FLAT * self.peak for day in self.days.values() if day.most > 0]
        if sum(kept) * 2 <= len(kept):
            return Filled.NOTHING
        if self.device_bytes is not None and self.peak >= IN_ADVANCE * self.device_bytes:
            return Filled.INSTANCE if self.instance else Filled.DEVICE
        return Filled.LIMIT if self.at_limit else Filled.NOTHING
